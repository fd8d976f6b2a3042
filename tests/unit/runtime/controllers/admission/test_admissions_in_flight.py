"""Admissions while the API server is slow: only so many are decided ahead of their writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.admission import controller
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.loop import Loop, Observer
from tests.support.queued_cluster import queued_workload
from tests.unit.runtime.controllers.admission.test_controller import Silent, World


class Slow(EmbeddedBackend):
    """Writes of Workloads wait until they are released."""

    waits = False
    waiting: tuple[Write, ...] = ()

    def submit(self, writes: Sequence[Write]) -> None:
        late = [write for write in writes if self.waits and write.kind == api_kinds.WORKLOADS]
        self.waiting += tuple(late)
        super().submit([write for write in writes if write not in late])

    def release(self) -> None:
        self.waits, writes, self.waiting = False, self.waiting, ()
        super().submit(writes)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(controller, "ADMITTING_MAX", 2)
    made = World()
    made.backend = Slow(made.cluster.store)  # type: ignore[assignment]
    made.loop = Loop(made.backend, [AdmissionController()], Silent())
    made.pass_time()
    return made


def backend(world: World) -> Slow:
    assert isinstance(world.backend, Slow)
    return world.backend


def test_a_gang_that_arrives_while_admissions_are_written_goes_first_and_preempts_nobody(
    world: World,
) -> None:
    backend(world).waits = True
    world.submit(*(queued_workload(f"low-{number}", 1, 4, priority=1) for number in range(8)))
    assert len(backend(world).waiting) == 2, "more would only wait for the API server"
    world.submit(queued_workload("high", 4, 4, priority=9))
    backend(world).release()
    world.pass_time()
    assert world.says("high", "Admitted") == ("True", "Admitted")
    told = [world.told(f"low-{number}") for number in range(8)]
    assert not any("Evicted" in one for one in told)
    assert sum(one["QuotaReserved"][0] == "True" for one in told) == 4


def test_a_write_whose_end_is_unknown_stops_no_other_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "ADMITTING_MAX", 2)
    flaky = World(role := AdmissionController())
    flaky.backend.ended, flaky.backend.lose = Ended.TIMED_OUT, lambda write: write.name.startswith("lost")
    flaky.submit(*(queued_workload(f"lost-{number}", 1, 1) for number in range(4)))
    assert role.admitting == set()
    flaky.submit(queued_workload("next", 1, 1))
    assert flaky.says("next", "Admitted") == ("True", "Admitted")


class Timed(Observer):
    """Every look at a stopwatch finds so many seconds more than the one before."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def stopwatch(self) -> Callable[[], float]:
        looks = itertools.count()
        return lambda: next(looks) * self.seconds


def queued(seconds: float) -> tuple[World, Slow]:
    """A step away from the admission of six gangs of one queue; the time that a look takes is given."""
    made = World()
    made.backend = waiting = Slow(made.cluster.store)  # type: ignore[assignment]
    made.loop = Loop(made.backend, [AdmissionController()], Silent(), observer=Timed(seconds))
    made.pass_time(60.0)
    waiting.waits = True
    for number in range(6):
        made.cluster.submit(queued_workload(f"gang-{number}", 1, 1))
    return made, waiting


def test_gangs_of_one_queue_follow_each_other_in_one_step() -> None:
    made, waiting = queued(seconds=0.0)
    made.loop.step(made.now)
    assert len({write.name for write in waiting.waiting}) == 6


def test_the_cycles_of_a_step_have_a_time_limit_and_the_next_step_follows_at_once() -> None:
    made, waiting = queued(seconds=0.02)
    assert made.loop.step(made.now) == made.now
    assert 1 <= len({write.name for write in waiting.waiting}) < 6


def test_after_the_last_gang_the_loop_pauses_so_that_others_are_decided_on_together() -> None:
    made, _ = queued(seconds=0.0001)
    made.loop.step(made.now)
    assert made.loop.paused_until["admission"] > made.now
