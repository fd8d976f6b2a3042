"""The play of gangs and pods: some seeds, equal bytes for one, and mutations that the checkers detect."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

from bayplan.model.gang import Locality
from bayplan.model.plan import Bind, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.profile import Profile
from bayplan.model.rejection import RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.placement.filters.pod_affinity import PodAffinityFit
from bayplan.placement.filters.topology_spread import SpreadFit
from bayplan.runtime.controllers.scheduler.pod_events import PodEventPublisher
from bayplan.scheduling.attempt.nominations import Nominations, pod_priority, priority_of
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.scheduling.preemption.victim_units import victim_units
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.pods.run import PodsSimulation
from bayplan.state.cluster.ledger import Ledger
from bayplan.state.scheduling.queue import SchedulingQueue
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from bayplan.state.scheduling.state_machine import GangStateMachine
from tests.simulation.trying import assert_all_happen, check_same_bytes, check_sound, violations

FOUND = (355, 368, 415, 40095, 50051, 70000, 300010, 300139, 300515, 400190, 421379, 500150, 500156)
SEEDS = (*range(6), *FOUND)  # those found something once
MORE_SEEDS = range(6, 16)
DECIDE = "bayplan.runtime.controllers.scheduler.controller.decide_gangs"


@cache
def report_of(seed: int) -> SeedReport:
    return PodsSimulation(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    check_sound(report_of(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_another_seed(seed: int) -> None:
    test_seed(seed)


@pytest.mark.long
def test_faults_and_deeds_of_every_kind_happen() -> None:
    kinds = {
        "conflict", "crash", "delay_events", "delay_outcome", "duplicate", "missed", "relist", "timeout_done",
        "timeout_lost", "bound_by_another", "cordoned", "displaced", "gang_deleted", "group_deleted",
        "node_back", "node_lost", "node_new", "pod_deleted", "pod_failed", "tainted",
    }  # fmt: skip
    assert_all_happen(kinds, map(report_of, (*SEEDS, *MORE_SEEDS)))
    rare = (61, *range(130))  # to die while writing is rare: look where it happened first
    assert any(report_of(seed).faults.get("torn") for seed in rare)


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    check_same_bytes("pods", 3)


# ── broken one way after the other ─────────────────────────────────────────────────────────────────


def first_violation(words: str, seeds: Iterable[int] = range(40), *, calm: bool = True) -> str:
    return violations(PodsSimulation, words, seeds, calm=calm)


def test_a_scheduler_that_forgets_what_it_decided_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "hold", lambda self, preemption: [])
    assert "cpu of" in first_violation("cpu of")


@pytest.mark.long
def test_a_scheduler_that_starts_gangs_in_part_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog) -> Plan:
        """The second pod of each gang is never bound."""
        plan = decide_gangs(snapshot, profile, now, watchdog)
        actions = [a for a in plan.actions if not (isinstance(a, Bind) and a.pod.key.name.endswith("-1"))]
        return Plan(tuple(actions))

    monkeypatch.setattr(DECIDE, most)
    monkeypatch.setattr(
        GangStateMachine, "_note_partial", lambda self, fake_controllers, now: None
    )  # and nothing is taken back
    assert "pods for" in first_violation("pods for")


@pytest.mark.long
def test_a_port_that_two_want_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    free = "bayplan.placement.filters.pipeline._port_conflicts"
    monkeypatch.setattr(free, lambda nodes, index, ports: np.zeros(len(nodes), dtype=bool))
    assert "want the same port" in first_violation("want the same port")


@pytest.mark.long
def test_neighbours_that_must_be_apart_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(nodes: Any, *_: Any) -> PodAffinityFit:
        good = np.ones(len(nodes), dtype=bool)
        return PodAffinityFit(good, good, good)

    monkeypatch.setattr("bayplan.placement.filters.pipeline.pod_affinity_fit", anywhere)
    assert "must not be in one" in first_violation("must not be in one")


@pytest.mark.long
def test_an_uneven_spread_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(nodes: Any, *_: Any) -> SpreadFit:
        never = np.zeros(len(nodes), dtype=bool)
        return SpreadFit(never, never)

    monkeypatch.setattr("bayplan.placement.filters.pipeline.spread_fit", anywhere)
    assert "spread" in first_violation("spread")


@pytest.mark.long
def test_a_gang_in_two_domains_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.dialects.kube.gang.objects._locality", lambda *_: Locality())
    assert "must be in one" in first_violation("must be in one")


@pytest.mark.long
def test_those_who_yield_to_their_equals_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bayplan.scheduling.binding.cycle.priority_of", lambda candidate: priority_of(candidate) + 200
    )
    assert "would be preempted for" in first_violation("would be preempted for")


@pytest.mark.long
def test_a_gang_that_should_leave_whole_and_does_not_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = "bayplan.scheduling.preemption.search.victim_units"
    monkeypatch.setattr(alone, lambda pods, charters, *others: victim_units(pods, {}, *others))
    assert "is preempted as a whole" in first_violation("is preempted as a whole", range(120))


@pytest.mark.long
def test_those_who_are_sent_away_in_vain_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog) -> Plan:
        """Whoever does not fit sends somebody away, whether that helps or not."""
        plan = decide_gangs(snapshot, profile, now, watchdog)
        more: list[PreemptPod] = []
        for action in plan.actions:
            if (
                isinstance(action, ReportUnschedulable)
                and action.rejection.reason is RejectionReason.NO_CAPACITY
            ):
                rank = pod_priority(action.pods[0], snapshot.specs)
                weak = [p for p in snapshot.pods.values() if p.spec.priority < rank and not p.terminating]
                more += [PreemptPod(pod, action.gang, action.uid) for pod in weak if pod.gang is None][:1]
        return Plan((*plan.actions, *more))

    monkeypatch.setattr(DECIDE, hasty)
    assert "was preempted for" in first_violation("was preempted for")


def test_a_gang_that_preempts_again_and_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.state.scheduling.gang_state.FRUITLESS_MAX", 1000)
    monkeypatch.setattr(Nominations, "holding_back", lambda self, pods, priority: None)
    monkeypatch.setattr(PodsSimulation, "quiet_seconds", 60.0)
    assert "gang-0 preempts for the 10th time in " in first_violation("preempts for the", [70000])


@pytest.mark.long
def test_pods_that_are_told_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodEventPublisher, "publish", lambda self, *_: None)
    assert "is pending without a reason" in first_violation("is pending without a reason")


@pytest.mark.long
def test_a_scheduler_that_wakes_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingQueue, "wake", lambda self, hints, now: None)
    assert "would fit" in first_violation("would fit")


@pytest.mark.long
def test_a_scheduler_that_never_gives_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "release", lambda self, owner: [])
    assert "the ledger is not" in first_violation("the ledger is not")
