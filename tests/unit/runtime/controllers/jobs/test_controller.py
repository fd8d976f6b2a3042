"""Jobs in their queue, from creation to deletion, on a cluster in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.fake_controllers.crds import schemaless_crd as definition
from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.jobs.controller import JobWriteTag
from tests.support.job_world import (
    LABELS,
    POOL,
    REQUIRED,
    JobWorld,
    Object,
    evict,
    hosts,
    indexed_job,
    job_set,
    phases,
    pod_template,
    running,
)

GATE = {"name": "kueue.x-k8s.io/topology"}
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})


def template_of(found: Object) -> Object:
    spec: Object = found["spec"]
    if found["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    template: Object = spec["template"]
    return template


@pytest.mark.parametrize(
    "made", [indexed_job(notes=REQUIRED), job_set(notes=REQUIRED)], ids=["Job", "JobSet"]
)
def test_a_job_waits_runs_where_it_was_admitted_and_gives_everything_back(made: Object) -> None:
    world = JobWorld()
    written = world.create(made)
    assert written["spec"]["suspend"] is True
    assert world.pods() == []
    world.pass_time()
    found = world.get(made["kind"], "train")
    assert found["spec"]["suspend"] is False
    template = template_of(found)
    workload = world.workload()
    assert template["spec"]["schedulingGates"] == [GATE]
    assert template["spec"]["nodeSelector"] == {POOL: "gpu"}
    assert template["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == workload["metadata"]["name"]
    assert workload["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    world.until(lambda: running(world, 4))
    assert hosts(world.pods()) == {"r1-h1", "r1-h2"}
    assert world.used() == "8"
    world.until(lambda: world.told("Finished")[:2] == ("True", "Succeeded"))
    assert world.used() == "0"
    assert "finalizers" not in world.workload()["metadata"]
    name = f"default/{workload['metadata']['name']}"
    assert world.events("train") == [
        ("CreatedWorkload", f"Created Workload: {name}"),
        ("Started", "Admitted by clusterQueue all"),
        ("FinishedWorkload", f"Workload '{name}' is declared finished"),
    ]
    world.store.delete(resource(made["kind"]), "default", "train", BACKGROUND)
    world.pass_time(3)
    assert world.workloads() == world.pods() == []
    assert not world.jobs_role.cache.workloads and not world.jobs_role.cache.owned


@pytest.mark.parametrize("made", [indexed_job(seconds=None), job_set(seconds=None)], ids=["Job", "JobSet"])
def test_a_job_that_has_to_leave_is_as_it_was_before_and_comes_back(made: Object) -> None:
    world = JobWorld()
    before = world.create(made)
    world.until(lambda: running(world, 4))
    evict(world)
    world.until(lambda: world.pods() == [])
    world.pass_time(2)
    after = world.get(made["kind"], "train")
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    assert world.told("QuotaReserved")[0] == "False"
    assert world.used() == "0"
    assert ("Stopped", "The workload is deactivated") in world.events("train")
    name = world.workload()["metadata"]["name"]
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": True}})
    world.until(lambda: running(world, 4))
    assert world.used() == "8"


def test_quota_is_given_back_when_the_pods_are_gone_whatever_the_job_says_of_them() -> None:
    world = JobWorld()
    world.create(job_set(seconds=None))
    world.until(lambda: running(world, 4))
    said = [{"name": "workers", "active": 0}]  # its controller has not counted the pods yet
    world.store.patch(
        resource("JobSet"),
        "default",
        "train",
        {"status": {"replicatedJobsStatus": said}},
        subresource="status",
    )
    evict(world)
    for _ in range(10):  # no other job gets in
        world.loop.step(world.clock.wall())
    assert world.get("JobSet", "train")["spec"]["suspend"] is True
    assert world.told("QuotaReserved")[0] == "True"
    world.until(lambda: world.pods() == [])
    world.pass_time(2)
    assert world.told("QuotaReserved")[0] == "False"
    assert not world.jobs_role.cache.bound_pods


def test_a_job_without_a_queue_is_left_alone() -> None:
    world = JobWorld()
    made = world.create(indexed_job(labels={}))
    assert made["spec"]["suspend"] is False
    world.until(lambda: phases(world) == ["Succeeded"] * 4)
    assert world.workloads() == []


def test_a_job_that_changes_while_it_waits_has_its_workload_rewritten() -> None:
    world = JobWorld(gpus=2)
    world.create(indexed_job())
    world.pass_time()
    name = world.workload()["metadata"]["name"]
    world.store.patch(resource("Job"), "default", "train", {"spec": {"parallelism": 1}})
    world.pass_time()
    found = world.workload()
    assert (found["metadata"]["name"], found["spec"]["podSets"][0]["count"]) == (name, 1)
    told = f"Updated not matching Workload for suspended job: default/{name}"
    assert ("UpdatedWorkload", told) in world.events("train")
    assert world.told("Admitted")[0] == "True"


def test_a_job_that_changes_while_it_runs_is_stopped_and_queued_anew() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    world.store.patch(resource("Job"), "default", "train", {"spec": {"parallelism": 2}})
    world.until(lambda: running(world, 2))
    assert world.workload()["spec"]["podSets"][0]["count"] == 2
    told = "No matching Workload; restoring pod templates according to existent Workload"
    assert ("Stopped", told) in world.events("train")
    assert world.used() == "4"


def test_a_job_that_runs_without_being_admitted_is_stopped() -> None:
    world = JobWorld(gpus=2)
    world.create(indexed_job(seconds=None))
    world.pass_time()
    world.store.patch(resource("Job"), "default", "train", {"spec": {"suspend": False}})
    world.pass_time(3)
    assert world.get("Job", "train")["spec"]["suspend"] is True
    assert world.pods() == []
    assert ("Stopped", "Not admitted by cluster queue") in world.events("train")


def test_a_workload_that_is_deleted_takes_the_pods_along_and_is_made_again() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    first = world.workload()["metadata"]
    world.store.delete(api_kinds.WORKLOADS, "default", first["name"], BACKGROUND)
    world.until(lambda: bool(world.workloads()) and world.workload()["metadata"]["uid"] != first["uid"])
    assert ("Stopped", "Workload is deleted") in world.events("train")
    world.until(lambda: running(world, 4))


def test_a_job_that_is_deleted_while_it_runs_leaves_nothing_behind() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    world.store.delete(resource("Job"), "default", "train", BACKGROUND)
    world.pass_time(3)
    assert world.workloads() == world.pods() == []
    assert world.used() == "0"


def test_a_job_deleted_during_downtime_is_found_to_be_gone() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    world.store.delete(resource("Job"), "default", "train", BACKGROUND)
    world.restart()
    world.pass_time(3)
    assert world.workloads() == []


def test_a_job_content_with_fewer_pods_runs_with_those_it_got() -> None:
    world = JobWorld(gpus=6, tas=False)
    made = indexed_job(seconds=None)
    notes = {
        "kueue.x-k8s.io/job-min-parallelism": "2",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    made["metadata"]["annotations"] = notes
    before = world.create(made)
    world.until(lambda: running(world, 3))
    found = world.get("Job", "train")
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (3, 3)
    assert "schedulingGates" not in found["spec"]["template"]["spec"]
    evict(world)
    world.until(lambda: world.pods() == [])
    world.pass_time(2)
    assert world.get("Job", "train")["spec"] == before["spec"]


def test_classes_set_the_priority_and_the_highest_comes_first() -> None:
    world = JobWorld(gpus=8)
    for name, value in (("low", 1), ("high", 10)):
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        kind = next(one for one in world.jobs_role.kinds if one.kind == "WorkloadPriorityClass")
        world.store.create(kind, body)
    key = "kueue.x-k8s.io/priority-class"
    world.create(indexed_job("first", labels={**LABELS, key: "low"}, seconds=None))
    world.until(lambda: running(world, 4))
    world.create(indexed_job("second", labels={**LABELS, key: "high"}, seconds=None))
    world.until(lambda: world.get("Job", "second")["spec"]["suspend"] is False)
    world.until(lambda: running(world, 4))
    assert {pod["metadata"]["labels"]["job-name"] for pod in world.pods()} == {"second"}
    assert world.get("Job", "first")["spec"]["suspend"] is True
    by_name = {one["metadata"]["ownerReferences"][0]["name"]: one["spec"] for one in world.workloads()}
    assert by_name["second"]["priority"] == 10
    assert by_name["second"]["priorityClassRef"] == {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "high",
    }


def test_a_job_may_not_run_for_longer_than_it_said() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None, labels={**LABELS, "kueue.x-k8s.io/max-exec-time-seconds": "20"}))
    world.until(lambda: running(world, 4))
    world.pass_time(30, step=2.0)
    assert world.pods() == []
    workload = world.workload()
    assert workload["spec"]["active"] is False
    assert world.told("Evicted")[1] == "DeactivatedDueToMaximumExecutionTimeExceeded"
    told = ("MaximumExecutionTimeExceeded", "The maximum execution time (20s) exceeded")
    assert told in world.events(workload["metadata"]["name"])


def test_pods_that_do_not_get_ready_in_time_make_room_and_try_again_later() -> None:
    world = JobWorld(patience=PodsReadyPolicy(seconds=10, backoff_base_seconds=30, retries_max=1))
    world.store.patch(api_kinds.FLAVORS, "", "gpu", {"spec": {"tolerations": []}})
    world._bind = lambda: None  # type: ignore[method-assign]  # no scheduler binds pods
    world.create(indexed_job(seconds=None))
    world.pass_time(1)
    assert world.told("PodsReady") == ("False", "WaitForStart", "Not all pods are ready or succeeded")
    world.pass_time(15)
    name = world.workload()["metadata"]["name"]
    assert world.told("Evicted")[1:] == ("PodsReadyTimeout", f"Exceeded the PodsReady timeout default/{name}")
    assert world.workload()["status"]["requeueState"]["count"] == 1
    assert world.used() == "0"
    world.pass_time(30, step=2.0)
    assert world.told("Admitted")[0] == "True"
    world.pass_time(15, step=2.0)
    assert world.workload()["spec"]["active"] is False
    assert world.told("Evicted")[1] == "DeactivatedDueToRequeuingLimitExceeded"


def test_bayplan_may_begin_anew_at_any_moment() -> None:
    world = JobWorld()
    world.create(indexed_job(notes=REQUIRED))
    world.create(job_set("other", replicas=1, pods=2))
    for _ in range(60):
        world.loop.step(world.clock.wall())
        world.restart()
        world.crew.step(world.clock.wall())
        world._bind()
        world.clock.advance(0.5)
    world.pass_time(10)
    finished = [world.told("Finished", one)[:2] for one in world.workloads()]
    assert finished == [("True", "Succeeded")] * 2


def test_a_job_inside_a_queued_one_is_left_to_it() -> None:
    world = JobWorld()
    made = job_set(seconds=None)
    inner = made["spec"]["replicatedJobs"][0]["template"]
    inner["metadata"] = {"labels": LABELS}
    world.create(made)
    world.until(lambda: running(world, 4))
    assert len(world.workloads()) == 1


def test_a_template_without_metadata_is_restored_too() -> None:
    world = JobWorld()
    made = job_set(seconds=None)
    template = pod_template(seconds=None)
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = {"spec": template["spec"]}
    before = world.create(made)
    world.until(lambda: running(world, 4))
    evict(world)
    world.until(lambda: world.pods() == [])
    world.pass_time(2)
    assert world.get("JobSet", "train")["spec"] == before["spec"]


def test_a_kind_that_is_installed_later_is_queued_from_then_on() -> None:
    world = JobWorld()
    world.pass_time()
    kind = resource("PyTorchJob")
    world.store.create(DEFINITIONS, definition(kind))
    world.pass_time()
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod_template()}}}
    meta = {"name": "ring", "namespace": "default", "labels": LABELS}
    body = {"apiVersion": kind.api_version, "kind": "PyTorchJob", "metadata": meta, "spec": spec}
    made = world.create(body)
    assert made["spec"]["runPolicy"]["suspend"] is True
    world.pass_time()
    found = world.get("PyTorchJob", "ring")
    assert found["spec"]["runPolicy"]["suspend"] is False
    done = {"type": "Succeeded", "status": "True", "message": "all ranks are done"}
    world.store.patch(kind, "default", "ring", {"status": {"conditions": [done]}}, subresource="status")
    world.pass_time()
    assert world.told("Finished") == ("True", "Succeeded", "all ranks are done")


def test_a_write_that_is_refused_again_and_again_is_tried_less_and_less_often() -> None:
    world, tried = JobWorld(), list[float]()
    submit = world.backend.submit

    def refusing(writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write.tag, JobWriteTag):
                tried.append(world.clock.wall())
                world.backend._outcomes.append(WriteOutcome(write, Ended.REFUSED, 403))
            else:
                submit([write])

    world.backend.submit = refusing  # type: ignore[method-assign]
    world.create(indexed_job(notes=REQUIRED))
    world.pass_time(80)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == [0, 10, 20, 40], "the first time, an event about the job makes it due at once"
    world.backend.submit = submit  # type: ignore[method-assign]
    world.pass_time(60)
    assert len(world.workloads()) == 1


@pytest.mark.parametrize("ended", [Ended.CONFLICT, Ended.TIMED_OUT])
def test_writes_that_fail_are_made_later(ended: Ended) -> None:
    world = JobWorld()
    made = iter(range(1000))
    submit = world.backend.submit

    def losing(writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write.tag, JobWriteTag) and next(made) % 2 == 0:
                world.backend._outcomes.append(WriteOutcome(write, ended))
            else:
                submit([write])

    world.backend.submit = losing  # type: ignore[method-assign]
    world.create(indexed_job(notes=REQUIRED))
    world.until(lambda: bool(world.workloads()) and world.told("Finished")[0] == "True", 90)
    world.until(lambda: "finalizers" not in world.workload()["metadata"])
    assert next(made) >= 6
    assert world.used() == "0"
