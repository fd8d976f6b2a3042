"""When a unit of work that failed is tried again: each time twice as late, up to a limit."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PAUSE_FIRST = 5.0
PAUSE_MAX = 300.0


class Backoff(Generic[K]):
    """Counts failures by key. Work that succeeds is forgotten, so this stays empty while all is well."""

    def __init__(self, first: float = PAUSE_FIRST, most: float = PAUSE_MAX) -> None:
        self.first, self.most = first, most
        self._pauses: dict[K, float] = {}

    def failed(self, key: K, now: float) -> float:
        """When to try again."""
        before = self._pauses.get(key)
        pause = self._pauses[key] = self.first if before is None else min(2 * before, self.most)
        return now + pause

    def worked(self, key: K) -> None:
        """The next failure is a first one again."""
        if self._pauses:
            self._pauses.pop(key, None)
