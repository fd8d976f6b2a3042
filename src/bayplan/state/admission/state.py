"""The state of admission: configuration, quota, topologies, usage of admitted gangs, and pending queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from bayplan.model.change import (
    Change,
    NamespaceQueueLost,
    NamespaceQueueSeen,
    NodeLost,
    NodeSeen,
    NumaReportLost,
    NumaReportSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueLost,
    QueueSeen,
    Started,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import Ref
from bayplan.model.node import Node, Topology
from bayplan.model.numa import NumaStalenessPolicy
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted, Requeue
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.quota import NamespaceQueue, Queue
from bayplan.model.summary import Flaw
from bayplan.state.admission.binding_view import BindingFacts
from bayplan.state.admission.config import AdmissionConfig, ConfigChange
from bayplan.state.admission.numa_usage import NumaUsage
from bayplan.state.admission.other_pods import UnmanagedPods
from bayplan.state.admission.queues import AdmissionQueues, QueueEntry, QueueEntryState
from bayplan.state.admission.reservations import Reservations
from bayplan.state.admission.snapshot import AdmissionSnapshot, Failed, QueueHead, heads_of
from bayplan.state.admission.taken_nodes import TakenNodes
from bayplan.state.admission.usage import AdmittedUsage, usage_of
from bayplan.state.admission.wakeups import AdmissionWakeups
from bayplan.state.cluster.device_state import DeviceState
from bayplan.state.cluster.ledger import Shift
from bayplan.state.cluster.node_batches import apply_in_batches
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY
from bayplan.state.cluster.shared_state import ClusterState

ASSUMED_SECONDS = 60.0


class AdmissionState:
    """Applies changes, returns heads and snapshots, and assumes plans until their writes end."""

    def __init__(
        self, numa_policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY, cluster: ClusterState | None = None,
        devices: Callable[[], DeviceState] = DeviceState,
    ) -> None:  # fmt: skip
        self.numa_policy, self.cluster, self.devices = numa_policy, cluster or ClusterState(), devices
        self.reset()

    def reset(self) -> None:
        """Start empty."""
        self.config = AdmissionConfig()
        self.numa = NumaUsage(self.numa_policy)
        self.usage = AdmittedUsage(watcher=self.numa.count_gang, cluster=self.cluster)
        self.unmanaged = UnmanagedPods(self.usage)
        self.pending, self.reservations = AdmissionQueues(), Reservations()
        self.binding = BindingFacts(self.usage, self.unmanaged, self.devices())
        self.taken = TakenNodes(self.usage, self.unmanaged, self.numa, self.binding.devices)
        self._wakeups = AdmissionWakeups(self.config, self.usage, self.pending)
        self.assumed: dict[Ref, Admission] = {}
        self.evicting: set[Ref] = set()  # evictions in flight: the API does not show them yet
        self.generation = 0  # grows with every change that can make a cycle end differently

    def apply(self, change: Change) -> None:
        """Apply one change."""
        self.generation += 1
        match change:
            case Started():
                self.reset()
            case NodeSeen(node):
                self.nodes_seen({node.name: node})
            case NodeLost(name):
                self.taken.node_lost(name)
                self.usage.remove_node(name)
                self.numa.nodes_changed((name,))
            case TopologySeen(topology):
                self._topology(topology.name, topology)
            case TopologyLost(name):
                self._topology(name, None)
            case PodSeen(pod):
                self._pod(pod.key, pod)
            case PodLost(key):
                self._pod(key, None)
            case NumaReportSeen(report):
                better = self.numa.report_received(report, self.unmanaged.pods(), self.usage.by_gang.values())
                self._wakeups.capacity_freed(self.usage.topologies if better else ())
            case NumaReportLost(name):
                self._wakeups.capacity_freed(self.usage.topologies if self.numa.report_removed(name) else ())
            case QueuedGangSeen(queued):
                self._gang_seen(queued)
            case QueuedGangLost(ref):
                self._gang_lost(ref)
            case _:
                self._config_changed(change)
        if self.binding.apply(change):
            self._wakeups.capacity_freed(self.usage.topologies)

    def _config_changed(self, change: Change) -> None:
        effect = self.config.apply(change)
        match change:
            case QueueSeen(queue):
                pending = self.pending.queue(queue.name)
                pending.strict = queue.strict
                pending.suspend(queue.unprotected)
                if effect is not ConfigChange.NONE:
                    self._update_entries(lambda entry: entry.queue == queue.name)
            case QueueLost(name):
                self.pending.queue(name).suspend(False)  # its gangs get the reason that the queue is missing
            case NamespaceQueueSeen(NamespaceQueue(namespace, name)) | NamespaceQueueLost(namespace, name):
                if effect is not ConfigChange.NONE:
                    self._update_entries(lambda entry: entry.queued_gang.namespace_queue == (namespace, name))
        if effect is ConfigChange.QUOTA:
            self._rebuild_quota()
        elif effect is not ConfigChange.NONE:
            self._wakeups.wake_all()

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Apply many changes; nodes that arrive together are added together."""
        apply_in_batches(changes, self.apply, self.nodes_seen)

    def nodes_seen(self, nodes: Mapping[str, Node]) -> None:
        """Nodes were added or changed: gangs that wait for capacity in their topologies are retried."""
        self.binding.nodes_seen(nodes)
        self._wakeups.capacity_freed(self.usage.put_nodes(nodes))
        self._shift(self.unmanaged.nodes_changed(nodes))
        self.numa.nodes_changed(nodes)
        self.taken.touch(nodes)

    def _pod(self, key: PodKey, pod: Pod | None) -> None:
        before = self.unmanaged.pod(key)
        if before == pod:
            return  # what changed is nothing that a decision depends on
        if self.numa.active:
            self.numa.update_pod(before, pod)
        self.taken.touch(one.node for one in (before, pod) if one is not None)
        self._shift(self.unmanaged.deleted(key) if pod is None else self.unmanaged.seen(pod))

    def _topology(self, name: str, topology: Topology | None) -> None:
        if self.usage.set_topology(name, topology, self.unmanaged.ledger.by_node()):
            self._rebuild_quota()

    def _rebuild_quota(self) -> None:
        config = self.config
        self.usage.set_rules(config.flavors, config.shared.values(), config.queues.values())
        self.pending.drop_unused(config.queues)
        self._wakeups.wake_all()

    def _shift(self, shifts: Iterable[Shift]) -> None:
        self._wakeups.capacity_freed(self.usage.shift(shifts))

    def _gang_seen(self, queued: QueuedGang) -> None:
        entry = self.pending.entries.get(ref := queued.gang.source)
        if entry is not None and entry.queued_gang.gang.uid != queued.gang.uid:
            self._gang_lost(ref)
            entry = None
        if entry is None:
            entry = self.pending.entries[ref] = QueueEntry(queued)
        rank, before, entry.queued_gang = entry.rank, entry.queued_gang, queued
        entry.update_rank()
        if entry.rank != rank:
            entry.shape = None  # its place in the queue changed
        if queued.admission is not None and queued.admission != before.admission:
            self.assumed.pop(ref, None)  # otherwise the update predates our write
        elif before.admission is not None and queued.admission is None:
            self.evicting.discard(ref)
        if queued.evicted and ref not in self.assumed:
            self.evicting.discard(ref)
        self._account(entry)
        self._update_state(entry)
        if queued.failed_nodes != before.failed_nodes:  # another placement is needed now
            self.pending.retry_placements(lambda other: other is entry)

    def _gang_lost(self, ref: Ref) -> None:
        entry = self.pending.entries.pop(ref, None)
        if self.assumed.pop(ref, None) is None:
            self._wakeups.ended(self.usage.by_gang.get(ref))
        self.evicting.discard(ref)
        self._release(ref)
        if entry is not None:
            before = entry.state
            self.pending.move(entry, QueueEntryState.INACTIVE)
            if before is QueueEntryState.PENDING:
                self._left_queue(entry.queue, entry)

    def _account(self, entry: QueueEntry) -> None:
        """Account for the usage of a gang that is admitted, or is being admitted."""
        queued, ref = entry.queued_gang, entry.queued_gang.gang.source
        admission = self.assumed.get(ref) or queued.admission
        if admission is None:
            self._release(ref)
            return
        known = self.usage.by_gang.get(ref)
        evicted = ref in self.evicting or (queued.evicted and ref not in self.assumed)
        shown = replace(queued, admission=admission, evicted=evicted)
        before = queued.admission if queued.admission != admission else None
        if known is not None and known.queued_gang == shown and known.previous == before:
            return
        if known is not None and known.queued_gang.admission == admission and known.previous == before:
            self.usage.by_gang[ref] = replace(known, queued_gang=shown)
            self.usage.by_queue[admission.queue][ref] = shown
            return
        self._release(ref)
        self.usage.add(usage_of(shown, self.config.flavors, before))
        self._shift(self.unmanaged.moved(ref, self.usage.by_gang.get(ref)))
        self.taken.touch_gang(self.usage.by_gang.get(ref))

    def _release(self, ref: Ref) -> None:
        usage = self.usage.remove(ref)
        if usage is not None:
            self._shift(self.unmanaged.moved(ref, None))
            self.taken.touch_gang(usage)
            self._wakeups.usage_released(usage)

    def _update_state(self, entry: QueueEntry) -> None:
        """Put a gang into the state that its spec and status ask for; wake others if it leaves its place."""
        queue, place = self.pending.touch(entry.queue), entry.state
        self._set_state(entry)
        if place is QueueEntryState.PENDING and (entry.state is not place or entry.queue != queue):
            self._left_queue(queue, entry)

    def _left_queue(self, queue: str, entry: QueueEntry) -> None:
        """A gang is no longer pending in a queue: what was reserved for it is available to others."""
        reserved = self.reservations.drop(entry.queued_gang.gang.source)
        if self.pending.clear_sticky(queue, entry) or self.pending.contended or reserved:
            self.pending.contended = False
            self._wakeups.wake_all()

    def _set_state(self, entry: QueueEntry) -> None:
        """Put a gang into its state, unless a write is in flight."""
        queued, ref = entry.queued_gang, entry.queued_gang.gang.source
        entry.queue = self.config.queue_of(queued)
        if ref in self.assumed:
            return
        entry.taken = self.taken.hosts_of(ref) if queued.admission is not None and not queued.evicted else ()
        if queued.admission is not None:
            if (queued.needs_placement or entry.taken) and ref not in self.evicting:
                if entry.state is not QueueEntryState.PLACING:
                    entry.tries = 0
                    self.pending.move(entry, QueueEntryState.PLACING, 0.0)
            else:
                self.pending.move(entry, QueueEntryState.QUOTA_RESERVED)
            return
        if not queued.active or not entry.queue:
            self.pending.move(entry, QueueEntryState.INACTIVE)
            return
        shape = self.config.shape_of(queued, entry.queue, entry.rank)
        if entry.state is QueueEntryState.PENDING and shape == entry.shape:
            return
        entry.shape, entry.state = shape, QueueEntryState.INACTIVE
        if queued.not_before > 0:
            self.pending.move(entry, QueueEntryState.BACKOFF, queued.not_before)
        else:
            self.pending.move(entry, QueueEntryState.PENDING)

    def _update_entries(self, concerns: Callable[[QueueEntry], bool]) -> None:
        for entry in list(self.pending.entries.values()):
            if concerns(entry):
                entry.shape = None
                self._update_state(entry)

    def heads(
        self, now: float, failed: Failed | None = None, unread: Callable[[Ref], bool] = lambda _: False,
        *, only_placing: bool = False,
    ) -> list[QueueHead]:  # fmt: skip
        """The gangs to decide on now: those that wait for a placement, and the head of every queue."""
        for entry in self.pending.pending.expired(now):
            self._expired(entry, now, unread)
        if self.numa.active and self.numa.catch_up(now):
            self.generation += 1
            self._wakeups.capacity_freed(self.usage.topologies)
        self._check_taken()
        return heads_of(self.config, self.pending, now, failed, only_placing=only_placing)

    def _check_taken(self) -> None:
        """Gangs that have lost hosts to other pods are placed again, or evicted."""
        found = [entry for ref in self.taken.check() if (entry := self.pending.entries.get(ref))]
        for entry in sorted(found, key=lambda entry: entry.rank):
            entry.has_started = self.taken.may_move(entry.queued_gang.gang.source)
            self._update_state(entry)
            if entry.state is QueueEntryState.PLACING:
                self.pending.move(entry, QueueEntryState.PLACING, 0.0)

    def _expired(self, entry: QueueEntry, now: float, unread: Callable[[Ref], bool]) -> None:
        ref = entry.queued_gang.gang.source
        match entry.state:
            case QueueEntryState.BACKOFF:
                entry.shape = self.config.shape_of(entry.queued_gang, entry.queue, entry.rank)
                self.pending.move(entry, QueueEntryState.PENDING)
            case QueueEntryState.PENDING:  # it has waited for others to end
                self.pending.wake(entry.queue)
            case QueueEntryState.ADMITTING if unread(ref):  # its newest version may show the admission
                self.pending.move(entry, QueueEntryState.ADMITTING, now + ASSUMED_SECONDS)
            case QueueEntryState.ADMITTING:  # the result of the write never arrived
                self.admission_failed(ref, now)

    def snapshot(self, heads: Iterable[QueueHead]) -> AdmissionSnapshot:
        """A frozen snapshot for deciding on these gangs."""
        supplies = self.usage.supplies()
        return AdmissionSnapshot(
            self.usage.quota_tree().copy(), supplies,
            self.config.flavors, self.config.queues, self.config.checks,
            self.usage.by_queue,
            frozenset(self.inactive_queues()),
            tuple(heads),
            dict(self.reservations.by_topology), dict(self.reservations.by_queue),
            self.usage.by_gang, self.usage.known,
            self.numa.stocks(supplies),
            self.binding.view(),
            self.taken.domains.all(),
        )  # fmt: skip

    def inactive_queues(self) -> Iterator[str]:
        """The queues that admit no gang."""
        return (name for name, queue in self.config.queues.items() if any(self.flaws(queue)))

    def flaws(self, queue: Queue) -> Iterator[tuple[Flaw, str]]:
        """Each problem that makes a queue inactive, with the name of the object at fault."""
        return self.config.flaws(queue, self.usage.topologies, self.usage.quota_tree().misplaced)

    def assume(self, plan: Plan, now: float) -> None:
        """Assume the plan until its writes end or the API shows something else."""
        overtaken: list[QueueEntry] = []
        for action in plan.actions:
            match action:
                case Admit():
                    self._assume_admitted(action, now)
                case EvictGang():
                    self._assume_evicted(action.gang)
                case ReportNotAdmitted():
                    if (entry := self.pending.entries.get(action.gang)) is not None:
                        self.generation += self.pending.requeue(entry, action, now)
                        overtaken += [entry] if action.requeue is Requeue.AT_ONCE else []
        for entry in overtaken:
            self.generation += self.pending.note_overtaken(entry, self.generation)
        outrun = [a.queued_gang for a in plan.actions if isinstance(a, ReportNotAdmitted) and a.overtaken]
        for queue in filter(self.config.may_reclaim, map(self.config.queue_of, outrun)):
            self.pending.wake(queue)  # it may preempt the gangs that took its capacity
        if self.reservations.apply(plan):
            self._wakeups.wake_all()

    def _assume_admitted(self, action: Admit, now: float) -> None:
        if (entry := self.pending.entries.get(action.gang)) is None:
            return
        self.generation += 1
        self.assumed[action.gang] = action.admission
        entry.progress, entry.tries, entry.reason = (), 0, None
        self._account(entry)
        self.pending.move(entry, QueueEntryState.ADMITTING, now + ASSUMED_SECONDS)
        self._left_queue(entry.queue, entry)

    def _assume_evicted(self, ref: Ref) -> None:
        entry = self.pending.entries.get(ref)
        if entry is not None and (entry.queued_gang.admission is not None or ref in self.assumed):
            self.generation += 1
            self.evicting.add(ref)
            self._account(entry)
            if entry.state is QueueEntryState.PLACING:
                self.pending.move(entry, QueueEntryState.QUOTA_RESERVED)

    def admission_failed(self, ref: Ref, now: float) -> None:
        """The write of an admission failed: release the assumed usage and retry later."""
        entry = self.pending.entries.get(ref)
        if self.assumed.pop(ref, None) is None or entry is None:
            return
        self._account(entry)
        entry.shape = None
        if entry.queued_gang.admission is not None:
            self._update_state(entry)
        else:
            self.evicting.discard(ref)
            self.pending.back_off(entry, QueueEntryState.BACKOFF, now)

    def eviction_failed(self, ref: Ref) -> None:
        """The write of an eviction failed: the gang may be chosen again."""
        if ref in self.evicting:
            self.evicting.discard(ref)
            if (entry := self.pending.entries.get(ref)) is not None:
                self._account(entry)
                self._update_state(entry)
            self._wakeups.wake_all()

    def next_due(self, now: float, *, only_placing: bool = False) -> float:
        """When the next action is due without any event."""
        if not only_placing and self.pending.is_ready():
            return now
        placing = self.pending.placing.values()
        return min(self.pending.pending.next_due(), self.numa.next_due(), *(entry.due for entry in placing))
