"""Timestamps of the API, and seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor, isnan

LATEST = 253_402_300_799.0
"""The last second of the year 9999, the latest timestamp that can be written."""

_LENGTH_MAX = 40  # with fractions of a second and a zone


def seconds(text: str) -> float:
    """An API timestamp as seconds since 1970; 0 if it is missing or invalid."""
    if not text or len(text) > _LENGTH_MAX:
        return 0.0
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def timestamp(now: float) -> str:
    """Seconds since 1970 as an API timestamp, limited to the years 1970 to 9999."""
    return _formatted(0 if isnan(now) else floor(min(max(now, 0.0), LATEST)))


@lru_cache(maxsize=64)
def _formatted(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
