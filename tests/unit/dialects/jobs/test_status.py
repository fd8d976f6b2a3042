"""The status of jobs of every kind; and kinds that need more than one step to start and stop."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.dialects.api import Verb
from bayplan.dialects.jobs.kinds import parts
from bayplan.dialects.jobs.running import status_reader
from bayplan.dialects.jobs.status import JobEnd
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext, reconcile_job
from bayplan.dialects.kueue.jobs.workload import job_workload
from bayplan.dialects.kueue.jobs.writes import WriteWithEvents
from tests.properties.test_injection import MADE

Object = dict[str, Any]
NOW = 1_700_000_000.0
POD = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
FLAVORS = {"gpu": {"spec": {"nodeLabels": {"pool": "gpu"}}}}
RUNTIME = {
    "kind": "ClusterTrainingRuntime",
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": POD}}}
                ]
            }
        }
    },
}


def made(kind: str, status: Object | None = None, pods: int = 1) -> Object:
    spec = MADE[kind]([POD] * pods)
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    meta = {"name": "one", "namespace": "default", "uid": "u1", "resourceVersion": "1", "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec, "status": status or {}}


def condition(kind: str, message: str = "") -> Object:
    return {"conditions": [{"type": kind, "status": "True", "message": message}]}


@pytest.mark.parametrize(
    ("kind", "status", "ending"),
    [
        ("Job", condition("Complete", "all done"), JobEnd(True, "all done")),
        ("Job", condition("Failed", "no luck"), JobEnd(False, "no luck")),
        ("Job", condition("FailureTarget"), None),
        ("JobSet", condition("Completed", "jobset completed"), JobEnd(True, "jobset completed")),
        ("TrainJob", condition("Complete"), JobEnd(True)),
        ("MPIJob", condition("Succeeded", "fine"), JobEnd(True, "fine")),
        ("PyTorchJob", condition("Failed", "crashed"), JobEnd(False, "crashed")),
        ("TFJob", condition("Running"), None),
        ("RayJob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, JobEnd(True)),
        ("RayJob", {"jobDeploymentStatus": "Failed", "message": "lost"}, JobEnd(False, "lost")),
        ("RayJob", {"jobDeploymentStatus": "Running"}, None),
        ("RayCluster", {"state": "failed"}, None),
        ("RayService", condition("Ready"), None),
        ("AppWrapper", {"phase": "Succeeded"}, JobEnd(True, "AppWrapper finished successfully")),
        ("AppWrapper", {"phase": "Failed"}, JobEnd(False, "AppWrapper failed")),
        ("AppWrapper", {"phase": "Failed", **condition("ResourcesDeployed")}, None),
        ("SparkApplication", {"applicationState": {"state": "COMPLETED"}}, JobEnd(True)),
    ],
)
def test_a_job_is_finished_when_its_status_says_so(kind: str, status: Object, ending: JobEnd | None) -> None:
    assert status_reader(kind).ended(Field(made(kind, status))) == ending


@pytest.mark.parametrize(
    ("kind", "status", "active", "ready"),
    [
        ("Job", {"active": 1, "ready": 2}, True, True),
        ("Job", {"succeeded": 1}, False, False),
        ("JobSet", {"replicatedJobsStatus": [{"name": "p0", "active": 1}]}, True, False),
        ("JobSet", {"replicatedJobsStatus": [{"name": "p0", "ready": 1}]}, False, True),
        ("MPIJob", {"replicaStatuses": {"Worker": {"active": 2}}, **condition("Running")}, True, True),
        ("RayJob", {"jobDeploymentStatus": "Suspended"}, False, False),
        ("RayJob", {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}, True, True),
        ("RayCluster", {"state": "ready"}, True, True),
        ("RayService", condition("Ready"), True, True),
        ("AppWrapper", condition("QuotaReserved"), True, False),
        ("SparkApplication", {"applicationState": {"state": "RUNNING"}}, True, True),
    ],
)
def test_active_and_ready_are_read_from_the_status(
    kind: str, status: Object, active: bool, ready: bool
) -> None:
    job = Field(made(kind, status))
    assert (status_reader(kind).active(job), status_reader(kind).ready(job, parts(job))) == (active, ready)


@pytest.mark.parametrize(
    ("spec", "status", "counts"),
    [
        ({"parallelism": 4, "completions": 4}, {"succeeded": 1}, {"main": 1}),
        ({"parallelism": 2, "completions": 4}, {"succeeded": 1}, {}),
        ({"parallelism": 2, "completions": 4}, {"succeeded": 3}, {"main": 1}),
        ({"parallelism": 4, "completions": 4, "completionMode": "Indexed"}, {"succeeded": 3}, {}),
        (
            {"parallelism": 6, "completions": 6, "completionMode": "Indexed"},
            {"completedIndexes": "0,2-3", "failedIndexes": "3,5-9,x-1"},
            {"main": 4},
        ),
        ({"parallelism": 1}, {"succeeded": 1}, {}),
    ],
)
def test_finished_pods_are_reclaimable(spec: Object, status: Object, counts: dict[str, int]) -> None:
    job = made("Job", status)
    job["spec"] |= spec
    assert status_reader("Job").reclaimable(Field(job), parts(Field(job))) == counts


def test_the_pods_of_succeeded_jobs_of_a_set_are_reclaimable() -> None:
    job = made("JobSet", {"replicatedJobsStatus": [{"name": "p0", "succeeded": 1}]}, pods=2)
    job["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 3
    assert status_reader("JobSet").reclaimable(Field(job), parts(Field(job))) == {"p0": 3}


# ── kinds with several steps ───────────────────────────────────────────────────────────────────────


def admitted(job: Object, known: JobContext) -> Object:
    """Its Workload, with quota for everything."""
    workload = job_workload(Field(job), 0, known.find)
    workload["metadata"] |= {"uid": "w1", "resourceVersion": "7"}
    sets = workload["spec"]["podSets"]
    given = [{"name": one["name"], "count": one["count"], "flavors": {"cpu": "gpu"}} for one in sets]
    held = [
        {"type": kind, "status": "True", "reason": kind, "message": ""}
        for kind in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": "all", "podSetAssignments": given}
    return {**workload, "status": {"admission": admission, "conditions": held}}


def merged(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


def done(job: Object, deeds: list[WriteWithEvents]) -> Object:
    """The job after the only write, which is for it."""
    (deed,) = deeds
    assert (deed.write.verb, deed.write.kind.kind) == (Verb.MERGE_PATCH, job["kind"])
    assert (deed.write.version, deed.write.uid) == ("1", "u1")
    found: Object = merged(job, deed.write.body)
    return found


def evicted(workload: Object) -> Object:
    gone = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "make room"}
    status = workload["status"]
    return {**workload, "status": {**status, "conditions": [*status["conditions"], gone]}}


@pytest.mark.parametrize(
    "kind", ["MPIJob", "RayCluster", "RayJob", "AppWrapper", "JAXJob", "SparkApplication"]
)
def test_a_job_starts_with_one_write_and_stops_with_one(kind: str) -> None:
    known = JobContext(flavors=FLAVORS)
    job = made(kind)
    workload = admitted(job, known)
    ran = done(job, reconcile_job(job, [workload], known, NOW))
    assert reconcile_job(ran, [workload], known, NOW) == []
    leaving = evicted(workload)
    assert done(ran, reconcile_job(ran, [leaving], known, NOW)) == job
    (deed,) = reconcile_job(job, [leaving], known, NOW)
    assert deed.write.subresource == "status"
    assert "admission" not in deed.write.body["status"]


def test_a_train_job_is_patched_before_it_runs_and_cleaned_when_its_pods_are_gone() -> None:
    known = JobContext(find=lambda kind, _, name: RUNTIME if name == "r" else None, flavors=FLAVORS)
    job = made("TrainJob")
    job["spec"]["runtimePatches"] = job["spec"]["runtimePatches"][1:]
    workload = admitted(job, known)
    prepared = done(job, reconcile_job(job, [workload], known, NOW))
    assert prepared["spec"]["suspend"] is True
    (patch,) = prepared["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"][
        "replicatedJobs"
    ]
    assert patch["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    ran = done(prepared, reconcile_job(prepared, [workload], known, NOW))
    assert ran["spec"]["suspend"] is False
    assert reconcile_job(ran, [workload], known, NOW) == []
    leaving = evicted(workload)
    held = done(ran, reconcile_job(ran, [leaving], known, NOW))
    busy = {**held, "status": {"jobsStatus": [{"name": "node", "active": 1}]}}
    assert reconcile_job(busy, [leaving], known, NOW) == []
    assert done(held, reconcile_job(held, [leaving], known, NOW)) == job


def test_a_train_job_waits_for_its_runtime() -> None:
    assert reconcile_job(made("TrainJob"), [], JobContext(), NOW) == []


def test_an_injection_conflict_is_reported_and_not_retried() -> None:
    known = JobContext(flavors=FLAVORS)
    job = made("MPIJob")
    template = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    workload = admitted(job, known)
    job["spec"]["mpiReplicaSpecs"]["Launcher"] = {
        "replicas": 2,
        "template": {**template, "spec": {**template["spec"], "nodeSelector": {"pool": "cpu"}}},
    }
    (deed,) = reconcile_job(job, [workload], known, NOW)
    told = deed.write.body["status"]["conditions"][-1]
    assert (told["type"], told["reason"]) == ("Finished", "FailedToStart")
    assert told["message"].endswith("conflict for key=pool, value1=cpu, value2=gpu")


def test_a_job_waits_for_an_unknown_flavor() -> None:
    job = made("MPIJob")
    assert reconcile_job(job, [admitted(job, JobContext())], JobContext(), NOW) == []
