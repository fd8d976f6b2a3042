"""The status of a Workload after a change of its job: finished, pods ready, timed out. None: unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    ON_HOLD,
    QUOTA_RESERVED,
    Draft,
    condition_of,
    is_true,
)
from bayplan.dialects.kueue.status.decisions import PODS_RESTARTED, mark_evicted

PODS_READY = "PodsReady"
REPLACEMENTS = "WaitingForReplacementPods"
PODS_READY_TIMEOUT = "PodsReadyTimeout"
NEVER = float("inf")

_WAIT_FOR_START, _WAIT_FOR_RECOVERY = "WaitForStart", "WaitForRecovery"
_STARTED, _RECOVERED = "Started", "Recovered"
_NOT_READY = "Not all pods are ready or succeeded"
_POD_FAILED = "At least one pod has failed, waiting for recovery"
_ALL_READY = "All pods reached readiness and the workload is running"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodsReadyPolicy:
    """How long pods may take to become ready, and how often a gang is requeued (waitForPodsReady)."""

    seconds: float = 300.0
    recovery_seconds: float | None = None  # None: no limit
    backoff_base_seconds: float = 60.0
    backoff_max_seconds: float = 3600.0
    retries_max: int | None = None  # None: no limit


def finished(workload: Object, reason: str, message: str, now: float) -> Object | None:
    """The status of a Workload whose job finished."""
    if is_true(workload, FINISHED):
        return None
    draft = Draft.of(workload, now)
    draft.mark(FINISHED, True, reason, message)
    return draft.done()


def reclaimed(workload: Object, counts: Mapping[str, int]) -> Object | None:
    """The status with the reclaimable pods: those that finished release their quota.

    While quota is reserved, the API does not allow lower counts (see `pods_restarted`).
    """
    status = workload.get("status") or {}
    sizes = {one["name"]: one.get("count", 1) for one in workload["spec"].get("podSets") or ()}
    limited = {name: min(count, sizes.get(name, count)) for name, count in counts.items()}
    current = {one["name"]: one.get("count", 0) for one in status.get("reclaimablePods") or ()}
    if is_true(workload, QUOTA_RESERVED):
        limited = {**current, **{name: max(count, current.get(name, 0)) for name, count in limited.items()}}
    if limited == current:
        return None
    reclaimable = [{"name": name, "count": count} for name, count in limited.items()]
    return {**status, "reclaimablePods": reclaimable}


def pods_restarted(workload: Object, counts: Mapping[str, int], now: float) -> Object | None:
    """Evict a Workload whose job starts finished pods again, such as a JobSet after a failure.

    Their quota and their nodes were released, so that the job would stay incomplete for ever. It is queued
    again for all its pods.
    """
    current = (workload.get("status") or {}).get("reclaimablePods") or ()
    again = {one["name"]: one.get("count", 0) - counts.get(one["name"], 0) for one in current}
    lacking = {name: count for name, count in again.items() if count > 0}
    if not lacking or not is_true(workload, QUOTA_RESERVED) or is_true(workload, EVICTED):
        return None
    draft = Draft.of(workload, now)
    pods = ", ".join(f"{count} of pod set {name}" for name, count in sorted(lacking.items()))
    message = f"The job starts finished pods again ({pods}) whose quota was released; it is queued again"
    mark_evicted(draft, PODS_RESTARTED, message)
    return draft.done()


def pods_ready(workload: Object, ready: bool, now: float) -> Object | None:
    """The status with the PodsReady condition."""
    before = condition_of(workload, PODS_READY) or {}
    old_reason = before.get("reason", "")
    if not is_true(workload, ADMITTED):
        holds, reason, message = False, _WAIT_FOR_START, _NOT_READY
    elif ready:
        reason = _RECOVERED if old_reason in (_WAIT_FOR_RECOVERY, _RECOVERED) else _STARTED
        holds, message = True, _ALL_READY
    elif before.get("status") == "True" or old_reason == _WAIT_FOR_RECOVERY:
        holds, reason, message = False, _WAIT_FOR_RECOVERY, _POD_FAILED
    else:
        holds, reason, message = False, _WAIT_FOR_START, _NOT_READY
    if (before.get("status"), old_reason) == ("True" if holds else "False", reason):
        return None
    draft = Draft.of(workload, now)
    draft.mark(PODS_READY, holds, reason, message)
    return draft.done()


def pods_ready_deadline(workload: Object, policy: PodsReadyPolicy) -> float:
    """When the pods of a Workload have to be ready."""
    since, limit, _ = _not_ready_since(workload, policy)
    return NEVER if limit is None else since + limit


def pods_ready_timed_out(workload: Object, policy: PodsReadyPolicy, now: float) -> Object | None:
    """Evict a Workload whose pods are not ready in time; deactivate it after too many retries."""
    if pods_ready_deadline(workload, policy) > now:
        return None
    draft = Draft.of(workload, now)
    state = draft.status.get("requeueState") or {}
    count = int(state.get("count") or 0) + 1
    if policy.retries_max is not None and count > policy.retries_max:
        message = "exceeding the maximum number of re-queuing retries"
        draft.mark(DEACTIVATION_TARGET, True, "RequeuingLimitExceeded", message)
        return draft.done()
    wait = min(policy.backoff_base_seconds * 2.0 ** min(count - 1, 60), policy.backoff_max_seconds)
    later = max(now + wait, seconds(str(state.get("requeueAt") or "")))
    draft.status["requeueState"] = {**state, "count": count, "requeueAt": timestamp(later)}
    name = f"{workload['metadata'].get('namespace', 'default')}/{workload['metadata']['name']}"
    cause = _not_ready_since(workload, policy)[2]
    mark_evicted(draft, PODS_READY_TIMEOUT, f"Exceeded the PodsReady timeout {name}", cause, tell_cause=False)
    return draft.done()


def execution_deadline(workload: Object) -> float:
    """When a Workload reaches its maximum execution time."""
    limit, admitted = workload["spec"].get("maximumExecutionTimeSeconds"), condition_of(workload, ADMITTED)
    if limit is None or admitted is None or not is_true(workload, ADMITTED):
        return NEVER
    past = (workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0
    return seconds(str(admitted.get("lastTransitionTime") or "")) + float(limit - past)


def execution_timed_out(workload: Object, now: float) -> Object | None:
    """Deactivate a Workload that exceeded its maximum execution time."""
    if (
        execution_deadline(workload) > now
        or is_true(workload, DEACTIVATION_TARGET)
        or is_true(workload, FINISHED)
    ):
        return None
    draft = Draft.of(workload, now)
    message = "exceeding the maximum execution time"
    draft.mark(DEACTIVATION_TARGET, True, "MaximumExecutionTimeExceeded", message)
    draft.put("accumulatedPastExecutionTimeSeconds", None)
    return draft.done()


def waiting_for_replacements(workload: Object, missing: bool, now: float) -> Object | None:
    """The status with the WaitingForReplacementPods condition of a pod group."""
    condition = condition_of(workload, REPLACEMENTS)
    if condition is None and not missing:
        return None
    draft = Draft.of(workload, now)
    if missing:
        evicted = condition_of(workload, EVICTED) if is_true(workload, EVICTED) else None
        if evicted is not None:
            draft.mark(REPLACEMENTS, True, evicted["reason"], evicted["message"])
        elif not draft.holds(REPLACEMENTS):
            draft.mark(REPLACEMENTS, True, "PodsFailed", "Some Failed pods need replacement")
    elif draft.holds(REPLACEMENTS):
        draft.mark(REPLACEMENTS, False, PODS_READY, "No pods need replacement")
    return draft.done()


def on_hold(workload: Object, now: float) -> Object | None:
    """Put a Workload that was scaled to zero on hold: it releases its quota and is not queued."""
    active = workload["spec"].get("active") is not False
    reserved = is_true(workload, QUOTA_RESERVED) and not is_true(workload, EVICTED)
    if not (active and reserved) or is_true(workload, FINISHED):
        return None
    draft = Draft.of(workload, now)
    draft.release_quota(ON_HOLD, "StatefulSet scaled to zero; workload on hold")
    return draft.done()


def off_hold(workload: Object, now: float) -> Object | None:
    """Queue a Workload again that was scaled up from zero."""
    reserved = condition_of(workload, QUOTA_RESERVED) or {}
    if reserved.get("status") != "False" or reserved.get("reason") != ON_HOLD:
        return None
    draft = Draft.of(workload, now)
    draft.release_quota("PendingEvaluation", "Workload no longer on hold; waiting for quota reservation")
    return draft.done()


def _not_ready_since(workload: Object, policy: PodsReadyPolicy) -> tuple[float, float | None, str]:
    """Since when pods are not ready, the limit in seconds (None: no limit), and the cause."""
    active = workload["spec"].get("active") is not False
    admitted, ready = condition_of(workload, ADMITTED), condition_of(workload, PODS_READY) or {}
    if not active or admitted is None or not is_true(workload, ADMITTED) or is_true(workload, EVICTED):
        return 0.0, None, ""
    if ready.get("status") == "True":
        return 0.0, None, ""
    if ready.get("reason", _WAIT_FOR_START) == _WAIT_FOR_START:
        return seconds(str(admitted.get("lastTransitionTime") or "")), policy.seconds, _WAIT_FOR_START
    since = seconds(str(ready.get("lastTransitionTime") or ""))
    return since, policy.recovery_seconds, _WAIT_FOR_RECOVERY
