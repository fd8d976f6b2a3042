"""Elastic jobs on an in-memory cluster: running pods are not disturbed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.fake_controllers.manifests import GPU
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.state.admission.usage import usage_of
from tests.support.job_world import REQUIRED, JobWorld, Object, indexed_job, phases, running

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
UNCONSTRAINED = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
SLICE_NAME = "kueue.x-k8s.io/workload-slice-name"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
INDEX = "batch.kubernetes.io/job-completion-index"
ELASTIC_GATE = {"name": "kueue.x-k8s.io/elastic-job"}
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})


def elastic(pods: int = 2, notes: dict[str, str] | None = None, **more: Any) -> Object:
    wishes = UNCONSTRAINED if notes is None else notes
    made = indexed_job("train", pods=pods, seconds=None, notes=wishes, **more)
    made["metadata"]["annotations"] = dict(ELASTIC)
    return made


def scale(world: JobWorld, pods: int) -> None:
    size = {"parallelism": pods, "completions": pods}
    world.store.patch(resource("Job"), "default", "train", {"spec": size})


def bound_pods(world: JobWorld) -> dict[int, tuple[str, str]]:
    """The uid and node of every pod that has one, by its index."""
    return {
        int(pod["metadata"]["annotations"][INDEX]): (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in world.pods()
        if pod["spec"].get("nodeName")
    }


def used_gpus(world: JobWorld) -> tuple[int, int]:
    """GPUs that admission counts as used: of the quota, and on the nodes."""
    (role,) = [one for one in world.loop.controllers if isinstance(one, AdmissionController)]
    holdings = role.state.usage.by_gang.values()
    quota = sum(sum(holding.quota.values()) for holding in holdings)
    room = sum(
        spot.amounts(share).get(GPU, 0)
        for holding in holdings
        for spot in holding.placements
        for share in spot.place.shares
    )
    return quota, room


def active(world: JobWorld) -> list[Object]:
    return [one for one in world.workloads() if world.told("Finished", one)[0] != "True"]


def test_a_job_is_scaled_up_and_down_while_its_remaining_pods_keep_running() -> None:
    world = JobWorld()
    world.create(elastic(2))
    world.until(lambda: running(world, 2))
    first, before = world.workload(), bound_pods(world)
    assert world.used() == "4" and used_gpus(world) == (4, 4)
    scale(world, 4)
    world.until(lambda: running(world, 4))
    (second,) = active(world)
    (old,) = [one for one in world.workloads() if one["metadata"]["uid"] == first["metadata"]["uid"]]
    name, uid = first["metadata"]["name"], second["metadata"]["uid"]
    assert second["metadata"]["annotations"][REPLACES] == f"default/{name}"
    assert second["metadata"]["annotations"][SLICE_NAME] == name
    message = (
        f"Replaced to accommodate a workload (UID: {uid}, "
        f"JobUID: {world.get('Job', 'train')['metadata']['uid']}) due to workload slice aggregation"
    )
    assert world.told("Finished", old) == ("True", "WorkloadSliceReplaced", message)
    assert ("WorkloadSliceReplaced", message) in world.events(name)
    assert "finalizers" not in old["metadata"]
    assert before.items() <= bound_pods(world).items()
    assert world.used() == "8" and used_gpus(world) == (8, 8)
    grown = bound_pods(world)
    scale(world, 3)
    world.until(lambda: running(world, 3))
    (third,) = active(world)
    assert third["metadata"]["uid"] == uid and third["spec"]["podSets"][0]["count"] == 3
    assert bound_pods(world) == {index: grown[index] for index in range(3)}
    assert world.used() == "6" and used_gpus(world) == (6, 6)
    assert all(pod["metadata"]["annotations"][SLICE_NAME] == name for pod in world.pods())


def test_a_job_that_cannot_scale_up_keeps_running_and_scales_up_when_capacity_is_free() -> None:
    world = JobWorld()
    world.create(elastic(2))
    world.create(indexed_job("other", pods=6, seconds=None))
    world.until(lambda: running(world, 8))
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in world.pods()}
    scale(world, 4)
    world.pass_time(10)
    assert phases(world) == ["Pending"] * 2 + ["Running"] * 8
    waiting = [pod for pod in world.pods() if not pod["spec"].get("nodeName")]
    assert all(ELASTIC_GATE in pod["spec"]["schedulingGates"] for pod in waiting)
    assert len(active(world)) == 3 and world.used() == "16"
    world.store.delete(resource("Job"), "default", "other", BACKGROUND)
    world.until(lambda: running(world, 4))
    stood = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in world.pods()}
    assert len(stood.items() & before.items()) == 2
    assert len(active(world)) == 1 and world.used() == "8" and used_gpus(world) == (8, 8)


def test_a_job_scales_up_into_the_last_capacity_without_counting_its_own_twice() -> None:
    world = JobWorld(gpus=16)
    world.create(elastic(2, gpus=4))
    world.until(lambda: running(world, 2))
    before = bound_pods(world)
    scale(world, 4)
    world.until(lambda: running(world, 4))
    assert before.items() <= bound_pods(world).items()
    assert len({node for _, node in bound_pods(world).values()}) == 4
    assert world.used() == "16" and used_gpus(world) == (16, 16)


def test_a_scale_up_that_is_cancelled_leaves_the_queue() -> None:
    world = JobWorld(gpus=4)
    world.create(elastic(2))
    world.until(lambda: running(world, 2))
    before = bound_pods(world)
    scale(world, 4)
    world.pass_time(5)
    assert len(active(world)) == 2
    scale(world, 3)
    world.pass_time(5)
    assert sorted(one["spec"]["podSets"][0]["count"] for one in active(world)) == [2, 3]
    scale(world, 2)
    world.pass_time(5)
    assert [one["spec"]["podSets"][0]["count"] for one in world.workloads()] == [2]
    assert bound_pods(world) == before and world.used() == "4"


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_bayplan_may_restart_at_any_moment_of_a_resize(steps: int) -> None:
    world = JobWorld()
    world.create(elastic(2))
    world.until(lambda: running(world, 2))
    before = bound_pods(world)
    for size in (4, 3, 5):
        scale(world, size)
        for _ in range(steps):
            world.loop.step(world.clock.wall())
            world.crew.step(world.clock.wall())
        world.restart()
        world.until(lambda size=size: running(world, size))  # type: ignore[misc]
        assert before.items() <= bound_pods(world).items()
        assert world.used() == str(2 * size) and used_gpus(world) == (2 * size, 2 * size)
        assert len(active(world)) == 1


def watched(world: JobWorld, check: Callable[[], None], seconds: int) -> None:
    """Run all controllers, and check after every step."""
    for _ in range(seconds * 4):
        world.loop.step(world.clock.wall())
        check()
        world.crew.step(world.clock.wall())
        check()
        world.pass_time()
        check()
        world.clock.advance(0.25)


def test_a_job_never_holds_more_than_the_larger_of_its_sizes() -> None:
    world = JobWorld()
    world.create(elastic(2))
    world.until(lambda: running(world, 2))
    size = 2
    for wanted in (4, 3, 6, 1, 2, 8, 2):
        low, most = 2 * min(size, wanted), 2 * max(size, wanted)

        def within(low: int = low, most: int = most) -> None:
            quota, room = used_gpus(world)
            assert low <= quota <= most and low <= room <= most

        scale(world, wanted)
        watched(world, within, 5)
        assert used_gpus(world) == (2 * wanted, 2 * wanted)
        size = wanted


def test_a_job_without_a_topology_scales_up_by_its_gate_alone() -> None:
    world = JobWorld(gpus=8, tas=False)
    world.create(elastic(2, notes={}))
    world.until(lambda: running(world, 2))
    before = bound_pods(world)
    scale(world, 5)
    world.pass_time(5)
    assert phases(world) == ["Pending"] * 3 + ["Running"] * 2
    scale(world, 4)
    world.until(lambda: running(world, 4))
    assert before.items() <= bound_pods(world).items() and world.used() == "8"


@pytest.mark.parametrize("tas", [True, False], ids=["topology", "no-topology"])
@pytest.mark.parametrize("seconds", [0, 5], ids=["at-once", "later"])
def test_quota_released_by_a_scale_down_has_to_be_requested_again(tas: bool, seconds: int) -> None:
    world = JobWorld(gpus=8, tas=tas)
    world.create(elastic(4, notes=None if tas else {}))
    world.until(lambda: running(world, 4))
    world.create(indexed_job("other", pods=1, seconds=None))
    world.pass_time(3)
    scale(world, 3)
    for _ in range(2):
        world.loop.step(world.clock.wall())
    if seconds:
        world.pass_time(seconds)
    scale(world, 4)
    world.pass_time(10)
    ungated = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
    assert len(ungated) == 4 and world.used() == "8"


def test_a_job_evicted_during_a_pending_scale_up_is_requeued_in_its_new_size() -> None:
    world = JobWorld()
    world.create(elastic(2))
    world.create(indexed_job("other", pods=6, seconds=None))
    world.until(lambda: running(world, 8))
    scale(world, 4)
    world.pass_time(5)
    (mine,) = [
        one
        for one in active(world)
        if one["metadata"]["name"].startswith("job-train") and world.told("Admitted", one)[0] == "True"
    ]
    name = mine["metadata"]["name"]
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": False}})
    world.until(lambda: running(world, 6))
    assert world.get("Job", "train")["spec"]["suspend"] is True and world.used() == "12"
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": True}})
    world.store.delete(resource("Job"), "default", "other", BACKGROUND)
    world.until(lambda: running(world, 4))
    assert len(active(world)) == 1 and world.used() == "8"


def test_an_evicted_job_that_was_scaled_up_is_restored_and_requeued() -> None:
    world = JobWorld()
    before = world.create(elastic(2))["spec"]["template"]
    world.until(lambda: running(world, 2))
    for size in (3, 4):
        scale(world, size)
        world.until(lambda size=size: running(world, size))  # type: ignore[misc]
    name = active(world)[0]["metadata"]["name"]
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": False}})
    world.until(lambda: not world.pods())
    assert world.used() == "0" and world.get("Job", "train")["spec"]["template"] == before
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": True}})
    world.until(lambda: running(world, 4))
    assert len(active(world)) == 1 and world.used() == "8"


@pytest.mark.parametrize("word", ["required", "preferred"])
def test_an_elastic_job_cannot_require_or_prefer_a_topology(word: str) -> None:
    world = JobWorld()
    with pytest.raises(Exception, match=f"{word} topology is not supported with elastic jobs"):
        world.create(elastic(2, notes={f"kueue.x-k8s.io/podset-{word}-topology": "rack"}))


def test_jobs_that_are_not_elastic_are_suspended_when_resized() -> None:
    world = JobWorld()
    world.create(indexed_job(pods=2, seconds=None, notes=REQUIRED))
    world.until(lambda: running(world, 2))
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    scale(world, 4)
    world.until(lambda: running(world, 4))
    assert not before & {pod["metadata"]["uid"] for pod in world.pods()}


def test_the_quota_of_a_replaced_slice_is_part_of_its_successor_and_returns_without_it() -> None:
    world = JobWorld(gpus=4)
    world.create(elastic(2))
    world.until(lambda: running(world, 2))
    scale(world, 4)
    world.pass_time(5)
    (role,) = [one for one in world.loop.controllers if isinstance(one, AdmissionController)]
    holdings = role.state.usage
    (before,) = holdings.by_gang.values()
    later = next(s.queued_gang for s in role.state.pending.entries.values() if s.queued_gang.replaces)
    grown = usage_of(replace(later, admission=before.queued_gang.admission), holdings.flavors)
    for _ in range(2):
        holdings.add(grown)
        assert used_gpus(world) == (4, 4) and list(holdings.by_gang) == [later.gang.source]
        assert holdings.remove(before.queued_gang.gang.source) is None  # it is seen anew
        holdings.add(before)
        assert used_gpus(world) == (4, 4) and list(holdings.by_gang) == [later.gang.source]
        holdings.remove(later.gang.source)
        assert used_gpus(world) == (4, 4) and list(holdings.by_gang) == [before.queued_gang.gang.source]
    assert not holdings.covered and not holdings.successors
