"""Exponential backoff of failed work, by key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PAUSE_FIRST = 5.0
PAUSE_MAX = 300.0


class Backoff(Generic[K]):
    """Counts failures by key. Keys that succeed are removed, so this is empty while all is well.

    The object of a key may be deleted before it succeeds: a key that was not tried again long after its pause
    is removed as well.
    """

    def __init__(self, first: float = PAUSE_FIRST, limit: float = PAUSE_MAX) -> None:
        self.first, self.limit = first, limit
        self._pauses: dict[K, tuple[float, float]] = {}  # pause and its end; the latest failure is last

    def __len__(self) -> int:
        """The number of keys that failed last."""
        return len(self._pauses)

    def failed(self, key: K, now: float) -> float:
        """Count a failure; returns when to try again."""
        before = self._pauses.pop(key, None)
        pause = self.first if before is None else min(2 * before[0], self.limit)
        self._pauses[key] = pause, now + pause
        while self._pauses and next(iter(self._pauses.values()))[1] + self.limit < now:
            del self._pauses[next(iter(self._pauses))]
        return now + pause

    def succeeded(self, key: K) -> None:
        """Reset the backoff of a key."""
        if self._pauses:
            self._pauses.pop(key, None)
