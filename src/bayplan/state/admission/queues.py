"""Pending queues of admission: the order of gangs, rejected equivalence classes, and what requeues them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.admission_rejection import AdmissionRemark
from bayplan.model.gang import Ref
from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.model.queued_gang import QueuedGang, Rank

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 30.0
NEVER = float("inf")
_OWN_REASONS = (
    AdmissionRemark.INTERNAL,
    AdmissionRemark.OUT_OF_TIME,
)  # reasons that do not hold for gangs of the same shape


class QueueEntryState(StrEnum):
    """State of a gang in its queue."""

    INACTIVE = "inactive"  # inactive, or without a queue
    PENDING = "pending"
    BACKOFF = "backoff"  # requeued after a delay
    ADMITTING = "admitting"  # decided; the write is in flight
    QUOTA_RESERVED = "quota_reserved"  # has quota
    PLACING = "placing"  # has quota and waits for a placement


@dataclass(slots=True, eq=False)
class QueueEntry:
    """Queue entry of one gang."""

    queued_gang: QueuedGang
    queue: str = ""
    shape: Hashable = None
    state: QueueEntryState = QueueEntryState.INACTIVE
    due: float = NEVER
    tries: int = 0
    reason: Hashable = None  # the reason it is pending, as reported last
    progress: tuple[Mapping[str, int], ...] = ()
    searched_at: int = -1  # value of `wakings` of its queue when the search for flavors stopped there
    searched: list[tuple[Mapping[str, int], ...]] = field(default_factory=list)  # where it stopped since then
    overtaken: int = -1  # generation in which other gangs of the cycle were last ahead of it
    taken: tuple[str, ...] = ()  # hosts of its placement whose capacity other pods use
    has_started: bool = False  # a pod was bound when these hosts were taken
    ticket: int = 0  # identifies its valid entry in the heap

    rank: Rank = (0, 0.0, "", "")  # higher priority first, then longer pending

    def update_rank(self) -> None:
        """Update the rank from the current spec."""
        self.rank = self.queued_gang.rank


@dataclass(slots=True)
class PendingQueue:
    """Pending gangs of one queue, by shape: of gangs with the same shape only the first is tried."""

    strict: bool = False
    shapes: dict[Hashable, list[tuple[Rank, int, QueueEntry]]] = field(default_factory=dict)
    rejected: set[Hashable] = field(default_factory=set)  # until something changes
    short_of_quota: set[Hashable] = field(
        default_factory=set
    )  # of these, shapes that only more quota can help
    ineligible: set[Hashable] = field(default_factory=set)  # of these, may not enter: they block no gang
    wakings: int = 0
    sticky: QueueEntry | None = None  # victims are terminating for it: no gang of this queue overtakes it
    unreported: dict[Hashable, dict[Ref, QueueEntry]] = field(
        default_factory=dict
    )  # by shape: entries whose reason was not reported yet
    reasons: dict[Hashable, Hashable] = field(default_factory=dict)  # by shape: the reason reported last
    count: int = 0
    idle: bool = False  # no gang is to be tried, and nothing changed since
    suspended: bool = False  # the queue may not admit yet; short-lived, so no reason is reported

    def add(self, entry: QueueEntry) -> None:
        self.idle = False
        self.count += 1
        entry.ticket = self.count
        self.unreported.setdefault(entry.shape, {})[entry.queued_gang.gang.source] = entry
        heap = self.shapes.setdefault(entry.shape, [])
        heapq.heappush(heap, (entry.rank, self.count, entry))

    def suspend(self, held: bool) -> None:
        """Suspend or resume admission from this queue."""
        if held != self.suspended:
            self.suspended, self.idle = held, False

    def first(self) -> QueueEntry | None:
        """The gang to try next; None if all shapes are rejected, or the first is and the queue is strict."""
        if self.suspended:
            return None
        if self.sticky is not None:
            if self.sticky.state is QueueEntryState.PENDING and self.sticky.shape in self.shapes:
                return self.sticky
            self.sticky = None
        best: QueueEntry | None = None
        for shape in list(self.shapes):
            top = self._top(shape)
            if top is None or (shape in self.rejected and not (self.strict and shape not in self.ineligible)):
                continue
            if best is None or top.rank < best.rank:
                best = top
        return None if best is None or best.shape in self.rejected else best

    def reject(self, shape: Hashable) -> bool:
        """Do not try gangs of this shape until something changes. Returns whether that is new."""
        known = shape in self.rejected
        self.rejected.add(shape)
        return not known

    def is_ready(self) -> bool:
        """Whether a gang is to be tried: something changed since all were rejected."""
        if not self.idle:
            first = self.first()
            self.idle = first is None or first.shape in self.rejected
        return not self.idle

    def equivalents(self, entry: QueueEntry, most: int) -> list[QueueEntry]:
        """Other gangs of the same shape whose reason was not reported yet, in queue order."""
        found = (
            other
            for other in self.unreported.get(entry.shape, {}).values()
            if other is not entry and other.state is QueueEntryState.PENDING and other.shape == entry.shape
        )
        return heapq.nsmallest(most, found, key=lambda other: other.rank)

    def report(self, entry: QueueEntry, reason: Hashable) -> None:
        """Record the reported reason of a gang. A new reason has to be reported to its whole shape."""
        shape, ref = entry.shape, entry.queued_gang.gang.source
        if self.reasons.get(shape, reason) != reason:
            self.unreported[shape] = {o.queued_gang.gang.source: o for _, _, o in self.shapes.get(shape, ())}
        self.reasons[shape] = entry.reason = reason
        self.unreported.get(shape, {}).pop(ref, None)

    def pending(self) -> Iterator[QueueEntry]:
        """All pending gangs."""
        for shape, heap in self.shapes.items():
            for _, ticket, entry in heap:
                if _is_live(entry, shape, ticket):
                    yield entry

    def _top(self, shape: Hashable) -> QueueEntry | None:
        heap = self.shapes[shape]
        while heap and not _is_live(heap[0][2], shape, heap[0][1]):
            heapq.heappop(heap)
        if not heap:
            del self.shapes[shape]
            self.unreported.pop(shape, None)
            self.reasons.pop(shape, None)
            for known in (
                self.rejected,
                self.short_of_quota,
                self.ineligible,
            ):  # the next gang of this shape is tried and gets its own reason
                known.discard(shape)
            return None
        return heap[0][2]


def _is_live(entry: QueueEntry, shape: Hashable, ticket: int) -> bool:
    """Whether a heap entry is valid. Outdated entries stay in the heap until they reach its top."""
    return entry.state is QueueEntryState.PENDING and entry.shape == shape and entry.ticket == ticket


@dataclass(slots=True)
class PendingQueues:
    """The pending queues of all queues, and the entry of every gang."""

    queues: dict[str, PendingQueue] = field(default_factory=dict)
    entries: dict[Ref, QueueEntry] = field(default_factory=dict)
    delayed: list[tuple[float, int, QueueEntry]] = field(default_factory=list)
    placing: dict[Ref, QueueEntry] = field(default_factory=dict)  # entries that wait for a placement
    contended: bool = (
        False  # a gang was rejected because of capacity that other pending gangs are waiting for
    )
    count: int = 0

    def queue(self, queue: str) -> PendingQueue:
        return self.queues.setdefault(queue, PendingQueue())

    def drop_unused(self, queues: Container[str]) -> None:
        """Drop the pending queues of deleted queues that no gang belongs to."""
        gone = [name for name in self.queues if name not in queues]
        named = {entry.queue for entry in self.entries.values()} if gone else set()
        for name in gone:
            if name not in named:
                del self.queues[name]

    def is_ready(self) -> bool:
        """Whether any gang is to be tried."""
        return any(pending.is_ready() for pending in self.queues.values())

    def touch(self, queue: str) -> str:
        """A gang enters or leaves the queue: another one may be first now."""
        if queue in self.queues:
            self.queues[queue].idle = False
        return queue

    def move(self, entry: QueueEntry, place: QueueEntryState, due: float = NEVER) -> None:
        """Change the state of an entry."""
        again = place is QueueEntryState.PENDING and entry.state is not QueueEntryState.PENDING
        self.touch(entry.queue)
        entry.state, entry.due = place, due
        if place is QueueEntryState.PLACING:
            self.placing[entry.queued_gang.gang.source] = entry
        else:
            self.placing.pop(entry.queued_gang.gang.source, None)
        if again:
            self.queue(entry.queue).add(entry)
        if due < NEVER:
            self.count += 1
            heapq.heappush(self.delayed, (due, self.count, entry))

    def back_off(
        self,
        entry: QueueEntry,
        place: QueueEntryState,
        now: float,
        first: float = BACKOFF_FIRST,
        most: float = BACKOFF_MAX,
    ) -> None:
        """Requeue with exponential backoff."""
        entry.tries += 1
        self.move(entry, place, now + min(first * 2.0 ** (entry.tries - 1), most))

    def requeue(self, entry: QueueEntry, action: ReportNotAdmitted, now: float) -> bool:
        """Requeue a gang that was not admitted. Returns whether the next cycle can end differently."""
        pending, remark = self.queue(entry.queue), action.rejection.remark
        if entry.searched_at != pending.wakings:
            entry.searched = []
        resumed = any(index >= 0 for part in entry.progress for index in part.values())
        entry.progress, entry.searched_at = tuple(action.progress), pending.wakings
        self.contended = self.contended or action.contended
        if entry.state is QueueEntryState.PENDING and remark not in _OWN_REASONS:
            pending.report(entry, action.rejection.reason)
        match action.requeue:
            case Requeue.AFTER_DELAY if entry.state is QueueEntryState.PENDING:
                self.clear_sticky(entry.queue, entry)
                self.back_off(entry, QueueEntryState.BACKOFF, now)
                return True
            case Requeue.AFTER_DELAY:
                entry.tries += entry.due > 0  # attempts caused by an event do not count
                self.move(entry, QueueEntryState.PLACING, now + action.delay)
            case Requeue.ON_EVENT:
                if remark in (AdmissionRemark.NAMESPACE, AdmissionRemark.NAMESPACE_QUEUE_STOPPED):
                    pending.ineligible.add(entry.shape)
                self.clear_sticky(entry.queue, entry)
                # With fewer pods, or with flavors tried earlier, quota may suffice and capacity may not.
                fewer = any(p.minimum < p.count for p in action.queued_gang.gang.root.pod_sets())
                if action.rejection.only_quota_helps() and not (fewer or resumed):
                    pending.short_of_quota.add(entry.shape)
                else:
                    pending.short_of_quota.discard(entry.shape)
                return pending.reject(entry.shape)
            case Requeue.AT_ONCE if remark in (
                AdmissionRemark.PREEMPTING,
                AdmissionRemark.SAME_VICTIMS_WILL_FIT,
            ):
                pending.sticky = entry
                return pending.reject(entry.shape)  # until the victims are gone
            case Requeue.AT_ONCE if entry.progress in entry.searched:  # every flavor was tried
                self.clear_sticky(entry.queue, entry)
                return pending.reject(entry.shape)
            case Requeue.AT_ONCE if any(at >= 0 for part in action.progress for at in part.values()):
                entry.searched.append(entry.progress)
                return True
        return False

    def note_overtaken(self, entry: QueueEntry, seen: int) -> bool:
        """Other gangs of the cycle came first. Returns whether the shape is newly rejected.

        If that already happened in this generation, another cycle would end the same way.
        """
        before, entry.overtaken = entry.overtaken, seen
        return before == seen and self.queue(entry.queue).reject(entry.shape)

    def retry_placements(self, concerns: Callable[[QueueEntry], bool]) -> None:
        """Retry gangs that wait for a placement: something changed that may help them."""
        for entry in list(self.placing.values()):
            if entry.due > 0 and concerns(entry):
                self.move(entry, QueueEntryState.PLACING, 0.0)

    def due(self, now: float) -> Iterator[QueueEntry]:
        """The entries whose delay has passed."""
        while self.delayed and self.delayed[0][0] <= now:
            due, _, entry = heapq.heappop(self.delayed)
            if entry.due == due:
                yield entry

    def next_due(self) -> float:
        while self.delayed and self.delayed[0][2].due != self.delayed[0][0]:
            heapq.heappop(self.delayed)
        return self.delayed[0][0] if self.delayed else NEVER

    def wake(self, queue: str, *, room: bool = False) -> None:
        """Retry rejected gangs: something changed that may help.

        Freed capacity alone (`room`) does not help gangs that only lack quota.
        """
        pending = self.queues.get(queue)
        if pending is None:
            return
        reserved = pending.rejected & pending.short_of_quota if room else set()
        pending.rejected, pending.short_of_quota, pending.ineligible = (
            reserved,
            set(reserved),
            pending.ineligible & reserved,
        )
        pending.idle = False
        pending.wakings += 1

    def clear_sticky(self, queue: str, entry: QueueEntry) -> bool:
        """No victims are terminating for a gang any more. Returns whether there were any."""
        pending = self.queues.get(queue)
        if pending is None or pending.sticky is not entry:
            return False
        pending.sticky, pending.idle = None, False
        return True
