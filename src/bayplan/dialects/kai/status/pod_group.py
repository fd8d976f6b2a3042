"""How PodGroups and Queues fare: what stands in their status, and how it is written."""

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
from bayplan.dialects.kube.fields.quantity import amount, spelled
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.pod import Pod

Object = dict[str, Any]
NODE_POOL = "default"
ACTIVE = "Active"  # of a queue: whether groups in it are served
SOUND = ("Ready", "It has its place among the queues")
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


@dataclass(frozen=True, slots=True)
class Waits:
    """Why a group waits, since when; the number grows with each change."""

    reason: str
    message: str
    since: float = 0.0
    number: int = 1
    queue: Mapping[str, Any] = field(default_factory=dict)  # the one in the way, and by how much


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """What pods hold and ask for together."""

    allocated: Mapping[str, int]
    lasting: Mapping[str, int]  # of that, what nobody takes away
    requested: Mapping[str, int]


NOTHING = ResourceTotals({}, {}, {})


def held_by(pods: Iterable[Pod], lasting: bool) -> ResourceTotals:
    """What the pods of one group hold, and ask for."""
    allocated: dict[str, int] = {}
    requested: dict[str, int] = {}
    for pod in pods:
        if not pod.over:
            _add(requested, pod.amounts)
            if pod.node:
                _add(allocated, pod.amounts)
    return ResourceTotals(allocated, allocated if lasting else {}, requested)


def summed(parts: Iterable[ResourceTotals]) -> ResourceTotals:
    """What several hold together."""
    allocated: dict[str, int] = {}
    lasting: dict[str, int] = {}
    requested: dict[str, int] = {}
    for part in parts:
        _add(allocated, part.allocated)
        _add(lasting, part.lasting)
        _add(requested, part.requested)
    return ResourceTotals(allocated, lasting, requested)


def group_status(
    group: PodGroup, pods: Sequence[Pod], held: ResourceTotals, waits: Waits | None, known: PodGroupStatusWire
) -> Object | None:
    """What has to be written so that the status is true; None if it is.

    Why pods wait stays as it is while they do and nothing newer is known.
    """
    counts, before = _counts(pods), known.resources_status or ResourcesStatusWire()
    found: Object = {"phase": _phase(group, counts), **counts, "resourcesStatus": _resources(held, before)}
    same = (
        known.phase == found["phase"]
        and (known.pending or 0, known.running or 0, known.succeeded or 0, known.failed or 0)
        == tuple(counts.values())
        and _same_amounts(before, held)
    )
    said = known.scheduling_conditions or []
    if waits is not None and not _says(said, waits):
        return found | {"schedulingConditions": [_condition(waits)]}
    if waits is None and said and not any(_wants_a_node(pod) for pod in pods):
        return found | {"schedulingConditions": None}
    return None if same else found


def queue_status(
    held: ResourceTotals,
    children: Sequence[str],
    fault: tuple[str, str] | None,
    known: QueueStatusWire,
    now: float,
) -> Object | None:
    """The same for a queue; `fault`: a word and a sentence on why it has no place among the others."""
    conditions = _queue_conditions(fault, known.conditions or (), now)
    if (known.child_queues or []) == list(children) and _same_amounts(known, held) and conditions is None:
        return None
    found: Object = {"childQueues": list(children) or None, **_resources(held, known)}
    return found if conditions is None else found | {"conditions": conditions}


def group_write(ref: Ref, uid: str, status: Object) -> Write:
    """How the status of a group is written."""
    return _write(POD_GROUP, ref.namespace, ref.name, uid, status)


def queue_write(name: str, uid: str, status: Object) -> Write:
    """How that of a queue is."""
    return _write(QUEUE, "", name, uid, status)


def about_group(ref: Ref, uid: str) -> Object:
    """A group as an event names it."""
    about = {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.kind}
    return about | {"namespace": ref.namespace, "name": ref.name, "uid": uid}


def _write(kind: Kind, namespace: str, name: str, uid: str, status: Object) -> Write:
    return Write(Verb.MERGE_PATCH, kind, namespace, name, {"status": status}, "status", uid=uid)


def _counts(pods: Sequence[Pod]) -> dict[str, int]:
    running = sum(pod.up and not pod.over for pod in pods)
    succeeded = sum(pod.over and pod.succeeded for pod in pods)
    failed = sum(pod.over and not pod.succeeded for pod in pods)
    pending = len(pods) - running - succeeded - failed
    return {"pending": pending, "running": running, "succeeded": succeeded, "failed": failed}


def _phase(group: PodGroup, counts: Mapping[str, int]) -> str:
    if counts["running"]:
        return RUNNING if counts["running"] + counts["succeeded"] >= group.minimum else PENDING
    if counts["pending"] or not (counts["succeeded"] or counts["failed"]):
        return PENDING
    return FAILED if counts["failed"] else SUCCEEDED


def _wants_a_node(pod: Pod) -> bool:
    return not (pod.node or pod.over or pod.leaving)


def _says(said: Sequence[SchedulingConditionWire], waits: Waits) -> bool:
    told = (CONDITION, waits.reason, waits.message)
    return [(one.type, one.reason, one.message) for one in said] == [told]


def _condition(waits: Waits) -> Object:
    told: Object = {"reason": waits.reason, "message": waits.message}
    details = {"details": {"queueDetails": dict(waits.queue)}} if waits.queue else {}
    return {
        "type": CONDITION,
        "nodePool": NODE_POOL,
        "status": "True",
        "reason": waits.reason,
        "message": waits.message,
        "reasons": [told | details],
        "transitionID": str(waits.number),
        "lastTransitionTime": timestamp(waits.since),
    }


def _queue_conditions(
    fault: tuple[str, str] | None, known: Sequence[QueueConditionWire], now: float
) -> list[Object] | None:
    """All conditions of a queue, ours among them; None if they are true. That all is well needs no words."""
    before = next((one for one in known if one.type == ACTIVE), None)
    if before is None and fault is None:
        return None
    status, (reason, message) = ("True", SOUND) if fault is None else ("False", fault)
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return None
    kept = before is not None and before.status == status and before.last_transition_time
    since = kept or timestamp(now)
    ours: Object = {"type": ACTIVE, "status": status, "reason": reason, "message": message}
    others: list[Object] = [msgspec.to_builtins(one) for one in known if one.type != ACTIVE]
    return [*others, ours | {"lastTransitionTime": since}]


def _resources(held: ResourceTotals, known: ResourcesStatusWire) -> Object:
    """In a patch nothing takes away what was there before, unless it says so."""
    return {
        "allocated": _spelled(held.allocated, known.allocated),
        "allocatedNonPreemptible": _spelled(held.lasting, known.allocated_non_preemptible),
        "requested": _spelled(held.requested, known.requested),
    }


def _spelled(amounts: Mapping[str, int], known: Mapping[str, object] | None) -> Object:
    found: Object = dict.fromkeys(known or ())
    return found | {name: spelled(name, amounts[name]) for name in sorted(amounts) if amounts[name]}


def _same_amounts(known: ResourcesStatusWire, held: ResourceTotals) -> bool:
    pairs = (
        (known.allocated, held.allocated),
        (known.allocated_non_preemptible, held.lasting),
        (known.requested, held.requested),
    )
    return all(_read(said) == {n: a for n, a in amounts.items() if a} for said, amounts in pairs)


def _read(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    found = {}
    for name, value in (amounts or {}).items():
        try:
            found[name] = amount(name, value)
        except ValueError:
            return {"": -1}  # somebody else wrote it, and it is no amount
    return {name: value for name, value in found.items() if value}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        if name != PODS:
            total[name] = total.get(name, 0) + value
