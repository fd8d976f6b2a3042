"""A gang that would preempt waits a moment while other gangs of its quota tree end by themselves."""

from __future__ import annotations

import pytest

from bayplan.dialects.kueue.names import api_kinds
from bayplan.state.admission import queues
from bayplan.state.admission.queues import HOLD_SECONDS
from tests.support.queued_cluster import condition, queued_workload
from tests.unit.runtime.controllers.admission.test_controller import World

LOW = [f"low-{number}" for number in range(8)]


def finish(world: World, name: str) -> None:
    store = world.cluster.store
    told = store.get(api_kinds.WORKLOADS, "ml", name)["status"]["conditions"]
    over = [*told, condition("Finished", 0, "Succeeded")]
    store.patch(api_kinds.WORKLOADS, "ml", name, {"status": {"conditions": over}}, subresource="status")
    world.pass_time()


def evicted(world: World) -> list[str]:
    return [name for name in LOW if "Evicted" in world.told(name)]


@pytest.fixture
def world() -> World:
    """A cluster full of gangs of low priority, and one that waits for two of them."""
    made = World()
    made.submit(*(queued_workload(name, 1, 4, priority=1) for name in LOW))
    made.submit(queued_workload("waits", 2, 4))
    assert made.says("waits", "QuotaReserved")[0] == "False"
    return made


def test_while_no_gang_ends_it_preempts_at_once(world: World) -> None:
    world.submit(queued_workload("high", 2, 4, priority=9))
    assert len(evicted(world)) == 2


def test_it_waits_for_gangs_that_end_and_preempts_nobody(world: World) -> None:
    finish(world, "low-0")
    world.submit(queued_workload("high", 2, 4, priority=9))
    assert evicted(world) == []
    message = world.told("high")["QuotaReserved"][2]
    assert message.endswith("Other workloads finish at the moment; preempts if they do not make room soon")
    finish(world, "low-1")
    assert world.says("high", "Admitted") == ("True", "Admitted")
    assert evicted(world) == []
    assert world.says("waits", "QuotaReserved")[0] == "False"


def test_nobody_of_a_lower_priority_takes_what_becomes_free_meanwhile(world: World) -> None:
    finish(world, "low-0")
    world.submit(queued_workload("high", 2, 4, priority=9))
    world.submit(queued_workload("small", 1, 4), queued_workload("beside", 1, 4, "right"))
    for name in ("small", "beside"):
        status = world.cluster.store.get(api_kinds.WORKLOADS, "ml", name).get("status") or {}
        assert "admission" not in status, name


def test_it_preempts_when_no_more_gangs_end(world: World) -> None:
    finish(world, "low-0")
    world.submit(queued_workload("high", 2, 4, priority=9))
    world.pass_time(HOLD_SECONDS - 0.1)
    assert evicted(world) == []
    world.pass_time(0.2)
    assert len(evicted(world)) == 1


def test_it_preempts_after_a_while_though_others_still_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "HOLD_MAX", 2.0)
    finish(world, "low-0")
    world.submit(queued_workload("high", 4, 4, priority=9))
    for name in ("low-1", "low-2"):
        world.pass_time(0.9)
        finish(world, name)
        assert evicted(world) == []
    world.pass_time(0.3)
    assert len(evicted(world)) == 1


def test_an_end_that_nobody_waited_for_delays_no_later_gang() -> None:
    world = World()
    world.submit(*(queued_workload(name, 1, 4, priority=1) for name in LOW))
    finish(world, "low-0")
    world.submit(queued_workload("high", 2, 4, priority=9))
    assert len(evicted(world)) == 1
