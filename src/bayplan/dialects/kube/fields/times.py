"""Times as the API writes them, and as seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor, isnan

LATEST = 253_402_300_799.0
"""The last second that can be written, that of the year 9999: what lies behind it has no date."""

_LENGTH_MAX = 40  # with fractions of a second and a zone


def seconds(text: str) -> float:
    """An API timestamp as seconds since 1970; 0 if there is none, or none that can be read."""
    if not text or len(text) > _LENGTH_MAX:
        return 0.0
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def timestamp(now: float) -> str:
    """Seconds since 1970 as the API writes them, no earlier than 1970 and no later than the year 9999."""
    return _written(0 if isnan(now) else floor(min(max(now, 0.0), LATEST)))


@lru_cache(maxsize=64)
def _written(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
