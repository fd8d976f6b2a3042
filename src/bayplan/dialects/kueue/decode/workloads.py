"""Decode Workloads into queued gangs: quota requests, admission and the states of their checks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field
from bayplan.dialects.kube.fields.text_cache import cached_by_text
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting, counted
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.workload import KIND, workload_gang
from bayplan.dialects.kueue.names.annotations import SLICE_NAME
from bayplan.dialects.kueue.status.conditions import INADMISSIBLE, ON_HOLD
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
NO_KNOWN_END = float(2**53)
"""Seconds; the end of a wait without a known end."""
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"

_STATES = {
    "Ready": CheckState.READY,
    "Retry": CheckState.RETRY,
    "Rejected": CheckState.REJECTED,
    "Pending": CheckState.PENDING,
}
_DELAYED = {"Pending": Delayed.PENDING, "Ready": Delayed.READY}
_QUEUED_BY_EVICTION = ("PodsReadyTimeout", "AdmissionCheck")
"""Evictions after which a gang is queued by the time of eviction; after others by its creation time."""


CACHED_TEXT_MAX = 32_768  # characters of the pod sets of one Workload
_CONTAINERS = ("containers", "initContainers")
_NOT_SCHEDULING = frozenset(
    ("args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
)


def decode_workload(workload: Field, counting: Counting = NO_TRANSFORMATIONS) -> QueuedGang:
    """The queued gang of a Workload that is not finished."""
    meta, spec, status = workload.at("metadata"), workload.at("spec"), workload.at("status")
    conditions = _conditions(status)
    labels, annotations = meta.at("labels").texts(), meta.at("annotations").texts()
    text = pod_sets_text(spec)
    decoded = _decode_cached(text, counting) or _decode(
        workload, counting
    )  # the second to report errors with their paths
    gang = Gang(
        source(workload, KIND),
        _without(decoded.root, _reclaimed(status)),
        spec.at("queueName").text(),
        spec.at("priority").integer(minimum=-INT32_MAX - 1) + _boost(annotations.get(BOOST, "")),
        meta.at("uid").text(),
    )
    created = seconds(meta.at("creationTimestamp").text())
    owners = meta.at("ownerReferences").items()
    replaced = annotations.get(REPLACES, "").rpartition("/")[2]
    return QueuedGang(
        gang=gang,
        requests=decoded.requests if gang.root is decoded.root else _with_counts(decoded.requests, gang.root),
        namespace_queue=(gang.source.namespace, gang.queue),
        created=created,
        queued=_queued(conditions.get("Evicted"), created),
        active=spec.at("active").flag(default=True),
        admission=_admission(status.at("admission"), gang.root)
        if _is(conditions.get("QuotaReserved"))
        else None,
        reserved=_since(conditions.get("QuotaReserved")),
        admitted=_is(conditions.get("Admitted")),
        evicted=_is(conditions.get("Evicted")),
        check_statuses=tuple(_check_status(check) for check in status.at("admissionChecks").items()),
        failed_nodes=tuple(node.at("name").text() for node in status.at("unhealthyNodes").items()),
        elastic=annotations.get(ELASTIC) == "true",
        replaces=replaced,
        lineage=annotations.get(SLICE_NAME, "") if annotations.get(ELASTIC) == "true" else "",
        movable=annotations.get(POD_GROUP) == "true"
        or [owner.at("kind").text() for owner in owners] != ["Pod"],
        not_before=_not_before(status, conditions),
        labels={JOB_UID: labels[JOB_UID]} if JOB_UID in labels else {},
        shape=_shape(decoded, gang.source.namespace),
    )


def _shape(decoded: _PodSets, namespace: str) -> str:
    """Equal for Workloads that fit on the same nodes; claims and pods nearby differ by namespace."""
    if all(pod_set.template is None for pod_set in decoded.root.pod_sets()):
        return decoded.digest
    return f"{decoded.digest} {namespace}"


@dataclass(frozen=True, slots=True)
class _PodSets:
    """The decoded pod sets of a Workload."""

    root: Group
    requests: tuple[QuotaRequest, ...]
    digest: str  # equal for Workloads with equal requests


@cached_by_text(1024, longest=CACHED_TEXT_MAX)
def _decode_cached(text: str, counting: Counting) -> _PodSets | None:
    """The decoded pod sets, cached by their JSON text, since many Workloads are equal; None if invalid."""
    workload = Field({"metadata": {"name": "any"}, "spec": {"podSets": json.loads(text)}})
    decoded = _decode(workload, counting)
    return None if workload.errors else decoded


def _decode(workload: Field, counting: Counting) -> _PodSets:
    root = workload_gang(workload).root
    pairs = _pod_sets(workload.at("spec"), root)
    requests = tuple(_quota_request(field, pod_set, counting) for field, pod_set in pairs)
    return _PodSets(root, requests, _digest(workload.at("spec")))


def _with_counts(requests: tuple[QuotaRequest, ...], root: Group) -> tuple[QuotaRequest, ...]:
    counts = {pod_set.name: pod_set.count for pod_set in root.pod_sets()}
    return tuple(replace(request, count=counts[request.name]) for request in requests)


def is_finished(workload: Field) -> bool:
    """Whether a Workload is finished."""
    return _is(_conditions(workload.at("status")).get("Finished"))


def has_quota(workload: Field) -> bool:
    """Whether quota is reserved for a Workload."""
    return _is(_conditions(workload.at("status")).get("QuotaReserved"))


def admitted_gang(workload: Field) -> QueuedGang | None:
    """A Workload with quota by its admission alone: the least that is to be counted. None without quota."""
    status = workload.at("status")
    admission = _admission(status.at("admission"), Group("", (), 0)) if has_quota(workload) else None
    if admission is None or is_finished(workload):
        return None
    requests = [
        QuotaRequest(part.name, part.count, {each: part.usage[each] // part.count for each in part.usage})
        for part in admission.pod_sets
        if part.count > 0
    ]
    pod_sets = [PodSet(one.name, one.count, one.count, one.per_pod) for one in requests]
    name, conditions = source(workload, KIND), _conditions(status)
    queue, uid = Field(workload.value).at("spec", "queueName").text(), workload.at("metadata", "uid").text()
    return QueuedGang(
        gang=Gang(name, Group("", tuple(pod_sets), len(pod_sets)), queue, uid=uid),
        requests=tuple(requests),
        namespace_queue=(name.namespace, queue),
        admission=admission,
        reserved=_since(conditions.get("QuotaReserved")),
        admitted=_is(conditions.get("Admitted")),
        evicted=_is(conditions.get("Evicted")),
    )


def pod_sets_text(spec: Field) -> str:
    """The JSON text of the pod sets, equal for Workloads with equal requests."""
    value: Any = spec.at("podSets").value
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except (TypeError, UnicodeEncodeError):  # not what an API server sends; the error is reported later
        return json.dumps(value, sort_keys=True, default=str)


def _digest(spec: Field) -> str:
    """A digest of the pod sets: the journal records it, and templates may contain secrets.

    Commands, arguments and environment are left out, so that they cannot be guessed from the digest.
    """
    pod_sets: Any = spec.at("podSets").value
    public = [_without_secrets(one) for one in pod_sets] if isinstance(pod_sets, list) else []
    text = pod_sets_text(Field({"podSets": public}))
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _without_secrets(pod_set: Any) -> Any:
    """A pod set without commands, arguments, environment and probes, which do not matter to scheduling."""
    try:
        spec = pod_set["template"]["spec"]
        containers = {
            name: [{key: one[key] for key in one if key not in _NOT_SCHEDULING} for one in spec[name] or ()]
            for name in _CONTAINERS
            if name in spec
        }
        return {**pod_set, "template": {**pod_set["template"], "spec": {**spec, **containers}}}
    except (KeyError, TypeError):  # not what an API server sends
        return None


Condition = Mapping[str, Any]


def _conditions(status: Field) -> dict[str, Condition]:
    """Conditions by type, undecoded: they are read too often to be checked field by field."""
    conditions = [c.value for c in status.at("conditions").items()]
    return {str(c.get("type")): c for c in conditions if isinstance(c, dict)}


def _is(condition: Condition | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _since(condition: Condition | None) -> float:
    if condition is None or not _is(condition):
        return 0.0
    return seconds(condition.get("lastTransitionTime") or "")


def _queued(evicted: Condition | None, created: float) -> float:
    if evicted is None or not _is(evicted) or evicted.get("reason") not in _QUEUED_BY_EVICTION:
        return created
    return _since(evicted)


def _not_before(status: Field, conditions: Mapping[str, Condition]) -> float:
    """When a Workload in backoff may be tried again; one on hold has no known end."""
    requeued, reserved = conditions.get("Requeued"), conditions.get("QuotaReserved")
    if reserved is not None and not _is(reserved) and reserved.get("reason") == ON_HOLD:
        return NO_KNOWN_END
    is_back = requeued is None or requeued.get("status") != "False" or requeued.get("reason") == INADMISSIBLE
    if not is_back:
        return seconds(status.at("requeueState", "requeueAt").text()) or NO_KNOWN_END
    return seconds(status.at("requeueState", "requeueAt").text())


def _boost(text: str) -> int:
    return (signed_number(text, 10**9 - 1) or 0) if text[:1] != "+" else 0


def _reclaimed(status: Field) -> dict[str, int]:
    """Reclaimable (finished) pods by pod set."""
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
    """Pairs of a pod set's field and its decoded form, in the order of the gang."""
    written = {field.at("name").text(): field for field in spec.at("podSets").items()}
    return [(written[pod_set.name], pod_set) for pod_set in root.pod_sets() if pod_set.name in written]


def _quota_request(field: Field, pod_set: PodSet, counting: Counting) -> QuotaRequest:
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
    zeros = {
        name: 0
        for container in field.at("template", "spec", "containers").items()
        for name in amounts(container.at("resources", "requests"))
    }
    per_pod = counted({**zeros, **pod_set.requests}, counting)
    return QuotaRequest(pod_set.name, pod_set.count, per_pod, explicit)


def _admission(field: Field, root: Group) -> Admission | None:
    if not field.present:
        return None
    left = {pod_set.name: pod_set.count for pod_set in root.pod_sets()}
    parts = field.at("podSetAssignments").items()
    return Admission(field.at("clusterQueue").text(), tuple(_pod_set_admission(part, left) for part in parts))


def _pod_set_admission(part: Field, still_needed: Mapping[str, int]) -> PodSetAdmission:
    """The admission of a pod set, less the usage of its finished pods."""
    name = part.at("name").text()
    usage = amounts(part.at("resourceUsage"))
    count = part.at("count").integer(default=1)
    left = min(count, still_needed.get(name, count))
    if count and left < count:
        usage = {resource: value // count * left for resource, value in usage.items()}
    topology = part.at("topologyAssignment")
    return PodSetAdmission(
        name,
        left,
        part.at("flavors").texts(),
        usage,
        decode_assignment(topology) if topology.present else None,
        _DELAYED.get(part.at("delayedTopologyRequest").text()),
    )


def _check_status(check: Field) -> CheckStatus:
    updates = tuple(
        PodSetUpdate(
            update.at("name").text(), update.at("nodeSelector").texts(), tolerations(update.at("tolerations"))
        )
        for update in check.at("podSetUpdates").items()
    )
    return CheckStatus(
        check.at("name").text(), _STATES.get(check.at("state").text(), CheckState.PENDING), updates
    )
