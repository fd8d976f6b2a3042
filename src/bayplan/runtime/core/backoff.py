"""Exponential backoff of failed work, by key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PAUSE_FIRST = 5.0
PAUSE_MAX = 300.0


class Backoff(Generic[K]):
    """Counts failures by key. Keys that succeed are removed, so this is empty while all is well."""

    def __init__(self, first: float = PAUSE_FIRST, limit: float = PAUSE_MAX) -> None:
        self.first, self.limit = first, limit
        self._pauses: dict[K, float] = {}

    def failed(self, key: K, now: float) -> float:
        """Count a failure; returns when to try again."""
        before = self._pauses.get(key)
        pause = self._pauses[key] = self.first if before is None else min(2 * before, self.limit)
        return now + pause

    def succeeded(self, key: K) -> None:
        """Reset the backoff of a key."""
        if self._pauses:
            self._pauses.pop(key, None)
