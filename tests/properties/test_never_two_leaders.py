"""Whoever sleeps, whatever fails or is late, with clocks of different speeds: never two leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.errors import Unreachable
from bayplan.runtime.clock import VirtualClock
from tests.leases import Store, replica


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


class Shaky(Store):
    """Calls take time, and may fail before or after they had their effect."""

    def __init__(self, world: VirtualClock) -> None:
        super().__init__()
        self.world = world
        self.fate: tuple[str, float] = ("", 0.0)

    def _called(self, name: str, seconds: float) -> None:
        how, delay = self.fate
        self.world.advance(min(delay, seconds))
        if how == "lost" or delay > seconds:
            raise Unreachable("no answer")

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        kept = super()._keep(body)
        if self.fate[0] == "unheard":
            raise Unreachable("done, but no answer")
        return kept


MOVES = st.tuples(
    st.integers(0, 2),  # which replica
    st.sampled_from(["step", "step", "step", "step", "release", "remove"]),
    st.sampled_from(["", "", "", "lost", "unheard"]),
    st.sampled_from([0.0, 0.0, 0.1, 3.0, 8.0]),  # how long the call takes
    st.sampled_from([0.0, 0.5, 2.0, 2.4, 6.0, 20.0]),  # what passes afterwards
)


@given(st.lists(MOVES, max_size=60), st.permutations([0.8, 1.0, 1.15]))
def test_never_two_leaders(moves: list[tuple[int, str, str, float, float]], speeds: list[float]) -> None:
    world = VirtualClock()
    store = Shaky(world)
    clocks = [Skewed(world, speed, 1000.0 * number) for number, speed in enumerate(speeds)]
    replicas = [replica(store, f"r{number}", clock) for number, clock in enumerate(clocks)]
    for who, move, fate, delay, pause in moves:
        store.fate = (fate, delay)
        if move == "step":
            replicas[who].step()
        elif move == "release":
            replicas[who].release()
        else:
            store.version += 1  # somebody wrote into it, without changing anything
            if store.lease is not None:
                store.lease["metadata"]["resourceVersion"] = str(store.version)
        world.advance(pause)
        leaders = [
            a.identity for a, clock in zip(replicas, clocks, strict=True) if a.is_leader(clock.monotonic())
        ]
        assert len(leaders) <= 1


@given(st.lists(MOVES, max_size=30))
def test_once_the_trouble_is_over_somebody_leads(moves: list[tuple[int, str, str, float, float]]) -> None:
    world = VirtualClock()
    store = Shaky(world)
    replicas = [replica(store, f"r{number}", world) for number in range(3)]
    for who, move, fate, delay, pause in moves:
        store.fate = (fate, delay)
        (replicas[who].step if move == "step" else replicas[who].release)()
        world.advance(pause)
    store.fate = ("", 0.0)
    for _ in range(10):
        for one in replicas[1:]:  # the first never comes back
            one.step()
        world.advance(2.0)
    assert any(one.is_leader(world.monotonic()) for one in replicas[1:])
