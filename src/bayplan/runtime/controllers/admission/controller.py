"""The admission controller: quota and placement for queued gangs, and the statuses that show them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from bayplan.dialects.api import Ended, Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.registry import (
    ADMISSION_KINDS,
    NO_TRANSFORMATIONS,
    AdmissionDialects,
    Counting,
    PodSpecCache,
)
from bayplan.model.assignment import Path
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.numa import NumaStalenessPolicy
from bayplan.model.plan import Action, Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.profile import Profile
from bayplan.model.rejection import RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.controllers.admission.equivalents import rejection_of_equivalents
from bayplan.runtime.controllers.admission.faults import rejection_for_fault
from bayplan.runtime.controllers.admission.promised_nodes import PromisedNodes
from bayplan.runtime.controllers.admission.queue_status import QueueStatusWriter, Watcher
from bayplan.runtime.controllers.admission.report_pace import ReportPace
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.controller import NOTHING_UNREAD, DecisionFault, Settled, UnreadObjects
from bayplan.runtime.core.object_cache import Key, Object, ObjectCache, version_of
from bayplan.runtime.core.reconciler import Reconciler
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.queues import QueueEntry, QueueEntryState
from bayplan.state.admission.snapshot import AdmissionSnapshot
from bayplan.state.admission.state import AdmissionState
from bayplan.state.cluster.device_state import DeviceState
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.pending_queue import NEVER
from bayplan.state.reports.in_flight import admissions_in_flight
from bayplan.state.reports.queries import holders

Shown = Admit | EvictGang | ReportNotAdmitted
HOLDERS_MAX = 5
PLACES_LACK = (
    RejectionReason.NO_PLACE,
    RejectionReason.NO_QUOTA_NOW,
)  # reasons of a gang that may lack a placement; the second one if it would have to preempt
RETRY_SECONDS = 5.0  # after a failed write, unless the object changes before
ADMITTING_MAX = 32
"""Admissions whose writes may be in flight, give or take one cycle.

More would only wait for the API server. What is decided later is decided on what has arrived and ended since:
gangs of higher priority go first instead of preempting what was not written yet.
"""
# between two updates of one reason whose wording changed: figures change with every cycle
REPEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StatusWriteTag:
    """The tag of a write that reconciles a Workload's status."""

    key: Key
    status: Object


@dataclass(frozen=True, slots=True)
class DeactivationWriteTag:
    """The tag of a write that deactivates a Workload."""

    key: Key


Written = Shown | StatusWriteTag | DeactivationWriteTag


@dataclass(slots=True)
class WorkloadWrite:
    """A write in flight: the Workload before it, and the next status to write."""

    before: Object
    status: Object | None = None  # the status being written, if nothing follows from it
    waiting: deque[Shown] = field(default_factory=deque)


class AdmissionController:
    """Decides on Workloads. Writes to one Workload are serialized."""

    name = "admission"
    kinds: tuple[Kind, ...] = ADMISSION_KINDS
    has_state = True
    containment: Containment = UNCONTAINED
    unread: UnreadObjects = NOTHING_UNREAD

    def __init__(
        self, profile: Profile | None = None, counting: Counting = NO_TRANSFORMATIONS,
        watch: Watcher | None = None,
        numa_policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY, *, tells: bool = False, shadow: bool = False,
        cluster: ClusterState | None = None,
    ) -> None:  # fmt: skip
        self.profile = profile or Profile()
        cluster = cluster or ClusterState()
        # in shadow mode nothing is written, and waiting for a finalizer would never end
        self.dialects = AdmissionDialects(
            counting, protects=not shadow, binding_filters=self.profile.binding_filters,
            pod_specs=cluster.only(PodSpecCache), detailed_reasons=self.profile.detailed_reasons,
        )  # fmt: skip
        self.kinds = self.dialects.kinds
        self.dialect = self.dialects.queues
        select = self.dialects.devices.objects.selectors.select
        self.state = AdmissionState(numa_policy, cluster, partial(DeviceState, select))
        self.promised_nodes = PromisedNodes(self.dialect.assumed_pod)
        self.tells = tells  # whether to publish malformed NUMA reports: no other controller does
        self.queue_status = QueueStatusWriter(self.dialect, fair=self.profile.fair_sharing, watch=watch)
        self.cache = ObjectCache(self.dialect.gangs)
        self.workloads = self.cache.of(self.dialect.gangs)
        self.reconciler: Reconciler[Key, WorkloadWrite] = Reconciler(
            lambda key: (self.dialect.gangs.kind, "/".join(key))
        )
        self.pending_reports: dict[
            Key, ReportNotAdmitted
        ] = {}  # reasons that could not be written yet, or were updated a moment ago
        self.reported_at: dict[Key, float] = {}  # when a reason was last written
        self.report_pace = ReportPace()
        self.admitting: set[Ref] = set()  # admissions whose writes have not ended
        self.domain_holders: dict[tuple[str, Path], list[str]] = {}  # gangs in a domain, as of the last plan
        self.unwritten: list[Action] = []

    def decode(self, event: Event) -> Iterator[Change]:
        if event.kind == self.dialect.gangs:
            self._note(event)
        else:
            self.queue_status.note(event)
            self.reconciler.queue.put_all(self.dialect.concerned(event, self.workloads))
        if event.kind == PODS_KIND and (promised := self.promised_nodes.seen(event)) is not None:
            return promised
        return self.dialects.decode(event)

    def decode_usage(self, event: Event) -> Iterable[Change]:
        """An admitted Workload holds its quota, also if the rest of it cannot be decoded."""
        return self.dialect.decode_usage(event)

    def peer_changes(self, plan: Plan) -> Iterator[Change]:
        """Pods that are being bound, or nominated, use their nodes from now on."""
        return self.promised_nodes.decided(plan)

    def peer_outcome(self, settled: Settled) -> Iterator[Change]:
        """A pod that was not bound uses nothing."""
        return self.promised_nodes.ended(settled)

    def flush(self) -> Iterable[Change]:
        return self.dialects.flush()

    def apply(self, changes: Iterable[Change]) -> None:
        self.state.apply_all(changes)

    def prepare(self) -> None:
        self.state.usage.prepare()

    def snapshot(self, now: float) -> AdmissionSnapshot | None:
        heads = self.state.heads(
            now, partial(self._set_aside, now), self._is_unread, only_placing=self._is_full()
        )
        return self.state.snapshot(heads) if heads else None

    def _is_full(self) -> bool:
        """Whether as many admissions are being written as may be; one that the API shows has been."""
        self.admitting &= self.state.assumed.keys()
        return len(self.admitting) >= ADMITTING_MAX

    def _is_unread(self, ref: Ref) -> bool:
        return (ref.kind, ref.namespace, ref.name) in self.unread

    def _set_aside(self, now: float, entry: QueueEntry, error: Exception) -> None:
        """Requeue a gang that cannot be put into a snapshot, with a growing backoff."""
        ref = entry.queued_gang.gang.source
        self.containment.failed(error, "look", ref.kind, f"{ref.namespace}/{ref.name}")
        place = QueueEntryState.BACKOFF if entry.state is QueueEntryState.PENDING else entry.state
        self.state.pending.back_off(entry, place, now)

    def decide(self, view: AdmissionSnapshot, now: float, watchdog: Watchdog | None = None) -> Plan:
        return decide_admissions(view, self.profile, now, watchdog)

    def budget(self, view: AdmissionSnapshot) -> float:
        return self.profile.decision_seconds

    def candidates(self, view: AdmissionSnapshot) -> tuple[Ref, ...]:
        return tuple(head.queued_gang.gang.source for head in view.heads)

    def restricted_to(self, view: AdmissionSnapshot, gangs: Collection[Ref]) -> AdmissionSnapshot:
        """With its own copy of the quota tree: a failed decision has changed that of the snapshot."""
        heads = tuple(head for head in view.heads if head.queued_gang.gang.source in gangs)
        return replace(view, heads=heads, quota_tree=self.state.usage.quota_tree().copy())

    def rejection(self, view: AdmissionSnapshot, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        return rejection_for_fault(view, gang, fault)

    def is_intact(self) -> bool:
        return True  # decisions only change copies

    def plan_in_flight(self) -> Plan:
        return admissions_in_flight(self.state)

    def assume(self, plan: Plan, now: float) -> None:
        self.state.assume(plan, now)
        self.admitting.update(action.gang for action in plan.actions if isinstance(action, Admit))

    def encode(self, plan: Plan, now: float) -> Iterator[Write]:
        self.domain_holders.clear()
        for action in plan.actions:
            if isinstance(action, Shown):
                writes, done = self._contained("encode", _key(action.gang), self._show(action, now))
                yield from writes
                if not done:
                    self.unwritten.append(action)

    def take_unwritten(self) -> list[Action]:
        unwritten, self.unwritten = self.unwritten, []
        return unwritten

    def reconcile(self, now: float) -> Iterator[Write]:
        """Statuses that follow from what other controllers wrote."""
        reports = self.containment.attempt(self.dialects.reconcile(now), "reconcile", self.name)[0]
        yield from reports if self.tells else ()  # else the scheduler publishes them
        yield from self.reconciler.run(self._reconcile, now, self.containment)
        for action in self.report_pace.due(now, admitting=bool(self.admitting)):
            key = _key(action.gang)
            work = self._show(action, now, held=True) if self._is_pending(action) else ()
            writes, _ = self._contained("encode", key, work)
            if not writes:
                self.report_pace.ended(key)
            yield from writes
        admitting = bool(self.admitting)
        yield from self.queue_status.writes(self.state, now, self.containment, admitting=admitting)

    def _contained(self, where: str, key: Key, work: Iterable[Write]) -> tuple[list[Write], bool]:
        return self.containment.attempt(work, where, *self.reconciler.describe(key))

    def settle(self, settled: Settled, now: float) -> None:
        if isinstance(settled.action, Admit):
            self.admitting.discard(settled.action.gang)
        match settled.action:
            case _ if settled.ended is Ended.DONE:
                return  # the watch reports the result
            case Admit() as action if settled.ended is not Ended.TIMED_OUT:  # else the assumption expires
                self.state.admission_failed(action.gang, now)
            case EvictGang() as action:
                self.state.eviction_failed(action.gang)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """Publish the events of a write, and write what waited for it."""
        self.queue_status.ended(outcome, now)
        tag = outcome.write.tag
        if not isinstance(tag, Written):
            return
        key = _key(tag.gang) if isinstance(tag, Shown) else tag.key
        if isinstance(tag, ReportNotAdmitted):
            self.report_pace.ended(key)
        ended = self.reconciler.ended(key, now, RETRY_SECONDS, refused=outcome.ended is Ended.REFUSED)
        if ended is None:
            return
        sent = ended.note
        if outcome.ended is Ended.DONE:
            yield from self._contained("tell", key, self._announced(tag, sent, now))[0]
            self.cache.take_answer(self.dialect.gangs, outcome.object)
            if sent.status is None:  # more may follow from it, and its watch event will be no change
                self.reconciler.queue.put(key)
        elif outcome.ended is not Ended.GONE and not isinstance(tag, Admit | EvictGang):
            self.reconciler.queue.put_early(key, now + ended.pause)
            if isinstance(tag, ReportNotAdmitted):
                self.pending_reports[key] = tag
        while sent.waiting and key not in self.reconciler.in_flight:
            yield from self._contained("encode", key, self._show(sent.waiting.popleft(), now))[0]
        if sent.waiting:
            self.reconciler.in_flight[key].note.waiting = sent.waiting

    def next_due(self, now: float) -> float:
        return min(
            self.reconciler.next_due(),
            self.state.next_due(now, only_placing=self._is_full()),
            self.report_pace.next_due(now, admitting=bool(self.admitting)),
            self.queue_status.next_due(self.state),
        )

    def _note(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            return
        key, before, after = self.cache.note(event)
        if after is None:
            self.reconciler.queue.drop(key)
            self.pending_reports.pop(key, None)
            self.report_pace.drop(key)
            self.reported_at.pop(key, None)
            return
        writes = self.reconciler.in_flight.get(key)
        if writes is not None and after.get("status") == writes.note.status:
            return  # our own write, seen before its response
        if before is None or version_of(before) != version_of(after) or not version_of(before):
            self.reconciler.queue.put(key)

    def _reconcile(self, key: Key, now: float) -> Iterator[Write]:
        """Write what a Workload lacks: a pending reason, its reconciled status, its deactivation."""
        owed, workload = self.pending_reports.pop(key, None), self.workloads.get(key)
        if workload is None:
            return
        owed = owed if owed is not None and self._is_pending(owed) else None
        if (until := self.dialect.requeue_at(workload)) > now:
            self.reconciler.queue.put_early(key, until)
        config, tag = self.state.config, DeactivationWriteTag(key)
        status = self.dialect.status_due(workload, config.queues, config.namespace_queues, now)
        if status is not None:
            if owed is not None:
                self.pending_reports[key] = owed  # to be written next
            write = self.dialect.status_write(workload, status, StatusWriteTag(key, status))
            yield self._sent(key, write, WorkloadWrite(workload))
        elif (deactivation := self.dialect.deactivation(workload, tag)) is not None:
            yield self._sent(key, deactivation, WorkloadWrite(workload))
        elif report := owed or rejection_of_equivalents(workload, self.state.pending, self.dialect):
            yield from self._show(report, now)

    def _is_pending(self, report: ReportNotAdmitted) -> bool:
        entry = self.state.pending.entries.get(report.gang)
        return entry is not None and entry.state is QueueEntryState.PENDING

    def _levels(self) -> set[str]:
        clusters = self.state.usage.topologies.values()
        return {level for cluster in clusters for level in cluster.topology.levels}

    def _holders(self, action: Shown) -> list[str]:
        """The gangs in the domain that a rejected gang nearly fits."""
        if not isinstance(action, ReportNotAdmitted):
            return []
        near = action.rejection.near_miss() if action.rejection.reason in PLACES_LACK else None
        cluster = None if near is None else self.state.usage.topologies.get(near[0])
        if near is None or cluster is None:
            return []
        key = (near[0], near[1].domain)
        if key not in self.domain_holders:
            found = holders(self.state, cluster.snapshot(), near[1].domain)[:HOLDERS_MAX]
            self.domain_holders[key] = [f"{holder.gang.namespace}/{holder.gang.name}" for holder in found]
        return self.domain_holders[key]

    def _show(self, action: Shown, now: float, *, held: bool = False) -> Iterator[Write]:
        key = _key(action.gang)
        self.pending_reports.pop(key, None)  # it is older
        if not isinstance(action, ReportNotAdmitted):
            self.report_pace.drop(key)
        if key in self.reconciler.in_flight:
            self.reconciler.in_flight[key].note.waiting.append(action)
            return
        workload = self.workloads.get(key)
        if workload is None or workload["metadata"].get("uid", "") != action.queued_gang.gang.uid:
            return
        holders = partial(self._holders, action)
        status = self.dialect.status_after(action, workload, now, holders, self._levels)
        if status is not None and isinstance(action, ReportNotAdmitted):
            again_at = self.reported_at.get(key, -NEVER) + REPEAT_SECONDS
            if self.dialect.is_reworded(workload, status) and now < again_at:
                self.pending_reports[key] = action
                self.reconciler.queue.put_early(key, again_at)
                return
            admitting = bool(self.admitting)
            if not held and not self.report_pace.may_write(key, action, now, admitting=admitting):
                return
            self.reported_at[key] = now
        if status is not None:
            sent = WorkloadWrite(workload, None if isinstance(action, EvictGang) else status)
            yield self._sent(key, self.dialect.status_write(workload, status, action), sent)
        elif isinstance(action, ReportNotAdmitted):
            yield from self.dialect.action_events(action, workload, now)

    def _announced(self, tag: Written, sent: WorkloadWrite, now: float) -> Iterator[Write]:
        """The events about a completed write."""
        match tag:
            case StatusWriteTag(_, status):
                return self.dialect.status_events(sent.before, status, now)
            case DeactivationWriteTag():
                return iter(())
            case _:
                return self.dialect.action_events(tag, sent.before, now, sent.status)

    def _sent(self, key: Key, write: Write, sent: WorkloadWrite) -> Write:
        """A write to a Workload, counted as in flight once it could be encoded."""
        self.reconciler.begin(key, sent)
        return write


def _key(ref: Ref) -> Key:
    return (ref.namespace, ref.name)
