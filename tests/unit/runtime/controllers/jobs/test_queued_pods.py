"""Queued pods, alone, in groups and of serving workloads, on a cluster in memory."""

from __future__ import annotations

import copy

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.fake_controllers.manifests import GPU
from bayplan.dialects.api import Event, Happened
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kube.decode.wire import PODS_KIND, Metadata, PodWire
from bayplan.dialects.kueue.jobs.events import invalid_job_event
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext
from bayplan.dialects.kueue.jobs.reconcile_pods import PODS as QUEUED_PODS
from bayplan.dialects.kueue.jobs.reconcile_serving import reconcile_serving
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.feature_switches import RULES
from bayplan.model.node import HOSTNAME
from bayplan.runtime.controllers.jobs.cache import JobsCache
from bayplan.runtime.controllers.jobs.controller import RETRY_SECONDS, JobsController
from bayplan.runtime.controllers.jobs.memory import JobKey
from bayplan.runtime.core.quarantine import Quarantine
from tests.support.job_world import (
    LABELS,
    PODS,
    REQUIRED,
    JobWorld,
    Object,
    evict,
    group_pod,
    hosts,
    leader_worker_set,
    phases,
    pod_template,
    running,
    stateful_set,
)

BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})


def test_a_group_of_pods_starts_together_and_ends_its_workload() -> None:
    world = JobWorld()
    world.create(group_pod("one", "gang", 2, notes=REQUIRED))
    world.pass_time(2)
    assert world.workloads() == []
    assert {gate["name"] for gate in world.pods()[0]["spec"]["schedulingGates"]} == {
        "kueue.x-k8s.io/admission",
        "kueue.x-k8s.io/topology",
    }
    world.create(group_pod("two", "gang", 2, notes=REQUIRED))
    world.until(lambda: running(world, 2))
    workload = world.workload()
    assert workload["metadata"]["name"] == "gang"
    assert {one["name"] for one in workload["metadata"]["ownerReferences"]} == {"one", "two"}
    assert all(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] for pod in world.pods())
    assert len({host[:2] for host in hosts(world.pods())}) == 1
    assert world.used() == "4"
    world.until(lambda: world.told("Finished") == ("True", "Succeeded", "Pods succeeded: 2/2."))
    assert world.used() == "0"
    for name in ("one", "two"):
        assert "finalizers" not in world.get("Pod", name)["metadata"]
        world.store.delete(PODS, "default", name, Deletion.from_body({"gracePeriodSeconds": 0}))
    world.pass_time(2)
    assert world.workloads() == world.pods() == []


def test_a_pod_that_changes_its_group_leaves_the_first_one() -> None:
    role = JobsController()
    queued = LABELS | {"kueue.x-k8s.io/managed": "true"}

    def told(group: str, *, gone: bool = False) -> set[JobKey]:
        pod = group_pod("one", group, 2)
        pod["metadata"]["labels"] |= queued
        happened = Happened.GONE if gone else Happened.SEEN
        return set(role.cache.note(Event(happened, QUEUED_PODS, pod)))

    assert told("first") == {("PodGroup", "default", "first")}
    both = {("PodGroup", "default", "first"), ("PodGroup", "default", "second")}
    assert told("second") == both
    assert role.cache.groups == {("default", "second"): {("default", "one"): None}}
    assert told("first", gone=True) == both
    assert not role.cache.groups and not role.cache.pods
    list(role.reconcile(0.0))


def test_a_group_waits_only_for_unread_pods_of_its_own() -> None:
    role, unread = JobsController(), Quarantine()
    role.unread = unread

    def event(name: str, group: str) -> Event:
        pod = group_pod(name, group, 1)
        pod["metadata"]["labels"] |= LABELS | {"kueue.x-k8s.io/managed": "true"}
        return Event(Happened.SEEN, QUEUED_PODS, pod)

    for group in ("first", "second"):
        list(role.decode(event("one", group)))
        unread.put(event("two", "second"), 0.0)
        created = [write.kind for write in role.reconcile(0.0)]
        assert (api_kinds.WORKLOADS in created) == (group == "first")
        list(role.decode(Event(Happened.GONE, QUEUED_PODS, event("one", group).object)))
    list(role.decode(event("one", "second")))
    list(role.reconcile(0.0))
    unread.release(event("two", "second"))  # it was deleted
    assert role.next_due(0.0) == RETRY_SECONDS
    assert api_kinds.WORKLOADS in [write.kind for write in role.reconcile(RETRY_SECONDS)]


def test_a_pod_stands_for_the_workload_that_it_names_last() -> None:
    shelf = JobsCache()

    def told(workload: str) -> None:
        notes = {"kueue.x-k8s.io/workload": workload} if workload else {}
        meta = Metadata(name="one", namespace="default", annotations=notes)
        list(shelf.note(Event(Happened.SEEN, PODS_KIND, PodWire(metadata=meta))))

    told("first")
    told("second")
    assert not shelf.has_bound_pods("default", "first") and shelf.has_bound_pods("default", "second")
    told("")
    assert not shelf.bound_pods


def test_a_group_that_has_to_leave_loses_its_pods_and_waits_for_others() -> None:
    world = JobWorld()
    for name in ("one", "two"):
        world.create(group_pod(name, "gang", 2, seconds=None))
    world.until(lambda: running(world, 2))
    evict(world)
    world.pass_time(5)
    assert world.told("QuotaReserved")[0] == "False"
    assert world.used() == "0"
    assert all(pod["metadata"].get("deletionTimestamp") for pod in world.pods())


def test_a_pod_that_succeeded_before_its_group_started_again_counts_as_ready() -> None:
    world = JobWorld(patience=PodsReadyPolicy(seconds=10, backoff_base_seconds=30, retries_max=1))
    world.create(group_pod("one", "gang", 2, seconds=3))
    world.create(group_pod("two", "gang", 2, seconds=None))
    world.until(lambda: running(world, 2))
    world.until(lambda: world.get("Pod", "one")["status"]["phase"] == "Succeeded")
    evict(world)
    world.until(lambda: world.told("QuotaReserved")[0] == "False")
    ended = {"status": {"phase": "Failed", "conditions": []}}
    world.store.patch(PODS, "default", "two", ended, subresource="status")
    world.store.patch(api_kinds.WORKLOADS, "default", "gang", {"spec": {"active": True}})
    world.create(group_pod("three", "gang", 2, seconds=None))
    world.until(lambda: world.get("Pod", "three")["status"]["phase"] == "Running")
    world.pass_time(30)
    assert world.told("PodsReady")[0] == world.told("Admitted")[0] == "True"


def test_a_pod_on_its_own_is_queued_and_ends_its_workload() -> None:
    world = JobWorld()
    made = group_pod("alone", "", 1)
    made["metadata"]["labels"] = LABELS
    made["metadata"]["annotations"] = {"bayplan.dev/run-seconds": "5"}
    world.create(made)
    world.until(lambda: running(world, 1))
    assert world.workload()["metadata"]["ownerReferences"][0]["controller"] is True
    world.until(lambda: world.told("Finished")[:2] == ("True", "Succeeded"))
    world.store.delete(PODS, "default", "alone", Deletion.from_body({"gracePeriodSeconds": 0}))
    world.pass_time(2)
    assert world.workloads() == world.pods() == []


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    world = JobWorld(gpus=6)
    world.create(leader_worker_set(replicas=2))
    world.until(lambda: phases(world).count("Running") == 2)
    assert len(world.workloads()) == 2
    world.pass_time(5)
    assert phases(world) == ["Pending", "Pending", "Running", "Running"]
    cluster_queue = world.store.get(api_kinds.CLUSTER_QUEUES, "", "all")
    groups = copy.deepcopy(cluster_queue["spec"]["resourceGroups"])
    groups[0]["flavors"][0]["resources"] = [{"name": GPU, "nominalQuota": 8}]
    world.store.patch(api_kinds.CLUSTER_QUEUES, "", "all", {"spec": {"resourceGroups": groups}})
    world.until(lambda: running(world, 4))
    world.store.patch(resource("LeaderWorkerSet"), "default", "serve", {"spec": {"replicas": 1}})
    world.until(lambda: running(world, 2))
    world.pass_time(2)
    assert len(world.workloads()) == 1
    assert world.used() == "4"
    world.store.delete(resource("LeaderWorkerSet"), "default", "serve", BACKGROUND)
    world.pass_time(5)
    assert world.workloads() == world.pods() == []


def test_a_stateful_set_is_one_gang_and_rests_without_replicas() -> None:
    world = JobWorld()
    world.create(stateful_set(replicas=2))
    world.until(lambda: running(world, 2))
    assert world.workload()["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    assert all(HOSTNAME in pod["spec"]["nodeSelector"] for pod in world.pods())
    assert world.used() == "4"
    world.store.patch(resource("StatefulSet"), "default", "serve", {"spec": {"replicas": 0}})
    world.until(lambda: world.pods() == [])
    assert world.used() == "0"
    assert world.told("QuotaReserved")[1] == "OnHold"
    world.store.patch(resource("StatefulSet"), "default", "serve", {"spec": {"replicas": 2}})
    world.until(lambda: running(world, 2))
    world.store.delete(resource("StatefulSet"), "default", "serve", BACKGROUND)
    world.pass_time(5)
    assert world.workloads() == world.pods() == []


def test_pods_of_a_group_that_are_too_many_are_deleted() -> None:
    world = JobWorld()
    for name in ("one", "two", "three"):
        world.create(group_pod(name, "gang", 2, seconds=None))
        world.pass_time(1)
    world.until(lambda: running(world, 2))
    assert {pod["metadata"]["name"] for pod in world.pods()} == {"one", "two"}
    assert ("ExcessPodDeleted", "Excess pod deleted") in world.events("three")


def test_each_pod_of_a_deployment_is_queued_by_itself() -> None:
    world = JobWorld(gpus=2)
    inner = pod_template(seconds=None, restart="Always")
    inner["metadata"]["labels"] = {"app": "web"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": inner}
    meta = {"name": "web", "namespace": "default", "labels": LABELS}
    world.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    world.pass_time(3)
    assert phases(world) == ["Pending", "Running"]
    assert len(world.workloads()) == 2
    (one,) = [pod for pod in world.pods() if pod["status"]["phase"] == "Running"]
    world.store.delete(PODS, "default", one["metadata"]["name"])
    gone = one["metadata"]["uid"]
    world.until(lambda: gone not in {pod["metadata"]["uid"] for pod in world.pods()})
    world.until(lambda: phases(world) == ["Pending", "Running"])  # the controller created another one
    assert len(world.workloads()) == 2
    assert world.used() == "2"


def test_the_groups_of_a_large_leader_worker_set_are_made_a_few_at_a_time() -> None:
    job = {**leader_worker_set(replicas=250), "apiVersion": "leaderworkerset.x-k8s.io/v1"}
    job["metadata"] |= {"uid": "u", "namespace": "default"}
    known = JobContext(lambda *_: None, {}, RULES, None)
    there: list[Object] = []
    steps = []
    while deeds := reconcile_serving(job, there, known, 0.0):
        there += [copy.deepcopy(dict(deed.write.body)) for deed in deeds]
        steps.append(len(deeds))
    assert steps == [100, 100, 50]
    assert len({one["metadata"]["name"] for one in there}) == 250
    job["spec"]["replicas"] = 0
    assert len(reconcile_serving(job, there, known, 0.0)) == 100


def test_a_leader_worker_set_with_more_groups_than_can_be_queued_waits_and_says_why() -> None:
    world = JobWorld()
    job = leader_worker_set(replicas=50_000)
    with pytest.raises(StatusError, match="must be <= 10000, got 50000"):
        world.create(job)
    known = JobContext(lambda *_: None, {}, RULES, None)
    job |= {"apiVersion": "leaderworkerset.x-k8s.io/v1"}
    assert reconcile_serving(job, [], known, 0.0) == []
    notice = invalid_job_event(job, known)
    assert notice is not None and "spec.replicas: 50000: must not be more than 10000" in notice.message


def test_the_groups_of_a_leader_worker_set_are_made_one_after_the_other() -> None:
    job = {**leader_worker_set(replicas=12), "apiVersion": "leaderworkerset.x-k8s.io/v1"}
    job["metadata"] |= {"uid": "u", "namespace": "default"}
    deeds = reconcile_serving(job, [], JobContext(lambda *_: None, {}, RULES, None), 0.0)
    made = [deed.write for deed in deeds]
    notes = [write.body["metadata"]["annotations"] for write in made]
    assert [one["kueue.x-k8s.io/component-workload-index"] for one in notes] == [str(n) for n in range(12)]
    assert {write.order_key for write in made} == {"LeaderWorkerSet default/serve"}
