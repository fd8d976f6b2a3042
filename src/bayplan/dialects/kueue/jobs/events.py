"""Events about jobs that cannot be queued or admitted yet, with the reasons that Kueue uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Write
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import prebuilt_name
from bayplan.dialects.kueue.jobs.pod_group import group_workload
from bayplan.dialects.kueue.jobs.pod_group_members import annotations_of, is_runnable
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext
from bayplan.dialects.kueue.jobs.reconcile_pods import QueuedPodGroup
from bayplan.dialects.kueue.jobs.writes import NORMAL, WARNING, event_about, is_terminating
from bayplan.dialects.kueue.names.annotations import FAST_ADMISSION, IS_GROUP_WORKLOAD
from bayplan.dialects.kueue.status.conditions import ADMITTED, QUOTA_RESERVED, is_true

GROUP_CREATION_SECONDS = 1.0
"""The pods of a group are created one after the other; a group in creation is not reported."""

ERRORS_SHOWN_MAX = 5

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event that is published once while its condition lasts."""

    about: tuple[Object, ...]
    reason: str
    message: str
    type: str = NORMAL
    after_seconds: float = 0.0  # published only if the condition lasted this long

    def events(self, now: float) -> list[Write]:
        """The event for each object it regards."""
        return [event_about(one, self.reason, self.message, now, self.type) for one in self.about]


def invalid_job_event(job: Object, context: JobContext) -> JobEvent | None:
    """The errors that keep an invalid job from being queued."""
    errors = context.errors(job)
    if not errors:
        return None
    more = f" (and {len(errors) - ERRORS_SHOWN_MAX} more)" if len(errors) > ERRORS_SHOWN_MAX else ""
    shown = "; ".join(str(one) for one in errors[:ERRORS_SHOWN_MAX])
    return JobEvent(
        (job,), "InvalidJob", f"The job cannot be queued as it is written: {shown}{more}", WARNING
    )


def pending_checks_event(workload: Object | None, about: tuple[Object, ...]) -> JobEvent | None:
    """The messages of the pending admission checks of a Workload that has quota."""
    if workload is None or not is_true(workload, QUOTA_RESERVED) or is_true(workload, ADMITTED):
        return None
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    messages = [
        f"{check['name']}: {check['message']}"
        for check in checks
        if check.get("state") == "Pending" and check.get("message")
    ]
    return JobEvent(about, "UpdatedAdmissionCheck", "; ".join(messages)) if messages else None


def pod_group_event(group: QueuedPodGroup, workload: Object | None, context: JobContext) -> JobEvent | None:
    """Why a pod group has no Workload."""
    if prebuilt_name(Field(group.first), context.rules).text():
        return None
    if workload is not None:
        if annotations_of(workload).get(IS_GROUP_WORKLOAD) == "true":
            return None
        message = (
            f'A Workload named "{group.name}" already exists but is not a pod group workload; '
            "this pod group cannot be admitted"
        )
        return JobEvent((group.first,), "WorkloadNameConflict", message, WARNING)
    running_pods = [pod for pod in group.pods if is_runnable(pod)]
    if not running_pods:
        return None
    message = _incomplete(group, running_pods) or _invalid(running_pods, context)
    return (
        JobEvent((running_pods[0],), "ErrWorkloadCompose", message, WARNING, GROUP_CREATION_SECONDS)
        if message
        else None
    )


def _incomplete(group: QueuedPodGroup, running_pods: Sequence[Object]) -> str:
    fast = annotations_of(group.first).get(FAST_ADMISSION) == "true"
    terminating = any(is_terminating(pod) for pod in group.pods)
    if fast or terminating or len(running_pods) >= group.size:
        return ""
    return f"'{group.name}' group has fewer runnable pods than expected"


def _invalid(running_pods: Sequence[Object], context: JobContext) -> str:
    try:
        group_workload(
            [Field(pod) for pod in running_pods], context.find, context.rules, context.copied_metadata
        )
    except ValueError as wrong:
        return str(wrong)
    return ""
