"""Times as the API writes them, and as seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor


def seconds(text: str) -> float:
    """An API timestamp as seconds since 1970; 0 if there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def timestamp(now: float) -> str:
    """Seconds since 1970 as the API writes them."""
    return _written(floor(now))


@lru_cache(maxsize=64)
def _written(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
