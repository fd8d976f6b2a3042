"""Timestamps beyond the range of dates, and invalid ones."""

from __future__ import annotations

import math

import pytest

from bayplan.cli.render.tables import moment
from bayplan.dialects.kube.fields.times import LATEST, seconds, timestamp


@pytest.mark.parametrize("now", [LATEST + 1, 2.0**53, 1e308, math.inf])
def test_a_time_after_the_last_date_is_written_as_the_last_date(now: float) -> None:
    assert timestamp(now) == "9999-12-31T23:59:59Z"
    assert moment(now) == "9999-12-31 23:59:59 UTC"


@pytest.mark.parametrize("now", [-1.0, -math.inf, math.nan])
def test_a_time_before_1970_is_written_as_1970(now: float) -> None:
    assert timestamp(now) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["", "soon", "99999-01-01T00:00:00Z", "2026-02-31T00:00:00Z", "1" * 5000])
def test_an_invalid_timestamp_is_0(text: str) -> None:
    assert seconds(text) == 0.0


def test_times_are_read_back_as_they_were_written() -> None:
    assert timestamp(seconds("2026-11-16T10:00:00Z")) == "2026-11-16T10:00:00Z"
    assert seconds("2026-11-16T10:00:00+02:00") == seconds("2026-11-16T08:00:00Z")
    assert seconds("2026-11-16T10:00:00") == seconds("2026-11-16T10:00:00Z")
