"""The pauses in which the loop gathers events."""

from __future__ import annotations

from bayplan.runtime.process.burst_pace import GATHER_SECONDS_MAX, GATHER_SECONDS_MIN, BurstPace

AT_ONCE, LATER = 0.0, 0.5  # how long the loop waited for an event


def test_a_single_event_is_handled_at_once() -> None:
    pace = BurstPace()
    assert [pace.pause(LATER, 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_step_that_takes_long_is_followed_by_a_pause_of_its_length() -> None:
    pace = BurstPace()
    assert pace.pause(LATER, 0.007) == 0.007
    assert pace.pause(LATER, 3.0) == GATHER_SECONDS_MAX


def test_a_burst_is_taken_in_ever_larger_parts() -> None:
    pace = BurstPace()
    pauses = [pace.pause(AT_ONCE, 0.0) for _ in range(5)]
    assert pauses[0] == GATHER_SECONDS_MIN
    assert pauses == sorted(pauses) and pauses[-1] == GATHER_SECONDS_MAX


def test_after_a_burst_the_pauses_become_short_again() -> None:
    pace = BurstPace()
    for _ in range(10):
        pace.pause(AT_ONCE, 0.0)
    assert pace.pause(LATER, 0.0) == 0.0
    for _ in range(3):
        pace.pause(LATER, 0.0)
    assert pace.pause(AT_ONCE, 0.0) == GATHER_SECONDS_MIN
