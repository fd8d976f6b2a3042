"""The state of the scheduler: applies changes, returns snapshots, and assumes plans until they settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bayplan.model.change import Change, DeviceObjectSeen, ImagesSeen, NodeLost, Started, StorageSeen
from bayplan.model.devices.inventory import SelectDevices
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.numa import NumaStalenessPolicy
from bayplan.model.plan import Action, Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod
from bayplan.model.rejection import Rejection
from bayplan.state.cluster.device_state import select_nothing
from bayplan.state.cluster.node_batches import apply_in_batches
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.scheduling.queue import EntryState, SchedulingEntry
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.snapshot import SchedulingSnapshot, SnapshotBuilder
from bayplan.state.scheduling.state_machine import ASSUMED_SECONDS, GangStateMachine
from bayplan.state.scheduling.store import SchedulingStore

__all__ = ["ASSUMED_SECONDS", "SchedulingState", "single_pod_ref"]


class SchedulingState:
    """The store, the state of each gang in the queue, and snapshots of both.

    Nothing here reads a clock or does I/O.
    """

    def __init__(
        self,
        heal_seconds: float = 60.0,
        numa_policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY,
        cluster: ClusterState | None = None,
        select_devices: SelectDevices = select_nothing,
    ) -> None:
        """`cluster` is shared with the other states of the process, if there are any.

        `select_devices` evaluates the selectors of claims and classes of devices.
        """
        self.select_devices = select_devices
        self.heal_seconds, self.numa_policy = heal_seconds, numa_policy
        self.cluster = cluster or ClusterState()
        self._reset()

    def _reset(self) -> None:
        """Start empty."""
        self.store = SchedulingStore(self.numa_policy, self.cluster, self.select_devices)
        self.gangs = GangStateMachine(self.store, self.heal_seconds)
        self._snapshots = SnapshotBuilder(self.store, self.gangs)
        self._in_snapshot: list[Ref] = []  # the gangs in the last snapshot

    # ── changes ────────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Apply one change."""
        if isinstance(change, Started):
            self._reset()
        else:
            self.store.apply(change)
            if isinstance(change, NodeLost):
                self.gangs.node_lost(change.name)

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Apply many changes; nodes that arrive together are added together."""
        known, beside = self.store.nodes.by_name, (ImagesSeen, StorageSeen, DeviceObjectSeen)
        apply_in_batches(changes, self.apply, self.store.load, known, beside)

    def prepare(self) -> None:
        """Build the rows of all nodes now instead of for the next snapshot."""
        self.store.nodes.prepare()

    # ── questions ──────────────────────────────────────────────────────────────────────────────────

    def heads(self, now: float) -> list[Ref]:
        """The gangs to decide on, best first. Without a change in between, the answer is the same."""
        return self.gangs.heads(now)

    def next_due(self, now: float) -> float:
        """When the next action is due without any event."""
        return self.gangs.next_due(now)

    def snapshot(self, refs: Iterable[Ref], now: float) -> SchedulingSnapshot:
        """A snapshot for deciding on these gangs. It is valid until the next change is applied."""
        self._in_snapshot = list(refs)
        return self._snapshots.build(self._in_snapshot, now)

    def state_of(self, ref: Ref) -> EntryState | None:
        """The state of a gang in the queue; None if it is unknown, or a single pod that runs."""
        return self.gangs.state_of(ref)

    def entries(self) -> Iterator[SchedulingEntry]:
        """All gangs in the queue."""
        return self.gangs.entries()

    def reported(self, ref: Ref) -> Rejection | None:
        """Why a gang is pending, as reported last."""
        gang = self.store.gang_states.get(ref)
        return None if gang is None else gang.reported

    def spec_of(self, ref: Ref) -> GangSpec | None:
        """The spec of a gang, or of a single pod."""
        gang = self.store.gang_states.get(ref)
        return None if gang is None else gang.spec

    def pending(self, ref: Ref) -> tuple[Pod, ...]:
        """The pending, ungated pods of a gang, in the order in which they are tried."""
        return self.store.pending(ref)

    def bound(self, ref: Ref) -> tuple[Pod, ...]:
        """The pods of a gang that are bound (or assumed to be) or succeeded, without terminating ones."""
        return self.store.bound(ref)

    # ── plans ──────────────────────────────────────────────────────────────────────────────────────

    def assume(self, plan: Plan, now: float) -> None:
        """Assume the plan until its writes end or the API shows something else."""
        reports: dict[Ref, ReportUnschedulable] = {}
        acted: dict[Ref, None] = {}
        preempting: dict[Ref, None] = {}
        for action in plan.actions:
            match action:
                case Bind(ref, pod, node):
                    self._assume_bind(action)
                case Nominate(ref, pod, node):
                    self._assume_nomination(pod, node)
                case PreemptPod(pod, ref):
                    self._assume_preempted(action)
                    if not action.undoes:
                        preempting[ref] = None
                case ReportUnschedulable(ref):
                    reports[ref] = action
                case MarkStarted(ref):
                    self._record(ref, True)
                case _:
                    continue
            acted[ref] = None
        for ref in preempting:
            if (gang := self.store.gang_states.get(ref)) is not None:
                gang.note_preemption(now)
        for ref in acted:
            self.gangs.decided(ref, reports.get(ref), now)
        remaining = frozenset(plan.undecided)
        for ref in self._in_snapshot:
            if ref not in remaining:
                self.gangs.turn_ended(ref, now, acted=ref in acted)
        self._in_snapshot = []

    def _assume_bind(self, action: Bind) -> None:
        pod, gang = action.pod, self.store.gang_states.get(action.gang)
        now = self.store.pods.get(pod.key)
        if now is None or now.uid != pod.uid or not now.pending or gang is None:
            return
        gang.binding[pod.key] = None
        gang.note_bind()
        gang.unconfirmed.pop(pod.key, None)
        self.store.assume_bound(now, action.node, action.devices)

    def _assume_nomination(self, pod: Pod, node: str) -> None:
        now = self.store.pods.get(pod.key)
        self.store.clear_nomination(pod.key, node)
        if now is not None and now.uid == pod.uid and now.pending and node:
            self.store.assume_nominated(now, node)

    def _assume_preempted(self, action: PreemptPod) -> None:
        pod, gang = self.store.pods.get(action.pod.key), self.store.gang_states.get(action.by)
        if pod is None or pod.uid != action.pod.uid or pod.key not in self.store.placed:
            return
        if gang is not None and action.undoes:
            gang.bind_broken = True
        elif gang is not None:
            gang.victims[pod.key] = None
        self.store.assume_preempted(pod, action.by)

    def settle(self, action: Action, ended: str, now: float) -> None:
        """The write of an action ended: "done", "failed" (it did not happen) or "unknown"."""
        match action:
            case Bind(_, pod):
                self.gangs.bind_ended_at = now
                self._settle_bind(pod, ended, now)
            case PreemptPod(pod):
                if ended == "unknown":  # a second unknown result does not extend the deadline
                    self.gangs.unconfirmed.setdefault(pod.key, now + ASSUMED_SECONDS)
                    return
                self.gangs.unconfirmed.pop(pod.key, None)
                if ended == "failed" and self.store.is_current(pod):
                    self.store.assume_not_preempted(pod.key)
            case MarkStarted(ref):
                self._record(ref, ended != "failed")
            case ReportUnschedulable(ref):
                if ended == "failed" and (gang := self.store.gang_states.get(ref)) is not None:
                    gang.reported = gang.blocker = None  # reported again at the next rejection
                    self.store.notes.touch(gang, own=False)

    def _settle_bind(self, pod: Pod, ended: str, now: float) -> None:
        if not self.store.is_current(pod):
            return
        gang = self.store.pods[pod.key].gang  # the pod may have changed its gang
        gang_state = self.store.gang_states.get(gang or single_pod_ref(pod.key))
        if gang_state is None or pod.key not in gang_state.binding:
            return  # the watch was faster
        if ended == "unknown":  # the watch will show it, or the assumption expires
            gang_state.unconfirmed[pod.key] = now
            if (node := self.store.assumed[pod.key]) not in self.store.nodes.by_name:
                self.gangs.node_lost(node)
            return
        del gang_state.binding[pod.key]
        if ended == "failed":
            gang_state.bind_failed_at = now
            self.gangs.undo_bind(gang_state, pod.key)
        self.store.notes.touch(gang_state, own=False)

    def _record(self, ref: Ref, recorded: bool) -> None:
        if (gang := self.store.gang_states.get(ref)) is not None:
            gang.start_recorded = recorded
            self.store.notes.touch(gang, own=False)
