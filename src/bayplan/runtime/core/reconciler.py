"""The shared part of all controllers that reconcile objects: a work queue, writes in flight, and retries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bayplan.dialects.api import Write
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.work_queue import WorkQueue

K = TypeVar("K", bound=Hashable)
N = TypeVar("N")
T = TypeVar("T")
REFUSED_SECONDS_MAX = (
    60.0  # between attempts of a refused write; RBAC or a policy may change without an event
)


@dataclass(slots=True)
class WritesInFlight(Generic[K, N]):
    """Writes to one object whose outcome is not known yet."""

    note: N  # what the controller needs when they have ended
    unfinished: int = 0
    waiting: dict[K, None] = field(default_factory=dict)  # keys to reconcile when all of them have ended
    pause: float = 0.0  # seconds until then


class Reconciler(Generic[K, N]):
    """Reconciles keys that are due, unless a write to the object of the same key is in flight.

    A key whose work raises is tried again with a growing backoff, and so is one whose writes are refused.
    `describe` gives the kind and the name of a key for logs.
    """

    def __init__(self, describe: Callable[[K], tuple[str, str]], where: str = "reconcile") -> None:
        self.describe, self.where = describe, where
        self.queue: WorkQueue[K] = WorkQueue()
        self.in_flight: dict[Hashable, WritesInFlight[K, N]] = {}  # by object
        self.backoff: Backoff[K] = Backoff()
        self.refusals: Backoff[Hashable] = Backoff(1.0, REFUSED_SECONDS_MAX)  # factor of the pause, by object

    def run(
        self, work: Callable[[K, float], Iterable[Write]], now: float, containment: Containment
    ) -> Iterator[Write]:
        """The writes of all keys that are due."""
        for key in self.take(now):
            yield from self.attempt(key, work(key, now), now, containment)

    def take(self, now: float) -> list[K]:
        """Remove and return the keys that are due."""
        return self.queue.take(now, self.in_flight)

    def attempt(self, key: K, work: Iterable[T], now: float, containment: Containment, *again: K) -> list[T]:
        """What the work for one key yields; if it raises, the key (or the keys `again`) is due later."""
        found, done = containment.attempt(work, self.where, *self.describe(key))
        if done:
            self.backoff.succeeded(key)
        else:
            due = self.backoff.failed(key, now)
            for one in again or (key,):
                self.queue.put_early(one, due)
        return found

    def begin(self, about: Hashable, note: N, *waiting: K) -> WritesInFlight[K, N]:
        """One more write to an object is in flight; these keys are reconciled when all have ended.

        The note of the first write is kept.
        """
        writes = self.in_flight.setdefault(about, WritesInFlight(note))
        writes.unfinished += 1
        writes.waiting.update(dict.fromkeys(waiting))
        return writes

    def wait_for(self, about: Hashable, key: K) -> bool:
        """Whether writes to an object are in flight; the key is then reconciled when they have ended."""
        writes = self.in_flight.get(about)
        if writes is not None:
            writes.waiting[key] = None
        return writes is not None

    def ended(
        self, about: Hashable, now: float, pause: float = 0.0, *, refused: bool = False
    ) -> WritesInFlight[K, N] | None:
        """A write to an object has ended; after the last one, the keys that waited are due.

        They are due at once, or after the longest pause that one of the writes asks for. The pause grows if
        writes to the object are refused again and again.
        """
        writes = self.in_flight.get(about)
        if writes is None:
            return None
        if refused:
            factor = round(self.refusals.failed(about, now) - now)
            pause = max(pause, min(pause * factor, REFUSED_SECONDS_MAX))
        else:
            self.refusals.succeeded(about)
        writes.unfinished -= 1
        writes.pause = max(writes.pause, pause)
        if not writes.unfinished:
            del self.in_flight[about]
            for key in writes.waiting:
                if writes.pause:
                    self.queue.put_early(key, now + writes.pause)
                else:
                    self.queue.put(key)
        return writes

    def next_due(self) -> float:
        """When the next key is due."""
        return self.queue.next_due(self.in_flight)
