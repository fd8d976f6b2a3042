"""Several gangs of one queue preempt at the same time, each with victims of its own."""

from __future__ import annotations

import pytest

from bayplan.dialects.api import Write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status import reconcile
from bayplan.state.admission import queues
from tests.support.api_objects import job
from tests.support.queued_cluster import JOBS, queued_workload, template
from tests.unit.runtime.controllers.admission.test_controller import World

LOW = [f"low-{number}" for number in range(8)]
HIGH = [f"high-{number}" for number in range(4)]


def evicted(world: World) -> int:
    return sum("Evicted" in world.told(name) for name in LOW)


def started(world: World) -> list[str]:
    found = {name: world.cluster.store.get(api_kinds.WORKLOADS, "ml", name).get("status") for name in HIGH}
    return [name for name, status in found.items() if status and "admission" in status]


def stop(world: World, *names: str) -> None:
    """As the controller of their Jobs: the pods are gone, so the quota is released."""
    for name in names:
        found = world.cluster.store.get(api_kinds.WORKLOADS, "ml", name)
        status = reconcile.released(found, world.now)
        world.cluster.store.update(api_kinds.WORKLOADS, "ml", name, {**found, "status": status}, "status")


def submit_job(world: World, name: str) -> None:
    made = world.cluster.store.create(JOBS, job(name, template(4), 1), "ml")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {key: made["metadata"][key] for key in ("name", "uid")}
    found = queued_workload(name, 1, 4, priority=1)
    world.submit({**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}})


@pytest.fixture
def world() -> World:
    """A cluster full of gangs that leave only when they are told to, and gangs of a higher priority."""
    made = World()
    for name in LOW:
        submit_job(made, name)
    for name in HIGH:
        made.cluster.submit(queued_workload(name, 1, 4, priority=9))
    return made


def test_gangs_preempt_while_others_of_their_queue_wait_for_their_victims(world: World) -> None:
    world.pass_time()
    assert (evicted(world), started(world)) == (4, [])
    world.pass_time(120)
    assert (evicted(world), started(world)) == (4, []), "nobody else leaves for them"
    stop(world, *(name for name in LOW if "Evicted" in world.told(name)))
    world.pass_time()
    assert (evicted(world), started(world)) == (4, HIGH)


def test_a_gang_that_follows_is_offered_what_the_gangs_before_it_leave(world: World) -> None:
    """It was tried beside them, found their free capacity, and was told that others took it."""
    world.pass_time()
    [*victims] = (name for name in LOW if "Evicted" in world.told(name))
    for count in range(1, 5):
        stop(world, victims[count - 1])
        world.pass_time()
        assert started(world) == HIGH[:count]
    told = {reason for name in HIGH for reason, _ in world.events(name)}
    assert told == {"WaitingForPreemptedWorkloads", "PreemptedWorkload", "QuotaReserved", "Admitted"}


def test_a_gang_without_a_job_is_evicted_and_released_in_one_write() -> None:
    world = World()
    world.submit(*(queued_workload(name, 1, 4, priority=1) for name in LOW))
    written: list[Write] = []

    def note(write: Write) -> bool:
        written.append(write)
        return False

    world.backend.lose = note
    world.submit(queued_workload(HIGH[0], 1, 4, priority=9))
    assert world.says(HIGH[0], "Admitted") == ("True", "Admitted")
    [victim] = (name for name in LOW if "Evicted" in world.told(name))
    told = [write for write in written if (write.kind, write.name) == (api_kinds.WORKLOADS, victim)]
    assert len(told) == 2, "it is evicted, then it hears why it waits"
    assert world.says(victim, "Requeued") == ("True", "Preempted")


def test_only_so_many_wait_for_their_victims_at_the_same_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "PREEMPTING_MAX", 2)
    world.pass_time()
    assert evicted(world) == 2


def test_in_a_strict_queue_gangs_preempt_one_after_the_other(world: World) -> None:
    world.change(api_kinds.CLUSTER_QUEUES, "left-queue", {"queueingStrategy": "StrictFIFO"})
    assert evicted(world) == 1


def test_what_becomes_free_otherwise_goes_to_those_that_wait_first(world: World) -> None:
    world.pass_time()
    for name in LOW[-2:]:
        world.cluster.store.delete(api_kinds.WORKLOADS, "ml", name)
    world.submit(queued_workload("small", 1, 4))
    assert started(world) == HIGH[:2]
    assert world.says("small", "QuotaReserved")[0] == "False"
