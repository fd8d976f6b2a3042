"""Some seeds of every run, the same bytes for the same seed, and checkers that catch a broken scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import pytest

from bayplan.model.plan import Bind, Plan
from bayplan.placement.subgroups.whole_gang import assign_whole_gang
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.plays.gangs import Simulation
from bayplan.state.cluster.ledger import Ledger
from bayplan.state.scheduling.queue import SchedulingQueue
from bayplan.state.scheduling.state import SchedulingState
from tests.simulation.trying import assert_all_happen, check_same_bytes, violations

SEEDS, MORE_SEEDS = (*range(6), 30143, 300183), (*range(6, 12), 10014)  # `make sim` runs a thousand


@cache
def report_of(seed: int) -> SeedReport:
    return Simulation(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    report = report_of(seed)
    assert report.violations == []
    assert report.steps > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_another_seed(seed: int) -> None:
    test_seed(seed)


def test_faults_of_every_kind_are_injected() -> None:
    kinds = {
        "conflict", "crash", "delay_events", "delay_outcome", "duplicate", "node_flap", "node_loss", "relist",
        "timeout_done", "timeout_lost",
    }  # fmt: skip
    assert_all_happen(kinds, map(report_of, (*SEEDS, *MORE_SEEDS)))


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 25, 2])  # jobs only, queues with much going on, and both
def test_a_seed_gives_the_same_journal_whatever_the_hash_seed(seed: int) -> None:
    check_same_bytes("gangs", seed)


def first_violation(words: str, seeds: Iterable[int] = range(12)) -> str:
    """Of the scheduler; queues have a file of their own."""
    return violations(partial(Simulation, play={"jobs"}), words, seeds)


def test_a_scheduler_that_forgets_what_it_decided_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Ledger.hold
    monkeypatch.setattr(Ledger, "hold", lambda self, claim: hold(self, claim) and [])  # uses nothing
    assert "holds" in first_violation("holds")


@pytest.mark.long
def test_a_scheduler_that_starts_half_a_gang_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(*arguments: object) -> Plan:
        plan = decide_gangs(*arguments)  # type: ignore[arg-type]
        binds = [action for action in plan.actions if isinstance(action, Bind)]
        return Plan(tuple(action for action in plan.actions if action not in binds[1::2]))

    monkeypatch.setattr("bayplan.runtime.controllers.scheduler.controller.decide_gangs", half)
    assert "would start" in first_violation("would start")


@pytest.mark.long
def test_a_scheduler_that_never_wakes_a_gang_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingQueue, "wake", lambda self, hints, now: None)
    monkeypatch.setattr("bayplan.state.scheduling.state_machine.FLUSH_SECONDS", float("inf"))
    assert "would fit but is pending" in first_violation("would fit but is pending")


@pytest.mark.long
def test_a_scheduler_that_forgets_where_pods_of_a_gang_ran_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(floor: Any, supply: Any, tree: Any, waiting: Any, standing: Any, **options: Any) -> object:
        return assign_whole_gang(floor, supply, tree, waiting, standing[:0], **options)

    monkeypatch.setattr("bayplan.scheduling.attempt.gang.assign_whole_gang", blind)
    assert "must be in one" in first_violation("must be in one", range(60))


@pytest.mark.long
def test_a_scheduler_that_never_gives_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "release", lambda self, owner: [])
    assert "a fresh list gives" in first_violation("a fresh list gives")


@pytest.mark.long
def test_a_scheduler_that_ignores_failed_binds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingState, "settle", lambda self, action, ended, now: None)
    monkeypatch.setattr("bayplan.state.scheduling.state_machine.ASSUMED_SECONDS", float("inf"))
    assert first_violation("")
