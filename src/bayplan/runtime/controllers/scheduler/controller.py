"""The scheduler controller: decides on gangs and pods with our scheduler names, binds, publishes reasons."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bayplan.dialects.api import Ended, Event, Kind, Write, WriteOutcome
from bayplan.dialects.dialect import BoundGang, PendingReport
from bayplan.dialects.kube.devices.resolution import with_claim_names
from bayplan.dialects.kube.encode import writes as gang_writes
from bayplan.dialects.kube.encode.gang_messages import ERROR, reason
from bayplan.dialects.registry import KINDS, SCHEDULER, PodSpecCache, SchedulerDialects
from bayplan.model.change import Change, GangSpecLost, GangSpecSeen, PodLost, PodSeen, Started
from bayplan.model.gang import Ref
from bayplan.model.numa import NumaStalenessPolicy
from bayplan.model.plan import (
    Action,
    Admit,
    Bind,
    MarkStarted,
    Nominate,
    Plan,
    PreemptPod,
    ReportUnschedulable,
)
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.controllers.scheduler.admissions import AdmissionsInFlight
from bayplan.runtime.controllers.scheduler.device_binding import DeviceBinding
from bayplan.runtime.controllers.scheduler.faults import (
    heads_of,
    rejection_for_fault,
    restricted_to,
    snapshot_for,
)
from bayplan.runtime.controllers.scheduler.object_status import StatusWriter
from bayplan.runtime.controllers.scheduler.pod_events import NEVER, PodEventPublisher, pending_pod_writes
from bayplan.runtime.controllers.scheduler.volume_binding import VolumeBinding
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.controller import NOTHING_UNREAD, DecisionFault, Settled, UnreadObjects
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.reports.in_flight import scheduling_in_flight
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from bayplan.state.scheduling.state import SchedulingState

RECORD_SECONDS = 30.0  # until a write without a confirmed outcome is made again
REPEAT_SECONDS = 1.0  # until a write that timed out is made again
OUTCOMES = {Ended.DONE: "done", Ended.TIMED_OUT: "unknown"}  # all other outcomes are failures


@dataclass(frozen=True, slots=True)
class CycleInput:
    """The snapshot of one cycle, with the scheduler name of its gangs."""

    name: str
    snapshot: SchedulingSnapshot


class SchedulerController:
    """Binds pods with one of our scheduler names; each name has a profile."""

    name = "scheduler"
    kinds: tuple[Kind, ...] = KINDS
    has_state = True
    containment: Containment = UNCONTAINED
    unread: UnreadObjects = NOTHING_UNREAD

    def __init__(
        self,
        profile: Profile | None = None,
        profiles: Mapping[str, Profile] | None = None,
        numa_policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY,
        awaits_grouper: bool = False,
        one_by_one: Collection[str] = (),
        cluster: ClusterState | None = None,
    ) -> None:
        """Pods with a scheduler name in `one_by_one` never form a gang, as with kube-scheduler."""
        self.profiles = dict(profiles or {SCHEDULER: profile or Profile()})
        heal_seconds = max(profile.heal_seconds for profile in self.profiles.values())
        cluster = cluster or ClusterState()
        pod_specs = cluster.only(PodSpecCache)
        self.dialects = SchedulerDialects(self.profiles, one_by_one, awaits_grouper, pod_specs)
        select = self.dialects.pods.devices.selectors.select
        self.state = SchedulingState(heal_seconds, numa_policy, cluster, select)
        self.groups, self.decoder, self.zones = self.dialects.groups, self.dialects.pods, self.dialects.numa
        self.slots = self.dialects.slots
        self.admissions = AdmissionsInFlight(self.slots)
        self.now = 0.0  # of the last step
        self.statuses = StatusWriter(self.dialects.statuses)
        self.volumes = VolumeBinding(
            self.state, self.decoder.claim_uids, self.decoder.volume_versions, self.dialects.binding_notes
        )
        self.devices = DeviceBinding(self.state, self.volumes.begin)
        self.publisher = PodEventPublisher()
        self.bindings_in_flight = 0
        self.unwritten: list[Action] = []
        self.released: list[Write] = []  # ends of allocations that no pod can use
        # to be recorded once these pods are bound
        self.starts: dict[Ref, tuple[MarkStarted, set[PodKey]]] = {}
        self.repeats: deque[tuple[float, Write]] = deque()  # writes that timed out, by time of repeat
        self.unrecorded_starts: dict[Ref, tuple[MarkStarted, float]] = {}  # records to write again, and when

    def decode(self, event: Event) -> Iterator[Change]:
        if event.kind in self.slots.kinds:
            return self.admissions.seen(event)
        return self.dialects.decode(event)

    def peer_changes(self, plan: Plan) -> Iterator[Change]:
        return self.admissions.decided(plan)

    def peer_outcome(self, settled: Settled) -> Iterator[Change]:
        return self.admissions.ended(settled, self.now)

    def decode_usage(self, event: Event) -> Iterable[Change]:
        return ()

    def flush(self) -> Iterator[Change]:
        yield from self.dialects.flush()
        yield from self.admissions.refreshed()
        yield from self.admissions.take_due()

    def apply(self, changes: Iterable[Change]) -> None:
        self.state.apply_all(self._noted(changes))

    def prepare(self) -> None:
        self.state.prepare()

    def snapshot(self, now: float) -> CycleInput | None:
        heads = heads_of(self.state, now, self.containment)
        if not heads:
            return None
        name = next(iter(self.profiles))
        if len(self.profiles) > 1:
            names = {ref: self.name_of(ref) for ref in heads}
            name = names[heads[0]]
            heads = [ref for ref in heads if names[ref] == name]
        snapshot = snapshot_for(self.state, heads, now, self.containment)
        return None if snapshot is None else CycleInput(name, snapshot)

    def decide(self, view: CycleInput, now: float, watchdog: Watchdog | None = None) -> Plan:
        return decide_gangs(view.snapshot, self.profiles[view.name], now, watchdog)

    def budget(self, view: CycleInput) -> float:
        return self.profiles[view.name].decision_seconds

    def candidates(self, view: CycleInput) -> tuple[Ref, ...]:
        return tuple(candidate.spec.source for candidate in view.snapshot.candidates)

    def restricted_to(self, view: CycleInput, gangs: Collection[Ref]) -> CycleInput:
        return replace(view, snapshot=restricted_to(view.snapshot, gangs))

    def rejection(self, view: CycleInput, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        return rejection_for_fault(view.snapshot, gang, fault)

    def is_intact(self) -> bool:
        return not self.state.store.index.damaged

    def plan_in_flight(self) -> Plan:
        return scheduling_in_flight(self.state)

    def assume(self, plan: Plan, now: float) -> None:
        self.state.assume(plan, now)
        self._await_binds(plan)

    def _await_binds(self, plan: Plan) -> None:
        """Note which binds the records of starts wait for; not in encode, which no replay calls."""
        started = {action.gang: action for action in plan.actions if isinstance(action, MarkStarted)}
        self.starts |= {gang: (action, set()) for gang, action in started.items()}
        for action in plan.actions:
            if isinstance(action, Bind):
                gang = action.gang
                if gang in started or self.dialects.starts_in_parts(gang):
                    self.starts.setdefault(gang, (MarkStarted(gang), set()))[1].add(action.pod.key)

    def encode(self, plan: Plan, now: float) -> Iterator[Write]:
        failed = set[Ref]()
        for gang, binds in self.volumes.binds_of(plan):
            where = ("encode", gang.kind, f"{gang.namespace}/{gang.name}")
            writes, done = self.containment.attempt(self.devices.begin(gang, binds, now), *where)
            if not done:
                failed.add(gang)
                self.bindings_in_flight += len(binds)  # they are settled at once
                self.unwritten += binds
                continue
            self.bindings_in_flight += sum(isinstance(write.tag, Bind) for write in writes)
            yield from writes
        started = {action.gang for action in plan.actions if isinstance(action, MarkStarted)}
        for action in plan.actions:
            if isinstance(action, Bind):
                self.publisher.drop(action.pod.key)
                continue
            where = ("encode", action.gang.kind, f"{action.gang.namespace}/{action.gang.name}")
            writes, done = self.containment.attempt(self._encoded(action, started, now), *where)
            yield from writes
            if not done and not writes:
                self.unwritten.append(action)

    def _encoded(self, action: Action, started: set[Ref], now: float) -> Iterator[Write]:
        """The writes of one action. The start of a gang is recorded later, once its pods are bound."""
        match action:
            case Nominate():
                yield gang_writes.nominate_write(action)
            case PreemptPod():
                yield from gang_writes.preempt_writes(action, now)
            case ReportUnschedulable():
                self._reject(action, now, started)

    def take_unwritten(self) -> list[Action]:
        lost, self.devices.failed = self.devices.failed, []
        self.bindings_in_flight += len(lost)  # they are settled at once
        unwritten, self.unwritten = [*self.unwritten, *lost], []
        return unwritten

    def _take_released(self) -> list[Write]:
        released, self.released = self.released, []
        return released

    def reconcile(self, now: float) -> Iterable[Write]:
        self.admissions.overdue(now)
        for reader in self.dialects.readers:
            yield from self._attempted(reader.reconcile(now), reader.kinds[0].kind)
        for write in self._attempted(self.devices.reconcile(now), "claims"):
            self.bindings_in_flight += isinstance(write.tag, Bind)
            yield write
        yield from self._take_released()
        for write in self._attempted(self.volumes.ready(now), "volumes"):
            self.bindings_in_flight += isinstance(write.tag, Bind)
            yield write
        for gang in [gang for gang, (_, awaited) in self.starts.items() if not awaited]:
            yield from self._record_start(self.starts.pop(gang)[0], now)
        for gang in [gang for gang, (_, due) in self.unrecorded_starts.items() if due <= now]:
            yield from self._record_start(self.unrecorded_starts.pop(gang)[0], now)
        while self.repeats and self.repeats[0][0] <= now:
            write = self.repeats.popleft()[1]
            if self._is_still_wanted(write.tag):
                yield write
        yield from self.publisher.writes(now, self.containment, busy=self.bindings_in_flight > 0)
        yield from self.statuses.keep(now, self.containment)

    def _attempted(self, work: Iterable[Write], kind: str, name: str = "") -> list[Write]:
        return self.containment.attempt(work, "reconcile", kind, name)[0]

    def _record_start(self, start: MarkStarted, now: float) -> list[Write]:
        """Record that a gang has started; if that fails, try again later."""
        gang = start.gang
        where = ("reconcile", gang.kind, f"{gang.namespace}/{gang.name}")
        writes, done = self.containment.attempt(self._start_writes(start, now), *where)
        if not done:
            self.unrecorded_starts[gang] = start, now + RECORD_SECONDS
        return writes

    def settle(self, settled: Settled, now: float) -> None:
        self.now, action = now, settled.action
        if not isinstance(action, Bind | Nominate | PreemptPod | MarkStarted | ReportUnschedulable):
            return
        if isinstance(action, MarkStarted):
            self._start_recorded(action, settled.ended, now)
            return
        ended = OUTCOMES.get(settled.ended, "failed")
        if isinstance(action, PreemptPod) and settled.ended is Ended.GONE:
            ended = "done"
        self.state.settle(action, ended, now)
        if isinstance(action, Bind):
            self.bindings_in_flight -= 1
            if ended == "done":
                self.publisher.announce(action.pod.key, partial(gang_writes.bound_event, action, now))
            if action.gang in self.starts:
                self._bound(action, ended, now)

    def _start_recorded(self, start: MarkStarted, ended: Ended, now: float) -> None:
        """Handle the outcome of a start record. A deleted group needs no record."""
        if ended not in (Ended.DONE, Ended.GONE) and start.gang in self.state.store.specs:
            self.unrecorded_starts[start.gang] = start, now + RECORD_SECONDS

    def _bound(self, action: Bind, ended: str, now: float) -> None:
        """Record the start of a gang only once all its pods are bound: a record is never withdrawn."""
        start, awaited = self.starts[action.gang]
        if not awaited:
            return  # all are bound, the start is recorded in this step
        awaited.discard(action.pod.key)
        if ended != "done":
            del self.starts[action.gang]
            self.state.settle(start, "failed", now)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterable[Write]:
        self.publisher.ended(outcome, now)
        self.statuses.ended(outcome, now)
        tag = outcome.write.tag
        if isinstance(tag, Admit) and outcome.ended is Ended.DONE:
            self.admissions.written(tag, self.slots.version_of(outcome.object))
        if outcome.ended is Ended.TIMED_OUT and self._is_still_wanted(outcome.write.tag):
            self.repeats.append((now + REPEAT_SECONDS, outcome.write))
        writes = self.devices.on_outcome(outcome, now)
        self.bindings_in_flight += sum(isinstance(write.tag, Bind) for write in writes)
        return writes

    def _is_still_wanted(self, action: object) -> bool:
        """Whether to repeat a write that timed out: applying it twice changes nothing."""
        if not isinstance(action, PreemptPod | Nominate):
            return False
        pod = self.state.store.pods.get(action.pod.key)
        if pod is None or pod.uid != action.pod.uid or pod.terminating or pod.finished:
            return False
        if isinstance(action, PreemptPod):
            return pod.key in self.state.store.preempting
        nomination = self.state.store.nominations.get(pod.key)
        return pod.pending and action.node == ("" if nomination is None else nomination[1])

    def next_due(self, now: float) -> float:
        retry_at = min((due for _, due in self.unrecorded_starts.values()), default=NEVER)
        retry_at = min(retry_at, self.repeats[0][0]) if self.repeats else retry_at
        retry_at = now if self.admissions.due else min(retry_at, self.admissions.next_due())
        retry_at = now if self.released else min(retry_at, self.devices.next_due())
        return min(self.state.next_due(now), self.publisher.next_due(), self.statuses.next_due(), retry_at)

    def _noted(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Drop notices for pods that have a node or are deleted."""
        for change in changes:
            match change:
                case Started():
                    self.starts.clear()  # the state, too, forgets that they are to be recorded
                case PodSeen(Pod(key=key, ours=True, pending=False)) | PodLost(key):
                    self.publisher.drop(key)
                case GangSpecLost(ref):
                    self.publisher.drop(ref)
                    self.starts.pop(ref, None)
                    self.unrecorded_starts.pop(ref, None)
                case GangSpecSeen(spec) if self.dialects.of(spec.source).starts_in_parts(spec.source):
                    if spec.source not in self.state.store.specs:  # its parts may have started before
                        self.unrecorded_starts[spec.source] = MarkStarted(spec.source, spec.uid), 0.0
            yield change

    def name_of(self, ref: Ref) -> str:
        """The scheduler name of a gang."""
        pods = self.state.pending(ref) or self.state.bound(ref)
        name = pods[0].scheduler if pods else ""
        return name if name in self.profiles else next(iter(self.profiles))

    def _start_writes(self, action: MarkStarted, now: float) -> Iterator[Write]:
        """Record in the gang's object that it has started. Pods still pending keep their reason."""
        if not self.state.pending(action.gang):
            self.publisher.drop(action.gang)
        yield from self.dialects.of(action.gang).start_writes(action, self._facts(action.gang), now)

    def _facts(self, gang: Ref) -> BoundGang:
        def confirmed() -> Counter[str]:
            gang_state = self.state.store.gang_states.get(gang)
            binding = gang_state.binding if gang_state is not None else ()
            return Counter(pod.pod_set for pod in self.state.bound(gang) if pod.key not in binding)

        return BoundGang(
            self.state.spec_of(gang),
            lambda: Counter(pod.pod_set for pod in self.state.bound(gang)),
            confirmed,
        )

    def _reject(self, action: ReportUnschedulable, now: float, started: set[Ref]) -> None:
        text, code = self.message_for(action.gang, action.rejection), reason(action.rejection)
        if len(action.pods) == 1:
            text = with_claim_names(text, action.pods[0])
        why = action.rejection.reason
        unsupported = why is RejectionReason.UNSUPPORTED  # most claims are created within a moment
        at_once = why.was_tried or why.backs_off or (code == ERROR and not unsupported)
        if why is not RejectionReason.PREEMPTING:
            self.released += self.devices.release_unused(action.pods)
        for pod in action.pods:
            if pod.gated or pod.message == text or (pod.message and not action.changed):
                continue
            self.publisher.publish(pod.key, text, partial(pending_pod_writes, pod, code, text), now, at_once)
        if action.changed and action.gang.kind != "Pod":
            report = PendingReport(action, code, text, action.gang in started)
            shown = self.dialects.of(action.gang).status_reason(report)
            if shown is not None and not self.statuses.source.is_pending(action.gang):
                self.publisher.drop(action.gang)  # its earlier condition no longer exists
            self.publisher.publish(action.gang, text, partial(self._publish_gang, report), now, at_once)

    def message_for(self, gang: Ref, rejection: Rejection) -> str:
        """Why a gang is pending, in the words of its API family."""
        return self.dialects.of(gang).explain(rejection, gang, self.state.spec_of(gang))

    def _publish_gang(self, report: PendingReport, now: float) -> Iterator[Write]:
        gang = report.action.gang
        dialect = self.dialects.of(gang)
        if (shown := dialect.status_reason(report)) is not None:
            self.statuses.set_pending(gang, shown, report.message, now)
        writes = dialect.pending_writes(report, self._facts(gang), now)
        # If its pods say so already, the replica that led before has announced it.
        known = {pod.message for pod in report.action.pods if not pod.gated} == {report.message}
        yield from (write for write in writes if not known or write.kind.kind != "Event")
