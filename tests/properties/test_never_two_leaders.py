"""Whoever sleeps, whatever fails or is late, with clocks of different speeds: never two leaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from bayplan.dialects.errors import Unreachable
from bayplan.runtime.core.clock import VirtualClock
from tests.support.leases import Store, replica


class Skewed:
    """A clock that runs at a speed of its own and started at a time of its own."""

    def __init__(self, world: VirtualClock, speed: float, offset: float) -> None:
        self._world, self._speed, self._offset = world, speed, offset

    def monotonic(self) -> float:
        return self._world.monotonic() * self._speed + self._offset

    def wall(self) -> float:
        return self._world.wall() + self._offset * 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("an election does not sleep")


@dataclass(frozen=True)
class Fate:
    """What becomes of a call."""

    delay: float = 0.0  # before it has its effect
    lost: bool = False  # it has none
    unheard: bool = False  # it has, but nobody hears of it
    sleep: float = 0.0  # of who asked, before he reads the answer; the others look around meanwhile


FINE = Fate()
FATES = [*(FINE,) * 8, Fate(delay=3.0), Fate(delay=8.0), Fate(lost=True), Fate(unheard=True), Fate(sleep=9.0)]


class Shaky(Store):
    """A store whose calls take time and may fail."""

    def __init__(self, world: VirtualClock) -> None:
        super().__init__()
        self.world = world
        self.fate = FINE
        self.meanwhile: Callable[[], object] = lambda: None

    def _called(self, name: str, seconds: float) -> None:
        self.world.advance(min(self.fate.delay, seconds))
        if self.fate.lost or self.fate.delay > seconds:
            raise Unreachable("no answer")

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        kept = super()._keep(body)
        fate, self.fate = self.fate, FINE
        if fate.unheard:
            raise Unreachable("done, but no answer")
        if fate.sleep:
            self.meanwhile()
            self.world.advance(fate.sleep)
        return kept

    def touched(self) -> None:
        """Somebody wrote into it without changing anything."""
        self.version += 1
        if self.lease is not None:
            self.lease["metadata"]["resourceVersion"] = str(self.version)


ACTS = [*("step",) * 12, "release", "touched"]
PAUSES = [0.0, 0.0, 0.0, 2.4, 7.0, 13.5, 16.0]
SPEEDS = [(1.0, 1.0), (0.8, 1.15), (1.15, 0.8)]  # the ratio stays below that of lease and renew

Moves = list[tuple[int, str, Fate, float]]
"""Which replica does what, how its call fares, and how long it is until the next move."""


def moves(rng: random.Random) -> Moves:
    count = rng.randrange(5, 60)
    return [(rng.randrange(2), rng.choice(ACTS), rng.choice(FATES), rng.choice(PAUSES)) for _ in range(count)]


@pytest.mark.parametrize("seeds", [range(start, start + 500) for start in range(0, 2000, 500)], ids=str)
def test_never_two_leaders(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        world = VirtualClock()
        store = Shaky(world)
        clocks = [Skewed(world, speed, 1000.0 * number) for number, speed in enumerate(rng.choice(SPEEDS))]
        replicas = [replica(store, f"r{number}", clock) for number, clock in enumerate(clocks)]
        for who, act, fate, pause in moves(rng):
            store.fate, store.meanwhile = fate, replicas[1 - who].step
            acts = {"step": replicas[who].step, "release": replicas[who].release, "touched": store.touched}
            acts[act]()
            for passed in (0.0, pause):
                world.advance(passed)
                both = all(
                    one.is_leader(clock.monotonic()) for one, clock in zip(replicas, clocks, strict=True)
                )
                assert not both, f"two leaders with seed {seed}"


def test_once_the_trouble_is_over_whoever_is_left_leads() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        world = VirtualClock()
        store = Shaky(world)
        replicas = [replica(store, f"r{number}", world) for number in range(2)]
        for who, act, fate, pause in moves(rng):
            store.fate = fate
            (replicas[who].release if act == "release" else replicas[who].step)()
            world.advance(pause)
        store.fate = FINE
        for _ in range(10):  # the first never comes back
            replicas[1].step()
            world.advance(2.0)
        assert replicas[1].is_leader(world.monotonic()), f"nobody leads with seed {seed}"
