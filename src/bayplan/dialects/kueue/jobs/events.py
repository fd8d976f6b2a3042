"""What people are told about jobs for which nothing can be done yet; the words are those they know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Write
from bayplan.dialects.jobs.soundness import flaws
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import prebuilt_name
from bayplan.dialects.kueue.jobs.pod_group import group_workload
from bayplan.dialects.kueue.jobs.pod_group_members import notes_of, runnable
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext
from bayplan.dialects.kueue.jobs.reconcile_pods import QueuedPodGroup
from bayplan.dialects.kueue.jobs.writes import NORMAL, WARNING, is_leaving, told
from bayplan.dialects.kueue.names.annotations import FAST_ADMISSION, OF_GROUP
from bayplan.dialects.kueue.status.conditions import ADMITTED, QUOTA_RESERVED, is_true

GATHERING_SECONDS = 1.0
"""The pods of a group are made one after the other; nobody need be told that the last is on its way."""

FLAWS_TOLD = 5

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event that is told once for as long as it stays true."""

    about: tuple[Object, ...]
    reason: str
    message: str
    type: str = NORMAL
    after_seconds: float = 0.0  # it must have been true for so long

    def events(self, now: float) -> list[Write]:
        """The event about each of its objects."""
        return [told(one, self.reason, self.message, now, self.type) for one in self.about]


def unreadable(job: Object, known: JobContext) -> JobEvent | None:
    """What has to be corrected in a job before it can be queued."""
    found = flaws(job, known.find)
    if not found:
        return None
    more = f" (and {len(found) - FLAWS_TOLD} more)" if len(found) > FLAWS_TOLD else ""
    told_of = "; ".join(str(one) for one in found[:FLAWS_TOLD])
    return JobEvent(
        (job,), "InvalidJob", f"The job cannot be queued as it is written: {told_of}{more}", WARNING
    )


def waiting_for_checks(workload: Object | None, about: tuple[Object, ...]) -> JobEvent | None:
    """What the admission checks say that a Workload with quota waits for."""
    if workload is None or not is_true(workload, QUOTA_RESERVED) or is_true(workload, ADMITTED):
        return None
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    said = [
        f"{check['name']}: {check['message']}"
        for check in checks
        if check.get("state") == "Pending" and check.get("message")
    ]
    return JobEvent(about, "UpdatedAdmissionCheck", "; ".join(said)) if said else None


def group_without_workload(
    group: QueuedPodGroup, workload: Object | None, known: JobContext
) -> JobEvent | None:
    """Why a group of pods has no Workload of its own."""
    if prebuilt_name(Field(group.first), known.rules).text():
        return None
    if workload is not None:
        if notes_of(workload).get(OF_GROUP) == "true":
            return None
        message = (
            f'A Workload named "{group.name}" already exists but is not a pod group workload; '
            "this pod group cannot be admitted"
        )
        return JobEvent((group.first,), "WorkloadNameConflict", message, WARNING)
    there = [pod for pod in group.pods if runnable(pod)]
    if not there:
        return None
    why = _incomplete(group, there) or _unfit(there, known)
    return JobEvent((there[0],), "ErrWorkloadCompose", why, WARNING, GATHERING_SECONDS) if why else None


def _incomplete(group: QueuedPodGroup, there: Sequence[Object]) -> str:
    fast = notes_of(group.first).get(FAST_ADMISSION) == "true"
    going = any(is_leaving(pod) for pod in group.pods)
    if fast or going or len(there) >= group.size:
        return ""
    return f"'{group.name}' group has fewer runnable pods than expected"


def _unfit(there: Sequence[Object], known: JobContext) -> str:
    try:
        group_workload([Field(pod) for pod in there], known.find, known.rules, known.copied)
    except ValueError as wrong:
        return str(wrong)
    return ""
