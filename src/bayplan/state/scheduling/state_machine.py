"""The state machine of gangs in the scheduling queue, recomputed from the store on demand."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from bayplan.model.gang import Ref
from bayplan.model.plan import ReportUnschedulable
from bayplan.model.pod import PodKey
from bayplan.model.scheduling_rejection import RejectionReason, SchedulingRejection
from bayplan.state.scheduling.gang_state import GangState, had_minimum, hindrance
from bayplan.state.scheduling.queue import (
    DELAYED_EVENTS,
    NEVER,
    EntryState,
    SchedulingEntry,
    SchedulingQueue,
    WakeupEvent,
)
from bayplan.state.scheduling.store import SchedulingStore
from bayplan.state.scheduling.wakeups import CAPACITY_EVENTS, wakeups_for

ASSUMED_SECONDS = 30.0  # how long an assumed bind may stay unconfirmed
FLUSH_SECONDS = 300.0  # unschedulable gangs are retried after that without any event
PREEMPTION_SECONDS = 60.0  # how long victims may take to terminate before the gang is retried
LARGE_GANG = 100  # gangs of this size are not retried for every pod that ends
REPORT_SECONDS = 1.0  # pods and specs that belong together arrive within this time
REPORT_AGAIN_SECONDS = 10.0  # minimum interval between reports of changing numbers


class GangStateMachine:
    """Computes the state of each gang in the scheduling queue for the gangs that changes touched.

    One gang at a time may have a backfill reservation of nodes (`kept`).
    """

    def __init__(self, store: SchedulingStore, heal_seconds: float = 60.0) -> None:
        self.store, self.notes, self.heal_seconds = store, store.notes, heal_seconds
        self.queue = SchedulingQueue()
        self.kept: tuple[Ref, frozenset[str]] | None = None
        self.partial: dict[Ref, float] = {}  # partially bound gangs, since when; oldest first
        self.doubted: dict[PodKey, float] = {}  # preemptions with unknown result, until when
        self.heard: dict[WakeupEvent, int] = dict.fromkeys(WakeupEvent, 0)  # event counts
        self.settled = -NEVER  # when a bind last ended
        self._now = 0.0

    # ── whose turn it is ───────────────────────────────────────────────────────────────────────────

    def heads(self, now: float) -> list[Ref]:
        """The gangs to decide on, best first. Without a change in between, the answer is the same."""
        if self.store.zones.checks:
            self.notes.event(WakeupEvent.NUMA_CHANGED, self.store.zones.catch_up(now))
        self._flush(now)
        for entry in self.queue.expired(now):
            self._expired(entry, now)
        for key in [key for key, due in self.doubted.items() if due <= now]:
            del self.doubted[key]
            if key in self.store.pods and not self.store.pods[key].leaving:
                self.store.assume_not_preempted(key)
        self._flush(now)
        for ref, since in list(self.partial.items()):
            if since + self.heal_seconds > now:
                break
            entry = self.queue.entries[ref]
            if entry.place is not EntryState.READY and not self._is_busy(entry):
                self.queue.move(entry, EntryState.READY)
        return self.queue.heads()

    def next_due(self, now: float) -> float:
        """When the next action is due without any event."""
        self._flush(now)
        entries = self.queue.entries
        stale = (since for ref, since in self.partial.items() if not self._is_busy(entries[ref]))
        doubted = min(self.doubted.values(), default=NEVER)
        healed = min(stale, default=NEVER) + self.heal_seconds
        return max(min(self.queue.next_due(now), healed, doubted, self.store.zones.next_due()), now)

    def _is_busy(self, entry: SchedulingEntry) -> bool:
        """Whether binds are in flight, or a repair is in progress."""
        waits = (
            entry.place in (EntryState.MAKING_ROOM, EntryState.BACKOFF)
            and not self.store.crews[entry.ref].spent
        )
        return entry.place is EntryState.COMMITTED or (waits and self.can_repair(entry.ref))

    def can_repair(self, ref: Ref) -> bool:
        """Whether a started gang below its minimum has all the pods it needs to be repaired."""
        crew = self.store.crews[ref]
        return crew.begun and crew.is_below_minimum and bool(crew.waiting) and hindrance(crew) is None

    def place_of(self, ref: Ref) -> EntryState | None:
        """The state of a gang in the queue; None if it is unknown, or a single pod that runs."""
        self._flush(self._now)
        entry = self.queue.entries.get(ref)
        return None if entry is None else entry.place

    def entries(self) -> Iterator[SchedulingEntry]:
        """All gangs in the queue."""
        self._flush(self._now)
        yield from self.queue.entries.values()

    # ── standing in line ───────────────────────────────────────────────────────────────────────────

    def _flush(self, now: float) -> None:
        """Recompute the touched gangs, and wake gangs that the noted events may help."""
        if not self._now:  # first call with a real time
            self.partial = dict.fromkeys(self.partial, now)
        self._now = now
        touched = self.notes.take_touched()
        begun = 0
        try:
            for ref, own in touched:
                begun += 1
                self._stand(ref, own, now)
        finally:  # if one gang fails, the others are recomputed by the next call
            for ref, own in touched[begun:]:
                self.notes.mark(ref, own)
        self.notes.event(WakeupEvent.USAGE_GROWN, self.store.fair.shares_exceeded())
        hints = self.notes.take_events()
        if hints:
            for hint in hints:
                self.heard[hint] += 1
            self.queue.wake(hints, now)

    def _stand(self, ref: Ref, own: bool, now: float) -> None:
        crew = self.store.crews.get(ref)
        if crew is None:
            return
        over = not crew.waiting if crew.lone else crew.charter is None and not crew.parts
        if over and not crew.out:
            self._forget(crew)
            return
        entry = self.queue.put(ref, lone=crew.lone)
        if crew.out:
            if (
                entry.place is not EntryState.COMMITTED
            ):  # pods moved here from another gang during their binds
                self.queue.mark_binding(entry, now + ASSUMED_SECONDS)
            return
        committed = entry.place is EntryState.COMMITTED
        self._note_partial(crew, now)
        if not crew.waiting:
            self._release(ref)
            crew.told = crew.noted = None
            self.queue.move(entry, EntryState.RUNNING if crew.standing else EntryState.INCOMPLETE)
            if crew.is_unrecorded:
                self.queue.telling[ref] = None
            return
        why = hindrance(crew)
        if why is not None:
            self._hold_back(crew, entry, why, now)
        elif committed:
            self._after_binding(crew, entry, now)
        elif entry.place is EntryState.MAKING_ROOM and not own and crew.victims:
            self.queue.postpone(entry, min(entry.due, now + 1.0))
        elif entry.place is EntryState.READY:
            if self._rank(crew, entry):
                self.queue.renew(entry)
        elif entry.place is not EntryState.BACKOFF and (own or entry.place is not EntryState.PARKED):
            self._rank(crew, entry)
            self.queue.move(entry, EntryState.READY)

    def _forget(self, crew: GangState) -> None:
        self._release(crew.ref)
        self.queue.drop(crew.ref)
        self.partial.pop(crew.ref, None)
        self.store.forget(crew.ref)

    def _hold_back(
        self, crew: GangState, entry: SchedulingEntry, why: SchedulingRejection, now: float
    ) -> None:
        """A blocked gang is not tried; its reason is reported once the facts have settled."""
        self._release(crew.ref)
        heard = why == crew.noted and crew.newest <= crew.blocker_for  # reported for all pods
        if heard and not self._is_promised_room(crew):
            due = NEVER
        elif entry.place is EntryState.INCOMPLETE and (entry.due < NEVER or crew.ref in self.queue.telling):
            return  # a report is scheduled already
        else:
            due = max(now + REPORT_SECONDS, crew.blocker_at + REPORT_AGAIN_SECONDS)
        self.queue.move(entry, EntryState.INCOMPLETE, due)

    def _is_promised_room(self, crew: GangState) -> bool:
        """Whether other gangs respect nominations that it got when it could be tried."""
        return bool(self.store.nominations) and any(key in self.store.nominations for key in crew.waiting)

    def _after_binding(self, crew: GangState, entry: SchedulingEntry, now: float) -> None:
        """All binds of the cycle ended, and pods are still pending."""
        trouble, fresh, left = crew.trouble, crew.fresh, crew.left
        crew.trouble, crew.fresh, crew.left = None, False, None
        self._rank(crew, entry)
        if trouble is not None:
            self.queue.back_off(entry, trouble)
        elif left is not None and not fresh and not (helped := self._helped(crew, left)) - DELAYED_EVENTS:
            self._put_off(crew, entry, left, now)
            if helped:
                self.queue.wake_soon(entry, now)
        else:
            self.queue.move(entry, EntryState.READY)

    def _helped(self, crew: GangState, left: SchedulingRejection) -> set[WakeupEvent]:
        """The events during the binds that the remaining pods wait for."""
        making_room = left.hindrance is RejectionReason.MAKING_ROOM
        hints = CAPACITY_EVENTS if making_room else _wakeups_for(crew, left)
        return {hint for hint in hints if self.heard[hint] != crew.heard.get(hint)}

    def _rank(self, crew: GangState, entry: SchedulingEntry) -> bool:
        """Update the rank of an entry. Returns whether it changed."""
        before = entry.rank, entry.queue
        waiting, charter = self.store.waiting(crew.ref), crew.charter
        entry.size = len(waiting)
        entry.queue = charter.queue if charter is not None else ""
        if waiting and charter is not None:
            highest = max(pod.wants.priority for pod in waiting)
            entry.priority = highest if charter.priority is None else charter.priority
            entry.since = max(charter.created, min(pod.created for pod in waiting))
            entry.seen = min(crew.seen[pod.key] for pod in waiting)
        return (entry.rank, entry.queue) != before

    def _note_partial(self, crew: GangState, now: float) -> None:
        if crew.charter is not None and crew.charter.started and not crew.broken:
            crew.begun = True
        in_part = not crew.lone and (crew.is_partial or crew.is_below_minimum)
        in_part = in_part and any(key in self.store.placed for key in crew.standing)
        if in_part and (crew.broken or self._goes(crew)):
            self.partial.setdefault(crew.ref, now)
        else:
            self.partial.pop(crew.ref, None)
            crew.spent = False

    def _goes(self, crew: GangState) -> bool:
        """Whether a partially bound gang is undone in the end: it never had its minimum, or is strict.

        A gang with succeeded pods is finishing: its missing pods do not matter.
        """
        if crew.is_below_minimum:
            return not any(self.store.pods[key].did_its_part for key in crew.standing)
        return not had_minimum(crew, self.store.pods)

    def _release(self, ref: Ref) -> None:
        """End the backfill reservation of a gang."""
        if self.kept is not None and self.kept[0] == ref:
            self.kept = None
            self.notes.event(WakeupEvent.RESERVATION_ENDED)

    def _expired(self, entry: SchedulingEntry, now: float) -> None:
        crew = self.store.crews[entry.ref]
        match entry.place:
            case EntryState.INCOMPLETE:
                self.queue.telling[entry.ref] = None
            case EntryState.PARKED:
                self.queue.wake_due(entry, now, FLUSH_SECONDS)
            case EntryState.BACKOFF | EntryState.MAKING_ROOM:
                self.queue.move(entry, EntryState.READY)
                self.notes.touch(crew, own=True)
            case EntryState.COMMITTED:
                self._doubt(crew, entry, now)

    def _doubt(self, crew: GangState, entry: SchedulingEntry, now: float) -> None:
        """The binds of a gang were not confirmed in time: they did not happen.

        As long as other binds end, unwritten ones may be queued behind them.
        """
        ends = {key: crew.unsure.get(key, self.settled) + ASSUMED_SECONDS for key in crew.out}
        for key, due in ends.items():
            if due <= now:
                self.take_back(crew, key)
        if crew.out:
            self.queue.postpone(entry, min(ends[key] for key in crew.out))
        else:
            self.notes.touch(crew, own=True)

    def take_back(self, crew: GangState, key: PodKey) -> None:
        """Undo an assumed bind that did not happen."""
        crew.out.pop(key, None)
        crew.broken = crew.broken or not crew.begun
        self.store.assume_unbound(key)

    def _put_off(self, crew: GangState, entry: SchedulingEntry, why: SchedulingRejection, now: float) -> None:
        """The attempt failed: wait for events that may help."""
        if why.hindrance is RejectionReason.MAKING_ROOM:
            self.queue.make_room(entry, CAPACITY_EVENTS, now + PREEMPTION_SECONDS)
            return
        crew.victims.clear()
        for pod in self.store.waiting(crew.ref):
            self.store.clear_nomination(pod.key)
        entry.rest = now + (entry.size / 1000 if entry.size >= LARGE_GANG else 0.0)
        due = now + FLUSH_SECONDS if why.again is None else max(min(now + FLUSH_SECONDS, why.again), now)
        self.queue.mark_unschedulable(entry, self.kind(crew), _wakeups_for(crew, why), due)

    def kind(self, crew: GangState) -> Hashable:
        """The equivalence key of an entry: single pods without a relevant difference are rejected together.

        A pod with a nomination or reservation differs: it may use capacity that the others may not.
        """
        waiting = self.store.waiting(crew.ref)
        keeps = self.kept is not None and self.kept[0] == crew.ref
        if not crew.lone or not waiting or waiting[0].key in self.store.nominations or keeps:
            return crew.ref
        wants = waiting[0].wants
        return self.store.index.signature(wants.shape), wants.priority, wants.preempts

    # ── what was decided about them ────────────────────────────────────────────────────────────────

    def decided(self, ref: Ref, refusal: ReportUnschedulable | None, now: float) -> None:
        """A plan has actions for a gang: binds, a rejection, or preemptions."""
        crew, entry = self.store.crews.get(ref), self.queue.entries.get(ref)
        if crew is None or entry is None:
            return
        if refusal is not None:
            crew.told = refusal.why
        self._keep(crew.ref, refusal)
        crew.trouble, crew.fresh = None, False
        if crew.out:
            crew.left = None if refusal is None else refusal.why
            crew.heard = {str(hint): times for hint, times in self.heard.items()}
            self.queue.mark_binding(entry, now + ASSUMED_SECONDS)
        elif refusal is not None:
            self._refused(crew, entry, refusal.why, now)
        elif crew.victims:
            self.queue.make_room(entry, CAPACITY_EVENTS, now + PREEMPTION_SECONDS)
        else:  # the plan only records its start
            self._passed_over(entry, now)

    def _keep(self, ref: Ref, refusal: ReportUnschedulable | None) -> None:
        """A backfill reservation lasts as long as each rejection renews it."""
        if refusal is None or not refusal.keeps:
            self._release(ref)
            return
        nodes = frozenset(refusal.keeps)
        if self.kept is not None and self.kept != (ref, nodes):
            self.notes.event(WakeupEvent.RESERVATION_ENDED)
        self.kept = ref, nodes

    def _refused(self, crew: GangState, entry: SchedulingEntry, why: SchedulingRejection, now: float) -> None:
        if entry.place in (EntryState.INCOMPLETE, EntryState.RUNNING):
            self.queue.move(entry, entry.place)
            self.notes.touch(crew, own=False)
        elif why.hindrance.backs_off:
            if why.hindrance is not RejectionReason.TAKEN_BACK:
                crew.victims.clear()  # no pod is preempted for it any more
            self.queue.back_off(entry, now)
        else:
            self._put_off(crew, entry, why, now)

    def _passed_over(self, entry: SchedulingEntry, now: float) -> None:
        """Nothing was decided about a gang: requeue it so that it does not block the others."""
        if entry.ref in self.queue.telling:
            self.queue.move(entry, entry.place)
        elif entry.place is EntryState.READY:
            self.queue.back_off(entry, now)

    def turn_ended(self, ref: Ref, now: float, *, acted: bool) -> None:
        """A gang was in the snapshot that a plan was made from; `acted`: the plan has actions for it."""
        if self.partial.get(ref, NEVER) + self.heal_seconds <= now:
            self._had_its_turn(ref, now)
        if not acted and (entry := self.queue.entries.get(ref)) is not None:
            self._passed_over(entry, now)

    def _had_its_turn(self, ref: Ref, now: float) -> None:
        """A gang that is still partially bound gets another turn; after a failed repair it is undone then."""
        crew, entry = self.store.crews[ref], self.queue.entries[ref]
        if not crew.spent and self.can_repair(ref):
            crew.spent = not crew.out and entry.place is not EntryState.MAKING_ROOM
            return
        del self.partial[ref]
        self.partial[ref] = now


def _wakeups_for(crew: GangState, why: SchedulingRejection) -> frozenset[WakeupEvent]:
    """The events that may help a gang; gangs of a queue are also helped by changes of shares."""
    hints = wakeups_for(why, crew.lone)
    return hints | {WakeupEvent.SHARE_CHANGED} if crew.charter is not None and crew.charter.queue else hints
