"""Events about Workloads: those of admission decisions and of status reconciliation."""

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
from bayplan.dialects.kueue.status.default_reasons import default_reason
from bayplan.dialects.kueue.status.rejection_messages import (
    flavors_considered,
    for_event,
    reason,
    rejection_message,
)
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.rejection import AdmissionRemark

NORMAL, WARNING = "Normal", "Warning"
API_VERSION = "kueue.x-k8s.io/v1beta2"
LONGEST_WAIT = float(2**63 - 1) / 1e9
"""Seconds; the waiting time of a Workload without a creation time."""


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """An event about one Workload."""

    namespace: str
    name: str
    uid: str
    kind: str  # Normal or Warning
    reason: str
    message: str


def workload_event_write(notice: WorkloadEvent, now: float) -> Write:
    """The write that publishes the event."""
    regarding = {"apiVersion": API_VERSION, "kind": "Workload"}
    regarding |= {"namespace": notice.namespace, "name": notice.name}
    regarding |= {"uid": notice.uid} if notice.uid else {}
    return event_write(regarding, notice.reason, notice.message, notice.kind, timestamp(now))


def events(
    action: Admit | EvictGang | ReportNotAdmitted, workload: Object, now: float, status: Object | None = None,
    *, detailed: bool = True,
) -> list[WorkloadEvent]:  # fmt: skip
    """The events of an action on a Workload, which is given as it was before.

    `status` is the new status, if it is known. Reasons are those of Kueue's defaults unless `detailed`.
    """
    match action:
        case Admit():
            status = status or admitted(workload, action, now) or workload.get("status") or {}
            return list(_of_admission(action, workload, status, now))
        case EvictGang():
            return [] if is_true(workload, EVICTED) else list(_of_eviction(action, workload))
        case ReportNotAdmitted():
            return list(_of_rejection(action, workload, detailed=detailed))


def reconcile_events(workload: Object, status: Object, now: float) -> list[WorkloadEvent]:
    """The events of a status change by reconciliation."""
    events, after = [], {"status": status}
    queue = (status.get("admission") or {}).get("clusterQueue", "")
    if is_true(after, ADMITTED) and not is_true(workload, ADMITTED):
        waited = max(0.0, now - _since(workload, QUOTA_RESERVED, now))
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited:.0f}s"
        events.append(_event(workload, NORMAL, "Admitted", message))
    rejected = condition_of(after, DEACTIVATION_TARGET)
    if (
        rejected
        and not condition_of(workload, DEACTIVATION_TARGET)
        and rejected["reason"] == "AdmissionCheck"
    ):
        message = f"Deactivated due to {rejected['message']}"
        events.append(_event(workload, WARNING, "AdmissionCheckRejected", message))
    evicted = condition_of(after, EVICTED)
    if evicted and is_true(after, EVICTED) and not is_true(workload, EVICTED) and queue:
        events.append(_event(workload, NORMAL, f"EvictedDueTo{evicted['reason']}", evicted["message"]))
    return events


def _of_admission(action: Admit, workload: Object, status: Object, now: float) -> Iterator[WorkloadEvent]:
    queue = action.admission.queue
    if not is_true(workload, QUOTA_RESERVED):
        waited = f"{_waited(workload, now):.0f}s"
        message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}"
        considered = flavors_considered(action.tried)
        message += f"; Flavors considered: {considered}" if considered else ""
        yield _event(workload, NORMAL, "QuotaReserved", message)
    if is_true({"status": status}, ADMITTED) and not (workload.get("status") or {}).get("unhealthyNodes"):
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
        yield _event(workload, NORMAL, "Admitted", message)


def _of_eviction(action: EvictGang, workload: Object) -> Iterator[WorkloadEvent]:
    message = eviction_message(action)
    yield _event(workload, NORMAL, f"EvictedDueTo{eviction_reason(action)}", message)
    by, victim = action.by, action.queued_gang
    if action.reason not in PREEMPTIONS or by is None:
        return
    ranks = f"preemptor {_priority_text(by)}; preemptee {_priority_text(victim)}"
    yield _event(workload, NORMAL, "Preempted", f"{message}; {ranks}")
    source, uid = victim.gang.source, (workload.get("metadata") or {}).get("uid") or victim.gang.uid
    queue = victim.admission.queue if victim.admission is not None else ""
    preemptor_message = (
        f"Preempted workload {source.namespace}/{source.name} (UID: {uid}) in ClusterQueue {queue}; {ranks}"
    )
    preemptor = by.gang.source
    yield WorkloadEvent(
        preemptor.namespace,
        preemptor.name,
        by.gang.uid,
        NORMAL,
        "PreemptedWorkload",
        for_event(preemptor_message),
    )


def _of_rejection(action: ReportNotAdmitted, workload: Object, *, detailed: bool) -> Iterator[WorkloadEvent]:
    """An event only if the reason or message changed; a failed second pass is reported each time."""
    rejection = action.rejection
    message = rejection_message(rejection)
    if keeps_quota(workload, action):
        yield _event(workload, WARNING, "SecondPassFailed", message)
        return
    if rejection.remark in (AdmissionRemark.EQUIVALENT, AdmissionRemark.OTHERS_STARTING):
        return
    condition, condition_reason = condition_of(workload, QUOTA_RESERVED) or {}, reason(rejection.reason)
    condition_reason = condition_reason if detailed else default_reason(condition_reason)
    if condition.get("reason") != condition_reason or not str(condition.get("message", "")).startswith(
        message
    ):
        yield _event(workload, WARNING, condition_reason, message)


def _event(workload: Object, kind: str, reason: str, message: str) -> WorkloadEvent:
    meta = workload.get("metadata") or {}
    namespace, name, uid = (str(meta.get(key) or "") for key in ("namespace", "name", "uid"))
    return WorkloadEvent(namespace, name, uid, kind, reason, for_event(message))


def _waited(workload: Object, now: float) -> float:
    """Seconds since a Workload was queued: since it was requeued, or created."""
    if condition_of(workload, REQUEUED) is not None:
        return max(0.0, now - _since(workload, REQUEUED, now))
    created = (workload.get("metadata") or {}).get("creationTimestamp")
    return max(0.0, now - seconds(created)) if created else LONGEST_WAIT


def _since(workload: Object, kind: str, now: float) -> float:
    at = (condition_of(workload, kind) or {}).get("lastTransitionTime")
    return seconds(at) if at else now


def _priority_text(queued_gang: QueuedGang) -> str:
    priority = queued_gang.gang.priority
    return f"effective priority: {priority} (base: {priority}, boost: 0)"
