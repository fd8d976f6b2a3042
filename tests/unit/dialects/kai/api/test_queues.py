"""Durations of queues: the usual ones, and those that no person writes."""

from __future__ import annotations

import pytest

from bayplan.dialects.kai.api.queues import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        (None, None),
        ("", None),
        ("soon", None),
        ("1h soon", None),
        ("5", None),
        ("-5m", None),
        ("9" * 5000, None),
        ("9" * 5000 + "h", 1e9),
    ],
    ids=lambda value: str(value)[:20],
)
def test_durations(text: str | None, seconds: float | None) -> None:
    assert duration(text) == seconds
