"""The state machine of gangs in the scheduling queue, recomputed from the store on demand."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from bayplan.model.gang import Ref
from bayplan.model.plan import ReportUnschedulable
from bayplan.model.pod import PodKey
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.state.pending_queue import NEVER, WakeupEvent
from bayplan.state.scheduling.gang_state import GangState, blocker_of, had_minimum
from bayplan.state.scheduling.queue import (
    DELAYED_EVENTS,
    EntryState,
    SchedulingEntry,
    SchedulingQueue,
)
from bayplan.state.scheduling.single_pod import single_pod_ref
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

    One gang at a time may have a backfill reservation of nodes (`reserved`).
    """

    def __init__(self, store: SchedulingStore, heal_seconds: float = 60.0) -> None:
        self.store, self.notes, self.heal_seconds = store, store.notes, heal_seconds
        self.queue = SchedulingQueue()
        self.reserved: tuple[Ref, frozenset[str]] | None = None
        self.partial: dict[Ref, float] = {}  # partially bound gangs, since when; oldest first
        self.unconfirmed: dict[PodKey, float] = {}  # preemptions with unknown result, until when
        self.event_counts: dict[WakeupEvent, int] = dict.fromkeys(WakeupEvent, 0)  # event counts
        self.bind_ended_at = -NEVER  # when a bind last ended
        self._now = 0.0

    # ── whose turn it is ───────────────────────────────────────────────────────────────────────────

    def heads(self, now: float) -> list[Ref]:
        """The gangs to decide on, best first. Without a change in between, the answer is the same."""
        if self.store.numa.checks:
            self.notes.event(WakeupEvent.NUMA_CHANGED, self.store.numa.catch_up(now))
        self._flush(now)
        for entry in self.queue.expired(now):
            self._expired(entry, now)
        for key in [key for key, due in self.unconfirmed.items() if due <= now]:
            del self.unconfirmed[key]
            if key in self.store.pods and not self.store.pods[key].terminating:
                self.store.assume_not_preempted(key)
        self._flush(now)
        for ref, since in list(self.partial.items()):
            if since + self.heal_seconds > now:
                break
            entry = self.queue.entries[ref]
            if entry.state is not EntryState.READY and not self._is_busy(entry):
                self.queue.move(entry, EntryState.READY)
        return self.queue.heads()

    def next_due(self, now: float) -> float:
        """When the next action is due without any event."""
        self._flush(now)
        entries = self.queue.entries
        stale = (since for ref, since in self.partial.items() if not self._is_busy(entries[ref]))
        doubted = min(self.unconfirmed.values(), default=NEVER)
        healed = min(stale, default=NEVER) + self.heal_seconds
        return max(min(self.queue.next_due(now), healed, doubted, self.store.numa.next_due()), now)

    def _is_busy(self, entry: SchedulingEntry) -> bool:
        """Whether binds are in flight, or a repair is in progress."""
        waits = (
            entry.state in (EntryState.PREEMPTING, EntryState.BACKOFF)
            and not self.store.gang_states[entry.ref].repair_failed
        )
        return entry.state is EntryState.BINDING or (waits and self.can_repair(entry.ref))

    def can_repair(self, ref: Ref) -> bool:
        """Whether a started gang below its minimum has all the pods it needs to be repaired."""
        gang = self.store.gang_states[ref]
        return gang.started and gang.is_below_minimum and bool(gang.pending) and blocker_of(gang) is None

    def state_of(self, ref: Ref) -> EntryState | None:
        """The state of a gang in the queue; None if it is unknown, or a single pod that runs."""
        self._flush(self._now)
        entry = self.queue.entries.get(ref)
        return None if entry is None else entry.state

    def entries(self) -> Iterator[SchedulingEntry]:
        """All gangs in the queue."""
        self._flush(self._now)
        yield from self.queue.entries.values()

    # ── queue entries ───────────────────────────────────────────────────────────────────────────

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
                self._recompute(ref, own, now)
        finally:  # if one gang fails, the others are recomputed by the next call
            for ref, own in touched[begun:]:
                self.notes.mark(ref, own)
        self.notes.event(WakeupEvent.USAGE_GROWN, self.store.fair.shares_exceeded())
        events = self.notes.take_events()
        if events:
            for event in events:
                self.event_counts[event] += 1
            self.queue.wake(events, now)

    def _recompute(self, ref: Ref, own: bool, now: float) -> None:
        gang = self.store.gang_states.get(ref)
        if gang is None:
            return
        over = not gang.pending if gang.single else gang.spec is None and not gang.states
        if over and not gang.binding:
            self._forget(gang)
            return
        entry = self.queue.put(ref, lone=gang.single)
        if gang.binding:
            if entry.state is not EntryState.BINDING:  # pods moved here from another gang during their binds
                self.queue.mark_binding(entry, now + ASSUMED_SECONDS)
            return
        committed = entry.state is EntryState.BINDING
        self._note_partial(gang, now)
        if not gang.pending:
            self._end_reservation(ref)
            gang.reported = gang.blocker = None
            self.queue.move(entry, EntryState.RUNNING if gang.bound else EntryState.INCOMPLETE)
            if gang.is_unrecorded:
                self.queue.to_report[ref] = None
            return
        rejection = blocker_of(gang)
        if rejection is not None:
            self._block(gang, entry, rejection, now)
        elif committed:
            self._after_binding(gang, entry, now)
        elif entry.state is EntryState.PREEMPTING and not own and gang.victims:
            self.queue.postpone(entry, min(entry.due, now + 1.0))
        elif entry.state is EntryState.READY:
            if self._update_rank(gang, entry):
                self.queue.reorder(entry)
        elif entry.state is not EntryState.BACKOFF and (own or entry.state is not EntryState.UNSCHEDULABLE):
            self._update_rank(gang, entry)
            self.queue.move(entry, EntryState.READY)

    def _forget(self, gang: GangState) -> None:
        self._end_reservation(gang.ref)
        self.queue.drop(gang.ref)
        self.partial.pop(gang.ref, None)
        self.store.forget(gang.ref)

    def _block(self, gang: GangState, entry: SchedulingEntry, rejection: Rejection, now: float) -> None:
        """A blocked gang is not tried; its reason is reported once the facts have settled."""
        self._end_reservation(gang.ref)
        heard = rejection == gang.blocker and gang.newest <= gang.blocker_for  # reported for all pods
        if heard and not self._has_nominations(gang):
            due = NEVER
        elif entry.state is EntryState.INCOMPLETE and (entry.due < NEVER or gang.ref in self.queue.to_report):
            return  # a report is scheduled already
        else:
            due = max(now + REPORT_SECONDS, gang.blocker_at + REPORT_AGAIN_SECONDS)
        self.queue.move(entry, EntryState.INCOMPLETE, due)

    def _has_nominations(self, gang: GangState) -> bool:
        """Whether other gangs respect nominations that it got when it could be tried."""
        return bool(self.store.nominations) and any(key in self.store.nominations for key in gang.pending)

    def _after_binding(self, gang: GangState, entry: SchedulingEntry, now: float) -> None:
        """All binds of the cycle ended, and pods are still pending."""
        trouble, fresh, remaining = gang.bind_failed_at, gang.changed, gang.remaining
        gang.bind_failed_at, gang.changed, gang.remaining = None, False, None
        self._update_rank(gang, entry)
        if trouble is not None:
            self.queue.back_off(entry, trouble)
        elif (
            remaining is not None
            and not fresh
            and not (helped := self._events_during_binds(gang, remaining)) - DELAYED_EVENTS
        ):
            self._wait_for_events(gang, entry, remaining, now)
            if helped:
                self.queue.wake_soon(entry, now)
        else:
            self.queue.move(entry, EntryState.READY)

    def _events_during_binds(self, gang: GangState, remaining: Rejection) -> set[WakeupEvent]:
        """The events during the binds that the remaining pods wait for."""
        making_room = remaining.reason is RejectionReason.PREEMPTING
        events = CAPACITY_EVENTS if making_room else _wakeups_for(gang, remaining)
        return {event for event in events if self.event_counts[event] != gang.event_counts.get(event)}

    def _update_rank(self, gang: GangState, entry: SchedulingEntry) -> bool:
        """Update the rank of an entry. Returns whether it changed."""
        before = entry.rank, entry.queue
        waiting, spec = self.store.pending(gang.ref), gang.spec
        entry.size = len(waiting)
        entry.queue = spec.queue if spec is not None else ""
        if waiting and spec is not None:
            highest = max(pod.spec.priority for pod in waiting)
            entry.priority = highest if spec.priority is None else spec.priority
            entry.since = max(spec.created, min(pod.created for pod in waiting))
            entry.arrival = min(gang.seen[pod.key] for pod in waiting)
        return (entry.rank, entry.queue) != before

    def _note_partial(self, gang: GangState, now: float) -> None:
        if gang.spec is not None and gang.spec.started and not gang.bind_broken:
            gang.started = True
        in_part = not gang.single and (gang.is_partial or gang.is_below_minimum)
        in_part = in_part and any(key in self.store.placed for key in gang.bound)
        if in_part and (gang.bind_broken or self._is_undone(gang)):
            self.partial.setdefault(gang.ref, now)
        else:
            self.partial.pop(gang.ref, None)
            gang.repair_failed = False

    def _is_undone(self, gang: GangState) -> bool:
        """Whether a partially bound gang is undone in the end: it never had its minimum, or is strict.

        A gang with succeeded pods is finishing: its missing pods do not matter.
        """
        if gang.is_below_minimum:
            return not any(self.store.pods[key].done for key in gang.bound)
        return not had_minimum(gang, self.store.pods)

    def _end_reservation(self, ref: Ref) -> None:
        """End the backfill reservation of a gang."""
        if self.reserved is not None and self.reserved[0] == ref:
            self.reserved = None
            self.notes.event(WakeupEvent.RESERVATION_ENDED)

    def _expired(self, entry: SchedulingEntry, now: float) -> None:
        gang = self.store.gang_states[entry.ref]
        match entry.state:
            case EntryState.INCOMPLETE:
                self.queue.to_report[entry.ref] = None
            case EntryState.UNSCHEDULABLE:
                self.queue.wake_due(entry, now, FLUSH_SECONDS)
            case EntryState.BACKOFF | EntryState.PREEMPTING:
                self.queue.move(entry, EntryState.READY)
                self.notes.touch(gang, own=True)
            case EntryState.BINDING:
                self._expire_binds(gang, entry, now)

    def _expire_binds(self, gang: GangState, entry: SchedulingEntry, now: float) -> None:
        """The binds of a gang were not confirmed in time: they did not happen.

        As long as other binds end, unwritten ones may be queued behind them.
        """
        ends = {key: gang.unconfirmed.get(key, self.bind_ended_at) + ASSUMED_SECONDS for key in gang.binding}
        for key, due in ends.items():
            if due <= now:
                self.undo_bind(gang, key)
        if gang.binding:
            self.queue.postpone(entry, min(ends[key] for key in gang.binding))
        else:
            self.notes.touch(gang, own=True)

    def node_lost(self, name: str) -> None:
        """Unconfirmed binds to a node that is gone count as undone; the API refuses a second bind."""
        store = self.store
        for key in [key for key, node in store.assumed.items() if node == name]:
            gang = store.gang_states.get(store.pods[key].gang or single_pod_ref(key))
            if gang is not None and key in gang.unconfirmed:
                self.undo_bind(gang, key)
                store.notes.touch(gang, own=True)

    def undo_bind(self, gang: GangState, key: PodKey) -> None:
        """Undo an assumed bind that did not happen."""
        gang.binding.pop(key, None)
        gang.bind_broken = gang.bind_broken or not gang.started
        self.store.assume_unbound(key)

    def _wait_for_events(
        self, gang: GangState, entry: SchedulingEntry, rejection: Rejection, now: float
    ) -> None:
        """The attempt failed: wait for events that may help."""
        if rejection.reason is RejectionReason.PREEMPTING:
            self.queue.mark_preempting(entry, CAPACITY_EVENTS, now + PREEMPTION_SECONDS)
            return
        gang.victims.clear()
        for pod in self.store.pending(gang.ref):
            self.store.clear_nomination(pod.key)
        entry.not_before = now + (entry.size / 1000 if entry.size >= LARGE_GANG else 0.0)
        due = (
            now + FLUSH_SECONDS
            if rejection.retry_at is None
            else max(min(now + FLUSH_SECONDS, rejection.retry_at), now)
        )
        self.queue.mark_unschedulable(entry, self.equivalence_key(gang), _wakeups_for(gang, rejection), due)

    def equivalence_key(self, gang: GangState) -> Hashable:
        """The equivalence key of an entry: single pods without a relevant difference are rejected together.

        A pod with a nomination or reservation differs: it may use capacity that the others may not.
        """
        waiting = self.store.pending(gang.ref)
        keeps = self.reserved is not None and self.reserved[0] == gang.ref
        differs = keeps or gang.paused_until > self._now
        if not gang.single or not waiting or waiting[0].key in self.store.nominations or differs:
            return gang.ref
        wants = waiting[0].spec
        return self.store.index.signature(wants.signature), wants.priority, wants.preempts

    # ── what was decided about them ────────────────────────────────────────────────────────────────

    def decided(self, ref: Ref, report: ReportUnschedulable | None, now: float) -> None:
        """A plan has actions for a gang: binds, a rejection, or preemptions."""
        gang, entry = self.store.gang_states.get(ref), self.queue.entries.get(ref)
        if gang is None or entry is None:
            return
        if report is not None:
            self._reported(gang, report.rejection, now)
        elif gang.binding:
            gang.reported = gang.blocker = None  # true no longer, and written again if it is once more
        self._renew_reservation(gang.ref, report)
        gang.bind_failed_at, gang.changed = None, False
        if gang.binding:
            gang.remaining = None if report is None else report.rejection
            gang.event_counts = {str(event): times for event, times in self.event_counts.items()}
            self.queue.mark_binding(entry, now + ASSUMED_SECONDS)
        elif report is not None:
            self._rejected(gang, entry, report.rejection, now)
        elif gang.victims:
            self.queue.mark_preempting(entry, CAPACITY_EVENTS, now + PREEMPTION_SECONDS)
        else:  # the plan only records its start
            self._requeue_undecided(entry, now)

    def _reported(self, gang: GangState, rejection: Rejection, now: float) -> None:
        """A rejection is written; what blocks the gang counts as reported only if it was that."""
        gang.reported = rejection
        blocker = blocker_of(gang)
        if blocker is not None:
            gang.blocker_at = now
            if rejection == blocker:
                gang.blocker, gang.blocker_for = blocker, gang.newest

    def _renew_reservation(self, ref: Ref, report: ReportUnschedulable | None) -> None:
        """A backfill reservation lasts as long as each rejection renews it."""
        if report is None or not report.reserved_nodes:
            self._end_reservation(ref)
            return
        nodes = frozenset(report.reserved_nodes)
        if self.reserved is not None and self.reserved != (ref, nodes):
            self.notes.event(WakeupEvent.RESERVATION_ENDED)
        self.reserved = ref, nodes

    def _rejected(self, gang: GangState, entry: SchedulingEntry, rejection: Rejection, now: float) -> None:
        if entry.state in (EntryState.INCOMPLETE, EntryState.RUNNING):
            self.queue.move(entry, entry.state)
            self.notes.touch(gang, own=False)
        elif rejection.reason.backs_off:
            if rejection.reason is not RejectionReason.UNDONE:
                gang.victims.clear()  # no pod is preempted for it any more
            self.queue.back_off(entry, now)
        else:
            self._wait_for_events(gang, entry, rejection, now)

    def _requeue_undecided(self, entry: SchedulingEntry, now: float) -> None:
        """Nothing was decided about a gang: requeue it so that it does not block the others."""
        if entry.ref in self.queue.to_report:
            self.queue.move(entry, entry.state, now + REPORT_AGAIN_SECONDS)
        elif entry.state is EntryState.READY:
            self.queue.back_off(entry, now)

    def turn_ended(self, ref: Ref, now: float, *, acted: bool) -> None:
        """A gang was in the snapshot that a plan was made from; `acted`: the plan has actions for it."""
        if self.partial.get(ref, NEVER) + self.heal_seconds <= now:
            self._repair_ended(ref, now)
        if not acted and (entry := self.queue.entries.get(ref)) is not None:
            self._requeue_undecided(entry, now)

    def _repair_ended(self, ref: Ref, now: float) -> None:
        """A gang that is still partially bound gets another turn; after a failed repair it is undone then."""
        gang, entry = self.store.gang_states[ref], self.queue.entries[ref]
        if not gang.repair_failed and self.can_repair(ref):
            gang.repair_failed = not gang.binding and entry.state is not EntryState.PREEMPTING
            return
        del self.partial[ref]
        self.partial[ref] = now


def _wakeups_for(gang: GangState, rejection: Rejection) -> frozenset[WakeupEvent]:
    """The events that may help a gang; gangs of a queue are also helped by changes of shares."""
    events = wakeups_for(rejection, gang.single)
    return events | {WakeupEvent.SHARE_CHANGED} if gang.spec is not None and gang.spec.queue else events
