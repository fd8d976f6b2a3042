"""The service around the loop: the time that it gives to the loop when the clock of the machine is set."""

from __future__ import annotations

import threading
from itertools import pairwise

from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.runtime.core.clock import SteadyWall, VirtualClock
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.process.service import Meter, Metered, Service
from bayplan.runtime.telemetry.metrics import Metrics
from tests.unit.runtime.controllers.scheduler.test_controller import Site

HOUR = 3600.0


class SettableClock(VirtualClock):
    """A virtual clock whose wall time can be set."""

    offset = 0.0

    def wall(self) -> float:
        return super().wall() + self.offset


def test_after_the_clock_is_set_back_the_loop_does_not_wait_until_it_has_caught_up() -> None:
    clock, metrics, stop, site = SettableClock(), Metrics(of_process=False), threading.Event(), Site(V1ALPHA1)
    loop = Loop(
        Metered(site.loop.backend, metrics), (site.role,), site.journal, observer=Meter(clock, metrics)
    )
    steps: list[float] = []

    def step(now: float) -> float:
        steps.append(now)
        clock.sleep(1.0)
        if len(steps) == 10:
            clock.offset = -HOUR
        if len(steps) == 20:
            stop.set()
        return now

    loop.step = step  # type: ignore[method-assign]
    stop.wait = lambda timeout=None: stop.is_set()  # type: ignore[method-assign]
    Service(loop, clock, metrics, stop).run()
    passed = [after - before for before, after in pairwise(steps)]
    assert all(0.89 < one < 1.11 for one in passed), passed


def test_steady_time_follows_a_clock_that_was_set_slowly_and_ends_up_equal() -> None:
    clock, told = SettableClock(), list[str]()
    steady = SteadyWall(clock, told.append)
    for offset in (100.0, -100.0):
        before = clock.offset
        clock.offset = offset
        clock.sleep(10.0)
        assert steady.now() == clock.wall() - offset + before + (1.0 if offset > before else -1.0)
        for _ in range(300):
            clock.sleep(10.0)
            steady.now()
        assert steady.now() == clock.wall()
    assert told == [
        "the clock of this machine was set forward by 100 s; delays last as long as before, "
        "and times follow slowly",
        "the times of the loop are those of the clock again",
        "the clock of this machine was set back by 200 s; delays last as long as before, "
        "and times follow slowly",
        "the times of the loop are those of the clock again",
    ]


def test_steady_time_is_that_of_a_clock_that_nobody_sets() -> None:
    clock = SettableClock(wall=1000.0)
    steady = SteadyWall(clock)
    for seconds in (0.0, 0.25, 30.0, 4000.0):
        clock.sleep(seconds)
        assert steady.now() == clock.wall()
