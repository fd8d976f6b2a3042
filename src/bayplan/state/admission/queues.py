"""Pending queues of admission: the order of gangs, rejected equivalence classes, and what requeues them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Ref
from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.model.queued_gang import QueuedGang, Rank
from bayplan.model.rejection import AdmissionRemark, RejectionReason
from bayplan.state.pending_queue import NEVER, EquivalenceClass, PendingQueue, WakeupEvent, backoff

BACKOFF_MAX = 30.0
HOLD_SECONDS = 1.0  # after the end of a gang, others of its quota tree preempt none for so long
HOLD_MAX = 30.0  # for one gang: as long as evicted pods may take to leave by default
PREEMPTING_MAX = 8  # gangs of one queue that wait for their victims at the same time
_QUOTA_EVENT = frozenset({WakeupEvent.QUOTA_FREED})
_ANY_EVENT = _QUOTA_EVENT | {WakeupEvent.CAPACITY_FREED}
_MAY_NOT_ENTER = (
    AdmissionRemark.NAMESPACE,
    AdmissionRemark.NAMESPACE_QUEUE_STOPPED,
    AdmissionRemark.REFUSED,
)
_OWN_REASONS = (
    RejectionReason.INTERNAL,
    RejectionReason.OUT_OF_TIME,
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
    alone: bool = False  # victims leave for it: it is a class of its own, whatever its shape
    held_at: float = NEVER  # when it first waited for others to end before it preempts
    stamp: int = 0  # grows with every move: older references to the entry are outdated
    rank: Rank = (0, 0.0, "", "")  # higher priority first, then longer pending

    @property
    def class_key(self) -> Hashable:
        """Gangs with the same key are tried and rejected together."""
        return (self.shape, self.queued_gang.gang.source) if self.alone else self.shape

    def update_rank(self) -> None:
        """Update the rank from the current spec."""
        self.rank = self.queued_gang.rank


@dataclass(slots=True)
class AdmissionQueue:
    """The pending gangs of one queue. Of gangs with the same shape only the first is tried."""

    name: str
    pending: PendingQueue[QueueEntry]
    strict: bool = False
    shapes: dict[Hashable, EquivalenceClass[QueueEntry]] = field(default_factory=dict)
    wakings: int = 0
    # gangs whose victims are terminating, in the order of preemption: no gang of this queue overtakes them
    sticky: list[QueueEntry] = field(default_factory=list)
    ended_at: float = -NEVER  # when a gang of its quota tree ended, as of the last cycle
    idle: bool = False  # no gang is to be tried, and nothing changed since
    suspended: bool = False  # the queue may not admit yet; short-lived, so no reason is reported

    def add(self, entry: QueueEntry) -> None:
        self.idle = False
        key = entry.class_key
        self.shapes[key] = group = self.pending.join(entry, (self.name, key))
        group.unreported[entry.queued_gang.gang.source] = entry

    def suspend(self, held: bool) -> None:
        """Suspend or resume admission from this queue."""
        if held != self.suspended:
            self.suspended, self.idle = held, False

    def heads(self) -> list[QueueEntry]:
        """The gangs whose victims are terminating, and the one to try next.

        In a strict queue no other gang is tried before the first one has started.
        """
        if self.suspended:
            return []
        self.sticky = [
            entry
            for entry in self.sticky
            if entry.state is QueueEntryState.PENDING and entry.class_key in self.shapes
        ]
        if self.sticky and (self.strict or len(self.sticky) >= PREEMPTING_MAX):
            return list(self.sticky)
        first = self._first()
        return [*self.sticky, first] if first is not None else list(self.sticky)

    def _first(self) -> QueueEntry | None:
        """The gang to try next; None if all shapes are rejected, or the first is and the queue is strict."""
        best: QueueEntry | None = None
        for shape, group in list(self.shapes.items()):
            top = group.line.first()
            if top is None:  # the next gang of this shape is tried and gets its own reason
                self.pending.forget(self.shapes.pop(shape))
            elif top.alone or (group.events and (group.ineligible or not self.strict)):
                continue
            elif best is None or top.rank < best.rank:
                best = top
        return None if best is None or self.shapes[best.class_key].events else best

    def rejected(self) -> frozenset[Hashable]:
        """The shapes that are rejected."""
        return frozenset(shape for shape, group in self.shapes.items() if group.events)

    def reject(self, entry: QueueEntry, events: frozenset[WakeupEvent] | None = None) -> bool:
        """Do not try gangs of this shape until one of the events; by default the present ones, or any.

        Returns whether that is new.
        """
        group = self.shapes.get(entry.class_key)
        if group is None:
            return False
        known = bool(group.events)
        group.ineligible = known and group.ineligible
        if events is not None or not known:
            awaited = _ANY_EVENT if events is None else events
            self.pending.wait_for(group, frozenset((self.name, event) for event in awaited))
        return not known

    def is_ready(self) -> bool:
        """Whether a gang is to be tried: something changed since all were rejected."""
        if not self.idle:
            self.idle = all(self.shapes[entry.class_key].events for entry in self.heads())
        return not self.idle

    def equivalents(self, entry: QueueEntry, most: int) -> list[QueueEntry]:
        """Other gangs of the same shape whose reason was not reported yet, in queue order."""
        group = self.shapes.get(entry.class_key)
        found = (
            other
            for other in (group.unreported.values() if group is not None else ())
            if other is not entry
            and other.state is QueueEntryState.PENDING
            and other.class_key == entry.class_key
        )
        return heapq.nsmallest(most, found, key=lambda other: other.rank)

    def report(self, entry: QueueEntry, reason: Hashable) -> None:
        """Record the reported reason of a gang. A new reason has to be reported to its whole shape."""
        group, entry.reason = self.shapes[entry.class_key], reason
        if group.reason not in (None, reason):
            group.unreported = {other.queued_gang.gang.source: other for other in group.line}
        group.reason = reason
        group.unreported.pop(entry.queued_gang.gang.source, None)

    def entries(self) -> Iterator[QueueEntry]:
        """All pending gangs."""
        return (entry for group in self.shapes.values() for entry in group.line)

    def wake(self, event: WakeupEvent) -> None:
        """Try rejected gangs again that the event may help."""
        for group in self.pending.waiting_for([(self.name, event)]):
            self.pending.wait_for(group, frozenset())
        self.idle = False
        self.wakings += 1


class AdmissionQueues:
    """The pending gangs of all queues, and the entry of every gang."""

    def __init__(self) -> None:
        self.pending: PendingQueue[QueueEntry] = PendingQueue()
        self.entries = self.pending.entries
        self.queues: dict[str, AdmissionQueue] = {}
        self.placing: dict[Ref, QueueEntry] = {}  # entries that wait for a placement
        self.ended: set[str] = set()  # queues in whose quota trees gangs ended since the last cycle
        self.contended = False  # a gang was rejected because of capacity that other pending gangs wait for

    def queue(self, name: str) -> AdmissionQueue:
        if name not in self.queues:
            self.queues[name] = AdmissionQueue(name, self.pending)
        return self.queues[name]

    def end(self, queues: Iterable[str]) -> None:
        """A gang of the quota tree of these queues ended; without pending gangs it means nothing."""
        known = [name for name in queues if name in self.queues]
        if any(self.queues[name].shapes for name in known):
            self.ended.update(known)

    def note_ends(self, now: float) -> None:
        """A cycle begins: gangs that ended before it count from now on."""
        for name in self.ended:
            if name in self.queues:
                self.queues[name].ended_at = now
        self.ended.clear()

    def may_hold(self, entry: QueueEntry, now: float) -> bool:
        """Whether a gang that would preempt waits for others to end instead."""
        queue = self.queues.get(entry.queue)
        if queue is None or entry.state is not QueueEntryState.PENDING:
            return False
        return now < queue.ended_at + HOLD_SECONDS and now < min(entry.held_at, now) + HOLD_MAX

    def drop_unused(self, queues: Container[str]) -> None:
        """Drop the pending queues of deleted queues that no gang belongs to."""
        gone = [name for name in self.queues if name not in queues]
        named = {entry.queue for entry in self.entries.values()} if gone else set()
        for name in gone:
            if name not in named:
                for group in self.queues.pop(name).shapes.values():
                    self.pending.forget(group)

    def is_ready(self) -> bool:
        """Whether any gang is to be tried."""
        return any(queue.is_ready() for queue in self.queues.values())

    def touch(self, queue: str) -> str:
        """A gang enters or leaves the queue: another one may be first now."""
        if queue in self.queues:
            self.queues[queue].idle = False
        return queue

    def move(self, entry: QueueEntry, place: QueueEntryState, due: float = NEVER) -> None:
        """Change the state of an entry."""
        self.touch(entry.queue)
        entry.state = place
        entry.alone = entry.alone and place is QueueEntryState.PENDING
        entry.held_at = NEVER if place is QueueEntryState.ADMITTING else entry.held_at
        self.pending.move(entry, due)
        if place is QueueEntryState.PLACING:
            self.placing[entry.queued_gang.gang.source] = entry
        else:
            self.placing.pop(entry.queued_gang.gang.source, None)
        if place is QueueEntryState.PENDING:
            self.queue(entry.queue).add(entry)

    def back_off(self, entry: QueueEntry, place: QueueEntryState, now: float) -> None:
        """Requeue with exponential backoff."""
        entry.tries += 1
        self.move(entry, place, now + backoff(entry.tries, BACKOFF_MAX))

    def requeue(self, entry: QueueEntry, action: ReportNotAdmitted, now: float) -> bool:
        """Requeue a gang that was not admitted. Returns whether the next cycle can end differently."""
        queue, remark = self.queue(entry.queue), action.rejection.remark
        if entry.searched_at != queue.wakings:
            entry.searched = []
        resumed = any(index >= 0 for part in entry.progress for index in part.values())
        entry.progress, entry.searched_at = tuple(action.progress), queue.wakings
        self.contended = self.contended or action.contended
        if entry.state is QueueEntryState.PENDING and action.rejection.reason not in _OWN_REASONS:
            queue.report(entry, action.rejection.reason)
        match action.requeue:
            case Requeue.AFTER_DELAY if entry.state is QueueEntryState.PENDING:
                self.clear_sticky(entry.queue, entry)
                self.back_off(entry, QueueEntryState.BACKOFF, now)
                return True
            case Requeue.AFTER_DELAY:
                entry.tries += entry.due > 0  # attempts caused by an event do not count
                self.move(entry, QueueEntryState.PLACING, now + action.delay)
            case Requeue.ON_EVENT:
                self.clear_sticky(entry.queue, entry)
                # With fewer pods, or with flavors tried earlier, quota may suffice and capacity may not.
                fewer = any(p.minimum < p.count for p in action.queued_gang.gang.root.pod_sets())
                only_quota = action.rejection.only_quota_helps() and not (fewer or resumed)
                is_new = queue.reject(entry, _QUOTA_EVENT if only_quota else _ANY_EVENT)
                if remark in _MAY_NOT_ENTER and entry.class_key in queue.shapes:
                    queue.shapes[entry.class_key].ineligible = True
                return is_new
            case Requeue.AT_ONCE if remark in (
                AdmissionRemark.PREEMPTING,
                AdmissionRemark.SAME_VICTIMS_WILL_FIT,
                AdmissionRemark.OTHERS_ENDING,
            ):
                self._set_sticky(queue, entry)
                if remark is AdmissionRemark.OTHERS_ENDING:
                    entry.held_at = min(entry.held_at, now)
                    self.pending.postpone(entry, min(queue.ended_at + HOLD_SECONDS, entry.held_at + HOLD_MAX))
                return queue.reject(entry)  # until the victims are gone, or others have ended
            case Requeue.AT_ONCE if entry.progress in entry.searched:  # every flavor was tried
                self.clear_sticky(entry.queue, entry)
                return queue.reject(entry)
            case Requeue.AT_ONCE if any(at >= 0 for part in action.progress for at in part.values()):
                entry.searched.append(entry.progress)
                return True
        return False

    def note_overtaken(self, entry: QueueEntry, seen: int) -> bool:
        """Other gangs of the cycle came first. Returns whether the shape is newly rejected.

        If that already happened in this generation, another cycle would end the same way.
        """
        before, entry.overtaken = entry.overtaken, seen
        return before == seen and self.queue(entry.queue).reject(entry)

    def retry_placements(self, concerns: Callable[[QueueEntry], bool]) -> None:
        """Retry gangs that wait for a placement: something changed that may help them."""
        for entry in list(self.placing.values()):
            if entry.due > 0 and concerns(entry):
                self.move(entry, QueueEntryState.PLACING, 0.0)

    def wake(self, queue: str, event: WakeupEvent = WakeupEvent.QUOTA_FREED) -> None:
        """Try rejected gangs of a queue again that an event may help; more quota may help all of them."""
        if queue in self.queues:
            self.queues[queue].wake(event)

    def clear_sticky(self, queue: str, entry: QueueEntry) -> bool:
        """No victims are terminating for a gang any more. Returns whether there were any."""
        known = self.queues.get(queue)
        if known is None or entry not in known.sticky:
            return False
        known.sticky.remove(entry)
        known.idle = False
        if entry.alone:
            entry.alone = False
            if entry.state is QueueEntryState.PENDING:
                self.move(entry, QueueEntryState.PENDING)
        return True

    def _set_sticky(self, queue: AdmissionQueue, entry: QueueEntry) -> None:
        """Victims are terminating for a gang: others of its shape need not wait for that."""
        if entry in queue.sticky:
            return
        queue.sticky.append(entry)
        if (group := queue.shapes.get(entry.class_key)) is not None:
            group.unreported.pop(entry.queued_gang.gang.source, None)
        entry.alone = True
        self.move(entry, QueueEntryState.PENDING)
