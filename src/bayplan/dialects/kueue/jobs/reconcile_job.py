"""Reconciliation of a job that has a suspend flag with its Workload.

Every function returns the next writes, or none if nothing is to be done. The caller reconciles again once
they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from bayplan.dialects.jobs.injection import InjectionConflict
from bayplan.dialects.jobs.kinds import parts
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.jobs.start_stop import is_suspendable, resource, status_reader, suspended
from bayplan.dialects.jobs.validation import flaws
from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.kueue.fields.job_rules import prebuilt_name
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.elastic import (
    JobChange,
    change,
    finish_replaced,
    has_scaled_down,
    is_replaced,
    is_scaled,
    is_up_to_date,
    next_slice,
    slices_of,
    with_counts_of,
)
from bayplan.dialects.kueue.jobs.evictions import enforce_deadlines, eviction_message, finish_eviction
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.start_stop import is_fully_suspended, start, stop, suspend_invalid
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.jobs.workload import NONE, Copied, job_workload, owner
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    controller,
    create,
    delete_workload,
    event_about,
    is_terminating,
    key_of,
    patch_object,
    with_status,
    without_finalizer,
)
from bayplan.dialects.kueue.names.annotations import GATED_BY, JOB_UID, PRIORITY_CLASS, QUEUE
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    is_true,
)

Object = dict[str, Any]
T = TypeVar("T")


class Recall(Protocol):
    """The answer of a name about a job: what `work` returns, which may be remembered.

    `work` gets the look-up to use. Its answer is shared, so it must not be changed.
    """

    def __call__(self, name: str, job: Object, find: Find, work: Callable[[Find], T]) -> T: ...


def _forgetful(name: str, job: Object, find: Find, work: Callable[[Find], T]) -> T:
    return work(find)


def _no_bound_pods(namespace: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the reconcilers need besides a job and its Workloads."""

    find: Find = find_nothing  # priority classes, runtimes
    flavors: Mapping[str, Object] = field(default_factory=dict)
    rules: FeatureSwitches = RULES
    pods_ready_policy: PodsReadyPolicy | None = None
    copied_metadata: Copied = NONE
    has_bound_pods: Callable[[str, str], bool] = _no_bound_pods  # whether a Workload has bound pods
    recall: Recall = _forgetful

    def errors(self, job: Object) -> tuple[FieldError, ...]:
        """The structural errors of a job."""
        return self.recall("errors", job, self.find, lambda find: flaws(job, find))

    def workload(self, job: Object) -> Object:
        """The Workload that a job (or its first replica) should have; ValueError as of `job_workload`."""
        return self.recall(
            "workload",
            job,
            self.find,
            lambda find: job_workload(Field(job), 0, find, self.rules, self.copied_metadata),
        )


def reconcile_orphan(workload: Object, now: float) -> list[WriteWithEvents]:
    """Finish a Workload whose job is deleted or terminating, and remove its finalizer."""
    if not is_terminating(workload) and controller(workload) is not None:
        message = "The workload's owner no longer exists"
        status = job_statuses.finished(workload, "OwnerNotFound", message, now)
        if status is not None:
            return [with_status(workload, status)]
    return without_finalizer(WORKLOADS, workload)


def reconcile_child(job: Object, above: Object | None, now: float) -> list[WriteWithEvents]:
    """Suspend a child of a queued job unless the Workload of the parent (`above`, if any) is admitted."""
    if (
        status_reader(job["kind"]).ended(Field(job)) is not None
        or is_fully_suspended(job)
        or not is_suspendable(job)
    ):
        return []
    if above is not None and is_true(above, ADMITTED):
        return []
    event = event_about(job, "Suspended", "Kueue managed child job suspended", now)
    return [patch_object(resource(job["kind"]), job, suspended(job), event)]


def reconcile_job(
    job: Object, workloads: Sequence[Object], context: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for a queued job; `workloads` are those it owns, or the prebuilt one it names."""
    if context.errors(job):
        return suspend_invalid(job, workloads, now)
    pods = parts(Field(job), context.find)
    if not pods or not all(part.count_known for part in pods):
        return []  # no pods, or its runtime is not known yet
    if prebuilt_name(Field(job), context.rules).text():
        match, writes = _adopt_prebuilt(job, workloads, context, now)
    else:
        try:
            wanted = context.workload(job)
        except ValueError:
            return []  # reported by the webhook; a job that bypassed it stays pending
        if is_scaled(job, context.rules):
            return _reconcile_slices(job, workloads, wanted, context, now)
        match, writes = _matching_workload(job, workloads, wanted, context, now)
        if not writes and match is None:
            writes = _create_workload(job, wanted, now)
    if writes or match is None:
        return writes
    return _finish(job, match, context, now) or _advance(job, match, context, now)


def _reconcile_slices(
    job: Object, workloads: Sequence[Object], wanted: Object, context: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for an elastic job, which is resized without being suspended."""
    for one in workloads:
        if is_replaced(one) and (finalizer_writes := without_finalizer(WORKLOADS, one)):
            return finalizer_writes
    slices = slices_of(workloads)
    current, successor = slices.current, slices.successor
    if replaced_writes := finish_replaced(slices.replaced, now):
        return replaced_writes
    is_ending = current is not None and (
        is_true(current, EVICTED) or is_terminating(current) or is_true(current, FINISHED)
    )
    difference = JobChange.OTHER if current is None or is_fully_suspended(job) else change(current, wanted)
    if difference is JobChange.LARGER and not is_ending and _end_of(job) is None:
        assert current is not None
        wanted = next_slice(wanted, job, context.find, current)
        return _scale_up(job, current, successor, wanted, context, now)
    if successor is not None:  # no longer needed
        event = event_about(job, "DeletedWorkload", f"Deleted unneeded Workload: {key_of(successor)}", now)
        return delete_workload(successor, event)
    if current is not None and (is_ending or difference is not JobChange.OTHER):
        if difference is JobChange.SMALLER and not is_ending and has_scaled_down(job, wanted, context.find):
            event = event_about(job, "UpdatedWorkload", f"Scaled down Workload: {key_of(current)}", now)
            return [patch_object(WORKLOADS, current, with_counts_of(current, wanted), event)]
        sync_writes = [] if is_ending else _sync_with_job(job, current, wanted, now)
        return sync_writes or _finish(job, current, context, now) or _advance(job, current, context, now)
    wanted = next_slice(wanted, job, context.find)
    match, writes = _matching_workload(job, slices.active, wanted, context, now)
    if writes or match is None:
        return writes or _create_workload(job, wanted, now)
    return _finish(job, match, context, now) or _advance(job, match, context, now)


def _scale_up(
    job: Object, current: Object, successor: Object | None, wanted: Object, context: JobContext, now: float
) -> list[WriteWithEvents]:
    """Scale up: the job keeps running, and a new slice requests quota for all its pods."""
    if successor is None:
        event = event_about(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
        return [create(WORKLOADS, wanted, event)]
    if is_true(successor, QUOTA_RESERVED) and not is_up_to_date(successor, wanted):
        return delete_workload(successor)
    if not is_up_to_date(successor, wanted):
        return _rewrite_workload(job, successor, wanted, now)
    sync_writes = _sync_with_job(job, successor, wanted, now) or _sync_with_job(job, current, wanted, now)
    return sync_writes or enforce_deadlines(current, context.pods_ready_policy, now)


def _matching_workload(
    job: Object, workloads: Sequence[Object], wanted: Object, context: JobContext, now: float
) -> tuple[Object | None, list[WriteWithEvents]]:
    """The Workload that matches the job; or the writes for those that do not match."""
    suspended = is_fully_suspended(job)
    match = next((one for one in workloads if matches(one, wanted, suspended=suspended)), None)
    others = [one for one in workloads if one is not match]
    if match is None and others and suspended and not is_true(others[0], QUOTA_RESERVED):
        if is_true(others[0], FINISHED) or is_terminating(others[0]):
            return None, [write for one in others for write in delete_workload(one)]
        return None, _rewrite_workload(job, others[0], wanted, now)
    if match is None and not suspended and _end_of(job) is None:
        existing = others[0] if len(others) == 1 else None
        message = (
            "Missing Workload; unable to restore pod templates"
            if existing is None
            else "No matching Workload; restoring pod templates according to existent Workload"
        )
        return None, stop(job, existing, message, context.find, now)
    if others:
        return None, [
            write
            for one in others
            for write in delete_workload(
                one, event_about(job, "DeletedWorkload", f"Deleted not matching Workload: {key_of(one)}", now)
            )
        ]
    return match, [] if match is None else _sync_with_job(job, match, wanted, now)


def _rewrite_workload(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    spec = dict(wanted["spec"])
    if "active" in workload["spec"]:
        spec["active"] = workload["spec"]["active"]
    message = f"Updated not matching Workload for suspended job: {key_of(workload)}"
    after = {**workload, "spec": spec}
    return [patch_object(WORKLOADS, workload, after, event_about(job, "UpdatedWorkload", message, now))]


def _sync_with_job(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """Copy admission gates and priority class from the job, also while it runs."""
    if is_true(workload, FINISHED) or is_terminating(workload):
        return []
    return sync_admission_gate(job, workload, now) or sync_priority_class(job, workload, wanted, now)


def sync_admission_gate(job: Object, workload: Object, now: float) -> list[WriteWithEvents]:
    """Copy the admission gates of a job to its Workload."""
    gate = (job["metadata"].get("annotations") or {}).get(GATED_BY, "")
    annotations = workload["metadata"].get("annotations") or {}
    if annotations.get(GATED_BY, "") == gate:
        return []
    updated = {key: value for key, value in annotations.items() if key != GATED_BY} | (
        {GATED_BY: gate} if gate else {}
    )
    after = {**workload, "metadata": {**workload["metadata"], "annotations": updated}}
    event = event_about(job, "UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gate}"', now)
    return [patch_object(WORKLOADS, workload, after, event)]


def sync_priority_class(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """Copy the priority class of a job to its Workload."""
    spec = workload["spec"]
    ref = spec.get("priorityClassRef")
    if ref is None and is_true(workload, QUOTA_RESERVED):
        return []  # the API does not allow to add one while quota is reserved
    if ref is not None and ref.get("kind") != "WorkloadPriorityClass":
        return []
    name = (job["metadata"].get("labels") or {}).get(PRIORITY_CLASS, "")
    if (ref or {}).get("name", "") == name:
        return []
    keys = ("priority", "priorityClassRef")
    priority = {key: wanted["spec"][key] for key in keys if key in wanted["spec"]}
    after = {**workload, "spec": {key: spec[key] for key in spec if key not in keys} | priority}
    event = event_about(job, "UpdatedWorkload", f"Updated workload priority class: {key_of(workload)}", now)
    return [patch_object(WORKLOADS, workload, after, event)]


def _adopt_prebuilt(
    job: Object, workloads: Sequence[Object], context: JobContext, now: float
) -> tuple[Object | None, list[WriteWithEvents]]:
    """Adopt the prebuilt Workload that a job names, unless another job controls it."""
    uid = job["metadata"].get("uid", "")
    workload = next(iter(workloads), None)
    owner_ref = controller(workload) if workload is not None else None
    if workload is None or (owner_ref is not None and owner_ref.get("uid") != uid):
        running = _end_of(job) is None
        return None, stop(job, None, "missing workload", context.find, now) if running else []
    if owner_ref is None:
        meta = workload["metadata"]
        labels = {**(meta.get("labels") or {}), JOB_UID: uid}
        references = [*(meta.get("ownerReferences") or ()), owner(Field(job), controls=True)]
        after = {**workload, "metadata": {**meta, "labels": labels, "ownerReferences": references}}
        return None, [patch_object(WORKLOADS, workload, after)]
    try:
        wanted = context.workload(job)
    except ValueError:
        return None, []
    if not matches(workload, wanted, suspended=is_fully_suspended(job)) and not is_true(workload, FINISHED):
        message = "The prebuilt workload is out of sync with its user job"
        status = job_statuses.finished(workload, "OutOfSync", message, now)
        return None, [with_status(workload, status)] if status is not None else []
    return workload, []


def _create_workload(job: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """Create the Workload of a job once it has no active pods."""
    if _end_of(job) is not None or status_reader(job["kind"]).active(Field(job)):
        return []
    event = event_about(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    return [create(WORKLOADS, wanted, event)]


def _finish(job: Object, workload: Object, context: JobContext, now: float) -> list[WriteWithEvents]:
    """The writes for a finished or terminating Workload, or a finished job."""
    if is_true(workload, FINISHED):
        return without_finalizer(WORKLOADS, workload)
    if is_terminating(workload):
        return stop(job, workload, "Workload is deleted", context.find, now) or without_finalizer(
            WORKLOADS, workload
        )
    end = _end_of(job)
    if end is None:
        return []
    reason = "Succeeded" if end.succeeded else "Failed"
    status = job_statuses.finished(workload, reason, end.message, now)
    event = event_about(job, "FinishedWorkload", f"Workload '{key_of(workload)}' is declared finished", now)
    return [with_status(workload, status, event)] if status is not None else []


def _advance(job: Object, workload: Object, context: JobContext, now: float) -> list[WriteWithEvents]:
    """The writes for a job that is pending, running or evicted."""
    if is_true(workload, FINISHED) or _end_of(job) is not None:
        return []
    reader, job_field = status_reader(job["kind"]), Field(job)
    pods = parts(job_field, context.find)
    reclaimable = reader.reclaimable(job_field, pods)
    status = job_statuses.reclaimed(workload, reclaimable)
    if status is None:
        status = job_statuses.pods_restarted(workload, reclaimable, now)
    if status is None and context.pods_ready_policy is not None:
        status = job_statuses.pods_ready(workload, reader.ready(job_field, pods), now)
    if status is not None:
        return [with_status(workload, status)]
    if is_true(workload, EVICTED):
        meta = workload["metadata"]  # the job's status may be stale, or its pods belong to child jobs
        active = reader.active(job_field) or context.has_bound_pods(
            meta.get("namespace", "default"), meta["name"]
        )
        stopping = stop(job, workload, eviction_message(workload), context.find, now)
        return finish_eviction(stopping, workload, active, now, reclaimable)
    if deadline_writes := enforce_deadlines(workload, context.pods_ready_policy, now):
        return deadline_writes
    admitted = is_true(workload, ADMITTED)
    if is_fully_suspended(job):
        return _start(job, workload, context, now) if admitted else sync_queue_name(job, workload)
    return [] if admitted else stop(job, workload, "Not admitted by cluster queue", context.find, now)


def next_deadline(workload: Object, context: JobContext) -> float:
    """When a deadline of a Workload expires."""
    if is_true(workload, FINISHED) or is_true(workload, EVICTED):
        return job_statuses.NEVER
    ready = job_statuses.NEVER
    if context.pods_ready_policy is not None:
        ready = job_statuses.pods_ready_deadline(workload, context.pods_ready_policy)
    return min(ready, job_statuses.execution_deadline(workload))


def sync_queue_name(job: Object, workload: Object) -> list[WriteWithEvents]:
    """Copy the queue name of a pending job to its Workload."""
    name = (job["metadata"].get("labels") or {}).get(QUEUE, "")
    if workload["spec"].get("queueName", "") == name:
        return []
    return [patch_object(WORKLOADS, workload, {**workload, "spec": {**workload["spec"], "queueName": name}})]


def _start(job: Object, workload: Object, context: JobContext, now: float) -> list[WriteWithEvents]:
    try:
        return start(job, workload, context.flavors, context.find, context.rules, now)
    except KeyError:
        return []  # a flavor does not exist (yet)
    except InjectionConflict as wrong:
        status = job_statuses.finished(workload, "FailedToStart", str(wrong), now)
        return [with_status(workload, status)] if status is not None else []


def _end_of(job: Object) -> Any:
    return status_reader(job["kind"]).ended(Field(job))
