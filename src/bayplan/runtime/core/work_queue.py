"""A work queue of keys to reconcile, now or at a later time."""

from __future__ import annotations

import heapq
from collections.abc import Container, Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from bayplan.state.pending_queue import NEVER

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys with a due time each. Finding the due keys does not scan the others."""

    def __init__(self) -> None:
        self._now: dict[K, None] = {}  # in order of arrival
        self._later: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []  # entries of `_later`; some are out of date
        self._count = 0

    def __iter__(self) -> Iterator[K]:
        return chain(self._now, self._later)

    def put(self, key: K, due: float = 0.0) -> None:
        """Reconcile the key at this time, replacing any earlier time."""
        self.drop(key)
        if due <= 0.0:
            self._now[key] = None
            return
        self._count += 1
        self._later[key] = due
        heapq.heappush(self._heap, (due, self._count, key))

    def put_all(self, keys: Iterable[K]) -> None:
        """Reconcile all of these keys now."""
        for key in keys:
            if key not in self._now:
                self.put(key)

    def put_early(self, key: K, due: float) -> None:
        """Reconcile the key at this time, unless it is due earlier."""
        if key not in self._now and due < self._later.get(key, NEVER):
            self.put(key, due)

    def due_at(self, key: K) -> float:
        """When the key is due; 0 if it is due now, or not queued."""
        return self._later.get(key, 0.0)

    def drop(self, key: K) -> None:
        """Remove a key."""
        self._now.pop(key, None)
        self._later.pop(key, None)

    def take(self, now: float, busy: Container[Hashable] = ()) -> list[K]:
        """Remove and return the keys that are due and not busy."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._later.get(key) == due:
                del self._later[key]
                self._now[key] = None
        due_keys = [key for key in self._now if key not in busy]
        for key in due_keys:
            del self._now[key]
        return due_keys

    def next_due(self, busy: Container[Hashable] = ()) -> float:
        """When the next key is due."""
        if any(key not in busy for key in self._now):
            return 0.0
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER
