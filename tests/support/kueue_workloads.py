"""Workloads and decisions about them, for tests of what people see."""

from __future__ import annotations

from typing import Any

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.gang import Gang, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.queued_gang import Admission, Delayed, PodSetAdmission, QueuedGang, QuotaRequest

NOW = 1_000_000.0
NOW_TEXT = "1970-01-12T13:46:40Z"
EARLIER = "1970-01-12T13:45:00Z"  # 100 s before

Object = dict[str, Any]


def condition(kind: str, status: str, reason: str, message: str, at: str = EARLIER, **more: int) -> Object:
    told = {"type": kind, "status": status, "lastTransitionTime": at, "reason": reason, "message": message}
    return told | more


def workload_with(*conditions: Object, generation: int = 0, **status: Any) -> Object:
    meta: Object = {"namespace": "default", "name": "foo", "uid": "wl-foo", "creationTimestamp": EARLIER}
    if generation:
        meta["generation"] = generation
    if conditions:
        status["conditions"] = list(conditions)
    return {"metadata": meta, "spec": {"queueName": "main"}, "status": status}


def conditions(status: Object | None) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message by type."""
    assert status is not None
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions", ())}


def admission(delayed: Delayed | None = None, host: str | None = "x1", queue: str = "tas-main") -> Admission:
    place = Assignment(("rack", HOSTNAME), (DomainAssignment(("r1", host), 1),)) if host else None
    flavors, usage = {"cpu": "tas-default", "memory": "tas-default"}, {"cpu": 500, "memory": 2 << 30}
    return Admission(queue, (PodSetAdmission("one", 1, flavors, usage, place, delayed),))


def demand(
    name: str = "foo",
    *,
    uid: str = "wl-foo",
    priority: int = 0,
    given: Admission | None = None,
    failed: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
) -> QueuedGang:
    pod_set = PodSet("one", 2, 2, {"cpu": 500})
    gang = Gang(
        Ref("kueue", "Workload", "default", name),
        Group("", (pod_set,), 1),
        queue="main",
        priority=priority,
        uid=uid,
    )
    asks = (QuotaRequest("one", 2, {"cpu": 500, "memory": 1 << 30}),)
    return QueuedGang(
        gang, asks, ("default", "main"), admission=given, failed_nodes=failed, labels=labels or {}
    )
