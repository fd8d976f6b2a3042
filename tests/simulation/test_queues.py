"""Checkers of queues catch an admission that is broken, one way after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pytest

from bayplan.dialects.api import Write
from bayplan.dialects.kueue.status import decisions
from bayplan.model.assignment import Assignment
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.plan import Admit, EvictGang, Plan
from bayplan.model.queued_gang import Admission
from bayplan.model.quota import Cell
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad
from bayplan.simulator.plays.gangs import Simulation
from bayplan.state.admission.queues import AdmissionQueues
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.state import AdmissionState
from bayplan.state.admission.usage import AdmittedUsage, GangUsage
from tests.simulation.trying import violations

SEEDS = (3, 17, 25, 29, 43, 49)


def first_violation(words: str, seeds: Iterable[int] = SEEDS, *, calm: bool = False) -> str:
    return violations(partial(Simulation, play={"queues"}), words, seeds, calm=calm)


def breaks(monkeypatch: pytest.MonkeyPatch, change: Callable[[Admit], Admit]) -> None:
    """Have every admission changed after it was decided."""

    def decide(*arguments: object) -> Plan:
        plan = decide_admissions(*arguments)  # type: ignore[arg-type]
        return Plan(tuple(change(a) if isinstance(a, Admit) else a for a in plan.actions))

    monkeypatch.setattr("bayplan.runtime.controllers.admission.controller.decide_admissions", decide)


def test_an_admission_that_takes_no_quota_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(self: QuotaTree, queue: str, amounts: Mapping[Cell, int], sign: int = 1) -> None:
        """Nothing is ever counted."""

    monkeypatch.setattr(QuotaTree, "use", use)
    assert " uses " in first_violation(" uses ")


@pytest.mark.long
def test_quota_that_is_never_given_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = AdmittedUsage.remove

    def keep(self: AdmittedUsage, ref: Ref) -> GangUsage | None:
        found = give_back(self, ref)
        if found is not None and self.tree is not None:
            self.tree.use(found.queue, found.quota)
        return found

    monkeypatch.setattr(AdmittedUsage, "remove", keep)
    assert "the quota tree says" in first_violation("the quota tree says")


@pytest.mark.long
def test_a_gang_that_is_never_woken_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdmissionQueues, "wake", lambda self, queue, event="": None)
    assert "would be admitted but is pending" in first_violation("would be admitted", calm=True)


@pytest.mark.long
def test_two_gangs_of_one_round_that_get_the_same_room_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: AdmissionSimulation, queue: str, load: GangLoad, sign: int = 1) -> None:
        """Whoever comes later does not see what those before it took."""

    monkeypatch.setattr(AdmissionSimulation, "apply", apply)
    monkeypatch.setattr(AdmissionSimulation, "fits_quota", lambda self, queue, quota: True)
    monkeypatch.setattr(AdmissionSimulation, "fits_placed", lambda self, wanted: True)
    found = first_violation(" assigned of ", (34, 112, 202))  # rare: few seeds bring two so close together
    assert " uses " in found or " assigned of " in found


@pytest.mark.long
def test_an_admission_that_is_forgotten_before_it_is_seen_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assume = AdmissionState._assume_admitted

    def forget(self: AdmissionState, action: Admit, now: float) -> None:
        assume(self, action, now)
        self._release(action.gang)

    monkeypatch.setattr(AdmissionState, "_assume_admitted", forget)
    assert "its quota is not counted accordingly" in first_violation("its quota is not")


@pytest.mark.long
def test_a_gang_that_is_admitted_in_part_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(action: Admit) -> Admit:
        given = tuple(replace(part, count=max(1, part.count // 2)) for part in action.admission.pod_sets)
        return replace(action, admission=Admission(action.admission.queue, given))

    breaks(monkeypatch, half)
    assert "workload" in first_violation("workload")


@pytest.mark.long
def test_places_where_a_gang_must_not_stand_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def astray(action: Admit) -> Admit:
        given = []
        for part in action.admission.pod_sets:
            place = part.assignment
            if place is not None and place.levels[-1] == HOSTNAME:
                moved = replace(place.shares[0], values=(*place.shares[0].values[:-1], "c000"))
                place = Assignment(place.levels, (moved, *place.shares[1:]))
            given.append(replace(part, assignment=place))
        return replace(action, admission=Admission(action.admission.queue, tuple(given)))

    breaks(monkeypatch, astray)
    assert "not of its flavor" in first_violation("not of its flavor")


@pytest.mark.long
def test_a_gang_that_was_told_to_leave_and_stays_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.dialects.kueue.status.reconcile.released", lambda workload, now: None)
    assert "keeps its quota" in first_violation("keeps its quota", SEEDS)


@pytest.mark.long
def test_a_gang_that_leaves_in_vain_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_evict(self: AdmissionController, plan: Plan, now: float) -> Iterator[Write]:
        """Those that others left for are never admitted."""
        made_room = {a.by.gang.source for a in plan.actions if isinstance(a, EvictGang) and a.by is not None}
        vain.update(made_room)
        rest = Plan(tuple(a for a in plan.actions if not (isinstance(a, Admit) and a.gang in vain)))
        return encode(self, rest, now)

    vain: set[Ref] = set()
    encode = AdmissionController.encode
    monkeypatch.setattr(AdmissionController, "encode", only_evict)
    found = first_violation("which is not admitted", (65, 93), calm=True)
    assert "which is not admitted" in found


@pytest.mark.long
def test_conditions_that_contradict_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    told = decisions.admitted

    def without(workload: dict[str, object], action: Admit, now: float) -> dict[str, object] | None:
        status = told(workload, action, now)
        return None if status is None else {key: value for key, value in status.items() if key != "admission"}

    monkeypatch.setattr(decisions, "admitted", without)
    assert "disagree" in first_violation("disagree")
