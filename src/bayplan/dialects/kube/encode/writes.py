"""The writes of scheduling decisions: nominations, preemptions, conditions and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.encode.fault_messages import INTERNAL_ERROR, OUT_OF_TIME
from bayplan.dialects.kube.encode.gang_messages import UNSCHEDULABLE
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kube.gang.events import SCHEDULED
from bayplan.dialects.kube.gang.objects import (
    COMPOSITE,
    COMPOSITES,
    CONDITIONS,
    DIALECT,
    POD_GROUP,
    POD_GROUPS,
    WORKLOAD,
    WORKLOADS,
)
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind, Nominate, PreemptPod
from bayplan.model.pod import Pod

DISRUPTED = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
TAKEN_BACK = "GangNotStarted"
PREEMPT_BY_PRIORITY = ("kube", DIALECT)
"""Single pods and gangs of Kubernetes, for which preemption is by priority."""
Object = dict[str, Any]


def nominate_write(action: Nominate) -> Write:
    """Set or clear the nominated node of a pod."""
    body = {"status": {"nominatedNodeName": action.node or None}}
    return _pod_status(action.pod, body, action)


def pending_write(pod: Pod, reason: str, message: str, now: float) -> Write:
    """Set the PodScheduled condition of a pending pod."""
    condition = {
        "type": SCHEDULED,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    return _pod_status(pod, {"status": {"conditions": [condition]}})


def preempt_writes(action: PreemptPod, now: float) -> Iterator[Write]:
    """Set the DisruptionTarget condition of a pod, delete it if its uid matches, and record an event."""
    pod, when = action.pod, timestamp(now)
    reason, message = _preemption_reason(action)
    condition = {
        "type": DISRUPTED,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": when,
    }
    yield _pod_status(pod, {"status": {"conditions": [condition]}})
    yield Write(Verb.DELETE, PODS_KIND, pod.key.namespace, pod.key.name, uid=pod.uid, tag=action)
    if action.undoes:
        yield event_write(about_pod(pod), TAKEN_BACK, message, "Warning", when)
    else:
        yield event_write(about_pod(pod), "Preempted", _preempted(action), "Normal", when)


def unschedulable_event(about: Object, message: str, now: float) -> Write:
    """A FailedScheduling event."""
    return event_write(about, "FailedScheduling", message, "Warning", timestamp(now))


def bound_event(action: Bind, now: float) -> Write:
    """A Scheduled event."""
    key = action.pod.key
    message = f"Successfully assigned {key} to {action.node}"
    return event_write(about_pod(action.pod), "Scheduled", message, "Normal", timestamp(now))


def group_write(ref: Ref, uid: str, version: str, why: str, message: str, now: float) -> Write:
    """The scheduling condition of a PodGroup; `why` is Scheduled, Unschedulable or SchedulerError."""
    scheduled = why == "Scheduled"
    condition = {
        "type": CONDITIONS[version],
        "status": "True" if scheduled else "False",
        "reason": why,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    return Write(
        Verb.STRATEGIC_PATCH, POD_GROUPS[version], ref.namespace, ref.name,
        {"status": {"conditions": [condition]}}, "status", uid=uid,
    )  # fmt: skip


def about_pod(pod: Pod) -> Object:
    """A pod as the object of an event."""
    return _about("v1", "Pod", pod.key.namespace, pod.key.name, pod.uid)


def about_gang(ref: Ref, uid: str, version: str) -> Object | None:
    """A Workload or a group as the object of an event."""
    kind: Kind | None = None
    if ref.kind == WORKLOAD:
        kind = WORKLOADS
    elif ref.kind == COMPOSITE:
        kind = COMPOSITES
    elif ref.kind == POD_GROUP and version:
        kind = POD_GROUPS[version]
    if kind is None:
        return None
    return _about(kind.api_version, ref.kind, ref.namespace, ref.name.partition("/")[0], uid)


def group_reason(why: str) -> str:
    """The reason on a PodGroup for the reason on its pods; PodGroups have fewer reasons."""
    return why if why in ("Scheduled", "SchedulerError", INTERNAL_ERROR, OUT_OF_TIME) else UNSCHEDULABLE


def _about(version: str, kind: str, namespace: str, name: str, uid: str) -> Object:
    reference = {"apiVersion": version, "kind": kind, "namespace": namespace, "name": name}
    return reference | ({"uid": uid} if uid else {})


def _pod_status(pod: Pod, body: Object, tag: object = None) -> Write:
    key = pod.key
    return Write(
        Verb.STRATEGIC_PATCH, PODS_KIND, key.namespace, key.name, body, "status", uid=pod.uid, tag=tag
    )


def _preemption_reason(action: PreemptPod) -> tuple[str, str]:
    if action.undoes:
        return TAKEN_BACK, "bayplan: its gang could not start completely; its bound pods are evicted"
    if action.by.dialect not in PREEMPT_BY_PRIORITY:
        return PREEMPTED, f"bayplan: {_purpose(action)}"
    return PREEMPTED, f"bayplan: preempting to accommodate a higher priority {_preemptor_kind(action)}"


def _preemptor_kind(action: PreemptPod) -> str:
    """The kind of the preemptor in one word."""
    if action.by.kind == COMPOSITE:
        return "compositepodgroup"
    return "podgroup" if action.with_gang else "pod"


def _purpose(action: PreemptPod) -> str:
    """What the preemption is for. Other dialects also move pods and reclaim over-quota resources."""
    preemptor = f"{action.by.kind} {action.by.namespace}/{action.by.name}"
    if action.pod.gang == action.by:
        preemptor = "the minimum of its own gang"
    if action.moves_to:
        return f"moves to make room for {preemptor}; node {action.moves_to} has capacity for its replacement"
    return f"makes room for {preemptor}"


def _preempted(action: PreemptPod) -> str:
    if action.by.dialect not in PREEMPT_BY_PRIORITY:
        return f"Preempted: it {_purpose(action)}"
    if action.with_gang:
        return f"Preempted by {_preemptor_kind(action)} {action.by_uid} on node cluster"
    return f"Preempted by pod {action.by_uid} on node {action.pod.node}"
