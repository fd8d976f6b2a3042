"""The status of a Workload while it is rewritten: its conditions, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.status.rejection_messages import for_condition

Object = dict[str, Any]

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"
DEACTIVATION_TARGET = "DeactivationTarget"
GATED = "BlockedOnPreemptionGates"
ON_HOLD = "OnHold"
"""Why a Workload has no quota whose owner wants no pods for now."""

READY, PENDING, RETRY, REJECTED = "Ready", "Pending", "Retry", "Rejected"

_PAST_SECONDS = "accumulatedPastExecutionTimeSeconds"


def condition_of(workload: Object, kind: str) -> Object | None:
    """A condition of a Workload, if it has it."""
    return _find((workload.get("status") or {}).get("conditions"), kind)


def is_true(workload: Object, kind: str) -> bool:
    """Whether a Workload has a condition and it holds."""
    return _holds(condition_of(workload, kind))


def checks_in(checks: list[Object], state: str) -> list[Object]:
    """The checks in a state, by name."""
    found = [check for check in checks if check.get("state") == state]
    return sorted(found, key=lambda check: str(check.get("name", "")))


@dataclass(slots=True)
class Draft:
    """A status in the making. Conditions and checks are copies; everything else is replaced, not changed."""

    status: Object
    generation: int
    now: float
    before: Object

    @classmethod
    def of(cls, workload: Object, now: float) -> Draft:
        before = workload.get("status") or {}
        status = dict(before)
        for key in ("conditions", "admissionChecks", "preemptionGates"):
            if status.get(key):
                status[key] = [dict(entry) for entry in status[key]]
        return cls(status, int(workload.get("metadata", {}).get("generation") or 0), now, before)

    def done(self) -> Object | None:
        """The new status, or None if there is nothing to write."""
        return None if self.status == self.before else self.status

    @property
    def checks(self) -> list[Object]:
        return self.status.get("admissionChecks") or []

    def condition(self, kind: str) -> Object | None:
        return _find(self.status.get("conditions"), kind)

    def holds(self, kind: str) -> bool:
        return _holds(self.condition(kind))

    def put(self, key: str, value: Any) -> None:
        """Set a field, or leave it out if there is nothing to say."""
        if value:
            self.status[key] = value
        else:
            self.status.pop(key, None)

    def remove(self, kind: str) -> None:
        kept = [entry for entry in self.status.get("conditions") or [] if entry.get("type") != kind]
        self.put("conditions", kept)

    def mark(self, kind: str, holds: bool, reason: str, message: str, *, observed: bool = True) -> None:
        """Set a condition. Its transition time changes only with its status."""
        condition = self.condition(kind)
        status = "True" if holds else "False"
        if condition is None:
            condition = {"type": kind}
            self.status["conditions"] = [*(self.status.get("conditions") or ()), condition]
        if condition.get("status") != status:
            condition |= {"status": status, "lastTransitionTime": timestamp(self.now)}
        condition |= {"reason": reason, "message": for_condition(message)}
        if observed and self.generation:
            condition["observedGeneration"] = self.generation
        else:
            condition.pop("observedGeneration", None)

    def require_checks(self, names: tuple[str, ...]) -> None:
        """Have an entry for every check that is required, and for no other."""
        known = {check.get("name"): check for check in self.checks}
        fresh = {"state": PENDING, "message": "", "lastTransitionTime": timestamp(self.now)}
        if set(known) != set(names):
            self.put("admissionChecks", [known.get(name) or {"name": name} | fresh for name in sorted(names)])

    def sync_admitted(self) -> None:
        """Admitted is what has quota, the consent of every check, and a place for every pod."""
        if self.condition(QUOTA_RESERVED) is None and self.condition(ADMITTED) is None:
            return
        was = self.condition(ADMITTED)
        since = seconds(str(was.get("lastTransitionTime") or "")) if was and self.holds(ADMITTED) else None
        if not self.holds(QUOTA_RESERVED):
            self.mark(ADMITTED, False, "NoReservation", "The workload has no reservation")
        elif any(check.get("state") != READY for check in self.checks):
            self.mark(ADMITTED, False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
        elif _places_pending(self.status.get("admission")):
            why = "There are pending delayed topology requests"
            self.mark(ADMITTED, False, "PendingDelayedTopologyRequests", why)
        else:
            self.mark(ADMITTED, True, "Admitted", "The workload is admitted")
        if since is not None and not self.holds(ADMITTED):
            ran = max(0, int(self.now - since))
            self.status[_PAST_SECONDS] = self.status.get(_PAST_SECONDS, 0) + ran

    def lose_quota(self, reason: str, message: str) -> None:
        """Without quota there is no admission either."""
        self.mark(QUOTA_RESERVED, False, reason, message)
        self.status.pop("admission", None)
        self.sync_admitted()


def _find(conditions: list[Object] | None, kind: str) -> Object | None:
    return next((entry for entry in conditions or () if entry.get("type") == kind), None)


def _holds(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _places_pending(admission: Object | None) -> bool:
    pod_sets = (admission or {}).get("podSetAssignments") or ()
    return any(
        pod_set.get("delayedTopologyRequest") == PENDING and not pod_set.get("topologyAssignment")
        for pod_set in pod_sets
    )
