"""Start and stop (suspend and restore) a job, as writes; each step is idempotent across restarts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.jobs.start_stop import (
    is_suspendable,
    is_suspended,
    prepared,
    restored,
    started,
    status_reader,
    suspended,
)
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.topology_request import parse_bool
from bayplan.dialects.kueue.jobs.injection import injections
from bayplan.dialects.kueue.jobs.writes import WriteWithEvents, event_about, patch_object
from bayplan.dialects.kueue.names.annotations import ELASTIC_GATE, MINIMUM, STOPPING, SYNCED, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.status.conditions import ADMITTED, EVICTED, is_true
from bayplan.model.whole_numbers import whole_number

"""Marks a Job that is suspended and whose pod template is not restored yet."""
Object = dict[str, Any]


def is_fully_suspended(job: Object) -> bool:
    """Whether a job is suspended with its original pod templates."""
    return is_suspended(job) and (job["metadata"].get("annotations") or {}).get(STOPPING) != "true"


def start(
    job: Object,
    workload: Object,
    flavors: Mapping[str, Object],
    find: Find,
    rules: FeatureSwitches,
    now: float,
) -> list[WriteWithEvents]:
    """Start an admitted job. KeyError if a flavor is unknown; InjectionConflict if the template conflicts."""
    extras = injections(workload, flavors, rules)
    entry = KINDS[job["kind"]]
    late_gate = entry.resizing is not None and entry.resizing.gated_at_start
    if late_gate and rules.elastic and is_elastic(Field(job)):
        extras = [replace(one, gates=(*one.gates, ELASTIC_GATE)) for one in extras]
    kind = entry.resource
    if entry.in_steps:
        prepared_job = prepared(job, extras, find)
        if not _contains(job, prepared_job):
            return [patch_object(kind, job, prepared_job)]
    after = started(job, extras, find)
    _resize(after, extras[0].count if extras else 0)
    queue = workload["status"]["admission"].get("clusterQueue", "")
    return [
        patch_object(kind, job, after, event_about(job, "Started", f"Admitted by clusterQueue {queue}", now))
    ]


def stop(job: Object, workload: Object | None, message: str, find: Find, now: float) -> list[WriteWithEvents]:
    """Suspend a job and restore its pod templates from the Workload; nothing if that is done already."""
    entry = KINDS[job["kind"]]
    if is_fully_suspended(job) and not entry.in_steps:
        return []
    kind, event = entry.resource, event_about(job, "Stopped", message, now)
    pod_sets: Sequence[Object] = (workload or {}).get("spec", {}).get("podSets") or ()
    if entry.clears_start_time:
        return _stop_in_status(job, pod_sets, event)
    suspended_job = suspended(job)
    if not entry.in_steps:
        after = (
            _with_original_templates(suspended_job, pod_sets, find) if workload is not None else suspended_job
        )
        return [patch_object(kind, job, after, event)]
    if suspended_job != job:
        return [patch_object(kind, job, suspended_job, event)]
    after = restored(job, (), find)
    is_waiting = after == job or status_reader(job["kind"]).active(Field(job))
    return [] if is_waiting else [patch_object(kind, job, after)]


def suspend_invalid(job: Object, workloads: Sequence[Object], now: float) -> list[WriteWithEvents]:
    """Suspend an invalid job, unless it is admitted already."""
    admitted = any(is_true(one, ADMITTED) and not is_true(one, EVICTED) for one in workloads)
    if admitted or is_suspended(job) or not is_suspendable(job):
        return []
    event = event_about(job, "Suspended", "The job is invalid and was not admitted", now)
    return [patch_object(KINDS[job["kind"]].resource, job, suspended(job), event)]


def _contains(actual: object, wanted: object) -> bool:
    """Whether an object contains the wanted fields; API defaults and empty fields are ignored."""
    if isinstance(wanted, dict) and isinstance(actual, dict | None):
        return all(_contains((actual or {}).get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, list | None):
        pairs = zip(actual or (), wanted, strict=False)
        return len(actual or ()) == len(wanted) and all(_contains(one, other) for one, other in pairs)
    return actual == wanted


def _stop_in_status(job: Object, pod_sets: Sequence[Object], event: Any) -> list[WriteWithEvents]:
    """Stop in three steps: the template is mutable only while the job is suspended and has no startTime."""
    kind = KINDS[job["kind"]].resource
    if not is_suspended(job):
        stopping = suspended(job)
        meta = stopping["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), STOPPING: "true"}
        return [patch_object(kind, job, stopping, event)]
    status = job.get("status") or {}
    if status.get("startTime"):
        not_started = {key: value for key, value in status.items() if key != "startTime"}
        return [patch_object(kind, job, {**job, "status": not_started}, subresource="status")]
    after = _with_original_templates(job, pod_sets, lambda *_: None)
    after["metadata"] = copy.deepcopy(job["metadata"])
    annotations = after["metadata"].get("annotations") or {}
    annotations.pop(STOPPING, None)
    if not annotations:
        after["metadata"].pop("annotations", None)
    return [patch_object(kind, job, after)]


def _with_original_templates(job: Object, pod_sets: Sequence[Object], find: Find) -> Object:
    after = restored(job, [one.get("template") or {} for one in pod_sets], find)
    if len(pod_sets) == 1:
        _resize(after, pod_sets[0].get("count", 1))
    return after


def _resize(job: Object, count: int) -> None:
    """Set the parallelism of a partially admitted Job to the admitted count."""
    annotations = job["metadata"].get("annotations") or {}
    if not KINDS[job["kind"]].partial or whole_number(annotations.get(MINIMUM)) is None:
        return
    job["spec"]["parallelism"] = count
    try:
        if parse_bool(annotations.get(SYNCED, "false")):
            job["spec"]["completions"] = count
    except ValueError:
        return
