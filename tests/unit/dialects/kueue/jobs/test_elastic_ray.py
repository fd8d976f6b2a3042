"""Elastic Ray clusters, with and without a RayJob, on an in-memory cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.names import api_kinds
from tests.support.job_world import JobWorld, Object, indexed_job, phases, running
from tests.support.ray_controllers import OPERATORS, ray_cluster, ray_job
from tests.unit.dialects.kueue.jobs.test_elastic import (
    BACKGROUND,
    ELASTIC,
    ELASTIC_GATE,
    REPLACES,
    UNCONSTRAINED,
    active,
    used_gpus,
    watched,
)

KINDS = {"RayCluster": ("train", ray_cluster), "RayJob": ("train-cluster", ray_job)}
Made = tuple[JobWorld, Callable[[int], None]]


def running_job(kind: str, workers: int, **more: Any) -> Made:
    """A running Ray job, and a function to change its number of workers."""
    world = JobWorld(operators=OPERATORS, **more)
    cluster, make = KINDS[kind]
    world.create(make(workers, dict(ELASTIC), UNCONSTRAINED if more.get("tas", True) else {}))
    world.until(lambda: running(world, workers + 1))

    def scale(count: int) -> None:
        groups = world.get("RayCluster", cluster)["spec"]["workerGroupSpecs"]
        spec = {"workerGroupSpecs": [{**groups[0], "replicas": count}]}
        world.store.patch(resource("RayCluster"), "default", cluster, {"spec": spec})

    return world, scale


def bound_pods(world: JobWorld) -> dict[str, tuple[str, str]]:
    """The uid and node of every pod that has one."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in world.pods()
        if pod["spec"].get("nodeName")
    }


def counts(workload: Object) -> dict[str, int]:
    return {one["name"]: one["count"] for one in workload["spec"]["podSets"]}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_scaled_up_and_down_while_remaining_pods_keep_running(kind: str) -> None:
    world, scale = running_job(kind, 2)
    first, before = world.workload(), bound_pods(world)
    assert counts(first) == {"head": 1, "small": 2} and world.used() == "6" and used_gpus(world) == (6, 6)
    scale(4)
    world.until(lambda: running(world, 5))
    (second,) = active(world)
    assert counts(second) == {"head": 1, "small": 4}
    assert second["metadata"]["annotations"][REPLACES] == f"default/{first['metadata']['name']}"
    assert before.items() <= bound_pods(world).items()
    assert world.used() == "10" and used_gpus(world) == (10, 10)
    grown = bound_pods(world)
    scale(1)
    world.until(lambda: running(world, 2))
    (third,) = active(world)
    assert third["metadata"]["uid"] == second["metadata"]["uid"]
    assert counts(third) == {"head": 1, "small": 1}
    assert bound_pods(world).items() <= grown.items()
    assert world.used() == "4" and used_gpus(world) == (4, 4)


@pytest.mark.parametrize("tas", [True, False], ids=["topology", "no-topology"])
@pytest.mark.parametrize("kind", KINDS)
def test_workers_without_capacity_stay_pending_and_running_pods_are_not_disturbed(
    kind: str, tas: bool
) -> None:
    world, scale = running_job(kind, 2, tas=tas)
    world.create(indexed_job("other", pods=5, seconds=None))
    world.until(lambda: running(world, 8))
    before = bound_pods(world)
    scale(4)
    world.pass_time(10)
    assert phases(world) == ["Pending"] * 2 + ["Running"] * 8
    waiting = [pod for pod in world.pods() if not pod["spec"].get("nodeName")]
    assert all(ELASTIC_GATE in pod["spec"]["schedulingGates"] for pod in waiting)
    assert bound_pods(world) == before and world.used() == "16"
    world.store.delete(resource("Job"), "default", "other", BACKGROUND)
    world.until(lambda: running(world, 5))
    kept = {name: where for name, where in before.items() if name.startswith("train")}
    assert len(kept) == 3 and kept.items() <= bound_pods(world).items() and world.used() == "10"


@pytest.mark.parametrize("kind", KINDS)
def test_no_quota_is_released_before_pods_are_removed(kind: str) -> None:
    world, scale = running_job(kind, 4)

    def still_held() -> None:
        there = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
        quota, room = used_gpus(world)
        assert quota >= 2 * len(there) <= room

    scale(1)
    watched(world, still_held, 5)
    assert used_gpus(world) == (4, 4) and running(world, 2)


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_bayplan_may_restart_at_any_moment_of_a_resize(kind: str, steps: int) -> None:
    world, scale = running_job(kind, 1)
    before = bound_pods(world)
    for size in (3, 2, 4):
        scale(size)
        for _ in range(steps):
            world.loop.step(world.clock.wall())
            world.crew.step(world.clock.wall())
        world.restart()
        world.until(lambda size=size: running(world, size + 1))  # type: ignore[misc]
        assert before.items() <= bound_pods(world).items()
        assert world.used() == str(2 * size + 2) and len(active(world)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_evicted_one_is_requeued(kind: str) -> None:
    world, scale = running_job(kind, 1)
    original = world.get(kind, "train")["spec"]
    scale(3)
    world.until(lambda: running(world, 4))
    (workload,) = active(world)
    name = workload["metadata"]["name"]
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": False}})
    world.until(lambda: not world.pods())
    assert world.used() == "0" and world.get(kind, "train")["spec"]["suspend"] is True
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": True}})
    pods = 4 if kind == "RayCluster" else 2  # the cluster of a job begins anew, as the job says
    world.until(lambda: running(world, pods))
    assert len(active(world)) == 1 and world.used() == str(2 * pods)
    assert {"suspend", *original} == set(world.get(kind, "train")["spec"])


def test_one_that_is_not_elastic_is_suspended_when_resized() -> None:
    world = JobWorld(operators=OPERATORS)
    world.create(ray_cluster(1, {}, UNCONSTRAINED))
    world.until(lambda: running(world, 2))
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    groups = world.get("RayCluster", "train")["spec"]["workerGroupSpecs"]
    more = {"workerGroupSpecs": [{**groups[0], "replicas": 2}]}
    world.store.patch(resource("RayCluster"), "default", "train", {"spec": more})
    world.until(lambda: running(world, 3))
    assert not before & {pod["metadata"]["uid"] for pod in world.pods()}
