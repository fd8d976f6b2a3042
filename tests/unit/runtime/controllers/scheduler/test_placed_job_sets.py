"""Job sets that admission has placed: pods that are over and were deleted are not waited for."""

from __future__ import annotations

from typing import Any

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.fake_controllers.crds import foreign_crds
from bayplan.dialects.jobs.batch_jobs import JOB_SETS, JOBS
from bayplan.dialects.kueue.names.annotations import WORKLOAD_NAME
from tests.support.pod_site import PODS, Object
from tests.unit.runtime.controllers.scheduler.test_controller import Site

TEMPLATE: Object = {
    "metadata": {"annotations": {WORKLOAD_NAME: "gang"}},
    "spec": {
        "schedulerName": "bayplan",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    },
}
INNER: Object = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": TEMPLATE}


class JobSetSite(Site):
    """A job set of two jobs with two pods each, written by hand: no controller creates pods."""

    def __init__(self) -> None:
        super().__init__(cpus=(8,))
        for definition in foreign_crds():
            self.store.create(DEFINITIONS, definition)
        part = {"name": "workers", "replicas": 2, "template": {"spec": INNER}}
        body = {"metadata": {"name": "set"}, "spec": {"replicatedJobs": [part]}}
        made = self.store.create(JOB_SETS, body, "default")
        self.owner = _owner(made, JOB_SETS.api_version, "JobSet")
        self.jobs = [self.child(number) for number in range(2)]

    def child(self, number: int) -> Object:
        meta = {"name": f"set-workers-{number}", "ownerReferences": [self.owner]}
        return self.store.create(JOBS, {"metadata": meta, "spec": INNER}, "default")

    def worker(self, job: int, index: int, **spec: Any) -> str:
        """A pod of one of the jobs."""
        name = f"set-workers-{job}-{index}"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "set",
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
            "jobset.sigs.k8s.io/job-index": str(job),
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        meta: Object = {"name": name, "labels": labels, "annotations": {WORKLOAD_NAME: "gang"}}
        meta["ownerReferences"] = [_owner(self.jobs[job], "batch/v1", "Job")]
        self.store.create(PODS, {"metadata": meta, "spec": {**TEMPLATE["spec"], **spec}}, "default")
        return name

    def job_status(self, number: int, **status: Any) -> None:
        name = self.jobs[number]["metadata"]["name"]
        self.store.patch(JOBS, "default", name, {"status": status}, subresource="status")


def _owner(owner: Object, version: str, kind: str) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def test_a_job_set_does_not_wait_for_a_pod_that_succeeded_and_was_deleted() -> None:
    site = JobSetSite()
    site.worker(0, 1)
    for index in range(2):
        site.worker(1, index, nodeName="n1")
    site.run(3)
    assert site.on("set-workers-0-1") == [""], "the gang has three of four pods"
    site.job_status(0, succeeded=1, completedIndexes="0")
    site.run(6)
    assert site.on("set-workers-0-1") == ["n1"]


def test_a_job_that_was_created_again_has_all_its_pods_to_run() -> None:
    site = JobSetSite()
    site.job_status(0, succeeded=1, completedIndexes="0")
    for index in range(2):
        site.worker(1, index, nodeName="n1")
    site.run(2)
    site.store.delete(JOBS, "default", "set-workers-0")
    site.jobs[0] = site.child(0)
    site.worker(0, 1)
    site.run(6)
    assert site.on("set-workers-0-1") == [""]


def test_a_job_that_is_complete_is_counted_by_its_job_set() -> None:
    """The status of the job set says that one of two jobs is over: it is not counted a second time."""
    site = JobSetSite()
    complete = [{"type": "Complete", "status": "True"}]
    site.job_status(0, succeeded=2, completedIndexes="0,1", conditions=complete)
    jobs = [{"name": "workers", "succeeded": 1}]
    status = {"status": {"replicatedJobsStatus": jobs}}
    site.store.patch(JOB_SETS, "default", "set", status, subresource="status")
    site.worker(1, 0)
    site.run(3)
    assert site.on("set-workers-1-0") == [""], "the other pod of the job does not exist yet"
    site.worker(1, 1)
    site.run(6)
    assert site.on("set-workers-1-0", "set-workers-1-1") == ["n1", "n1"]
