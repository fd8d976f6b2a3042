"""The scheduling queue: one state per gang, ordered by priority, with backoff and wakeup events."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Ref

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 10.0  # plus a hundredth of a second per pod
BACKOFF_LIMIT = 60.0
HEADS_MAX = 64  # gangs per cycle
PODS_MAX = 512  # single pods per cycle
WEIGHT_MAX = 10_000  # pods per cycle in total, except for the first gang
SPARE = 64
WAKEUP_DELAY = 1.0  # delay in seconds after an event that rarely helps
WAKEUPS_PER_SECOND = 10  # delayed wakeups per second
NEVER = float("inf")


class EntryState(StrEnum):
    """State of a gang in the scheduling queue."""

    INCOMPLETE = "incomplete"  # its spec or some pods are missing or gated
    READY = "ready"  # to be tried now
    BACKOFF = "backoff"  # an attempt failed; to be tried after a delay
    UNSCHEDULABLE = "unschedulable"  # does not fit; to be tried after an event that may help
    PREEMPTING = "preempting"  # pods are being preempted for it
    BINDING = "binding"  # decided; the binds are in flight
    RUNNING = "running"  # every pod has a node


class WakeupEvent(StrEnum):
    """An event that may make an unschedulable gang schedulable."""

    NODE_CHANGED = "node_changed"  # a node was added or changed
    CAPACITY_FREED = "capacity_freed"  # a pod freed capacity
    POD_BOUND = "pod_bound"  # a pod was bound to a node
    STORAGE_CHANGED = "storage_changed"  # a volume, claim or storage class changed
    DEVICES_CHANGED = "devices_changed"  # a slice or class of devices changed, or a claim lost its devices
    NUMA_CHANGED = "numa_changed"  # the NUMA report of a node changed
    RESERVATION_ENDED = "reservation_ended"  # a backfill reservation ended
    SHARE_CHANGED = "share_changed"  # a queue changed, or its usage or requests decreased
    SPEC_CHANGED = "spec_changed"  # the spec of a running gang changed: it may be preempted now
    USAGE_GROWN = "usage_grown"  # usage of a queue above its quota grew, or other queues request more
    VICTIMS_ADDED = "victims_added"  # nominated pods of queues were bound, or a budget allows more evictions


DELAYED_EVENTS = frozenset({WakeupEvent.USAGE_GROWN, WakeupEvent.VICTIMS_ADDED})
"""Frequent events that rarely help: gangs that wait for them are retried with a delay, a few per second."""


@dataclass(slots=True)
class SchedulingEntry:
    """Queue entry of one gang, ordered by priority, then pending time, then arrival."""

    ref: Ref
    single: bool = False
    queue: str = ""  # the fair-share queue; entries of different queues do not block each other
    priority: int = 0
    since: float = 0.0
    arrival: int = 0  # arrival number of its first pending pod
    size: int = 1  # pending pods
    state: EntryState = EntryState.INCOMPLETE
    due: float = NEVER
    tries: int = 0
    not_before: float = -NEVER  # no wakeup before this time
    equivalence: EquivalenceClass | None = None  # its class of equivalent unschedulable entries
    stamp: int = 0  # grows with every move: older references to the entry are invalid

    @property
    def rank(self) -> tuple[int, float, int, str, str]:
        return (-self.priority, self.since, self.arrival, self.ref.namespace, self.ref.name)


HeapItem = tuple[tuple[int, float, int, str, str], int, Ref]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Equivalent unschedulable entries: as long as the first does not fit, none does."""

    key: Hashable
    events: frozenset[WakeupEvent]
    entries: list[HeapItem] = field(default_factory=list)  # a heap
    burst: int = 1  # entries woken at once; doubled as long as they fit
    woken: float = -NEVER  # last timed wakeup


class SchedulingQueue:
    """All entries. No call scans all of them, except for an occasional cleanup."""

    def __init__(self) -> None:
        self.entries: dict[Ref, SchedulingEntry] = {}
        self.to_report: dict[Ref, None] = {}  # incomplete gangs whose reason is to be reported
        self.classes: dict[Hashable, EquivalenceClass] = {}
        self.by_event: dict[WakeupEvent, dict[EquivalenceClass, None]] = {event: {} for event in WakeupEvent}
        self._delayed: dict[EquivalenceClass, None] = {}  # to be woken with a delay
        self._ready: dict[str, list[HeapItem]] = {}  # by fair-share queue
        self._due: list[tuple[float, int, int, Ref]] = []
        self._count = 0

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, ref: Ref, *, lone: bool = False) -> SchedulingEntry:
        """Add a gang; an existing entry keeps its state."""
        entry = self.entries.get(ref)
        if entry is None:
            entry = self.entries[ref] = SchedulingEntry(ref, lone)
        return entry

    def drop(self, ref: Ref) -> None:
        """Remove a gang. Equivalent entries are tried in its place."""
        entry = self.entries.pop(ref, None)
        if entry is not None:
            self._detach(entry)
            self._tidy_dropped()

    def move(self, entry: SchedulingEntry, place: EntryState, due: float = NEVER) -> None:
        """Change the state of an entry; `due` is when it expires."""
        self._detach(entry)
        entry.state, entry.due = place, due
        if place is EntryState.READY:
            heapq.heappush(self._ready.setdefault(entry.queue, []), (entry.rank, entry.stamp, entry.ref))
            self._tidy_ready(entry.queue)
        elif due < NEVER:
            self._schedule(entry)
        if place is EntryState.RUNNING:
            entry.tries = 0

    def _detach(self, entry: SchedulingEntry) -> None:
        self.to_report.pop(entry.ref, None)
        entry.stamp = self._count = self._count + 1
        if entry.state is EntryState.READY and entry.equivalence is not None:
            self._wake_class(entry.equivalence, 1)
        if entry.equivalence is not None:
            self._delayed.pop(entry.equivalence, None)
        entry.equivalence = None

    def postpone(self, entry: SchedulingEntry, due: float) -> None:
        """Keep the state of an entry and set another due time."""
        entry.due = due
        if due < NEVER:
            self._schedule(entry)

    def mark_unschedulable(
        self, entry: SchedulingEntry, key: Hashable, events: frozenset[WakeupEvent], due: float
    ) -> None:
        """Mark an entry unschedulable: it waits for one of the events together with equivalent entries.

        Entries it was tried for would be rejected the same way, so they wait for the same events.
        """
        group, entry.equivalence = (
            entry.equivalence,
            None,
        )  # it was tried itself: no other entry is tried in its place
        if group is not None:
            group.burst = 1
        self.move(entry, EntryState.UNSCHEDULABLE, due)
        self._join(entry, (key, events), events)
        if group is not None and group.key != (key, events) and self.classes.get(group.key) is group:
            self._move_class(group, key, events)

    def _move_class(self, group: EquivalenceClass, key: Hashable, events: frozenset[WakeupEvent]) -> None:
        """Move the other entries of a class to the class of the new events, if they are still equivalent."""
        alike = isinstance(group.key, tuple) and group.key[0] == key
        for _, stamp, ref in list(group.entries) if alike else ():
            other = self.entries.get(ref)
            if other is not None and other.stamp == stamp and other.state is EntryState.UNSCHEDULABLE:
                self._join(other, (key, events), events)
        if alike:
            self._drop_class(group)

    def mark_preempting(self, entry: SchedulingEntry, events: frozenset[WakeupEvent], due: float) -> None:
        """Pods are being preempted for an entry; the events wake it too."""
        group, entry.equivalence = entry.equivalence, None
        self.move(entry, EntryState.PREEMPTING, due)
        self._join(entry, (entry.ref, events), events)
        self._wake_more(group)

    def mark_binding(self, entry: SchedulingEntry, due: float) -> None:
        """Its binds are in flight. Equivalent entries may fit as well."""
        group, entry.equivalence = entry.equivalence, None
        self.move(entry, EntryState.BINDING, due)
        self._wake_more(group)

    def back_off(self, entry: SchedulingEntry, now: float) -> None:
        """Requeue with exponential backoff; the maximum delay grows with the size of the gang."""
        entry.tries += 1
        limit = min(BACKOFF_MAX + entry.size / 100, BACKOFF_LIMIT)
        delay = min(BACKOFF_FIRST * 2.0 ** min(entry.tries - 1, 10), limit)
        self.move(entry, EntryState.BACKOFF, now + delay)

    def _wake_more(self, group: EquivalenceClass | None) -> None:
        """An entry of the class was helped: wake more of them."""
        if group is not None:
            group.burst = min(2 * group.burst, PODS_MAX)
            self._wake_class(group, group.burst)

    # ── waking ─────────────────────────────────────────────────────────────────────────────────────

    def wake(self, events: Iterable[WakeupEvent], now: float) -> None:
        """Wake the first entries of each class that the events may help."""
        happened = frozenset(events)
        groups = {group: None for event in happened - DELAYED_EVENTS for group in self.by_event[event]}
        for group in groups:
            self._wake_class(group, group.burst, now)
        later = {group: None for event in happened & DELAYED_EVENTS for group in self.by_event[event]}
        for group in sorted(later, key=lambda group: group.entries[:1]):
            self._wake_soon(group, now)

    def wake_soon(self, entry: SchedulingEntry, now: float) -> None:
        """Wake one entry with a delay."""
        if entry.equivalence is not None and entry.state is EntryState.UNSCHEDULABLE:
            self._wake_soon(entry.equivalence, now)

    def _wake_soon(self, group: EquivalenceClass, now: float) -> None:
        """Limit delayed wakeups per second; events during the delay are covered by it."""
        for event in group.events & DELAYED_EVENTS:
            self.by_event[event].pop(group, None)
        first = next((one for item in group.entries if (one := self._current(item)) is not None), None)
        if first is not None and group not in self._delayed:
            due = now + WAKEUP_DELAY + len(self._delayed) / WAKEUPS_PER_SECOND
            self._delayed[group] = None
            if due < first.due:
                self.postpone(first, due)

    def wake_due(self, entry: SchedulingEntry, now: float, again: float) -> None:
        """An unschedulable entry expired: wake the first entries of its class, not all."""
        group = entry.equivalence
        if group is not None and now - group.woken >= again / 2:
            group.woken = now
            self._wake_class(group, group.burst, now)
        if entry.state is EntryState.UNSCHEDULABLE:
            self.postpone(entry, now + again)

    def _wake_class(self, group: EquivalenceClass, count: int, now: float | None = None) -> None:
        while group.entries and count > 0:
            _, stamp, ref = heapq.heappop(group.entries)
            entry = self.entries.get(ref)
            if entry is None or entry.stamp != stamp:
                continue
            count -= 1
            if entry.state is EntryState.PREEMPTING:  # the preemption is in progress: no hurry
                heapq.heappush(group.entries, (entry.rank, stamp, ref))
                if now is not None and entry.due > now + 1.0:
                    self.postpone(entry, now + 1.0)
                return
            if now is not None and entry.not_before > now:
                self.move(entry, EntryState.BACKOFF, entry.not_before)
                continue
            self.move(entry, EntryState.READY)
            entry.equivalence = group
        if not group.entries:
            self._drop_class(group)

    def _join(self, entry: SchedulingEntry, key: Hashable, events: frozenset[WakeupEvent]) -> None:
        group = self.classes.get(key)
        if group is None:
            group = self.classes[key] = EquivalenceClass(key, events)
        for event in events:
            self.by_event[event][group] = None
        entry.equivalence = group
        heapq.heappush(group.entries, (entry.rank, entry.stamp, entry.ref))
        if len(group.entries) > 2 * len(self.entries) + SPARE:
            group.entries = [item for item in group.entries if self._current(item) is not None]
            heapq.heapify(group.entries)

    def _drop_class(self, group: EquivalenceClass) -> None:
        if self.classes.get(group.key) is group:
            del self.classes[group.key]
            self._delayed.pop(group, None)
            for event in group.events:
                self.by_event[event].pop(group, None)

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def heads(self) -> list[Ref]:
        """The gangs to try now, best first, after the gangs that only need a report."""
        to_report = [ref for ref, _ in zip(self.to_report, range(HEADS_MAX), strict=False)]
        taken = self._heads_of("", 1)
        first = [
            (self._ready[queue][0], queue) for queue in list(self._ready) if queue and self._has_ready(queue)
        ]
        queues = [queue for _, queue in sorted(first)[:HEADS_MAX]]
        for queue in queues:
            taken += self._heads_of(queue, len(queues))
        if queues:
            taken.sort()
        return to_report + [ref for _, _, ref in taken]

    def _heads_of(self, queue: str, queues: int) -> list[HeapItem]:
        """The heads of one of `queues` fair-share queues."""
        ready, heads = self._ready.get(queue, []), list[HeapItem]()
        gangs = pods = weight = 0
        while ready:
            entry = self._current(ready[0])
            if entry is None:
                heapq.heappop(ready)
                continue
            gangs, pods, weight = gangs + (not entry.single), pods + entry.single, weight + entry.size
            limits = HEADS_MAX // queues, PODS_MAX // queues, WEIGHT_MAX // queues
            if heads and (gangs > limits[0] or pods > limits[1] or weight > limits[2]):
                break
            heads.append(heapq.heappop(ready))
        for item in heads:
            heapq.heappush(ready, item)
        return heads

    def _current(self, item: HeapItem) -> SchedulingEntry | None:
        entry = self.entries.get(item[2])
        return entry if entry is not None and entry.stamp == item[1] else None

    def expired(self, now: float) -> Iterator[SchedulingEntry]:
        """The entries that are due, each once."""
        while self._due and self._due[0][0] <= now:
            due, _, stamp, ref = heapq.heappop(self._due)
            entry = self.entries.get(ref)
            if entry is not None and entry.stamp == stamp and entry.due == due:
                entry.due = NEVER
                yield entry

    def next_due(self, now: float) -> float:
        """When the next action is due without any event."""
        if self.to_report or any(self._has_ready(queue) for queue in list(self._ready)):
            return now
        while self._due:
            due, _, stamp, ref = self._due[0]
            entry = self.entries.get(ref)
            if entry is not None and entry.stamp == stamp and entry.due == due:
                return due
            heapq.heappop(self._due)
        return NEVER

    def reorder(self, entry: SchedulingEntry) -> None:
        """Reorder an entry after its rank changed."""
        group, entry.equivalence = entry.equivalence, None
        if entry.state is EntryState.READY:
            self.move(entry, EntryState.READY)
        entry.equivalence = group

    # ── tidying ────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, entry: SchedulingEntry) -> None:
        self._count += 1
        heapq.heappush(self._due, (entry.due, self._count, entry.stamp, entry.ref))
        self._tidy_due()

    def _tidy_due(self) -> None:
        if len(self._due) > 2 * len(self.entries) + SPARE:
            self._due = [item for item in self._due if self._is_due(item)]
            heapq.heapify(self._due)

    def _tidy_dropped(self) -> None:
        """Forget classes of which no entry is left: an event that would wake them may never happen."""
        self._tidy_due()
        if len(self.classes) > 2 * len(self.entries) + SPARE:
            for group in list(self.classes.values()):
                group.entries = [item for item in group.entries if self._current(item) is not None]
                heapq.heapify(group.entries)
                if not group.entries:
                    self._drop_class(group)

    def _is_due(self, item: tuple[float, int, int, Ref]) -> bool:
        entry = self.entries.get(item[3])
        return entry is not None and entry.stamp == item[2] and entry.due == item[0]

    def _tidy_ready(self, queue: str) -> None:
        if len(self._ready[queue]) > 2 * len(self.entries) + SPARE:
            self._ready[queue] = [item for item in self._ready[queue] if self._current(item) is not None]
            heapq.heapify(self._ready[queue])

    def _has_ready(self, queue: str) -> bool:
        """Whether a fair-share queue has an entry; outdated entries at its top are removed."""
        ready = self._ready[queue]
        while ready and self._current(ready[0]) is None:
            heapq.heappop(ready)
        if not ready:
            del self._ready[queue]
        return bool(ready)
