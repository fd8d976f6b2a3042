"""Workload objects as demands: what they ask a queue for, what they hold, and how their checks stand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.fields.quantity import CPU
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.workload import KIND, workload_gang
from bayplan.dialects.kueue.names.annotations import SLICE_NAME
from bayplan.dialects.kueue.status.conditions import ON_HOLD
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.queued_gang import (
    Admission,
    CheckState,
    CheckStatus,
    Delayed,
    PodSetAdmission,
    PodSetUpdate,
    QueuedGang,
    QuotaRequest,
)
from bayplan.model.whole_numbers import signed_number

JOB_UID = "kueue.x-k8s.io/job-uid"
BOOST = "kueue.x-k8s.io/priority-boost"
ELASTIC = "kueue.x-k8s.io/elastic-job"
POD_GROUP = "kueue.x-k8s.io/is-group-workload"
FAR_AWAY = float(2**53)
"""Seconds: until somebody says otherwise."""
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"

_STATES = {
    "Ready": CheckState.READY,
    "Retry": CheckState.RETRY,
    "Rejected": CheckState.REJECTED,
    "Pending": CheckState.PENDING,
}
_DELAYED = {"Pending": Delayed.PENDING, "Ready": Delayed.READY}
_SENT_BACK = ("PodsReadyTimeout", "AdmissionCheck")
"""Evictions after which a gang joins the line anew; all others keep their place in it."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """A resource that counts as others in quota: so much of each for one unit, instead or besides."""

    resource: str
    outputs: Mapping[str, Fraction]  # amounts, as we count them, for one as we count it
    keep: bool = True
    times: str = ""  # a resource: if it is asked for as well, outputs are multiplied by how many


@dataclass(frozen=True, slots=True, eq=False)
class Counting:
    """How requests are turned into quota."""

    transformations: tuple[Transformation, ...] = ()
    ignored: tuple[str, ...] = ()  # prefixes of resources that do not count, nor are transformed


PLAIN = Counting()
_CONTAINERS = ("containers", "initContainers")
_TOLD = frozenset(
    ("args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
)


def demand(workload: Field, counting: Counting = PLAIN) -> QueuedGang:
    """A Workload that is not finished."""
    meta, spec, status = workload.at("metadata"), workload.at("spec"), workload.at("status")
    conditions = _conditions(status)
    labels, notes = meta.at("labels").texts(), meta.at("annotations").texts()
    shape = shape_of(spec)
    known = _asked(shape, counting) or _read(workload, counting)  # the second to say what is wrong, and where
    gang = Gang(
        source(workload, KIND),
        _without(known.root, _reclaimed(status)),
        spec.at("queueName").text(),
        spec.at("priority").integer(minimum=-INT32_MAX - 1) + _boost(notes.get(BOOST, "")),
        meta.at("uid").text(),
    )
    created = seconds(meta.at("creationTimestamp").text())
    owners = meta.at("ownerReferences").items()
    earlier = notes.get(REPLACES, "").rpartition("/")[2]
    return QueuedGang(
        gang=gang,
        asks=known.asks if gang.root is known.root else _fewer(known.asks, gang.root),
        entrance=(gang.source.namespace, gang.queue),
        created=created,
        queued=_queued(conditions.get("Evicted"), created),
        active=spec.at("active").flag(default=True),
        admission=_admission(status.at("admission"), gang.root)
        if _is(conditions.get("QuotaReserved"))
        else None,
        reserved=_since(conditions.get("QuotaReserved")),
        admitted=_is(conditions.get("Admitted")),
        evicted=_is(conditions.get("Evicted")),
        verdicts=tuple(_verdict(check) for check in status.at("admissionChecks").items()),
        failed_nodes=tuple(node.at("name").text() for node in status.at("unhealthyNodes").items()),
        elastic=notes.get(ELASTIC) == "true",
        replaces=earlier,
        lineage=notes.get(SLICE_NAME, "") if notes.get(ELASTIC) == "true" else "",
        movable=notes.get(POD_GROUP) == "true" or [owner.at("kind").text() for owner in owners] != ["Pod"],
        not_before=_not_before(status, conditions),
        labels={JOB_UID: labels[JOB_UID]} if JOB_UID in labels else {},
        shape=known.digest,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """The pod sets of a Workload, read."""

    root: Group
    asks: tuple[QuotaRequest, ...]
    digest: str  # the same for Workloads that ask for the very same


@lru_cache(maxsize=1024)
def _asked(shape: str, counting: Counting) -> _Asked | None:
    """What a shape asks for; None if there is something wrong with it. Many Workloads are of few shapes."""
    workload = Field({"metadata": {"name": "any"}, "spec": {"podSets": json.loads(shape)}})
    found = _read(workload, counting)
    return None if workload.errors else found


def _read(workload: Field, counting: Counting) -> _Asked:
    root = workload_gang(workload).root
    pairs = _pod_sets(workload.at("spec"), root)
    asks = tuple(_ask(field, pod_set, counting) for field, pod_set in pairs)
    return _Asked(root, asks, _digest(workload.at("spec")))


def _fewer(asks: tuple[QuotaRequest, ...], root: Group) -> tuple[QuotaRequest, ...]:
    counts = {pod_set.name: pod_set.count for pod_set in root.pod_sets()}
    return tuple(replace(ask, count=counts[ask.name]) for ask in asks)


def is_finished(workload: Field) -> bool:
    """Whether a Workload asks for nothing and holds nothing any more."""
    return _is(_conditions(workload.at("status")).get("Finished"))


def shape_of(spec: Field) -> str:
    """The same text for Workloads that ask for the very same."""
    value: Any = spec.at("podSets").value
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, UnicodeEncodeError):  # not what an API server sends; it is told what is wrong later
        return json.dumps(value, sort_keys=True, default=str)


def _digest(spec: Field) -> str:
    """A digest, because what is kept of a Workload goes to the journal, and templates hold passwords.

    What a container is told when it starts is no part of it, so that it cannot be guessed from the digest.
    """
    pod_sets: Any = spec.at("podSets").value
    kept = [_untold(one) for one in pod_sets] if isinstance(pod_sets, list) else []
    text = shape_of(Field({"podSets": kept}))
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _untold(pod_set: Any) -> Any:
    """A pod set without what its containers are told when they start; nothing of it matters to scheduling."""
    try:
        spec = pod_set["template"]["spec"]
        kept = {
            name: [{key: one[key] for key in one if key not in _TOLD} for one in spec[name] or ()]
            for name in _CONTAINERS
            if name in spec
        }
        return {**pod_set, "template": {**pod_set["template"], "spec": {**spec, **kept}}}
    except (KeyError, TypeError):  # not what an API server sends
        return None


Condition = Mapping[str, Any]


def _conditions(status: Field) -> dict[str, Condition]:
    """Conditions by type, as they are: they are read too often to be looked at field by field."""
    found = [c.value for c in status.at("conditions").items()]
    return {str(c.get("type")): c for c in found if isinstance(c, dict)}


def _is(condition: Condition | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _since(condition: Condition | None) -> float:
    if condition is None or not _is(condition):
        return 0.0
    return seconds(condition.get("lastTransitionTime") or "")


def _queued(evicted: Condition | None, created: float) -> float:
    if evicted is None or not _is(evicted) or evicted.get("reason") not in _SENT_BACK:
        return created
    return _since(evicted)


def _not_before(status: Field, conditions: Mapping[str, Condition]) -> float:
    """When a Workload that was put off may be tried again; one on hold waits until somebody says so."""
    requeued, reserved = conditions.get("Requeued"), conditions.get("QuotaReserved")
    if reserved is not None and not _is(reserved) and reserved.get("reason") == ON_HOLD:
        return FAR_AWAY
    if requeued is not None and requeued.get("status") == "False":
        return seconds(status.at("requeueState", "requeueAt").text()) or FAR_AWAY
    return seconds(status.at("requeueState", "requeueAt").text())


def _boost(text: str) -> int:
    return (signed_number(text, 10**9 - 1) or 0) if text[:1] != "+" else 0


def _reclaimed(status: Field) -> dict[str, int]:
    """Pods that are done and need no room any more, by pod set."""
    return {p.at("name").text(): p.at("count").integer() for p in status.at("reclaimablePods").items()}


def _without(root: Group, reclaimed: Mapping[str, int]) -> Group:
    if not reclaimed:
        return root

    def less(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return replace(member, members=tuple(less(inner) for inner in member.members))
        count = max(0, member.count - reclaimed.get(member.name, 0))
        return replace(member, count=count, minimum=min(member.minimum, count))

    return replace(root, members=tuple(less(member) for member in root.members))


def _pod_sets(spec: Field, root: Group) -> list[tuple[Field, PodSet]]:
    """The pod sets as written, each with what was read of it; in the order of the gang."""
    written = {field.at("name").text(): field for field in spec.at("podSets").items()}
    return [(written[pod_set.name], pod_set) for pod_set in root.pod_sets() if pod_set.name in written]


def _ask(field: Field, pod_set: PodSet, counting: Counting) -> QuotaRequest:
    request = field.at("topologyRequest")
    explicit = any(
        request.at(key).present
        for key in (
            "required",
            "preferred",
            "podSetSliceRequiredTopology",
            "podsetSliceRequiredTopologyConstraints",
        )
    )
    explicit = explicit or request.at("unconstrained").flag()
    named = {
        name: 0
        for container in field.at("template", "spec", "containers").items()
        for name in amounts(container.at("resources", "requests"))
    }
    each = _counted({**named, **pod_set.requests}, counting)
    return QuotaRequest(pod_set.name, pod_set.count, each, explicit)


def _counted(requests: Mapping[str, int], counting: Counting) -> dict[str, int]:
    """Requests as quota sees them."""
    if counting is PLAIN:
        return dict(requests)
    wanted = {name: value for name, value in requests.items() if not name.startswith(counting.ignored)}
    found: dict[str, int] = {}
    made: dict[str, int] = {}
    by_resource = {transformation.resource: transformation for transformation in counting.transformations}
    for name, value in wanted.items():
        rule = by_resource.get(name)
        if rule is None or rule.keep:
            found[name] = value
        many = _times(rule, wanted) if rule is not None else Fraction(1)
        for output, factor in rule.outputs.items() if rule is not None else ():
            made[output] = made.get(output, 0) + ceil(value * factor * many)
    for name, value in made.items():
        found[name] = found.get(name, 0) + max(0, value)  # a negative factor takes from what is made only
    return found


def _times(rule: Transformation, requests: Mapping[str, int]) -> Fraction:
    """What outputs are multiplied by: a number of whole units, if they are asked for."""
    if rule.times not in requests:
        return Fraction(1)
    return Fraction(requests[rule.times], 1000 if rule.times == CPU else 1)


def _admission(field: Field, root: Group) -> Admission | None:
    if not field.present:
        return None
    left = {pod_set.name: pod_set.count for pod_set in root.pod_sets()}
    parts = field.at("podSetAssignments").items()
    return Admission(field.at("clusterQueue").text(), tuple(_given(part, left) for part in parts))


def _given(part: Field, still_needed: Mapping[str, int]) -> PodSetAdmission:
    """What a pod set was given, less what its finished pods no longer need."""
    name = part.at("name").text()
    usage = amounts(part.at("resourceUsage"))
    count = part.at("count").integer(default=1)
    left = min(count, still_needed.get(name, count))
    if count and left < count:
        usage = {resource: value // count * left for resource, value in usage.items()}
    assigned = part.at("topologyAssignment")
    return PodSetAdmission(
        name,
        left,
        part.at("flavors").texts(),
        usage,
        decode_assignment(assigned) if assigned.present else None,
        _DELAYED.get(part.at("delayedTopologyRequest").text()),
    )


def _verdict(check: Field) -> CheckStatus:
    tweaks = tuple(
        PodSetUpdate(
            update.at("name").text(), update.at("nodeSelector").texts(), tolerations(update.at("tolerations"))
        )
        for update in check.at("podSetUpdates").items()
    )
    return CheckStatus(
        check.at("name").text(), _STATES.get(check.at("state").text(), CheckState.PENDING), tweaks
    )
