"""The scheduling queue: one state per gang, ordered by priority, with backoff and wakeup events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.gang import Ref
from bayplan.state.pending_queue import NEVER, EquivalenceClass, Line, PendingQueue, WakeupEvent, backoff

BACKOFF_MAX = 10.0  # plus a hundredth of a second per pod
BACKOFF_LIMIT = 60.0
HEADS_MAX = 64  # gangs per cycle
PODS_MAX = 512  # single pods per cycle
WEIGHT_MAX = 10_000  # pods per cycle in total, except for the first gang
WAKEUP_DELAY = 1.0  # delay in seconds after an event that rarely helps
WAKEUPS_PER_SECOND = 10  # delayed wakeups per second


class EntryState(StrEnum):
    """State of a gang in the scheduling queue."""

    INCOMPLETE = "incomplete"  # its spec or some pods are missing or gated
    READY = "ready"  # to be tried now
    BACKOFF = "backoff"  # an attempt failed; to be tried after a delay
    UNSCHEDULABLE = "unschedulable"  # does not fit; to be tried after an event that may help
    PREEMPTING = "preempting"  # pods are being preempted for it
    BINDING = "binding"  # decided; the binds are in flight
    RUNNING = "running"  # every pod has a node


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
    equivalence: Group | None = None  # its class of equivalent unschedulable entries
    stamp: int = 0  # grows with every move: older references to the entry are invalid

    @property
    def rank(self) -> tuple[int, float, int, str, str]:
        return (-self.priority, self.since, self.arrival, self.ref.namespace, self.ref.name)


Group = EquivalenceClass[SchedulingEntry]


class SchedulingQueue:
    """The entries by state. Entries to be tried are in one line for each fair-share queue."""

    def __init__(self) -> None:
        self.pending: PendingQueue[SchedulingEntry] = PendingQueue()
        self.entries = self.pending.entries
        self.to_report: dict[Ref, None] = {}  # incomplete gangs whose reason is to be reported
        self._delayed: dict[Group, None] = {}  # to be woken with a delay
        self._ready: dict[str, Line[SchedulingEntry]] = {}  # by fair-share queue

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, ref: Ref, *, lone: bool = False) -> SchedulingEntry:
        """Add a gang; an existing entry keeps its state."""
        entry = self.entries.get(ref)
        if entry is None:
            entry = self.entries[ref] = SchedulingEntry(ref, lone)
        return entry

    def drop(self, ref: Ref) -> None:
        """Remove a gang. Equivalent entries are tried in its place."""
        entry = self.pending.drop(ref)
        if entry is not None:
            self._detach(entry)
            for group in self.pending.unused_classes():
                self._forget(group)

    def move(self, entry: SchedulingEntry, place: EntryState, due: float = NEVER) -> None:
        """Change the state of an entry; `due` is when it expires."""
        self.pending.move(entry, NEVER if place is EntryState.READY else due)
        self._detach(entry)
        entry.state = place
        if place is EntryState.READY:
            self.pending.add_to(self._ready.setdefault(entry.queue, Line()), entry)
        elif place is EntryState.RUNNING:
            entry.tries = 0

    def _detach(self, entry: SchedulingEntry) -> None:
        """An entry has left its place: if it was to be tried for its class, another one is."""
        self.to_report.pop(entry.ref, None)
        if entry.state is EntryState.READY and entry.equivalence is not None:
            self._wake_class(entry.equivalence, 1)
        if entry.equivalence is not None:
            self._delayed.pop(entry.equivalence, None)
        entry.equivalence = None

    def mark_unschedulable(
        self, entry: SchedulingEntry, key: Hashable, events: frozenset[WakeupEvent], due: float
    ) -> None:
        """Mark an entry unschedulable: it waits for one of the events together with equivalent entries.

        Entries it was tried for would be rejected the same way, so they wait for the same events.
        """
        group = self._tried(entry, EntryState.UNSCHEDULABLE, due)
        self._join(entry, (key, events), events)
        if group is None:
            return
        group.burst = 1
        if group.key != (key, events) and self.pending.classes.get(group.key) is group:
            self._move_class(group, key, events)

    def _move_class(self, group: Group, key: Hashable, events: frozenset[WakeupEvent]) -> None:
        """Move the other entries of a class to the class of the new events, if they are still equivalent.

        Otherwise, as affinity of a new pod tells them apart, the next one is tried for the others.
        """
        if isinstance(group.key, tuple) and group.key[0] == key:
            for other in group.line:
                if other.state is EntryState.UNSCHEDULABLE:
                    self._join(other, (key, events), events)
            self._forget(group)
        else:
            self._wake_class(group, 1)

    def mark_preempting(self, entry: SchedulingEntry, events: frozenset[WakeupEvent], due: float) -> None:
        """Pods are being preempted for an entry; the events wake it too."""
        group = self._tried(entry, EntryState.PREEMPTING, due)
        self._join(entry, (entry.ref, events), events)
        self._wake_more(group)

    def mark_binding(self, entry: SchedulingEntry, due: float) -> None:
        """Its binds are in flight. Equivalent entries may fit as well."""
        self._wake_more(self._tried(entry, EntryState.BINDING, due))

    def _tried(self, entry: SchedulingEntry, place: EntryState, due: float) -> Group | None:
        """An entry was tried itself: none is tried in its place. Returns the class it was tried for."""
        group, entry.equivalence = entry.equivalence, None
        self.move(entry, place, due)
        return group

    def back_off(self, entry: SchedulingEntry, now: float) -> None:
        """Requeue with exponential backoff; the maximum delay grows with the size of the gang."""
        entry.tries += 1
        limit = min(BACKOFF_MAX + entry.size / 100, BACKOFF_LIMIT)
        self.move(entry, EntryState.BACKOFF, now + backoff(entry.tries, limit))

    def postpone(self, entry: SchedulingEntry, due: float) -> None:
        """Keep the state of an entry and set another due time."""
        self.pending.postpone(entry, due)

    def _wake_more(self, group: Group | None) -> None:
        """An entry of the class was helped: wake more of them."""
        if group is not None:
            group.burst = min(2 * group.burst, PODS_MAX)
            self._wake_class(group, group.burst)

    # ── waking ─────────────────────────────────────────────────────────────────────────────────────

    def wake(self, events: Iterable[WakeupEvent], now: float) -> None:
        """Wake the first entries of each class that the events may help."""
        happened = frozenset(events)
        for group in self.pending.waiting_for(happened - DELAYED_EVENTS):
            self._wake_class(group, group.burst, now)
        later = self.pending.waiting_for(happened & DELAYED_EVENTS)
        firsts = [(first.rank, group) for group in later if (first := group.line.first()) is not None]
        for _, group in sorted(firsts, key=lambda one: one[0]):
            self._wake_soon(group, now)

    def wake_soon(self, entry: SchedulingEntry, now: float) -> None:
        """Wake one entry with a delay."""
        if entry.equivalence is not None and entry.state is EntryState.UNSCHEDULABLE:
            self._wake_soon(entry.equivalence, now)

    def _wake_soon(self, group: Group, now: float) -> None:
        """Limit delayed wakeups per second; events during the delay are covered by it."""
        self.pending.ignore(group, group.events & DELAYED_EVENTS)
        first = group.line.first()
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

    def _wake_class(self, group: Group, count: int, now: float | None = None) -> None:
        while count > 0 and (entry := group.line.pop()) is not None:
            count -= 1
            if entry.state is EntryState.PREEMPTING:  # the preemption is in progress: no hurry
                group.line.push(entry)
                if now is not None and entry.due > now + 1.0:
                    self.postpone(entry, now + 1.0)
                return
            if now is not None and entry.not_before > now:
                self.move(entry, EntryState.BACKOFF, entry.not_before)
                continue
            self.move(entry, EntryState.READY)
            entry.equivalence = group
        if not group.line:
            self._forget(group)

    def _join(self, entry: SchedulingEntry, key: Hashable, events: frozenset[WakeupEvent]) -> None:
        entry.equivalence = self.pending.join(entry, key)
        self.pending.wait_for(entry.equivalence, events)

    def _forget(self, group: Group) -> None:
        if self.pending.forget(group):
            self._delayed.pop(group, None)

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def heads(self) -> list[Ref]:
        """The gangs to try now, best first, after the gangs that only need a report."""
        to_report = [ref for ref, _ in zip(self.to_report, range(HEADS_MAX), strict=False)]
        taken = self._heads_of("", 1)
        first = [(entry.rank, queue) for queue, entry in self._first_by_queue() if queue]
        queues = [queue for _, queue in sorted(first)[:HEADS_MAX]]
        for queue in queues:
            taken += self._heads_of(queue, len(queues))
        if queues:
            taken.sort(key=lambda entry: entry.rank)
        return to_report + [entry.ref for entry in taken]

    def _heads_of(self, queue: str, queues: int) -> list[SchedulingEntry]:
        """The heads of one of `queues` fair-share queues."""
        ready, heads = self._ready.get(queue) or Line[SchedulingEntry](), list[SchedulingEntry]()
        gangs = pods = weight = 0
        while (entry := ready.first()) is not None:
            gangs, pods, weight = gangs + (not entry.single), pods + entry.single, weight + entry.size
            limits = HEADS_MAX // queues, PODS_MAX // queues, WEIGHT_MAX // queues
            if heads and (gangs > limits[0] or pods > limits[1] or weight > limits[2]):
                break
            heads.append(entry)
            ready.pop()
        for entry in heads:
            ready.push(entry)
        return heads

    def _first_by_queue(self) -> Iterator[tuple[str, SchedulingEntry]]:
        """The first entry to try of each fair-share queue that has one."""
        for queue, ready in list(self._ready.items()):
            if (first := ready.first()) is not None:
                yield queue, first
            else:
                del self._ready[queue]

    def expired(self, now: float) -> Iterator[SchedulingEntry]:
        """The entries that are due, each once."""
        for entry in self.pending.expired(now):
            entry.due = NEVER
            yield entry

    def next_due(self, now: float) -> float:
        """When the next action is due without any event."""
        ready = bool(self.to_report) or next(self._first_by_queue(), None) is not None
        return now if ready else self.pending.next_due()

    def reorder(self, entry: SchedulingEntry) -> None:
        """Reorder an entry after its rank changed."""
        group, entry.equivalence = entry.equivalence, None
        if entry.state is EntryState.READY:
            self.move(entry, EntryState.READY)
        entry.equivalence = group
