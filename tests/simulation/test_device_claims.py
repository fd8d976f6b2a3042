"""The play of pods with devices by claim: some seeds, and mutations that its checkers detect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bayplan.model.plan import Bind, Plan
from bayplan.model.profile import Profile
from bayplan.model.watchdog import Watchdog
from bayplan.placement.devices.supply import DeviceSupply
from bayplan.runtime.controllers.scheduler.device_binding import DeviceBinding
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.pods.run import PodsSimulation
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from tests.simulation.trying import assert_all_happen, check_same_bytes, check_sound, violations

SEEDS = (0, 3, 11, 45, 46, 250, 600008)  # `make sim` runs a thousand; the last ones found something once
MORE_SEEDS = (1, 2, *range(4, 11), *range(12, 20), 10024)
DECIDE = "bayplan.runtime.controllers.scheduler.controller.decide_gangs"


def play(seed: int, chances: Chances | None = None) -> PodsSimulation:
    return PodsSimulation(seed, chances, devices=True)


@cache
def report_of(seed: int) -> SeedReport:
    return play(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    check_sound(report_of(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_another_seed(seed: int) -> None:
    test_seed(seed)


@pytest.mark.long
def test_drivers_and_another_scheduler_interfere() -> None:
    kinds = {
        "allocated_by_another", "device_tainted", "device_untainted", "slice_published", "slice_withdrawn",
        "displaced", "node_lost", "crash", "conflict",
    }  # fmt: skip
    assert_all_happen(kinds, map(report_of, (*SEEDS, *MORE_SEEDS)))


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    check_same_bytes("claims", 3)


# ── broken one way after the other ─────────────────────────────────────────────────────────────────


def first_violation(words: str, seeds: Iterable[int] = range(40), *, calm: bool = True) -> str:
    return violations(play, words, seeds, calm=calm)


def test_an_allocator_that_ignores_what_is_in_use_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceSupply, "usage", lambda self, pool: None)
    assert "is allocated to" in first_violation("is allocated to")


def test_pods_that_are_bound_before_their_claims_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceBinding, "begin", lambda self, gang, binds, now: self.follow(gang, binds, now))
    assert "has no devices" in first_violation("has no devices")


@pytest.mark.long
def test_claims_that_are_allocated_for_pods_that_are_not_bound_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DeviceBinding, "release_unused", lambda self, pods: iter(()))
    assert "that no bound pod uses" in first_violation("that no bound pod uses", range(120), calm=False)


@pytest.mark.long
def test_a_gang_of_which_some_get_other_devices_than_decided_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mixed_up(snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog) -> Plan:
        """All pods of a plan get the devices of the first one that has any."""
        plan = decide_gangs(snapshot, profile, now, watchdog)
        first: Any = next((a.devices[0][1] for a in plan.actions if isinstance(a, Bind) and a.devices), None)
        actions = [
            replace(a, devices=tuple((key, first) for key, _ in a.devices))
            if isinstance(a, Bind) and a.devices
            else a
            for a in plan.actions
        ]
        return Plan(tuple(actions))

    monkeypatch.setattr(DECIDE, mixed_up)
    assert "is allocated to" in first_violation("is allocated to")
