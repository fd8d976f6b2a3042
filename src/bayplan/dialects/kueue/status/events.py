"""What is announced about Workloads: the events that go with decisions and with their upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bayplan.dialects.api import Write
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    QUOTA_RESERVED,
    REQUEUED,
    Object,
    condition_of,
    is_true,
)
from bayplan.dialects.kueue.status.decisions import (
    PREEMPTIONS,
    admitted,
    eviction_message,
    eviction_reason,
    keeps_quota,
)
from bayplan.dialects.kueue.status.rejection_messages import flavors_considered, for_event, reason, sentence
from bayplan.model.admission_rejection import AdmissionRemark
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang

NORMAL, WARNING = "Normal", "Warning"
API_VERSION = "kueue.x-k8s.io/v1beta2"
LONGEST_WAIT = float(2**63 - 1) / 1e9
"""Seconds; a Workload without a time of creation has waited this long, as far as anyone can tell."""


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """An event about one Workload."""

    namespace: str
    name: str
    uid: str
    kind: str  # Normal or Warning
    reason: str
    message: str


def notice_write(notice: WorkloadEvent, now: float) -> Write:
    """The Event that announces it."""
    about = {"apiVersion": API_VERSION, "kind": "Workload"}
    about |= {"namespace": notice.namespace, "name": notice.name}
    about |= {"uid": notice.uid} if notice.uid else {}
    return event_write(about, notice.reason, notice.message, notice.kind, timestamp(now))


def events(
    action: Admit | EvictGang | ReportNotAdmitted, workload: Object, now: float, status: Object | None = None
) -> list[WorkloadEvent]:
    """What is announced when an action is carried out on a Workload, given as it was before.

    The status is the one it got, where that is known.
    """
    match action:
        case Admit():
            status = status or admitted(workload, action, now) or workload.get("status") or {}
            return list(_of_admission(action, workload, status, now))
        case EvictGang():
            return [] if is_true(workload, EVICTED) else list(_of_eviction(action, workload))
        case ReportNotAdmitted():
            return list(_of_refusal(action, workload))


def upkeep_events(workload: Object, status: Object, now: float) -> list[WorkloadEvent]:
    """What is announced when a Workload's status becomes another by upkeep."""
    found, after = [], {"status": status}
    queue = (status.get("admission") or {}).get("clusterQueue", "")
    if is_true(after, ADMITTED) and not is_true(workload, ADMITTED):
        waited = max(0.0, now - _since(workload, QUOTA_RESERVED, now))
        told = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited:.0f}s"
        found.append(_about(workload, NORMAL, "Admitted", told))
    rejected = condition_of(after, DEACTIVATION_TARGET)
    if (
        rejected
        and not condition_of(workload, DEACTIVATION_TARGET)
        and rejected["reason"] == "AdmissionCheck"
    ):
        told = f"Deactivated due to {rejected['message']}"
        found.append(_about(workload, WARNING, "AdmissionCheckRejected", told))
    leaving = condition_of(after, EVICTED)
    if leaving and is_true(after, EVICTED) and not is_true(workload, EVICTED) and queue:
        found.append(_about(workload, NORMAL, f"EvictedDueTo{leaving['reason']}", leaving["message"]))
    return found


def _of_admission(action: Admit, workload: Object, status: Object, now: float) -> Iterator[WorkloadEvent]:
    queue = action.admission.queue
    if not is_true(workload, QUOTA_RESERVED):
        waited = f"{_waited(workload, now):.0f}s"
        told = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}"
        considered = flavors_considered(action.tried)
        told += f"; Flavors considered: {considered}" if considered else ""
        yield _about(workload, NORMAL, "QuotaReserved", told)
    if is_true({"status": status}, ADMITTED) and not (workload.get("status") or {}).get("unhealthyNodes"):
        told = f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
        yield _about(workload, NORMAL, "Admitted", told)


def _of_eviction(action: EvictGang, workload: Object) -> Iterator[WorkloadEvent]:
    message = eviction_message(action)
    yield _about(workload, NORMAL, f"EvictedDueTo{eviction_reason(action)}", message)
    by, victim = action.by, action.demand
    if action.why not in PREEMPTIONS or by is None:
        return
    ranks = f"preemptor {_rank(by)}; preemptee {_rank(victim)}"
    yield _about(workload, NORMAL, "Preempted", f"{message}; {ranks}")
    source, uid = victim.gang.source, (workload.get("metadata") or {}).get("uid") or victim.gang.uid
    queue = victim.admission.queue if victim.admission is not None else ""
    told = (
        f"Preempted workload {source.namespace}/{source.name} (UID: {uid}) in ClusterQueue {queue}; {ranks}"
    )
    other = by.gang.source
    yield WorkloadEvent(
        other.namespace, other.name, by.gang.uid, NORMAL, "PreemptedWorkload", for_event(told)
    )


def _of_refusal(action: ReportNotAdmitted, workload: Object) -> Iterator[WorkloadEvent]:
    """News only: the same refusal again is no event. A failed search for a place is told each time."""
    refusal = action.refusal
    told = sentence(refusal)
    if keeps_quota(workload, action):
        yield _about(workload, WARNING, "SecondPassFailed", told)
        return
    if refusal.remark in (AdmissionRemark.ALIKE, AdmissionRemark.OTHERS_STARTING):
        return
    said, why = condition_of(workload, QUOTA_RESERVED) or {}, reason(refusal.token)
    if said.get("reason") != why or not str(said.get("message", "")).startswith(told):
        yield _about(workload, WARNING, why, told)


def _about(workload: Object, kind: str, why: str, message: str) -> WorkloadEvent:
    meta = workload.get("metadata") or {}
    namespace, name, uid = (str(meta.get(key) or "") for key in ("namespace", "name", "uid"))
    return WorkloadEvent(namespace, name, uid, kind, why, for_event(message))


def _waited(workload: Object, now: float) -> float:
    """Seconds since a Workload joined the line: since it was sent back, or created."""
    if condition_of(workload, REQUEUED) is not None:
        return max(0.0, now - _since(workload, REQUEUED, now))
    created = (workload.get("metadata") or {}).get("creationTimestamp")
    return max(0.0, now - seconds(created)) if created else LONGEST_WAIT


def _since(workload: Object, kind: str, now: float) -> float:
    at = (condition_of(workload, kind) or {}).get("lastTransitionTime")
    return seconds(at) if at else now


def _rank(demand: QueuedGang) -> str:
    priority = demand.gang.priority
    return f"effective priority: {priority} (base: {priority}, boost: 0)"
