"""Reasons of waiting: behind admissions, a few at a time, none forgotten."""

from __future__ import annotations

from bayplan.model.plan import ReportNotAdmitted
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.runtime.controllers.admission.report_pace import SLOW_BURST, SLOW_RATE, WRITING_MAX, ReportPace
from tests.support.kueue_workloads import demand

REPORT = ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_QUOTA_NOW))
NEWER = ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_PLACE))


def key(number: int) -> tuple[str, str]:
    return ("ml", f"w{number}")


def written(pace: ReportPace, numbers: range, now: float, *, admitting: bool) -> int:
    return sum(pace.may_write(key(number), REPORT, now, admitting=admitting) for number in numbers)


def test_while_nothing_is_admitted_reports_follow_each_other_as_they_are_written() -> None:
    pace = ReportPace()
    assert written(pace, range(100), 0.0, admitting=False) == WRITING_MAX + SLOW_BURST
    for number in range(WRITING_MAX + int(SLOW_BURST)):
        pace.ended(key(number))
    assert pace.next_due(0.0, admitting=False) == 0.0
    assert len(list(pace.due(0.0, admitting=False))) == WRITING_MAX


def test_while_gangs_are_admitted_reports_are_slow() -> None:
    pace = ReportPace()
    assert written(pace, range(100), 0.0, admitting=True) == SLOW_BURST
    for number in range(100):
        pace.ended(key(number))
    assert pace.next_due(0.0, admitting=True) == 1.0 / SLOW_RATE
    found = sum(len(list(pace.due(0.1 * step, admitting=True))) for step in range(1, 101))
    assert found in (10 * SLOW_RATE, 10 * SLOW_RATE - 1)


def test_a_report_that_is_held_back_is_replaced_by_a_newer_one_and_keeps_its_turn() -> None:
    pace = ReportPace()
    written(pace, range(30), 0.0, admitting=True)
    first = next(iter(pace.held))
    assert not pace.may_write(first, NEWER, 0.0, admitting=True)
    assert list(pace.due(1.0 / SLOW_RATE, admitting=True)) == [NEWER]
    left = len(pace.held)
    pace.drop(next(iter(pace.held)))
    assert len(pace.held) == left - 1
