"""Expected starts in words: rounded to what is known, with what is assumed."""

from __future__ import annotations

from bayplan.cli.render.expected_start import cell, record, sentence
from bayplan.simulation.forecast.expected_starts import ExpectedStart

NOW = 1_800_000_000.0  # 2027-01-15, 08:00 UTC
HOUR = 3600.0


def test_the_sentence_has_the_interval_the_latest_time_what_is_assumed_and_the_gangs_before_it() -> None:
    expected = ExpectedStart(
        NOW + 6.2 * HOUR, NOW + 7 * HOUR, NOW + 8.4 * HOUR, NOW + 12.7 * HOUR, True, ("ml/b", "ml/c")
    )
    assert sentence(expected, NOW) == (
        "likely 14:10–16:30 UTC, by 21:00 if running jobs use their limits and nothing overtakes;"
        " after `ml/b` and `ml/c`"
    )
    assert cell(expected, NOW) == "14:10–16:30"


def test_a_time_of_another_day_has_its_date() -> None:
    expected = ExpectedStart(NOW + 15 * HOUR, NOW + 16 * HOUR, NOW + 17 * HOUR)
    assert sentence(expected, NOW) == "likely 23:00–16 Jan 01:00 UTC if nothing overtakes"


def test_what_starts_now_is_not_rounded_to_a_later_minute() -> None:
    now = NOW + 7.0
    expected = ExpectedStart(now, now, now, now)
    found = record(expected, now)
    assert cell(expected, now) == "now" and found is not None
    assert (found["from"], found["to"], found["latest"], found["message"]) == (None, None, None, "now")


def test_an_interval_that_has_begun_shows_its_end_only() -> None:
    expected = ExpectedStart(NOW - 60.0, NOW + HOUR / 2, NOW + HOUR, NOW + HOUR)
    found = record(expected, NOW)
    assert cell(expected, NOW) == "by 09:00" and found is not None
    assert (found["from"], found["to"]) == (None, "2027-01-15T09:00:00Z")
