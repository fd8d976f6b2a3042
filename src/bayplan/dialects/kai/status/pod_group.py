"""The status of PodGroups and Queues, and the writes that update it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.wire import (
    PodGroupStatusWire,
    QueueConditionWire,
    QueueStatusWire,
    ResourcesStatusWire,
    SchedulingConditionWire,
)
from bayplan.dialects.kai.status.messages import CONDITION
from bayplan.dialects.kube.fields.quantity import amount, formatted
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.pod import Pod

Object = dict[str, Any]
NODE_POOL = "default"
ACTIVE = "Active"  # condition type of a Queue: whether its groups are scheduled
READY = ("Ready", "The queue is part of the queue tree")
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a PodGroup is pending, and since when; the transition number grows with each change."""

    reason: str
    message: str
    since: float = 0.0
    number: int = 1
    queue: Mapping[str, Any] = field(default_factory=dict)  # details of the queue over its limit


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """The resources that pods hold and request in total."""

    allocated: Mapping[str, int]
    non_preemptible: Mapping[str, int]  # the non-preemptible part of `allocated`
    requested: Mapping[str, int]


NO_TOTALS = ResourceTotals({}, {}, {})


def totals_of(pods: Iterable[Pod], lasting: bool) -> ResourceTotals:
    """The totals of the pods of one group."""
    allocated: dict[str, int] = {}
    requested: dict[str, int] = {}
    for pod in pods:
        if not pod.finished:
            _add(requested, pod.amounts)
            if pod.node:
                _add(allocated, pod.amounts)
    return ResourceTotals(allocated, allocated if lasting else {}, requested)


def sum_of_totals(parts: Iterable[ResourceTotals]) -> ResourceTotals:
    """The sum of several totals."""
    return _combined(parts, 1)


def less_totals(total: ResourceTotals, part: ResourceTotals) -> ResourceTotals:
    """A sum of totals without one of its parts; resources of which nothing is left are dropped."""
    left = _combined((part,), -1, total)
    kept = (
        {n: a for n, a in one.items() if a} for one in (left.allocated, left.non_preemptible, left.requested)
    )
    return ResourceTotals(*kept)


def group_status(
    group: PodGroup,
    pods: Sequence[Pod],
    totals: ResourceTotals,
    waits: PendingReason | None,
    known: PodGroupStatusWire,
) -> Object | None:
    """The status update of a PodGroup; None if its status is up to date.

    The reason why pods are pending stays until they are scheduled or a newer reason is known.
    """
    counts, before = _counts(pods), known.resources_status or ResourcesStatusWire()
    status: Object = {"phase": _phase(group, counts), **counts, "resourcesStatus": _resources(totals, before)}
    same = (
        known.phase == status["phase"]
        and (known.pending or 0, known.running or 0, known.succeeded or 0, known.failed or 0)
        == tuple(counts.values())
        and _same_amounts(before, totals)
    )
    conditions = known.scheduling_conditions or []
    if waits is not None and not _is_current(conditions, waits):
        return status | {"schedulingConditions": [_condition(waits)]}
    if waits is None and conditions and not any(_wants_a_node(pod) for pod in pods):
        return status | {"schedulingConditions": None}
    return None if same else status


def queue_status(
    totals: ResourceTotals,
    children: Sequence[str],
    fault: tuple[str, str] | None,
    known: QueueStatusWire,
    now: float,
) -> Object | None:
    """The status update of a Queue; `fault` is the reason and message if it is not in the queue tree."""
    conditions = _queue_conditions(fault, known.conditions or (), now)
    if (known.child_queues or []) == list(children) and _same_amounts(known, totals) and conditions is None:
        return None
    status: Object = {"childQueues": list(children) or None, **_resources(totals, known)}
    return status if conditions is None else status | {"conditions": conditions}


def group_write(ref: Ref, uid: str, status: Object) -> Write:
    """The write of a PodGroup status."""
    return _write(POD_GROUP, ref.namespace, ref.name, uid, status)


def queue_write(name: str, uid: str, status: Object) -> Write:
    """The write of a Queue status."""
    return _write(QUEUE, "", name, uid, status)


def about_group(ref: Ref, uid: str) -> Object:
    """A PodGroup as the object of an event."""
    about = {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.kind}
    return about | {"namespace": ref.namespace, "name": ref.name, "uid": uid}


def _write(kind: Kind, namespace: str, name: str, uid: str, status: Object) -> Write:
    return Write(Verb.MERGE_PATCH, kind, namespace, name, {"status": status}, "status", uid=uid)


def _counts(pods: Sequence[Pod]) -> dict[str, int]:
    running = sum(pod.was_started and not pod.finished for pod in pods)
    succeeded = sum(pod.finished and pod.succeeded for pod in pods)
    failed = sum(pod.finished and not pod.succeeded for pod in pods)
    pending = len(pods) - running - succeeded - failed
    return {"pending": pending, "running": running, "succeeded": succeeded, "failed": failed}


def _phase(group: PodGroup, counts: Mapping[str, int]) -> str:
    if counts["running"]:
        return RUNNING if counts["running"] + counts["succeeded"] >= group.minimum else PENDING
    if counts["pending"] or not (counts["succeeded"] or counts["failed"]):
        return PENDING
    return FAILED if counts["failed"] else SUCCEEDED


def _wants_a_node(pod: Pod) -> bool:
    return not (pod.node or pod.finished or pod.terminating)


def _is_current(conditions: Sequence[SchedulingConditionWire], waits: PendingReason) -> bool:
    expected = (CONDITION, waits.reason, waits.message)
    return [(one.type, one.reason, one.message) for one in conditions] == [expected]


def _condition(waits: PendingReason) -> Object:
    reason: Object = {"reason": waits.reason, "message": waits.message}
    details = {"details": {"queueDetails": dict(waits.queue)}} if waits.queue else {}
    return {
        "type": CONDITION,
        "nodePool": NODE_POOL,
        "status": "True",
        "reason": waits.reason,
        "message": waits.message,
        "reasons": [reason | details],
        "transitionID": str(waits.number),
        "lastTransitionTime": timestamp(waits.since),
    }


def _queue_conditions(
    fault: tuple[str, str] | None, known: Sequence[QueueConditionWire], now: float
) -> list[Object] | None:
    """All conditions of a Queue; None if they are current. A queue that was never at fault gets none."""
    before = next((one for one in known if one.type == ACTIVE), None)
    if before is None and fault is None:
        return None
    status, (reason, message) = ("True", READY) if fault is None else ("False", fault)
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return None
    unchanged_since = before is not None and before.status == status and before.last_transition_time
    since = unchanged_since or timestamp(now)
    ours: Object = {"type": ACTIVE, "status": status, "reason": reason, "message": message}
    others: list[Object] = [msgspec.to_builtins(one) for one in known if one.type != ACTIVE]
    return [*others, ours | {"lastTransitionTime": since}]


def _resources(totals: ResourceTotals, known: ResourcesStatusWire) -> Object:
    """The amounts for a merge patch, in which resources that are gone must be null."""
    return {
        "allocated": _quantities(totals.allocated, known.allocated),
        "allocatedNonPreemptible": _quantities(totals.non_preemptible, known.allocated_non_preemptible),
        "requested": _quantities(totals.requested, known.requested),
    }


def _quantities(amounts: Mapping[str, int], known: Mapping[str, object] | None) -> Object:
    removed: Object = dict.fromkeys(known or ())
    return removed | {name: formatted(name, amounts[name]) for name in sorted(amounts) if amounts[name]}


def _same_amounts(known: ResourcesStatusWire, totals: ResourceTotals) -> bool:
    pairs = (
        (known.allocated, totals.allocated),
        (known.allocated_non_preemptible, totals.non_preemptible),
        (known.requested, totals.requested),
    )
    return all(_read(written) == {n: a for n, a in amounts.items() if a} for written, amounts in pairs)


def _read(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    read = {}
    for name, value in (amounts or {}).items():
        try:
            read[name] = amount(name, value)
        except ValueError:
            return {"": -1}  # another writer's invalid amount: rewrite it
    return {name: value for name, value in read.items() if value}


def _combined(
    parts: Iterable[ResourceTotals], sign: int, start: ResourceTotals = NO_TOTALS
) -> ResourceTotals:
    allocated, lasting, requested = dict(start.allocated), dict(start.non_preemptible), dict(start.requested)
    for part in parts:
        _add(allocated, part.allocated, sign)
        _add(lasting, part.non_preemptible, sign)
        _add(requested, part.requested, sign)
    return ResourceTotals(allocated, lasting, requested)


def _add(total: dict[str, int], more: Mapping[str, int], sign: int = 1) -> None:
    for name, value in more.items():
        if name != PODS:
            total[name] = total.get(name, 0) + sign * value
