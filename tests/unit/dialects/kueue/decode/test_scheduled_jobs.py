"""Jobs that name our scheduler: how many pods their gangs wait for."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.jobs.batch_jobs import JOB_SETS
from bayplan.dialects.kueue.decode.scheduled_jobs import decode
from bayplan.dialects.kueue.names.annotations import WORKLOAD_NAME
from bayplan.model.change import GangSpecSeen


def job_set(*, placed: bool, finished_jobs: int) -> dict[str, Any]:
    """Two jobs of two pods each."""
    notes = {WORKLOAD_NAME: "gang"} if placed else {}
    pod = {"schedulerName": "bayplan", "containers": [{"name": "main"}]}
    template = {"metadata": {"annotations": notes}, "spec": pod}
    inner = {"parallelism": 2, "completions": 2, "template": template}
    part = {"name": "workers", "replicas": 2, "template": {"spec": inner}}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default", "uid": "u"},
        "spec": {"replicatedJobs": [part]},
        "status": {"replicatedJobsStatus": [{"name": "workers", "succeeded": finished_jobs}]},
    }


def minimum(**options: Any) -> int:
    (change,) = decode(Event(Happened.SEEN, JOB_SETS, job_set(**options), "1"))
    assert isinstance(change, GangSpecSeen)
    return change.spec.minimum


def test_a_gang_waits_for_all_its_pods() -> None:
    assert minimum(placed=True, finished_jobs=0) == 4


def test_a_placed_gang_does_not_wait_for_pods_of_jobs_that_are_over() -> None:
    assert minimum(placed=True, finished_jobs=1) == 2
    assert minimum(placed=True, finished_jobs=2) == 1


def test_a_gang_that_the_scheduler_places_waits_for_all_its_pods() -> None:
    assert minimum(placed=False, finished_jobs=1) == 4
