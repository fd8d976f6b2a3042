"""The queue of pending gangs that both roles use: order, equivalence classes, delays and wakeup events.

A failed attempt answers for all equivalent gangs: they wait together, as a class, for an event that may help.
Which gangs are tried in which turn, and which events may help, is up to the role.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from bayplan.model.gang import Ref

NEVER = float("inf")
BACKOFF_FIRST = 1.0
SPARE = 64  # outdated items that a heap may hold beyond two for each entry


class WakeupEvent(StrEnum):
    """An event that may help a rejected gang."""

    NODE_CHANGED = "node_changed"  # a node was added or changed
    CAPACITY_FREED = "capacity_freed"  # a pod or an admitted gang freed capacity
    QUOTA_FREED = "quota_freed"  # quota was freed, or the rules of a queue changed
    POD_BOUND = "pod_bound"  # a pod was bound to a node
    STORAGE_CHANGED = "storage_changed"  # a volume, claim or storage class changed
    DEVICES_CHANGED = "devices_changed"  # a slice or class of devices changed, or a claim lost its devices
    NUMA_CHANGED = "numa_changed"  # the NUMA report of a node changed
    RESERVATION_ENDED = "reservation_ended"  # a backfill reservation ended
    SHARE_CHANGED = "share_changed"  # a queue changed, or its usage or requests decreased
    SPEC_CHANGED = "spec_changed"  # the spec of a running gang changed: it may be preempted now
    USAGE_GROWN = "usage_grown"  # usage of a queue above its quota grew, or other queues request more
    VICTIMS_ADDED = "victims_added"  # nominated pods of queues were bound, or a budget allows more evictions


class Entry(Protocol):
    """What the queue reads and writes of an entry; the rest belongs to the role."""

    due: float  # when it expires
    tries: int  # failed attempts in a row
    stamp: int  # grows with every move: older references to the entry are outdated

    @property
    def rank(self) -> Any:
        """Its order among the others; unique."""


E = TypeVar("E", bound=Entry)


class Line(Generic[E]):
    """Entries in order of rank. An entry that has moved stays until it comes first, and is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, E]] = []

    def __len__(self) -> int:
        """How many items it holds, outdated ones included."""
        return len(self._heap)

    def __iter__(self) -> Iterator[E]:
        return (entry for _, stamp, entry in self._heap if entry.stamp == stamp)

    def push(self, entry: E) -> None:
        heapq.heappush(self._heap, (entry.rank, entry.stamp, entry))

    def first(self) -> E | None:
        while self._heap and self._heap[0][2].stamp != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> E | None:
        """Remove and return the first entry."""
        if (entry := self.first()) is not None:
            heapq.heappop(self._heap)
        return entry

    def tidy(self) -> None:
        """Remove outdated items."""
        self._heap = [item for item in self._heap if item[2].stamp == item[1]]
        heapq.heapify(self._heap)


@dataclass(slots=True, eq=False)
class EquivalenceClass(Generic[E]):
    """Equivalent entries: as long as the first is rejected, so are the others."""

    key: Hashable
    events: frozenset[Hashable] = frozenset()  # the events it waits for; none if it is to be tried
    line: Line[E] = field(default_factory=Line)
    burst: int = 1  # binding: entries woken at once; doubled as long as they fit
    woken: float = -NEVER  # binding: last wakeup without an event
    reason: Hashable = None  # admission: the reason reported last
    unreported: dict[Ref, E] = field(default_factory=dict)  # admission: entries without that report
    ineligible: bool = False  # admission: rejected because they may not enter; they block no gang


class PendingQueue(Generic[E]):
    """The entries of one role. No call scans all of them, except for an occasional cleanup."""

    def __init__(self) -> None:
        self.entries: dict[Ref, E] = {}
        self.classes: dict[Hashable, EquivalenceClass[E]] = {}
        self._by_event: dict[Hashable, dict[Hashable, EquivalenceClass[E]]] = {}
        self._due: list[tuple[float, int, int, E]] = []
        self._count = 0

    # ── moves and delays ───────────────────────────────────────────────────────────────────────────

    def move(self, entry: E, due: float = NEVER) -> None:
        """Take an entry out of its line; it expires at `due`."""
        entry.stamp = self._count = self._count + 1
        self.postpone(entry, due)

    def postpone(self, entry: E, due: float) -> None:
        """Leave an entry where it is, with another due time."""
        entry.due = due
        if due < NEVER:
            self._count += 1
            heapq.heappush(self._due, (due, self._count, entry.stamp, entry))
            self._tidy_due()

    def add_to(self, line: Line[E], entry: E) -> None:
        """Add an entry to a line."""
        line.push(entry)
        if len(line) > self._bound():
            line.tidy()

    def expired(self, now: float) -> Iterator[E]:
        """The entries that are due."""
        while self._due and self._due[0][0] <= now:
            item = heapq.heappop(self._due)
            if _is_current(item):
                yield item[3]

    def next_due(self) -> float:
        """When the next entry expires."""
        while self._due and not _is_current(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else NEVER

    def _tidy_due(self) -> None:
        if len(self._due) > self._bound():
            self._due = [item for item in self._due if _is_current(item)]
            heapq.heapify(self._due)

    def _bound(self) -> int:
        return 2 * len(self.entries) + SPARE

    # ── classes and events ─────────────────────────────────────────────────────────────────────────

    def join(self, entry: E, key: Hashable) -> EquivalenceClass[E]:
        """Add an entry to the class of this key."""
        group = self.classes.get(key)
        if group is None:
            group = self.classes[key] = EquivalenceClass(key)
        self.add_to(group.line, entry)
        return group

    def wait_for(self, group: EquivalenceClass[E], events: frozenset[Hashable]) -> None:
        """A class is rejected until one of the events; without events it is to be tried."""
        self.ignore(group, group.events - events)
        group.events = events
        for event in events:
            self._by_event.setdefault(event, {})[group.key] = group

    def ignore(self, group: EquivalenceClass[E], events: Iterable[Hashable]) -> None:
        """A class is not woken by these events."""
        for event in events:
            waiting = self._by_event.get(event, {})
            waiting.pop(group.key, None)
            if not waiting:
                self._by_event.pop(event, None)

    def waiting_for(self, events: Iterable[Hashable]) -> list[EquivalenceClass[E]]:
        """The classes that one of the events may help, each once."""
        found = {key: group for event in events for key, group in self._by_event.get(event, {}).items()}
        return list(found.values())

    def forget(self, group: EquivalenceClass[E]) -> bool:
        """Drop a class. Returns whether it was known."""
        known = self.classes.get(group.key) is group
        if known:
            del self.classes[group.key]
            self.ignore(group, group.events)
        return known

    def drop(self, ref: Ref) -> E | None:
        """Remove an entry."""
        entry = self.entries.pop(ref, None)
        if entry is not None:
            self.move(entry)
            self._tidy_due()
        return entry

    def unused_classes(self) -> list[EquivalenceClass[E]]:
        """The classes without entries, if there are too many classes: no event may ever wake them."""
        if len(self.classes) <= self._bound():
            return []
        for group in self.classes.values():
            group.line.tidy()
        return [group for group in self.classes.values() if not group.line]


def backoff(tries: int, most: float) -> float:
    """The delay after so many failed attempts."""
    return min(BACKOFF_FIRST * 2.0 ** min(tries - 1, 10), most)


def _is_current(item: tuple[float, int, int, Entry]) -> bool:
    due, _, stamp, entry = item
    return entry.stamp == stamp and entry.due == due
