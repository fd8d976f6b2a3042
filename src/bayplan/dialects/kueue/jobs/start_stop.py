"""Starting an admitted job and stopping it again, as writes; any step may be the last before a restart."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs.kinds import Find
from bayplan.dialects.jobs.running import (
    faring,
    is_suspendable,
    is_suspended,
    prepared,
    resource,
    restored,
    started,
    suspended,
)
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.topology_request import parse_bool
from bayplan.dialects.kueue.jobs.injection import injections
from bayplan.dialects.kueue.jobs.writes import WriteWithEvents, changed, told
from bayplan.dialects.kueue.names.annotations import ELASTIC_GATE, MINIMUM, STOPPING, SYNCED, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.status.conditions import ADMITTED, EVICTED, is_true
from bayplan.model.whole_numbers import whole_number

"""A Job that is suspended and not yet as it was."""
_IN_STEPS = ("TrainJob",)
"""Kinds that may only be changed while they are held back, and only after their pods are gone."""

Object = dict[str, Any]


def is_held(job: Object) -> bool:
    """Whether a job is held back and as it was before it ever started."""
    return is_suspended(job) and (job["metadata"].get("annotations") or {}).get(STOPPING) != "true"


def start(
    job: Object,
    workload: Object,
    flavors: Mapping[str, Object],
    find: Find,
    rules: FeatureSwitches,
    now: float,
) -> list[WriteWithEvents]:
    """Let an admitted job run. KeyError if a flavor is unknown, Clash if the job cannot take what it gets."""
    extras = injections(workload, flavors, rules)
    if job["kind"] == "RayJob" and rules.elastic and is_elastic(Field(job)):
        extras = [replace(one, gates=(*one.gates, ELASTIC_GATE)) for one in extras]
    kind = resource(job["kind"])
    if job["kind"] in _IN_STEPS:
        before = prepared(job, extras, find)
        if not _holds(job, before):
            return [changed(kind, job, before)]
    after = started(job, extras, find)
    _resize(after, extras[0].count if extras else 0)
    queue = workload["status"]["admission"].get("clusterQueue", "")
    return [changed(kind, job, after, told(job, "Started", f"Admitted by clusterQueue {queue}", now))]


def stop(job: Object, workload: Object | None, why: str, find: Find, now: float) -> list[WriteWithEvents]:
    """Hold a job back, with its pod templates as the Workload has them; nothing if it is so already."""
    if is_held(job) and job["kind"] not in _IN_STEPS:
        return []
    kind, event = resource(job["kind"]), told(job, "Stopped", why, now)
    pod_sets: Sequence[Object] = (workload or {}).get("spec", {}).get("podSets") or ()
    if job["kind"] == "Job":
        return _stop_job(job, pod_sets, event)
    held = suspended(job)
    if job["kind"] not in _IN_STEPS:
        after = _as_before(held, pod_sets, find) if workload is not None else held
        return [changed(kind, job, after, event)]
    if held != job:
        return [changed(kind, job, held, event)]
    after = restored(job, (), find)
    waits = after == job or faring(job["kind"]).active(Field(job))
    return [] if waits else [changed(kind, job, after)]


def kept_back(job: Object, workloads: Sequence[Object], now: float) -> list[WriteWithEvents]:
    """A job that cannot be read does not start; if it runs where it was admitted, it runs on."""
    admitted = any(is_true(one, ADMITTED) and not is_true(one, EVICTED) for one in workloads)
    if admitted or is_suspended(job) or not is_suspendable(job):
        return []
    event = told(job, "Suspended", "The job cannot be read and was not admitted", now)
    return [changed(resource(job["kind"]), job, suspended(job), event)]


def _holds(there: object, wanted: object) -> bool:
    """Whether all that is wanted is there, be it with what the API fills in or without what is empty."""
    if isinstance(wanted, dict) and isinstance(there, dict | None):
        return all(_holds((there or {}).get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(there, list | None):
        pairs = zip(there or (), wanted, strict=False)
        return len(there or ()) == len(wanted) and all(_holds(one, other) for one, other in pairs)
    return there == wanted


def _stop_job(job: Object, pod_sets: Sequence[Object], event: Any) -> list[WriteWithEvents]:
    """In three steps: its template may only be changed while it is suspended and has not begun."""
    kind = resource("Job")
    if not is_suspended(job):
        held = suspended(job)
        meta = held["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), STOPPING: "true"}
        return [changed(kind, job, held, event)]
    status = job.get("status") or {}
    if status.get("startTime"):
        fresh = {key: value for key, value in status.items() if key != "startTime"}
        return [changed(kind, job, {**job, "status": fresh}, subresource="status")]
    after = _as_before(job, pod_sets, lambda *_: None)
    after["metadata"] = copy.deepcopy(job["metadata"])
    notes = after["metadata"].get("annotations") or {}
    notes.pop(STOPPING, None)
    if not notes:
        after["metadata"].pop("annotations", None)
    return [changed(kind, job, after)]


def _as_before(job: Object, pod_sets: Sequence[Object], find: Find) -> Object:
    after = restored(job, [one.get("template") or {} for one in pod_sets], find)
    if len(pod_sets) == 1:
        _resize(after, pod_sets[0].get("count", 1))
    return after


def _resize(job: Object, count: int) -> None:
    """A Job that is content with fewer pods has as many as it was given."""
    notes = job["metadata"].get("annotations") or {}
    if job["kind"] != "Job" or whole_number(notes.get(MINIMUM)) is None:
        return
    job["spec"]["parallelism"] = count
    try:
        if parse_bool(notes.get(SYNCED, "false")):
            job["spec"]["completions"] = count
    except ValueError:
        return
