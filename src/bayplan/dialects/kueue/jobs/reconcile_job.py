"""A job that is held back by a flag, and its Workload: what has to be done next for the two to agree.

Every function gives writes, or none if all is well. Whoever makes them looks again once they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.jobs.kinds import Find, parts
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.jobs.running import faring, is_suspendable, resource, suspended
from bayplan.dialects.jobs.soundness import flaws
from bayplan.dialects.jobs.starting import InjectionConflict
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import prebuilt_name
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.elastic import (
    JobChange,
    as_slice,
    change,
    has_shrunk,
    is_as_wanted,
    is_replaced,
    is_scaled,
    replacements,
    resized,
    slices_of,
)
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.start_stop import is_held, kept_back, start, stop
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.jobs.workload import NONE, Copied, job_workload, owner
from bayplan.dialects.kueue.jobs.writes import (
    WARNING,
    WriteWithEvents,
    changed,
    controller,
    created,
    is_leaving,
    key_of,
    removed,
    told,
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
    condition_of,
    is_true,
)
from bayplan.dialects.kueue.status.reconcile import released

Object = dict[str, Any]


def _nobody(namespace: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class JobContext:
    """What jobs depend on besides their Workloads."""

    find: Find = nothing  # priority classes, runtimes
    flavors: Mapping[str, Object] = field(default_factory=dict)
    rules: FeatureSwitches = RULES
    patience: PodsReadyPolicy | None = None
    copied: Copied = NONE
    stands: Callable[[str, str], bool] = _nobody  # whether pods of a Workload are sent to hosts and not over


def orphaned(workload: Object, now: float) -> list[WriteWithEvents]:
    """The job of a Workload is no more, or is going."""
    if not is_leaving(workload) and controller(workload) is not None:
        told_so = "The workload's owner no longer exists"
        status = job_statuses.finished(workload, "OwnerNotFound", told_so, now)
        if status is not None:
            return [with_status(workload, status)]
    return without_finalizer(WORKLOADS, workload)


def keep_child(job: Object, above: Object | None, now: float) -> list[WriteWithEvents]:
    """A job that another queued job made runs only while that one's Workload (if any) is admitted."""
    told_status = faring(job["kind"])
    if told_status.ended(Field(job)) is not None or is_held(job) or not is_suspendable(job):
        return []
    if above is not None and is_true(above, ADMITTED):
        return []
    event = told(job, "Suspended", "Kueue managed child job suspended", now)
    return [changed(resource(job["kind"]), job, suspended(job), event)]


def keep_job(
    job: Object, workloads: Sequence[Object], known: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for a job that names a queue; `workloads` are those it owns, or the one it names."""
    if flaws(job, known.find):
        return kept_back(job, workloads, now)
    pods = parts(Field(job), known.find)
    if not pods or not all(part.counted for part in pods):
        return []  # it has no pods of its own, or its runtime is not known yet
    if prebuilt_name(Field(job), known.rules).text():
        match, deeds = _prebuilt(job, workloads, known, now)
    else:
        try:
            wanted = job_workload(Field(job), 0, known.find, known.rules, known.copied)
        except ValueError:
            return []  # the webhook says what is wrong; whoever got past it waits
        if is_scaled(job, known.rules):
            return _keep_slices(job, workloads, wanted, known, now)
        match, deeds = _one_workload(job, workloads, wanted, known, now)
        if not deeds and match is None:
            deeds = _without_workload(job, wanted, now)
    if deeds or match is None:
        return deeds
    return _settled(job, match, known, now) or _going_on(job, match, known, now)


def _keep_slices(
    job: Object, workloads: Sequence[Object], wanted: Object, known: JobContext, now: float
) -> list[WriteWithEvents]:
    """A job that may change its size while it runs is not stopped for that."""
    for one in workloads:
        if is_replaced(one) and (free := without_finalizer(WORKLOADS, one)):
            return free
    slices = slices_of(workloads)
    current, coming = slices.current, slices.coming
    if over := replacements(slices.past, now):
        return over
    settles = current is not None and (
        is_true(current, EVICTED) or is_leaving(current) or is_true(current, FINISHED)
    )
    differs = JobChange.OTHER if current is None or is_held(job) else change(current, wanted)
    if differs is JobChange.LARGER and not settles and _ending(job) is None:
        assert current is not None
        return _grown(job, current, coming, as_slice(wanted, job, known.find, current), known, now)
    if coming is not None:  # nobody needs it any more
        return removed(
            coming, told(job, "DeletedWorkload", f"Deleted unneeded Workload: {key_of(coming)}", now)
        )
    if current is not None and (settles or differs is not JobChange.OTHER):
        if differs is JobChange.SMALLER and not settles and has_shrunk(job, wanted, known.find):
            event = told(job, "UpdatedWorkload", f"Scaled down Workload: {key_of(current)}", now)
            return [changed(WORKLOADS, current, resized(current, wanted), event)]
        alike = [] if settles else _kept_alike(job, current, wanted, now)
        return alike or _settled(job, current, known, now) or _going_on(job, current, known, now)
    wanted = as_slice(wanted, job, known.find)
    match, deeds = _one_workload(job, slices.living, wanted, known, now)
    if deeds or match is None:
        return deeds or _without_workload(job, wanted, now)
    return _settled(job, match, known, now) or _going_on(job, match, known, now)


def _grown(
    job: Object, current: Object, coming: Object | None, wanted: Object, known: JobContext, now: float
) -> list[WriteWithEvents]:
    """A job that needs more pods than it has runs on; another Workload asks for all of them together."""
    if coming is None:
        event = told(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
        return [created(WORKLOADS, wanted, event)]
    if is_true(coming, QUOTA_RESERVED) and not is_as_wanted(coming, wanted):
        return removed(coming)
    if not is_as_wanted(coming, wanted):
        return _rewritten(job, coming, wanted, now)
    alike = _kept_alike(job, coming, wanted, now) or _kept_alike(job, current, wanted, now)
    return alike or too_late(current, known.patience, now)


def _one_workload(
    job: Object, workloads: Sequence[Object], wanted: Object, known: JobContext, now: float
) -> tuple[Object | None, list[WriteWithEvents]]:
    """The Workload that stands for the job; or what to do about those that do not."""
    held = is_held(job)
    match = next((one for one in workloads if matches(one, wanted, suspended=held)), None)
    others = [one for one in workloads if one is not match]
    if match is None and others and held and not is_true(others[0], QUOTA_RESERVED):
        if is_true(others[0], FINISHED) or is_leaving(others[0]):
            return None, [deed for one in others for deed in removed(one)]
        return None, _rewritten(job, others[0], wanted, now)
    if match is None and not held and _ending(job) is None:
        before = others[0] if len(others) == 1 else None
        message = (
            "Missing Workload; unable to restore pod templates"
            if before is None
            else "No matching Workload; restoring pod templates according to existent Workload"
        )
        return None, stop(job, before, message, known.find, now)
    if others:
        return None, [
            deed
            for one in others
            for deed in removed(
                one, told(job, "DeletedWorkload", f"Deleted not matching Workload: {key_of(one)}", now)
            )
        ]
    return match, [] if match is None else _kept_alike(job, match, wanted, now)


def _rewritten(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    spec = dict(wanted["spec"])
    if "active" in workload["spec"]:
        spec["active"] = workload["spec"]["active"]
    message = f"Updated not matching Workload for suspended job: {key_of(workload)}"
    after = {**workload, "spec": spec}
    return [changed(WORKLOADS, workload, after, told(job, "UpdatedWorkload", message, now))]


def _kept_alike(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """Annotation and priority follow the job even while it runs."""
    if is_true(workload, FINISHED) or is_leaving(workload):
        return []
    return gate_followed(job, workload, now) or priority_followed(job, workload, wanted, now)


def gate_followed(job: Object, workload: Object, now: float) -> list[WriteWithEvents]:
    """Who has to agree before the job is admitted may change."""
    gate = (job["metadata"].get("annotations") or {}).get(GATED_BY, "")
    notes = workload["metadata"].get("annotations") or {}
    if notes.get(GATED_BY, "") == gate:
        return []
    kept = {key: value for key, value in notes.items() if key != GATED_BY} | (
        {GATED_BY: gate} if gate else {}
    )
    after = {**workload, "metadata": {**workload["metadata"], "annotations": kept}}
    event = told(job, "UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gate}"', now)
    return [changed(WORKLOADS, workload, after, event)]


def priority_followed(job: Object, workload: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """A job may name another class for its Workload."""
    spec = workload["spec"]
    ref = spec.get("priorityClassRef")
    if ref is None and is_true(workload, QUOTA_RESERVED):
        return []  # the API does not let it have one any more
    if ref is not None and ref.get("kind") != "WorkloadPriorityClass":
        return []
    name = (job["metadata"].get("labels") or {}).get(PRIORITY_CLASS, "")
    if (ref or {}).get("name", "") == name:
        return []
    keys = ("priority", "priorityClassRef")
    now_wanted = {key: wanted["spec"][key] for key in keys if key in wanted["spec"]}
    after = {**workload, "spec": {key: spec[key] for key in spec if key not in keys} | now_wanted}
    event = told(job, "UpdatedWorkload", f"Updated workload priority class: {key_of(workload)}", now)
    return [changed(WORKLOADS, workload, after, event)]


def _prebuilt(
    job: Object, workloads: Sequence[Object], known: JobContext, now: float
) -> tuple[Object | None, list[WriteWithEvents]]:
    """A job that names its Workload itself: it takes it over, unless it is somebody else's or another's."""
    uid = job["metadata"].get("uid", "")
    found = next(iter(workloads), None)
    boss = controller(found) if found is not None else None
    if found is None or (boss is not None and boss.get("uid") != uid):
        running = _ending(job) is None
        return None, stop(job, None, "missing workload", known.find, now) if running else []
    if boss is None:
        meta = found["metadata"]
        labels = {**(meta.get("labels") or {}), JOB_UID: uid}
        references = [*(meta.get("ownerReferences") or ()), owner(Field(job), controls=True)]
        after = {**found, "metadata": {**meta, "labels": labels, "ownerReferences": references}}
        return None, [changed(WORKLOADS, found, after)]
    try:
        wanted = job_workload(Field(job), 0, known.find, known.rules, known.copied)
    except ValueError:
        return None, []
    if not matches(found, wanted, suspended=is_held(job)) and not is_true(found, FINISHED):
        message = "The prebuilt workload is out of sync with its user job"
        status = job_statuses.finished(found, "OutOfSync", message, now)
        return None, [with_status(found, status)] if status is not None else []
    return found, []


def _without_workload(job: Object, wanted: Object, now: float) -> list[WriteWithEvents]:
    """A job that has no Workload gets one as soon as its pods are gone."""
    if _ending(job) is not None or faring(job["kind"]).active(Field(job)):
        return []
    event = told(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    return [created(WORKLOADS, wanted, event)]


def _settled(job: Object, workload: Object, known: JobContext, now: float) -> list[WriteWithEvents]:
    """A Workload that is over or leaves, or a job that is over."""
    if is_true(workload, FINISHED):
        return without_finalizer(WORKLOADS, workload)
    if is_leaving(workload):
        return stop(job, workload, "Workload is deleted", known.find, now) or without_finalizer(
            WORKLOADS, workload
        )
    ending = _ending(job)
    if ending is None:
        return []
    reason = "Succeeded" if ending.succeeded else "Failed"
    status = job_statuses.finished(workload, reason, ending.message, now)
    event = told(job, "FinishedWorkload", f"Workload '{key_of(workload)}' is declared finished", now)
    return [with_status(workload, status, event)] if status is not None else []


def _going_on(job: Object, workload: Object, known: JobContext, now: float) -> list[WriteWithEvents]:
    """A job that has yet to run, runs, or has to stop."""
    if is_true(workload, FINISHED) or _ending(job) is not None:
        return []
    fares, found = faring(job["kind"]), Field(job)
    pods = parts(found, known.find)
    status = job_statuses.reclaimed(workload, fares.reclaimable(found, pods))
    if status is None and known.patience is not None:
        status = job_statuses.pods_ready(workload, fares.ready(found, pods), now)
    if status is not None:
        return [with_status(workload, status)]
    if is_true(workload, EVICTED):
        meta = workload["metadata"]  # what a job says of its pods may be old, or the jobs' that it made
        active = fares.active(found) or known.stands(meta.get("namespace", "default"), meta["name"])
        return leave(stop(job, workload, eviction(workload), known.find, now), workload, active, now)
    if late := too_late(workload, known.patience, now):
        return late
    admitted = is_true(workload, ADMITTED)
    if is_held(job):
        return _start(job, workload, known, now) if admitted else queue_followed(job, workload)
    return [] if admitted else stop(job, workload, "Not admitted by cluster queue", known.find, now)


def leave(
    stopping: list[WriteWithEvents], workload: Object, active: bool, now: float
) -> list[WriteWithEvents]:
    """An evicted job stops; when nothing of it is left, its Workload gives back the quota."""
    if stopping or active:
        return stopping
    status = released(workload, now)
    return [with_status(workload, status)] if status is not None else []


def too_late(workload: Object, patience: PodsReadyPolicy | None, now: float) -> list[WriteWithEvents]:
    """Pods that are not ready in time, or run for too long."""
    status = job_statuses.overdue(workload, now)
    if status is not None:
        seconds = workload["spec"]["maximumExecutionTimeSeconds"]
        message = f"The maximum execution time ({seconds}s) exceeded"
        return [
            with_status(
                workload, status, told(workload, "MaximumExecutionTimeExceeded", message, now, WARNING)
            )
        ]
    status = None if patience is None else job_statuses.timed_out(workload, patience, now)
    if status is None:
        return []
    leaving = condition_of({"status": status}, EVICTED)
    if leaving is None or is_true(workload, EVICTED) or leaving.get("status") != "True":
        return [with_status(workload, status)]
    why = f"EvictedDueTo{job_statuses.TIMED_OUT}"
    return [with_status(workload, status, told(workload, why, leaving["message"], now))]


def look_again(workload: Object, known: JobContext) -> float:
    """When something is due for a Workload though nothing happens."""
    if is_true(workload, FINISHED) or is_true(workload, EVICTED):
        return job_statuses.NEVER
    ready = job_statuses.NEVER
    if known.patience is not None:
        ready = job_statuses.patience_ends(workload, known.patience)
    return min(ready, job_statuses.time_is_up(workload))


def queue_followed(job: Object, workload: Object) -> list[WriteWithEvents]:
    """A job that waits may change its queue."""
    name = (job["metadata"].get("labels") or {}).get(QUEUE, "")
    if workload["spec"].get("queueName", "") == name:
        return []
    return [changed(WORKLOADS, workload, {**workload, "spec": {**workload["spec"], "queueName": name}})]


def eviction(workload: Object) -> str:
    """Why a Workload has to leave."""
    return str((condition_of(workload, EVICTED) or {}).get("message", ""))


def _start(job: Object, workload: Object, known: JobContext, now: float) -> list[WriteWithEvents]:
    try:
        return start(job, workload, known.flavors, known.find, known.rules, now)
    except KeyError:
        return []  # a flavor is not there (yet)
    except InjectionConflict as wrong:
        status = job_statuses.finished(workload, "FailedToStart", str(wrong), now)
        return [with_status(workload, status)] if status is not None else []


def _ending(job: Object) -> Any:
    return faring(job["kind"]).ended(Field(job))
