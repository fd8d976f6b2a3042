"""Score oracle: the score of each node for a pod, computed from API objects without Bayplan."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

from tests.properties.fit_oracle import (
    PREFERRED,
    Obj,
    counted,
    is_counted,
    is_empty,
    labels_of,
    merged,
    on,
    quantity,
    requests,
    selects,
    term_holds,
    term_matches,
    terms,
    tolerates,
)

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
UNSAID = {"cpu": Fraction(1, 10), "memory": Fraction(200 << 20)}
Scores = dict[str, int]


def oracle_scores(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    """The weighted sum of all scores, for each node that fits."""
    total: Scores = defaultdict(int)
    for weight, view in (
        (3, _taints),
        (2, _affinity),
        (1, _emptiest),
        (2, _spread),
        (2, _neighbours),
        (1, _balanced),
        (1, _images),
    ):
        for name, score in view(world, pod, fitting).items():
            total[name] += weight * score
    return dict(total)


def name_of(node: Obj) -> str:
    name: str = node["metadata"]["name"]
    return name


def _share_of_highest(raw: Scores, *, backwards: bool) -> Scores:
    most = max(raw.values())
    shares = {name: 100 * figure // most if most else 0 for name, figure in raw.items()}
    return {name: 100 - share for name, share in shares.items()} if backwards else shares


def _taints(_: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    raw = {}
    for node in fitting:
        soft = [t for t in node["spec"].get("taints") or [] if t["effect"] == "PreferNoSchedule"]
        raw[name_of(node)] = sum(not tolerates(pod, taint) for taint in soft)
    return _share_of_highest(raw, backwards=True)


def _affinity(_: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    liked = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {}).get(PREFERRED) or []
    raw = {
        name_of(node): sum(one["weight"] for one in liked if term_holds(one["preference"], node))
        for node in fitting
    }
    return _share_of_highest(raw, backwards=False)


def _emptiest(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    scores = {}
    for node in fitting:
        parts = []
        for resource in ("cpu", "memory"):
            room = quantity(node["status"]["allocatable"][resource])
            users = [pod, *on(world, node)]
            used = sum((requests(user, UNSAID)[resource] for user in users), Fraction())
            parts.append(max(0, math.floor((room - used) * 100 / room)))
        scores[name_of(node)] = sum(parts) // 2
    return scores


def _balanced(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    mine = requests(pod)
    if not (mine.get("cpu") or mine.get("memory")):
        return {}
    scores = {}
    for node in fitting:
        shares = []
        for resource in ("cpu", "memory"):
            room = quantity(node["status"]["allocatable"][resource])
            used = sum(
                (requests(user).get(resource, Fraction()) for user in [pod, *on(world, node)]), Fraction()
            )
            shares.append(min(1.0, float(used * 1000) / float(room * 1000)))
        scores[name_of(node)] = int((1 - abs((shares[0] - shares[1]) / 2)) * 100)
    return scores


def _spread(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    constraints_listed = pod["spec"].get("topologySpreadConstraints") or []
    constraints = [one for one in constraints_listed if one["whenUnsatisfiable"] == "ScheduleAnyway"]
    if not constraints_listed:
        wanted: dict[str, str] = {}
        for service in world["services"]:
            inside = service["metadata"]["namespace"] == pod["metadata"]["namespace"]
            chosen = service["spec"]["selector"]
            if inside and selects({"matchLabels": chosen}, labels_of(pod)):
                wanted |= chosen
        selector = {"matchLabels": wanted}
        if is_empty(selector):
            return {}
        constraints = [
            {"topologyKey": key, "maxSkew": skew, "labelSelector": selector}
            for key, skew in ((HOSTNAME, 3), (ZONE, 5))
        ]
    if not constraints:
        return {}

    def complete(node: Obj) -> bool:
        return not constraints_listed or all(one["topologyKey"] in labels_of(node) for one in constraints)

    judged = [node for node in fitting if complete(node)]
    raw = {}
    for node in judged:
        crowd = 0.0
        for one in constraints:
            key, selector = one["topologyKey"], merged(one, pod) or {}
            if key not in labels_of(node):
                continue
            if key == HOSTNAME:
                there, places = counted(world, pod, node, selector), len(judged)
            else:
                there = sum(
                    counted(world, pod, other, selector)
                    for other in world["nodes"]
                    if labels_of(other).get(key) == labels_of(node)[key]
                    and complete(other)
                    and is_counted(pod, other, one)
                )
                places = len({labels_of(other).get(key) for other in judged})
            crowd += there * math.log(places + 2) + (one["maxSkew"] - 1)
        raw[name_of(node)] = math.floor(crowd + 0.5)
    if not raw:
        return {}
    most, least = max(raw.values()), min(raw.values())
    return {n: 100 * (most + least - figure) // most if most else 100 for n, figure in raw.items()}


def _neighbours(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    nodes = {name_of(node): labels_of(node) for node in world["nodes"]}

    def liked(owner: Obj, kind: str) -> list[tuple[int, Obj]]:
        preferred = ((owner["spec"].get("affinity") or {}).get(kind) or {}).get(PREFERRED) or []
        return [(one["weight"], one["podAffinityTerm"]) for one in preferred]

    pairs: dict[tuple[str, str], int] = defaultdict(int)
    for other in world["pods"]:
        its = nodes[other["spec"]["nodeName"]]
        weighted_terms = [(w, t, pod, other) for w, t in liked(pod, "podAffinity")]
        weighted_terms += [(-w, t, pod, other) for w, t in liked(pod, "podAntiAffinity")]
        weighted_terms += [(1, t, other, pod) for t in terms(other, "podAffinity")]
        weighted_terms += [(w, t, other, pod) for w, t in liked(other, "podAffinity")]
        weighted_terms += [(-w, t, other, pod) for w, t in liked(other, "podAntiAffinity")]
        for weight, term, owner, target in weighted_terms:
            if term["topologyKey"] in its and term_matches(world, term, owner, target):
                pairs[term["topologyKey"], its[term["topologyKey"]]] += weight
    raw = {name_of(node): sum(pairs.get(pair, 0) for pair in labels_of(node).items()) for node in fitting}
    most, least = max(raw.values()), min(raw.values())
    return {n: int(100 * ((f - least) / (most - least))) if most > least else 0 for n, f in raw.items()}


def _images(world: Obj, pod: Obj, fitting: list[Obj]) -> Scores:
    containers = pod["spec"]["containers"] + (pod["spec"].get("initContainers") or [])

    def has(node: Obj) -> dict[str, int]:
        return {name: one["sizeBytes"] for one in node["status"].get("images") or [] for name in one["names"]}

    scores = {}
    for node in fitting:
        total = 0
        for container in containers:
            image = (
                container["image"]
                if ":" in container["image"].split("/")[-1]
                else container["image"] + ":latest"
            )
            if image in has(node):
                share = sum(image in has(other) for other in world["nodes"]) / len(world["nodes"])
                total += int(has(node)[image] * share)
        least, most = 23 << 20, (1000 << 20) * len(containers)
        scores[name_of(node)] = 100 * (min(max(total, least), most) - least) // (most - least)
    return scores
