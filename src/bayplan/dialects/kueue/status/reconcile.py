"""Reconciliation of a Workload's status: admission checks, stopped queues, evictions, backoff.

None: unchanged, nothing to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    REJECTED,
    REQUEUED,
    RETRY,
    Draft,
    Object,
    checks_in,
    condition_of,
    is_true,
)
from bayplan.dialects.kueue.status.decisions import (
    NODE_FAILURES,
    NODES_TAKEN,
    PLACEMENT_TIMED_OUT,
    PODS_RESTARTED,
    mark_evicted,
)
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.quota import StopPolicy

ADMISSION_CHECK = "AdmissionCheck"
DEACTIVATED = "Deactivated"
BACKED_OFF = (ADMISSION_CHECK, "PodsReadyTimeout")
REQUEUED_AT_ONCE = ("Preempted", NODE_FAILURES, NODES_TAKEN, PODS_RESTARTED, PLACEMENT_TIMED_OUT)
"""Evictions after which a gang is requeued at once; after others it waits."""


@dataclass(frozen=True, slots=True)
class QueueOnPath:
    """The LocalQueue or ClusterQueue of a gang, and its stop policy."""

    kind: str
    name: str
    stop: StopPolicy | None  # None: there is no such queue

    @property
    def reason(self) -> str:
        """The reason of evictions by this queue."""
        return f"{self.kind}Stopped"


def synced(workload: Object, checks: Iterable[str], now: float) -> Object | None:
    """Update a status by its checks (`checks`: the required ones) and by `spec.active`."""
    draft = Draft.of(workload, now)
    if draft.holds(FINISHED):
        return None
    if (workload.get("spec") or {}).get("active") is False:
        _deactivate(draft)
        return draft.done()
    _set_requeue_time(draft)
    _end_backoff(draft)
    draft.require_checks(tuple(checks))
    if not draft.holds(ADMITTED) and not draft.holds(EVICTED):
        draft.sync_admitted()
    if draft.holds(QUOTA_RESERVED) and not draft.holds(EVICTED):
        _apply_checks(draft)
    return draft.done()


def evicted_for(workload: Object, reason: str, message: str, now: float, cause: str = "") -> Object | None:
    """Evict a gang for a reason other than a scheduling decision, such as a stopped queue."""
    if is_true(workload, EVICTED):
        return None
    draft = Draft.of(workload, now)
    mark_evicted(draft, reason, message, cause)
    return draft.done()


def apply_stop_policies(workload: Object, queues: Sequence[QueueOnPath], now: float) -> Object | None:
    """Apply the stop policies of the queues: evict gangs, release quota, or requeue after a restart."""
    requeued_condition = condition_of(workload, REQUEUED) or {}
    evicted_by = (
        str(requeued_condition.get("reason", "")) if requeued_condition.get("status") == "False" else ""
    )
    for queue in queues:
        if queue.stop is StopPolicy.OPEN and evicted_by == queue.reason:
            message = f"The {queue.kind} was restarted after being stopped"
            return requeued(workload, f"{queue.kind}Restarted", message, now)
    draft = Draft.of(workload, now)
    if draft.holds(FINISHED) or (draft.holds(EVICTED) and draft.holds(QUOTA_RESERVED)):
        return None
    for queue in queues:
        if draft.holds(ADMITTED):
            if queue.stop is StopPolicy.DRAIN:
                return evicted_for(workload, queue.reason, f"The {queue.kind} is stopped", now)
        elif draft.holds(QUOTA_RESERVED):
            if queue.stop is not StopPolicy.OPEN:
                draft.release_quota(*_stopped_queue(queue, "stopped", "is terminating or missing"))
                break
        elif queue.stop is not StopPolicy.OPEN:
            draft.release_quota(*_stopped_queue(queue, "inactive", "doesn't exist"))
            break
    return draft.done()


def released(workload: Object, now: float) -> Object | None:
    """The pods of an evicted gang are gone: release its quota and requeue it."""
    draft = Draft.of(workload, now)
    evicted = draft.condition(EVICTED)
    if evicted is None or not draft.holds(EVICTED) or not draft.holds(QUOTA_RESERVED):
        return None
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    draft.mark(REQUEUED, reason in REQUEUED_AT_ONCE and not is_of_one_pod(workload), reason, message)
    draft.release_quota("PendingEvaluation", message)
    return draft.done()


def has_owner(workload: Object) -> bool:
    """Whether a Workload belongs to a job, whose controller stops the pods and releases the quota."""
    return bool(workload["metadata"].get("ownerReferences"))


def requeued(workload: Object, reason: str, message: str, now: float) -> Object | None:
    """Requeue a gang, for example when its queue was restarted."""
    draft = Draft.of(workload, now)
    draft.mark(REQUEUED, True, reason, message)
    return draft.done()


def should_deactivate(workload: Object) -> bool:
    """Whether `spec.active` has to be set to false."""
    return is_true(workload, DEACTIVATION_TARGET) and (workload.get("spec") or {}).get("active") is not False


def _stopped_queue(queue: QueueOnPath, state: str, missing: str) -> tuple[str, str]:
    """Why a queue admits no gangs: reason and message of a condition."""
    if queue.stop is None:
        return "Misconfigured", f"{queue.kind} {queue.name} {missing}"
    return "Suspended", f"{queue.kind} {queue.name} is {state}"


def _deactivate(draft: Draft) -> None:
    target = draft.condition(DEACTIVATION_TARGET)
    draft.put("requeueState", None)
    draft.remove(DEACTIVATION_TARGET)
    if not draft.holds(EVICTED):
        cause = str(target.get("reason", "")) if target else ""
        due = f" due to {target.get('message', '')}" if target else ""
        mark_evicted(draft, DEACTIVATED, f"The workload is deactivated{due}", cause)
    if not draft.holds(QUOTA_RESERVED):
        draft.mark(QUOTA_RESERVED, False, DEACTIVATED, "The workload is deactivated")
        draft.sync_admitted()


def _set_requeue_time(draft: Draft) -> None:
    """Set `requeueAt` to the latest time that a check in Retry state asks for."""
    state = draft.status.get("requeueState") or {}
    times = [
        seconds(str(check["lastTransitionTime"])) + check["requeueAfterSeconds"]
        for check in checks_in(draft.checks, RETRY)
        if check.get("requeueAfterSeconds") is not None and check.get("lastTransitionTime")
    ]
    latest = max(times, default=0.0)
    if latest > max(draft.now, seconds(str(state.get("requeueAt") or ""))):
        draft.status["requeueState"] = {**state, "requeueAt": timestamp(latest)}


def requeue_at(workload: Object) -> float:
    """When a gang in backoff is to be requeued; 0 if it is queued, or the time is not known."""
    requeued_condition = condition_of(workload, REQUEUED) or {}
    if requeued_condition.get("status") != "False":
        return 0.0
    return seconds(str(((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt") or ""))


def _end_backoff(draft: Draft) -> None:
    """Requeue a gang whose backoff ended or that was reactivated."""
    condition = draft.condition(REQUEUED)
    if condition is None or condition.get("status") != "False":
        return
    reason, state = str(condition.get("reason", "")), draft.status.get("requeueState") or {}
    if reason.startswith(DEACTIVATED):
        draft.mark(REQUEUED, True, "Reactivated", "The workload was reactivated")
    elif reason in BACKED_OFF and seconds(str(state.get("requeueAt") or "")) <= draft.now:
        draft.put("requeueState", {key: value for key, value in state.items() if key != "requeueAt"})
        draft.mark(REQUEUED, True, "BackoffFinished", "The workload backoff was finished")


def _apply_checks(draft: Draft) -> None:
    """Deactivate a gang with a rejected check; evict one with a check in Retry state."""
    rejected, retry = checks_in(draft.checks, REJECTED), checks_in(draft.checks, RETRY)
    if rejected:
        draft.mark(DEACTIVATION_TARGET, True, ADMISSION_CHECK, _checks_message(rejected, REJECTED))
    elif retry:
        mark_evicted(draft, ADMISSION_CHECK, f"Evicted due to {_checks_message(retry, RETRY)}")


def _checks_message(checks: list[Object], state: str) -> str:
    names = [
        quoted(str(check.get("name", ""))) + (f" ({check['message']})" if check.get("message") else "")
        for check in checks
    ]
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {'; '.join(names)}"


def is_of_one_pod(workload: Object) -> bool:
    """Whether a Workload belongs to a single Pod: it ends with the pod and is never moved."""
    meta = workload.get("metadata") or {}
    owners: list[Object] = meta.get("ownerReferences") or []
    grouped = (meta.get("annotations") or {}).get("kueue.x-k8s.io/is-group-workload") == "true"
    return len(owners) == 1 and owners[0].get("kind") == "Pod" and not grouped
