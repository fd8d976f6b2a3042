"""The play of queued jobs: some seeds, equal bytes for one, and mutations that the checkers detect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bayplan.dialects.api import Write
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kueue.pods import ungating
from bayplan.dialects.kueue.pods.ungating import AdmittedPlacement, PodUngating, Ungatings
from bayplan.model.assignment import Path
from bayplan.model.plan import Admit, Plan
from bayplan.model.quota import Cell
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.jobs.run import JobsSimulation
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.usage import AdmittedUsage, GangUsage
from tests.simulation.trying import assert_all_happen, check_same_bytes, violations

SEEDS, MORE_SEEDS = range(5), range(5, 10)  # `make sim` runs a thousand
UNGATINGS = ungating.ungatings


@cache
def report_of(seed: int) -> SeedReport:
    return JobsSimulation(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    report = report_of(seed)
    assert report.violations == []
    assert report.finished > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_another_seed(seed: int) -> None:
    test_seed(seed)


def test_faults_and_accidents_of_every_kind_happen() -> None:
    kinds = {
        "conflict", "crash", "delay_events", "delay_outcome", "duplicate", "missed", "relist", "timeout_done",
        "timeout_lost", "torn", "not_ready", "node_lost", "tainted", "cordoned", "pod_failed",
    }  # fmt: skip
    assert_all_happen(kinds, map(report_of, (*SEEDS, *MORE_SEEDS)))


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    check_same_bytes("jobs", 3)


# ── broken one way after the other ─────────────────────────────────────────────────────────────────


def first_violation(words: str, seeds: Iterable[int] = range(24), *, calm: bool = False) -> str:
    return violations(JobsSimulation, words, seeds, calm=calm)


def ungates(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[tuple[PodUngating, ...]], Iterable[PodUngating]]
) -> None:
    """Change which pods are ungated."""

    def changed(*arguments: Any) -> Ungatings:
        answer = UNGATINGS(*arguments)
        return Ungatings(tuple(change(answer.pods)), answer.error)

    monkeypatch.setattr(ungating, "ungatings", changed)


def test_a_slot_that_is_used_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(
        gang: AdmittedPlacement,
        pods: Iterable[PodWire],
        expected: Mapping[str, Path | None],
        put_off: Collection[str] = (),
    ) -> Ungatings:
        """Ignore the pods that already have a slot."""
        return UNGATINGS(gang, [pod for pod in pods if ungating.is_gated(pod)], {}, put_off)

    monkeypatch.setattr(ungating, "ungatings", blind)
    assert "slots on" in first_violation("slots on", (15, *range(24)))  # seed 15 shows it soonest


@pytest.mark.long
def test_pods_assigned_to_a_wrong_node_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    ungates(monkeypatch, lambda pods: [replace(one, domain=("n099",)) for one in pods])
    assert "where its gang has no slot" in first_violation("has no slot", calm=True)


@pytest.mark.long
def test_ranks_in_the_wrong_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(pods: tuple[PodUngating, ...]) -> list[PodUngating]:
        places = [one.domain for one in reversed(pods)]
        return [replace(one, domain=place) for one, place in zip(pods, places, strict=True)]

    ungates(monkeypatch, turned)
    assert "has rank" in first_violation("has rank", calm=True)


@pytest.mark.long
def test_a_gang_that_is_started_in_part_for_ever_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    ungates(monkeypatch, lambda pods: [one for one in pods if not one.pod.metadata.name.count("-1-")])
    assert "gated forever" in first_violation("gated forever", calm=True)


@pytest.mark.long
def test_pods_that_are_gated_for_ever_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UngatingController, "reconcile", lambda self, now: iter(()))
    assert "gated forever" in first_violation("gated forever", calm=True)


@pytest.mark.long
def test_a_node_that_is_assigned_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def occupy(self: AdmittedUsage, holding: GangUsage, sign: int, only: str = "") -> None:
        """Gangs use no capacity."""

    monkeypatch.setattr(AdmittedUsage, "_count_placements", occupy)
    assert "holds" in first_violation("holds", calm=True)


@pytest.mark.long
def test_quota_that_is_not_counted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(self: QuotaTree, queue: str, amounts: Mapping[Cell, int], sign: int = 1) -> None:
        """Nothing is ever counted."""

    monkeypatch.setattr(QuotaTree, "use", use)
    assert " uses " in first_violation(" uses ")


@pytest.mark.long
def test_survivors_that_are_moved_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(action: Admit) -> Admit:
        if action.queued_gang.admission is None:
            return action
        given = []
        for part in action.admission.pod_sets:
            place = part.assignment
            if place is not None:
                all_here = replace(place.shares[-1], count=place.count)
                place = replace(place, shares=(all_here,))
            given.append(replace(part, assignment=place))
        return replace(action, admission=replace(action.admission, pod_sets=tuple(given)))

    def decide(*arguments: Any) -> Plan:
        plan = decide_admissions(*arguments)
        return Plan(tuple(moved(a) if isinstance(a, Admit) else a for a in plan.actions))

    monkeypatch.setattr("bayplan.runtime.controllers.admission.controller.decide_admissions", decide)
    assert "which has not failed" in first_violation("which has not failed")


@pytest.mark.long
def test_a_job_that_is_not_restored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bayplan.dialects.kueue.jobs.start_stop._with_original_templates", lambda job, pod_sets, find: job
    )
    assert "differs from what was submitted" in first_violation("differs from what was submitted")


@pytest.mark.long
def test_workloads_that_keep_their_finalizer_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.dialects.kueue.jobs.reconcile_job.without_finalizer", lambda kind, obj: [])
    assert "is finished and keeps" in first_violation("is finished and keeps", calm=True)


@pytest.mark.long
def test_pods_that_wait_for_a_lost_node_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def spare(self: NodeHealthController, host: str, members: list[Any], now: float) -> Iterator[Write]:
        yield from ()

    monkeypatch.setattr(NodeHealthController, "_fail", spare)
    monkeypatch.setattr("bayplan.simulator.jobs.checkers.STRANDED_SECONDS", 10.0)  # nothing is late
    assert "waits for lost node" in first_violation("waits for lost node", range(12), calm=True)


@pytest.mark.long
def test_jobs_that_are_never_started_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.dialects.kueue.jobs.reconcile_job.start", lambda *arguments: [])
    assert "does not finish" in first_violation("does not finish", calm=True)
