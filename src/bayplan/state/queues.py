"""Gangs that want something: each in exactly one place, ordered, and woken by what could help it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Ref

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 30.0
NEVER = float("inf")


class Place(StrEnum):
    """Where a gang stands."""

    INCOMPLETE = "incomplete"  # its pods are not all there yet
    READY = "ready"  # to be tried now
    BACKOFF = "backoff"  # something went wrong; to be tried at a certain time
    PARKED = "parked"  # does not fit; to be tried when room appears
    COMMITTED = "committed"  # decided; the writes are on their way
    RUNNING = "running"  # every pod has a node


@dataclass(slots=True)
class Entry:
    """One gang's standing. Higher priority first, then older, then by name."""

    ref: Ref
    priority: int
    created: float
    place: Place = Place.INCOMPLETE
    due: float = NEVER
    tries: int = 0

    @property
    def rank(self) -> tuple[int, float, str, str, str]:
        return (-self.priority, self.created, self.ref.namespace, self.ref.kind, self.ref.name)


@dataclass(slots=True)
class Queues:
    """All gangs by reference. The number of gangs is small beside that of nodes and pods."""

    entries: dict[Ref, Entry] = field(default_factory=dict)

    def put(self, ref: Ref, priority: int, created: float) -> Entry:
        """Know a gang; what is known already keeps its place."""
        entry = self.entries.get(ref)
        if entry is None:
            entry = self.entries[ref] = Entry(ref, priority, created)
        entry.priority, entry.created = priority, created
        return entry

    def drop(self, ref: Ref) -> None:
        self.entries.pop(ref, None)

    def move(self, ref: Ref, place: Place, due: float = NEVER) -> None:
        """Put a gang elsewhere."""
        entry = self.entries.get(ref)
        if entry is not None:
            entry.place, entry.due = place, due
            if place is Place.RUNNING:
                entry.tries = 0

    def back_off(self, ref: Ref, now: float) -> None:
        """Try again later, each time twice as late."""
        entry = self.entries.get(ref)
        if entry is not None:
            entry.tries += 1
            delay = min(BACKOFF_FIRST * 2 ** (entry.tries - 1), BACKOFF_MAX)
            self.move(ref, Place.BACKOFF, now + delay)

    def wake(self) -> None:
        """Room appeared: whoever did not fit may try again."""
        for entry in self.entries.values():
            if entry.place is Place.PARKED:
                entry.place = Place.READY

    def heads(self, now: float, limit: int) -> list[Ref]:
        """The gangs to try now, best first."""
        due = [
            entry
            for entry in self.entries.values()
            if entry.place is Place.READY or (entry.place is Place.BACKOFF and entry.due <= now)
        ]
        return [entry.ref for entry in heapq.nsmallest(limit, due, key=lambda entry: entry.rank)]

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""
        if any(entry.place is Place.READY for entry in self.entries.values()):
            return now
        waiting = (Place.BACKOFF, Place.COMMITTED)
        return min((e.due for e in self.entries.values() if e.place in waiting), default=NEVER)
