"""How decisions about gangs are carried out: bindings, nominations, pods sent away, conditions and events."""

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
FAMILY = ("kube", DIALECT)
"""Pods by themselves and gangs of Kubernetes: only the more important ones make others go."""
Object = dict[str, Any]


def nominate_write(action: Nominate) -> Write:
    """Say on the pod where room is being made for it, or that none is any more."""
    body = {"status": {"nominatedNodeName": action.node or None}}
    return _pod_status(action.pod, body, action)


def waits_write(pod: Pod, why: str, message: str, now: float) -> Write:
    """Say on a pod why it waits."""
    said = {
        "type": SCHEDULED,
        "status": "False",
        "reason": why,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    return _pod_status(pod, {"status": {"conditions": [said]}})


def displace_writes(action: PreemptPod, now: float) -> Iterator[Write]:
    """Say on a pod why it has to go, tell its owner, and delete it if it is still the same."""
    pod, when = action.pod, timestamp(now)
    why, told = _why_it_goes(action)
    said = {"type": DISRUPTED, "status": "True", "reason": why, "message": told, "lastTransitionTime": when}
    yield _pod_status(pod, {"status": {"conditions": [said]}})
    yield Write(Verb.DELETE, PODS_KIND, pod.key.namespace, pod.key.name, uid=pod.uid, tag=action)
    if action.undoes:
        yield event_write(about_pod(pod), TAKEN_BACK, told, "Warning", when)
    else:
        yield event_write(about_pod(pod), "Preempted", _preempted(action), "Normal", when)


def failed_event(about: Object, message: str, now: float) -> Write:
    """What people see in `kubectl describe`."""
    return event_write(about, "FailedScheduling", message, "Warning", timestamp(now))


def bound_event(action: Bind, now: float) -> Write:
    """The same for good news."""
    key = action.pod.key
    message = f"Successfully assigned {key} to {action.node}"
    return event_write(about_pod(action.pod), "Scheduled", message, "Normal", timestamp(now))


def group_write(ref: Ref, uid: str, version: str, why: str, message: str, now: float) -> Write:
    """How a PodGroup fares; `why` is Scheduled, Unschedulable or SchedulerError."""
    good = why == "Scheduled"
    said = {
        "type": CONDITIONS[version],
        "status": "True" if good else "False",
        "reason": why,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    return Write(
        Verb.STRATEGIC_PATCH, POD_GROUPS[version], ref.namespace, ref.name,
        {"status": {"conditions": [said]}}, "status", uid=uid,
    )  # fmt: skip


def about_pod(pod: Pod) -> Object:
    """A pod as an event names it."""
    return _about("v1", "Pod", pod.key.namespace, pod.key.name, pod.uid)


def about_gang(ref: Ref, uid: str, version: str) -> Object | None:
    """A Workload or a group as an event names it."""
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
    """What a PodGroup is told where its pods are told that they wait: it knows fewer words."""
    return why if why in ("Scheduled", "SchedulerError", INTERNAL_ERROR, OUT_OF_TIME) else UNSCHEDULABLE


def _about(version: str, kind: str, namespace: str, name: str, uid: str) -> Object:
    found = {"apiVersion": version, "kind": kind, "namespace": namespace, "name": name}
    return found | ({"uid": uid} if uid else {})


def _pod_status(pod: Pod, body: Object, tag: object = None) -> Write:
    key = pod.key
    return Write(
        Verb.STRATEGIC_PATCH, PODS_KIND, key.namespace, key.name, body, "status", uid=pod.uid, tag=tag
    )


def _why_it_goes(action: PreemptPod) -> tuple[str, str]:
    if action.undoes:
        return TAKEN_BACK, "bayplan: its gang could not be started whole; what had started is taken back"
    if action.by.dialect not in FAMILY:
        return PREEMPTED, f"bayplan: {_for_whom(action)}"
    return PREEMPTED, f"bayplan: preempting to accommodate a higher priority {_whose(action)}"


def _whose(action: PreemptPod) -> str:
    """What the room is for, in one word."""
    if action.by.kind == COMPOSITE:
        return "compositepodgroup"
    return "podgroup" if action.whole else "pod"


def _for_whom(action: PreemptPod) -> str:
    """Other families also move pods, and take back what a queue has too much of: then no priority decides."""
    whom = f"{action.by.kind} {action.by.namespace}/{action.by.name}"
    if action.pod.gang == action.by:
        whom = "the pods that its own gang cannot do without"
    if action.to:
        return f"moves to make room for {whom}; node {action.to} has room for whatever takes its place"
    return f"makes room for {whom}"


def _preempted(action: PreemptPod) -> str:
    if action.by.dialect not in FAMILY:
        return f"Preempted: it {_for_whom(action)}"
    if action.whole:
        return f"Preempted by {_whose(action)} {action.by_uid} on node cluster"
    return f"Preempted by pod {action.by_uid} on node {action.pod.node}"
