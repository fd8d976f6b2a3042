"""Publishes each notice once while it holds, and not before it has lasted for a while."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from bayplan.dialects.api import Write
from bayplan.dialects.kueue.jobs.events import JobEvent
from bayplan.state.admission.queues import NEVER

K = TypeVar("K", bound=Hashable)


class Announcements(Generic[K]):
    """The last notice about each key. After a restart each notice is published once more."""

    def __init__(self) -> None:
        self._published: dict[K, tuple[str, str]] = {}  # reason and message
        self._next: dict[K, float] = {}  # when an unpublished notice is due

    def due(self, key: K, notice: JobEvent | None, now: float) -> Iterable[Write]:
        """Set the current notice; returns the events to write."""
        if notice is None:
            self._published.pop(key, None)
            self._next.pop(key, None)
            return ()
        words = (notice.reason, notice.message)
        if self._published.get(key) != words:
            self._published[key], self._next[key] = words, now + notice.after_seconds
        if now < self._next.get(key, NEVER):
            return ()
        del self._next[key]
        return notice.events(now)

    def next_due(self, key: K) -> float:
        """When an unpublished notice is due."""
        return self._next.get(key, NEVER)
