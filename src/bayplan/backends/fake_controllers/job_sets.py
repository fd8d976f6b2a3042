"""A simulated JobSet controller: one Job per replica, labelled as the real one labels them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from bayplan.backends.fake_controllers.jobs import resumed
from bayplan.backends.fake_controllers.objects import (
    JOB_SETS,
    JOBS,
    Object,
    condition,
    create,
    has_condition,
    is_terminating,
    labels_of,
    name_of,
    owner_reference,
    patch,
    patch_status,
)  # fmt: skip
from bayplan.dialects.api import Write

PREFIX = "jobset.sigs.k8s.io/"


def reconcile_job_set(job_set: Object, jobs: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring a JobSet's jobs and status a step further."""
    if has_condition(job_set, "Completed", "Failed") or is_terminating(job_set):
        return
    there = {name_of(job)[1] for job in jobs}
    held = bool(job_set["spec"].get("suspend"))
    yield from _counted(job_set, jobs)
    for job in jobs:
        if bool(job["spec"].get("suspend")) != held and not is_terminating(job):
            yield from [patch(JOBS, job, {"spec": {"suspend": True}})] if held else _resumed(job_set, job)
    if held:
        return
    wanted = 0
    for part in job_set["spec"].get("replicatedJobs") or []:
        for index in range(int(part.get("replicas", 1))):
            wanted += 1
            job = _job(job_set, part, index)
            if name_of(job)[1] not in there:
                yield create(JOBS, job)
    if any(has_condition(job, "Failed") for job in jobs):
        yield patch_status(JOB_SETS, job_set, {"conditions": [condition("Failed", now, "FailedJobs")]})
    elif wanted and sum(has_condition(job, "Complete") for job in jobs) >= wanted:
        done = condition("Completed", now, "AllJobsCompleted", "jobset completed successfully")
        yield patch_status(JOB_SETS, job_set, {"conditions": [done]})


def _counted(job_set: Object, jobs: Sequence[Object]) -> Iterator[Write]:
    """The status of the replicated jobs."""
    told = []
    for part in job_set["spec"].get("replicatedJobs") or []:
        mine = [job for job in jobs if labels_of(job).get(f"{PREFIX}replicatedjob-name") == part["name"]]
        statuses = [job.get("status") or {} for job in mine]
        done = sum(has_condition(job, "Complete") for job in mine)
        told.append(
            {
                "name": part["name"],
                "ready": sum(_is_ready(job) for job in mine),
                "succeeded": done,
                "failed": sum(has_condition(job, "Failed") for job in mine),
                "active": sum(bool(status.get("active")) for status in statuses),
                "suspended": sum(bool(job["spec"].get("suspend")) for job in mine),
            }
        )
    if (job_set.get("status") or {}).get("replicatedJobsStatus") != told:
        yield patch_status(JOB_SETS, job_set, {"replicatedJobsStatus": told})


def _is_ready(job: Object) -> bool:
    status = job.get("status") or {}
    there = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
    ended = has_condition(job, "Complete", "Failed")
    return not ended and 0 < int(job["spec"].get("parallelism", 1)) <= there


def _resumed(job_set: Object, job: Object) -> Iterator[Write]:
    """Resume a job with the current template of the set."""
    labels = labels_of(job)
    parts = job_set["spec"].get("replicatedJobs") or []
    part = next((one for one in parts if one["name"] == labels.get(f"{PREFIX}replicatedjob-name")), None)
    if part is None:
        return
    fresh = _job(job_set, part, int(labels[f"{PREFIX}job-index"]))["spec"]["template"]
    yield from resumed(job, fresh)


def _job(job_set: Object, part: Object, index: int) -> Object:
    namespace, name = name_of(job_set)
    spec = deepcopy(part["template"].get("spec") or {})
    labels = {
        f"{PREFIX}jobset-name": name,
        f"{PREFIX}replicatedjob-name": part["name"],
        f"{PREFIX}replicatedjob-replicas": str(part.get("replicas", 1)),
        f"{PREFIX}job-index": str(index),
    }
    spec.setdefault("completionMode", "Indexed")
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name}-{part['name']}-{index}",
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job_set, JOB_SETS)],
        },
        "spec": spec,
    }
