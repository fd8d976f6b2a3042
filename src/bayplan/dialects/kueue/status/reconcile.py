"""What becomes of a Workload's status between decisions: checks answer, gangs leave, waits end.

None means: as it is, nothing to write.
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
from bayplan.dialects.kueue.status.decisions import NO_PLACE_IN_TIME, NODE_FAILURES, send_away
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.quota import StopPolicy

ADMISSION_CHECK = "AdmissionCheck"
DEACTIVATED = "Deactivated"
BACKED_OFF = (ADMISSION_CHECK, "PodsReadyTimeout")
COME_BACK = ("Preempted", NODE_FAILURES, NO_PLACE_IN_TIME)
"""Who left for these reasons is in line again at once; others wait for something."""


@dataclass(frozen=True, slots=True)
class QueueOnPath:
    """A queue on a gang's way in: a LocalQueue or a ClusterQueue, and whether it lets anybody in."""

    kind: str
    name: str
    stop: StopPolicy | None  # None: there is no such queue

    @property
    def reason(self) -> str:
        """Why a gang leaves that it sends away."""
        return f"{self.kind}Stopped"


def synced(workload: Object, checks: Iterable[str], now: float) -> Object | None:
    """Bring a status up to date with its checks (the names of those required) and with `spec.active`."""
    draft = Draft.of(workload, now)
    if draft.holds(FINISHED):
        return None
    if (workload.get("spec") or {}).get("active") is False:
        _deactivate(draft)
        return draft.done()
    _put_off(draft)
    _end_wait(draft)
    draft.require_checks(tuple(checks))
    if not draft.holds(ADMITTED) and not draft.holds(EVICTED):
        draft.sync_admitted()
    if draft.holds(QUOTA_RESERVED) and not draft.holds(EVICTED):
        _heed_checks(draft)
    return draft.done()


def left(workload: Object, why: str, message: str, now: float, cause: str = "") -> Object | None:
    """A gang has to leave for a reason that no decision gave, such as a queue that was stopped."""
    if is_true(workload, EVICTED):
        return None
    draft = Draft.of(workload, now)
    send_away(draft, why, message, cause)
    return draft.done()


def heeding(workload: Object, way: Sequence[QueueOnPath], now: float) -> Object | None:
    """Heed queues that were stopped, started or removed: who is in may have to leave, who left comes back."""
    waiting = condition_of(workload, REQUEUED) or {}
    sent_away_by = str(waiting.get("reason", "")) if waiting.get("status") == "False" else ""
    for queue in way:
        if queue.stop is StopPolicy.OPEN and sent_away_by == queue.reason:
            told = f"The {queue.kind} was restarted after being stopped"
            return requeued(workload, f"{queue.kind}Restarted", told, now)
    draft = Draft.of(workload, now)
    if draft.holds(FINISHED) or (draft.holds(EVICTED) and draft.holds(QUOTA_RESERVED)):
        return None
    for queue in way:
        if draft.holds(ADMITTED):
            if queue.stop is StopPolicy.DRAIN:
                return left(workload, queue.reason, f"The {queue.kind} is stopped", now)
        elif draft.holds(QUOTA_RESERVED):
            if queue.stop is not StopPolicy.OPEN:
                draft.lose_quota(*_shut(queue, "stopped", "is terminating or missing"))
                break
        elif queue.stop is not StopPolicy.OPEN:
            draft.lose_quota(*_shut(queue, "inactive", "doesn't exist"))
            break
    return draft.done()


def released(workload: Object, now: float) -> Object | None:
    """The pods of a gang that had to leave are gone: it gives back its quota and is in line again."""
    draft = Draft.of(workload, now)
    leaving = draft.condition(EVICTED)
    if leaving is None or not draft.holds(EVICTED) or not draft.holds(QUOTA_RESERVED):
        return None
    why, message = str(leaving.get("reason", "")), str(leaving.get("message", ""))
    draft.mark(REQUEUED, why in COME_BACK and not is_of_one_pod(workload), why, message)
    draft.lose_quota("PendingEvaluation", message)
    return draft.done()


def requeued(workload: Object, why: str, message: str, now: float) -> Object | None:
    """What a gang waited for has come, such as a queue that was started again."""
    draft = Draft.of(workload, now)
    draft.mark(REQUEUED, True, why, message)
    return draft.done()


def shall_be_deactivated(workload: Object) -> bool:
    """Whether `spec.active` is to be set to false."""
    return is_true(workload, DEACTIVATION_TARGET) and (workload.get("spec") or {}).get("active") is not False


def _shut(queue: QueueOnPath, how: str, missing: str) -> tuple[str, str]:
    """Why a queue lets nobody in: the reason of a condition, and in words."""
    if queue.stop is None:
        return "Misconfigured", f"{queue.kind} {queue.name} {missing}"
    return "Suspended", f"{queue.kind} {queue.name} is {how}"


def _deactivate(draft: Draft) -> None:
    target = draft.condition(DEACTIVATION_TARGET)
    draft.put("requeueState", None)
    draft.remove(DEACTIVATION_TARGET)
    if not draft.holds(EVICTED):
        cause = str(target.get("reason", "")) if target else ""
        due = f" due to {target.get('message', '')}" if target else ""
        send_away(draft, DEACTIVATED, f"The workload is deactivated{due}", cause)
    if not draft.holds(QUOTA_RESERVED):
        draft.mark(QUOTA_RESERVED, False, DEACTIVATED, "The workload is deactivated")
        draft.sync_admitted()


def _put_off(draft: Draft) -> None:
    """A check that asks to be tried again later may say when."""
    state = draft.status.get("requeueState") or {}
    times = [
        seconds(str(check["lastTransitionTime"])) + check["requeueAfterSeconds"]
        for check in checks_in(draft.checks, RETRY)
        if check.get("requeueAfterSeconds") is not None and check.get("lastTransitionTime")
    ]
    latest = max(times, default=0.0)
    if latest > max(draft.now, seconds(str(state.get("requeueAt") or ""))):
        draft.status["requeueState"] = {**state, "requeueAt": timestamp(latest)}


def waits_until(workload: Object) -> float:
    """When a gang that was put off is to be back in line; 0 if it is, or nobody said when."""
    waiting = condition_of(workload, REQUEUED) or {}
    if waiting.get("status") != "False":
        return 0.0
    return seconds(str(((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt") or ""))


def _end_wait(draft: Draft) -> None:
    """A gang that was kept out of the line may be back in it."""
    waiting = draft.condition(REQUEUED)
    if waiting is None or waiting.get("status") != "False":
        return
    why, state = str(waiting.get("reason", "")), draft.status.get("requeueState") or {}
    if why.startswith(DEACTIVATED):
        draft.mark(REQUEUED, True, "Reactivated", "The workload was reactivated")
    elif why in BACKED_OFF and seconds(str(state.get("requeueAt") or "")) <= draft.now:
        draft.put("requeueState", {key: value for key, value in state.items() if key != "requeueAt"})
        draft.mark(REQUEUED, True, "BackoffFinished", "The workload backoff was finished")


def _heed_checks(draft: Draft) -> None:
    """A check that says no ends the matter; one that says not now sends the gang back."""
    rejected, retry = checks_in(draft.checks, REJECTED), checks_in(draft.checks, RETRY)
    if rejected:
        draft.mark(DEACTIVATION_TARGET, True, ADMISSION_CHECK, _told(rejected, REJECTED))
    elif retry:
        send_away(draft, ADMISSION_CHECK, f"Evicted due to {_told(retry, RETRY)}")


def _told(checks: list[Object], state: str) -> str:
    names = [
        quoted(str(check.get("name", ""))) + (f" ({check['message']})" if check.get("message") else "")
        for check in checks
    ]
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {'; '.join(names)}"


def is_of_one_pod(workload: Object) -> bool:
    """A Workload of a single Pod ends with it: nothing could use another place."""
    meta = workload.get("metadata") or {}
    owners: list[Object] = meta.get("ownerReferences") or []
    grouped = (meta.get("annotations") or {}).get("kueue.x-k8s.io/is-group-workload") == "true"
    return len(owners) == 1 and owners[0].get("kind") == "Pod" and not grouped
