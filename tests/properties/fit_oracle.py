"""Which nodes a pod fits and why the others refuse it, worked out node by node from plain API objects.

Nothing of Bayplan is used here: it is what Bayplan's answers are held against.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.properties.fit_oracle_volumes import claims_error, volume_reasons

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
UNITS = {"m": Fraction(1, 1000), "M": Fraction(10**6), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


def quantity(text: str | int) -> Fraction:
    for unit, factor in UNITS.items():
        if str(text).endswith(unit) and not str(text).removesuffix(unit)[-1].isalpha():
            return Fraction(str(text).removesuffix(unit)) * factor
    return Fraction(text)


# ── selectors, node affinity, taints ───────────────────────────────────────────────────────────────


def holds(expression: Obj, labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise AssertionError(expression)


def selects(selector: Obj | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(holds(one, labels) for one in selector.get("matchExpressions") or [])


def is_empty(selector: Obj | None) -> bool:
    return selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions"))


def labels_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def term_holds(term: Obj, node: Obj) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    name = {"metadata.name": node["metadata"]["name"]}
    fine = all(holds(one, labels_of(node)) for one in expressions) and all(holds(one, name) for one in fields)
    return bool(expressions or fields) and fine


def affinity_holds(pod: Obj, node: Obj) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels_of(node).get(key) != value for key, value in wanted.items()):
        return False
    required = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {}).get(REQUIRED)
    return required is None or any(term_holds(term, node) for term in required["nodeSelectorTerms"])


def tolerates(pod: Obj, taint: Obj) -> bool:
    for one in pod["spec"].get("tolerations") or []:
        if one.get("effect") and one["effect"] != taint["effect"]:
            continue
        if one.get("key") and one["key"] != taint["key"]:
            continue
        if one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""):
            return True
    return False


def repelled(pod: Obj, node: Obj) -> bool:
    taints = node["spec"].get("taints") or []
    hard = [taint for taint in taints if taint["effect"] in ("NoSchedule", "NoExecute")]
    return any(not tolerates(pod, taint) for taint in hard)


# ── amounts ────────────────────────────────────────────────────────────────────────────────────────


def requests(pod: Obj, defaults: dict[str, Fraction] | None = None) -> dict[str, Fraction]:
    """A pod's requests: the sum of containers or the peak of init containers, whichever is larger."""
    spec = pod["spec"]

    def own(container: Obj) -> dict[str, Fraction]:
        listed = container.get("resources", {}).get("requests") or {}
        return dict(defaults or {}) | {name: quantity(text) for name, text in listed.items()}

    def plus(one: dict[str, Fraction], other: dict[str, Fraction]) -> dict[str, Fraction]:
        return {name: one.get(name, Fraction()) + other.get(name, Fraction()) for name in {*one, *other}}

    lasting: dict[str, Fraction] = {}
    peaks = []
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            lasting = plus(lasting, own(container))
            peaks.append(lasting)
        else:
            peaks.append(plus(lasting, own(container)))
    total = lasting
    for container in spec["containers"]:
        total = plus(total, own(container))
    for peak in peaks:
        total = {n: max(total.get(n, Fraction()), peak.get(n, Fraction())) for n in {*total, *peak}}
    whole = spec.get("resources", {}).get("requests") or {}
    return total | {name: quantity(text) for name, text in whole.items()}


def on(world: Obj, node: Obj) -> list[Obj]:
    return [pod for pod in world["pods"] if pod["spec"].get("nodeName") == node["metadata"]["name"]]


def resource_reasons(world: Obj, pod: Obj, node: Obj) -> list[str]:
    room = {name: quantity(text) for name, text in node["status"]["allocatable"].items()}
    there = on(world, node)
    reasons = ["Too many pods"] if len(there) + 1 > room.get("pods", 0) else []
    for name, amount in requests(pod).items():
        used = sum((requests(other).get(name, Fraction()) for other in there), Fraction())
        if amount > 0 and amount > room.get(name, Fraction()) - used:
            reasons.append(f"Insufficient {name}")
    return reasons


def host_ports(pod: Obj) -> list[tuple[str, str, int]]:
    lasting = [c for c in pod["spec"].get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in lasting + pod["spec"]["containers"]
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def ports_conflict(world: Obj, pod: Obj, node: Obj) -> bool:
    for address, protocol, port in host_ports(pod):
        for other in on(world, node):
            for taken, its_protocol, its_port in host_ports(other):
                same = (protocol, port) == (its_protocol, its_port)
                if same and (address == taken or "0.0.0.0" in (address, taken)):
                    return True
    return False


# ── other pods ─────────────────────────────────────────────────────────────────────────────────────


def merged(term: Obj, pod: Obj) -> Obj | None:
    """The term's selector with what the pod's own labels add to it."""
    selector = term.get("labelSelector")
    if selector is None:
        return None
    more = []
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys) or []:
            if key in labels_of(pod):
                more += [{"key": key, "operator": operator, "values": [labels_of(pod)[key]]}]
    return {
        "matchLabels": selector.get("matchLabels") or {},
        "matchExpressions": (selector.get("matchExpressions") or []) + more,
    }


def term_matches(world: Obj, term: Obj, owner: Obj, other: Obj) -> bool:
    """Whether a pod's affinity term matches another pod."""
    namespaces, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
    if not namespaces and chosen is None:
        namespaces = [owner["metadata"]["namespace"]]
    its = other["metadata"]["namespace"]
    inside = its in namespaces or selects(chosen, world["namespaces"][its])
    return inside and selects(merged(term, owner), labels_of(other))


def terms(pod: Obj, kind: str) -> list[Obj]:
    required_terms: list[Obj] = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED) or []
    return required_terms


def affinity_reason(world: Obj, pod: Obj, node: Obj) -> str:
    nodes = {one["metadata"]["name"]: one for one in world["nodes"]}
    running = [(other, labels_of(nodes[other["spec"]["nodeName"]])) for other in world["pods"]]
    mine = labels_of(node)

    def together(key: str, its: dict[str, str]) -> bool:
        return key in mine and mine[key] == its.get(key)

    near = terms(pod, "podAffinity")
    if near:
        if any(term["topologyKey"] not in mine for term in near):
            return "node(s) didn't match pod affinity rules"
        friends = [i for o, i in running if all(term_matches(world, term, pod, o) for term in near)]
        alone = not any(term["topologyKey"] in its for its in friends for term in near)
        if not all(any(together(term["topologyKey"], its) for its in friends) for term in near) and not (
            alone and all(term_matches(world, term, pod, pod) for term in near)
        ):
            return "node(s) didn't match pod affinity rules"
    for term in terms(pod, "podAntiAffinity"):
        if any(
            together(term["topologyKey"], its) and term_matches(world, term, pod, o) for o, its in running
        ):
            return "node(s) didn't match pod anti-affinity rules"
    for other, its in running:
        for term in terms(other, "podAntiAffinity"):
            if together(term["topologyKey"], its) and term_matches(world, term, other, pod):
                return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def counted(world: Obj, pod: Obj, node: Obj, selector: Obj | None) -> int:
    """Pods on a node that a spread constraint counts."""
    if is_empty(selector):
        return 0
    return sum(
        other["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and not other["metadata"].get("deletionTimestamp")
        and selects(selector, labels_of(other))
        for other in on(world, node)
    )


def is_counted(pod: Obj, node: Obj, constraint: Obj) -> bool:
    if constraint.get("nodeAffinityPolicy") != "Ignore" and not affinity_holds(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy") != "Honor" or not repelled(pod, node)


def spread_reason(world: Obj, pod: Obj, node: Obj) -> str:
    everything = pod["spec"].get("topologySpreadConstraints") or []
    constraints = [one for one in everything if one["whenUnsatisfiable"] == "DoNotSchedule"]
    message = "node(s) didn't match pod topology spread constraints"
    for one in constraints:
        key, selector = one["topologyKey"], merged(one, pod)
        if key not in labels_of(node):
            return f"{message} (missing required label)"
        totals: dict[str, int] = {}
        for other in world["nodes"]:
            if all(c["topologyKey"] in labels_of(other) for c in constraints) and is_counted(pod, other, one):
                value = labels_of(other)[key]
                totals[value] = totals.get(value, 0) + counted(world, pod, other, selector)
        least = min(totals.values()) if len(totals) >= one.get("minDomains", 1) else 0
        there = totals.get(labels_of(node)[key], 0)
        if there + selects(selector, labels_of(pod)) - least > one["maxSkew"]:
            return message
    return ""


# ── all together ───────────────────────────────────────────────────────────────────────────────────


def named_nodes(pod: Obj) -> set[str] | None:
    required = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None or not required["nodeSelectorTerms"]:
        return None
    names: set[str] = set()
    for term in required["nodeSelectorTerms"]:
        lists = [set(one["values"]) for one in term.get("matchFields") or [] if one["operator"] == "In"]
        if not lists:
            return None
        names |= set.intersection(*lists)
    return names


def claim_error(world: Obj, pod: Obj) -> str:
    """The error of the pod itself, if any."""
    if named_nodes(pod) == set():
        return "pod affinity terms conflict"
    return claims_error(world, pod)


def reasons(world: Obj, pod: Obj, node: Obj) -> list[str]:
    """Why a node rejects a pod; empty if it fits."""
    named = named_nodes(pod)
    if named is not None and node["metadata"]["name"] not in named:
        return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node["spec"].get("unschedulable") and not tolerates(pod, cordon):
        return ["node(s) were unschedulable"]
    if pod["spec"].get("nodeName", node["metadata"]["name"]) != node["metadata"]["name"]:
        return ["node(s) didn't match the requested node name"]
    if repelled(pod, node):
        return ["node(s) had untolerated taint(s)"]
    if not affinity_holds(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if ports_conflict(world, pod, node):
        return ["node(s) didn't have free ports for the requested pod ports"]
    if lacking := resource_reasons(world, pod, node):
        return lacking
    if volumes := volume_reasons(world, pod, node):
        return volumes
    message = spread_reason(world, pod, node) or affinity_reason(world, pod, node)
    return [message] if message else []
