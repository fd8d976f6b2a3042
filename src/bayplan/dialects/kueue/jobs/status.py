"""What its job makes of a Workload's status: it ends, gets ready, takes too long. None: nothing to write."""

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
from bayplan.dialects.kueue.status.decisions import send_away

PODS_READY = "PodsReady"
REPLACEMENTS = "WaitingForReplacementPods"
TIMED_OUT = "PodsReadyTimeout"
NEVER = float("inf")

_WAITS, _RECOVERS = "WaitForStart", "WaitForRecovery"
_STARTED, _RECOVERED = "Started", "Recovered"
_NOT_READY = "Not all pods are ready or succeeded"
_LOST_ONE = "At least one pod has failed, waiting for recovery"
_ALL_READY = "All pods reached readiness and the workload is running"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodsReadyPolicy:
    """How long pods may take to get ready, and how often a gang may try again (waitForPodsReady)."""

    seconds: float = 300.0
    recovery_seconds: float | None = None  # None: as long as they like
    backoff_base_seconds: float = 60.0
    backoff_max_seconds: float = 3600.0
    retries_max: int | None = None  # None: as often as they like


def finished(workload: Object, reason: str, message: str, now: float) -> Object | None:
    """A Workload whose job is over."""
    if is_true(workload, FINISHED):
        return None
    draft = Draft.of(workload, now)
    draft.mark(FINISHED, True, reason, message)
    return draft.done()


def reclaimed(workload: Object, counts: Mapping[str, int]) -> Object | None:
    """Pods that will not run again give back their quota."""
    status = workload.get("status") or {}
    sizes = {one["name"]: one.get("count", 1) for one in workload["spec"].get("podSets") or ()}
    limited = {name: min(count, sizes.get(name, count)) for name, count in counts.items()}
    known = {one["name"]: one.get("count", 0) for one in status.get("reclaimablePods") or ()}
    if limited == known:
        return None
    told = [{"name": name, "count": count} for name, count in limited.items()]
    return {**status, "reclaimablePods": told}


def pods_ready(workload: Object, ready: bool, now: float) -> Object | None:
    """Whether the pods of a Workload are all there and well."""
    before = condition_of(workload, PODS_READY) or {}
    why = before.get("reason", "")
    if not is_true(workload, ADMITTED):
        holds, reason, told = False, _WAITS, _NOT_READY
    elif ready:
        reason = _RECOVERED if why in (_RECOVERS, _RECOVERED) else _STARTED
        holds, told = True, _ALL_READY
    elif before.get("status") == "True" or why == _RECOVERS:
        holds, reason, told = False, _RECOVERS, _LOST_ONE
    else:
        holds, reason, told = False, _WAITS, _NOT_READY
    if (before.get("status"), why) == ("True" if holds else "False", reason):
        return None
    draft = Draft.of(workload, now)
    draft.mark(PODS_READY, holds, reason, told)
    return draft.done()


def patience_ends(workload: Object, patience: PodsReadyPolicy) -> float:
    """When it is too late for the pods of a Workload to get ready."""
    since, limit, _ = _waits(workload, patience)
    return NEVER if limit is None else since + limit


def timed_out(workload: Object, patience: PodsReadyPolicy, now: float) -> Object | None:
    """Its pods were not ready in time: it tries again after a while, or never if it tried too often."""
    if patience_ends(workload, patience) > now:
        return None
    draft = Draft.of(workload, now)
    state = draft.status.get("requeueState") or {}
    tries = int(state.get("count") or 0) + 1
    if patience.retries_max is not None and tries > patience.retries_max:
        told = "exceeding the maximum number of re-queuing retries"
        draft.mark(DEACTIVATION_TARGET, True, "RequeuingLimitExceeded", told)
        return draft.done()
    wait = min(patience.backoff_base_seconds * 2.0 ** min(tries - 1, 60), patience.backoff_max_seconds)
    later = max(now + wait, seconds(str(state.get("requeueAt") or "")))
    draft.status["requeueState"] = {**state, "count": tries, "requeueAt": timestamp(later)}
    name = f"{workload['metadata'].get('namespace', 'default')}/{workload['metadata']['name']}"
    cause = _waits(workload, patience)[2]
    send_away(draft, TIMED_OUT, f"Exceeded the PodsReady timeout {name}", cause, tell_cause=False)
    return draft.done()


def time_is_up(workload: Object) -> float:
    """When a Workload has run for as long as it may."""
    most, admitted = workload["spec"].get("maximumExecutionTimeSeconds"), condition_of(workload, ADMITTED)
    if most is None or admitted is None or not is_true(workload, ADMITTED):
        return NEVER
    past = (workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0
    return seconds(str(admitted.get("lastTransitionTime") or "")) + float(most - past)


def overdue(workload: Object, now: float) -> Object | None:
    """It ran for longer than it may, and is not to come back."""
    if time_is_up(workload) > now or is_true(workload, DEACTIVATION_TARGET) or is_true(workload, FINISHED):
        return None
    draft = Draft.of(workload, now)
    told = "exceeding the maximum execution time"
    draft.mark(DEACTIVATION_TARGET, True, "MaximumExecutionTimeExceeded", told)
    draft.put("accumulatedPastExecutionTimeSeconds", None)
    return draft.done()


def replacements(workload: Object, absent: bool, now: float) -> Object | None:
    """Whether pods of a group have to be replaced by whoever made them."""
    known = condition_of(workload, REPLACEMENTS)
    if known is None and not absent:
        return None
    draft = Draft.of(workload, now)
    if absent:
        leaving = condition_of(workload, EVICTED) if is_true(workload, EVICTED) else None
        if leaving is not None:
            draft.mark(REPLACEMENTS, True, leaving["reason"], leaving["message"])
        elif not draft.holds(REPLACEMENTS):
            draft.mark(REPLACEMENTS, True, "PodsFailed", "Some Failed pods need replacement")
    elif draft.holds(REPLACEMENTS):
        draft.mark(REPLACEMENTS, False, PODS_READY, "No pods need replacement")
    return draft.done()


def on_hold(workload: Object, now: float) -> Object | None:
    """Nobody wants pods for now: quota is given back, and the line is left."""
    active = workload["spec"].get("active") is not False
    holding = is_true(workload, QUOTA_RESERVED) and not is_true(workload, EVICTED)
    if not (active and holding) or is_true(workload, FINISHED):
        return None
    draft = Draft.of(workload, now)
    draft.lose_quota(ON_HOLD, "StatefulSet scaled to zero; workload on hold")
    return draft.done()


def off_hold(workload: Object, now: float) -> Object | None:
    """Pods are wanted again."""
    known = condition_of(workload, QUOTA_RESERVED) or {}
    if known.get("status") != "False" or known.get("reason") != ON_HOLD:
        return None
    draft = Draft.of(workload, now)
    draft.lose_quota("PendingEvaluation", "Workload no longer on hold; waiting for quota reservation")
    return draft.done()


def _waits(workload: Object, patience: PodsReadyPolicy) -> tuple[float, float | None, str]:
    """Since when pods are awaited, for how long that may take, and what they are awaited for."""
    active = workload["spec"].get("active") is not False
    admitted, ready = condition_of(workload, ADMITTED), condition_of(workload, PODS_READY) or {}
    if not active or admitted is None or not is_true(workload, ADMITTED) or is_true(workload, EVICTED):
        return 0.0, None, ""
    if ready.get("status") == "True":
        return 0.0, None, ""
    if ready.get("reason", _WAITS) == _WAITS:
        return seconds(str(admitted.get("lastTransitionTime") or "")), patience.seconds, _WAITS
    since = seconds(str(ready.get("lastTransitionTime") or ""))
    return since, patience.recovery_seconds, _RECOVERS
