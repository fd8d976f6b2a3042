"""Several gangs of one queue preempt at the same time, each with victims of its own."""

from __future__ import annotations

import pytest

from bayplan.dialects.api import Write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.state.admission import queues
from tests.support.queued_cluster import queued_workload
from tests.unit.runtime.controllers.admission.test_controller import World

LOW = [f"low-{number}" for number in range(8)]
HIGH = [f"high-{number}" for number in range(4)]


def evicted(world: World) -> int:
    return sum("Evicted" in world.told(name) for name in LOW)


def started(world: World) -> list[str]:
    found = {name: world.cluster.store.get(api_kinds.WORKLOADS, "ml", name).get("status") for name in HIGH}
    return [name for name, status in found.items() if status and "admission" in status]


def is_release(write: Write) -> bool:
    """Whether a victim gives back what it has."""
    if write.kind != api_kinds.WORKLOADS or write.name not in LOW:
        return False
    told = write.body.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("QuotaReserved", "False") for one in told)


@pytest.fixture
def world() -> World:
    """A cluster full of gangs that leave only when they are told to, and gangs of a higher priority."""
    made = World()
    made.submit(*(queued_workload(name, 1, 4, priority=1) for name in LOW))
    made.backend.lose = is_release
    for name in HIGH:
        made.cluster.submit(queued_workload(name, 1, 4, priority=9))
    return made


def test_gangs_preempt_while_others_of_their_queue_wait_for_their_victims(world: World) -> None:
    world.pass_time()
    assert (evicted(world), started(world)) == (4, [])
    world.pass_time(120)
    assert (evicted(world), started(world)) == (4, []), "nobody else leaves for them"
    world.backend.lose = lambda write: False
    world.pass_time(120)
    assert (evicted(world), started(world)) == (4, HIGH)


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
