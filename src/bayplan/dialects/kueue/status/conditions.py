"""Conditions of a Workload, and the draft of a new status."""

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
"""Reason of the QuotaReserved condition of a Workload whose owner is scaled to zero."""

INADMISSIBLE = "Inadmissible"
"""Reason of the Requeued condition of a Workload that is refused as it is, until what it names changes."""

READY, PENDING, RETRY, REJECTED = "Ready", "Pending", "Retry", "Rejected"

_PAST_SECONDS = "accumulatedPastExecutionTimeSeconds"


def condition_of(workload: Object, kind: str) -> Object | None:
    """A condition of a Workload, or None."""
    return _find((workload.get("status") or {}).get("conditions"), kind)


def is_true(workload: Object, kind: str) -> bool:
    """Whether a condition of a Workload is True."""
    return _holds(condition_of(workload, kind))


def checks_in(checks: list[Object], state: str) -> list[Object]:
    """The checks in a state, by name."""
    matching = [check for check in checks if check.get("state") == state]
    return sorted(matching, key=lambda check: str(check.get("name", "")))


@dataclass(slots=True)
class Draft:
    """The draft of a status. Conditions and checks are copies; other fields are replaced, never mutated."""

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
        """The new status, or None if it did not change."""
        return None if self.status == self.before else self.status

    @property
    def checks(self) -> list[Object]:
        return self.status.get("admissionChecks") or []

    def condition(self, kind: str) -> Object | None:
        return _find(self.status.get("conditions"), kind)

    def holds(self, kind: str) -> bool:
        return _holds(self.condition(kind))

    def put(self, key: str, value: Any) -> None:
        """Set a field, or remove it if the value is empty."""
        if value:
            self.status[key] = value
        else:
            self.status.pop(key, None)

    def remove(self, kind: str) -> None:
        others = [entry for entry in self.status.get("conditions") or [] if entry.get("type") != kind]
        self.put("conditions", others)

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
        """Keep an entry for every required check, and for no other."""
        entries = {check.get("name"): check for check in self.checks}
        pending = {"state": PENDING, "message": "", "lastTransitionTime": timestamp(self.now)}
        if set(entries) != set(names):
            self.put(
                "admissionChecks", [entries.get(name) or {"name": name} | pending for name in sorted(names)]
            )

    def sync_admitted(self) -> None:
        """Set Admitted: true with quota, all checks ready and every pod set placed."""
        if self.condition(QUOTA_RESERVED) is None and self.condition(ADMITTED) is None:
            return
        before = self.condition(ADMITTED)
        since = (
            seconds(str(before.get("lastTransitionTime") or "")) if before and self.holds(ADMITTED) else None
        )
        if not self.holds(QUOTA_RESERVED):
            self.mark(ADMITTED, False, "NoReservation", "The workload has no reservation")
        elif any(check.get("state") != READY for check in self.checks):
            self.mark(ADMITTED, False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
        elif _placement_pending(self.status.get("admission")):
            message = "There are pending delayed topology requests"
            self.mark(ADMITTED, False, "PendingDelayedTopologyRequests", message)
        else:
            self.mark(ADMITTED, True, "Admitted", "The workload is admitted")
        if since is not None and not self.holds(ADMITTED):
            ran = max(0, int(self.now - since))
            self.status[_PAST_SECONDS] = self.status.get(_PAST_SECONDS, 0) + ran

    def release_quota(self, reason: str, message: str) -> None:
        """Release the quota, and with it the admission."""
        self.mark(QUOTA_RESERVED, False, reason, message)
        self.status.pop("admission", None)
        self.sync_admitted()


def _find(conditions: list[Object] | None, kind: str) -> Object | None:
    return next((entry for entry in conditions or () if entry.get("type") == kind), None)


def _holds(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _placement_pending(admission: Object | None) -> bool:
    pod_sets = (admission or {}).get("podSetAssignments") or ()
    return any(
        pod_set.get("delayedTopologyRequest") == PENDING and not pod_set.get("topologyAssignment")
        for pod_set in pod_sets
    )
