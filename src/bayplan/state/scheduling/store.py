"""The store of the scheduler: nodes, pods, gangs, queues and volumes, updated by changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bayplan.model.change import (
    BudgetLost,
    BudgetSeen,
    Change,
    DeviceObjectLost,
    DeviceObjectSeen,
    FairQueueLost,
    FairQueueSeen,
    FlavorLost,
    FlavorSeen,
    GangSpecLost,
    GangSpecSeen,
    ImagesSeen,
    NamespaceLost,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    NumaReportLost,
    NumaReportSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    StorageLost,
    StorageSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.devices.claims import PodDevices
from bayplan.model.devices.inventory import SelectDevices
from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.node import Node
from bayplan.model.numa import NumaStalenessPolicy
from bayplan.model.pod import Pod, PodKey
from bayplan.model.quota import FairQueue
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.devices.supply import DeviceSupply
from bayplan.placement.domains.host_packing import ROOM_MAX
from bayplan.state.cluster.device_state import AllocatedClaims, DeviceState, select_nothing
from bayplan.state.cluster.node_store import NodeStore
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY, NumaCache
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.cluster.volumes import VolumeState
from bayplan.state.pending_queue import WakeupEvent
from bayplan.state.scheduling.claims import SlotClaims
from bayplan.state.scheduling.diffs import allows_more_evictions, attempt_key, more_preemptible, same_request
from bayplan.state.scheduling.fair_usage import FairUsage, usage_kind
from bayplan.state.scheduling.gang_state import GangState, in_order, state_of
from bayplan.state.scheduling.single_pod import single_pod_ref, single_pod_spec


class SchedulingStore:
    """The objects of the cluster as in the API, and decided changes of pods that it does not show yet.

    Nothing here reads a clock or does I/O. Snapshots share these dicts: no other part writes to them.
    """

    def __init__(
        self,
        numa_policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY,
        cluster: ClusterState | None = None,
        select_devices: SelectDevices = select_nothing,
    ) -> None:
        self.index = PodIndex()
        self.nodes = NodeStore(self.index.slots, cluster)
        self.claims = SlotClaims(self.nodes)
        self.volumes = VolumeState()
        self.devices = DeviceState(select_devices)
        self.numa = NumaCache(numa_policy)
        self.fair = FairUsage()
        self.pods: dict[PodKey, Pod] = {}  # as in the API
        self.placed: Mapping[PodKey, Pod] = (
            self.nodes.ledger.pods
        )  # pods that use capacity, including assumed binds
        self.assumed: dict[PodKey, str] = {}  # nodes of binds in flight
        self.preempting: dict[PodKey, Ref] = {}  # preempted pods that still exist, and the preemptor
        self.nominations: dict[PodKey, tuple[Pod, str]] = {}
        self.specs: dict[Ref, GangSpec] = {}
        self.members: dict[Ref, dict[PodKey, None]] = {}  # all pods that name a gang
        self.budgets: dict[tuple[str, str], DisruptionBudget] = {}
        self.gang_states: dict[Ref, GangState] = {}
        self.notes = ChangeNotes()
        self._arrivals = 0
        self._promised: tuple[object, DeviceSupply] | None = None

    # ── questions ──────────────────────────────────────────────────────────────────────────────────

    def is_current(self, pod: Pod) -> bool:
        """Whether this very pod still exists in the API."""
        return pod.key in self.pods and self.pods[pod.key].uid == pod.uid

    def pending(self, ref: Ref) -> tuple[Pod, ...]:
        """The pending, ungated pods of a gang, in the order in which they are tried."""
        gang = self.gang_states.get(ref)
        if gang is None:
            return ()
        if gang.ordered is None:
            gang.ordered = in_order(self.pods[key] for key in gang.pending if key not in gang.gated)
        return gang.ordered

    def bound(self, ref: Ref) -> tuple[Pod, ...]:
        """The pods of a gang that are bound (or assumed to be) or succeeded, without terminating ones."""
        gang = self.gang_states.get(ref)
        if gang is None:
            return ()
        return in_order(self.placed.get(key) or self.pods[key] for key in gang.bound)

    def departed(self) -> Iterator[PodKey]:
        """Pods that use no devices any more, for which claims are still reserved."""
        for key in self.devices.users():
            pod = self.pods.get(key)
            if pod is None or pod.finished:
                yield key

    def device_supply(self, node_index: NodeIndex) -> DeviceSupply | None:
        """The devices for a decision, less those promised to admitted gangs; None if none are needed."""
        promises = self.claims.devices() if self.claims.counts else {}
        supply = self.devices.supply(always=bool(promises))
        if supply is None or not promises:
            return supply
        key = (supply.version, node_index, promises)
        if self._promised is None or self._promised[0] != key:
            self._promised = key, supply.with_promises(node_index, promises)
        return self._promised[1]

    def device_room(self, devices: PodDevices) -> dict[str, int]:
        """By node: how many pods with such claims the free devices serve, without regard to promises."""
        supply = self.devices.supply(always=True)
        assert supply is not None
        node_index = self.nodes.flat.node_index()
        counts = supply.counts(node_index, devices, ROOM_MAX).tolist()
        return dict(zip((node.name for node in node_index.table.nodes), counts, strict=True))

    # ── changes ────────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Apply one change. Of queued gangs only the placements matter here: they hold capacity."""
        match change:
            case PodSeen(pod):
                self._pod_seen(pod)
            case PodLost(key):
                self._pod_lost(key)
            case NodeSeen(node):
                self._node_seen(node)
            case NodeLost(name):
                self._node_lost(name)
            case GangSpecSeen(spec):
                self._spec_changed(spec.source, spec)
            case GangSpecLost(ref):
                self._spec_changed(ref, None)
            case QueuedGangSeen(queued_gang):
                self.notes.event(WakeupEvent.CAPACITY_FREED, self.claims.gang_seen(queued_gang))
            case QueuedGangLost(ref):
                self.notes.event(WakeupEvent.CAPACITY_FREED, self.claims.gang_lost(ref))
            case StorageSeen(item, key):
                self.notes.event(WakeupEvent.STORAGE_CHANGED, self.volumes.seen(item, key))
            case StorageLost(group, key):
                self.notes.event(WakeupEvent.STORAGE_CHANGED, self.volumes.lost(group, key))
            case _:
                self._apply_other(change)
        self.index.tidy()

    def _apply_other(self, change: Change) -> None:
        match change:
            case TopologySeen(topology):
                self.notes.event(WakeupEvent.NODE_CHANGED, self.nodes.topology_seen(topology))
            case TopologyLost(name):
                self.nodes.topology_lost(name)
            case DeviceObjectSeen(item):
                self._devices_changed(self.devices.seen(item))
            case DeviceObjectLost(item):
                self._devices_changed(self.devices.lost(item))
            case BudgetSeen(budget):
                self._budget_changed(budget.namespace, budget.name, budget)
            case BudgetLost(namespace, name):
                self._budget_changed(namespace, name, None)
            case NumaReportSeen(report):
                self.notes.event(
                    WakeupEvent.NUMA_CHANGED, self.numa.report_received(report, self._on_nodes())
                )
            case NumaReportLost(name):
                self.notes.event(WakeupEvent.NUMA_CHANGED, self.numa.report_removed(name))
            case FlavorSeen(flavor):
                self.claims.flavor_changed(flavor.name, flavor)
            case FlavorLost(name):
                self.claims.flavor_changed(name, None)
            case FairQueueSeen(queue):
                self._fair_queue_seen(queue)
            case FairQueueLost(name):
                self.notes.event(WakeupEvent.SHARE_CHANGED, self.fair.queue_lost(name))
            case ImagesSeen(name, images):
                self.nodes.images.note(name, images)
            case NamespaceSeen(name, labels):
                self.notes.event(WakeupEvent.POD_BOUND, self.index.namespaces.get(name) != labels)
                self.index.set_namespace(name, labels)
            case NamespaceLost(name):
                self.index.set_namespace(name, None)

    def _devices_changed(self, more: bool) -> None:
        self.notes.event(WakeupEvent.DEVICES_CHANGED, more)
        self.notes.event(WakeupEvent.CAPACITY_FREED, more)  # victims of a preemption gave their devices back

    # ── nodes ──────────────────────────────────────────────────────────────────────────────────────

    def load(self, fresh: Mapping[str, Node]) -> None:
        """Add many new nodes together."""
        if len(fresh) == 1:
            self._node_seen(*fresh.values())
            return
        self.nodes.load(fresh)
        for name, node in fresh.items():
            self.numa.node_changed(name)
            self.devices.node_changed(name)
            self.fair.set_node(name, node)
        self.notes.event(WakeupEvent.NODE_CHANGED)

    def _node_seen(self, node: Node) -> None:
        if self.nodes.seen(node):
            self.numa.node_changed(node.name)
            self.devices.node_changed(node.name)
            self.fair.set_node(node.name, node)
            self.notes.event(WakeupEvent.NODE_CHANGED)

    def _node_lost(self, name: str) -> None:
        if self.nodes.lost(name):
            self.devices.node_changed(name)
            self.fair.set_node(name, None)
            self.notes.event(WakeupEvent.NODE_CHANGED)  # spread constraints may hold without it

    # ── gangs ──────────────────────────────────────────────────────────────────────────────────────

    def _spec_changed(self, ref: Ref, spec: GangSpec | None) -> None:
        before = self.specs.get(ref)
        if before == spec:
            return
        if spec is None:
            del self.specs[ref]
        else:
            self.specs[ref] = spec
        gang = self._gang_state(ref)
        if self.fair.active:
            self.notes.event(WakeupEvent.SHARE_CHANGED, self.fair.set_spec(ref, spec))
        preemptible = more_preemptible(before, spec) and any(key in self.placed for key in gang.bound)
        self.notes.event(WakeupEvent.SPEC_CHANGED, preemptible)
        if before is not None and spec is not None and before.uid != spec.uid:
            gang.started, gang.reported = False, None  # another gang of the same name
        gang.set_spec(spec)
        self.notes.touch(gang, own=not same_request(before, spec))

    def _budget_changed(self, namespace: str, name: str, budget: DisruptionBudget | None) -> None:
        before = self.budgets.pop((namespace, name), None)
        if budget is not None:
            self.budgets[namespace, name] = budget
        self.notes.event(
            WakeupEvent.VICTIMS_ADDED, self.fair.active and allows_more_evictions(before, budget)
        )

    def _fair_queue_seen(self, queue: FairQueue) -> None:
        first = not self.fair.active
        self.notes.event(WakeupEvent.SHARE_CHANGED, self.fair.queue_seen(queue))
        if first:
            shown = (self.placed.get(key) or pod for key, pod in self.pods.items())
            self.fair.start_tracking(self.specs, shown)

    def _gang_state(self, ref: Ref, lone: bool = False) -> GangState:
        gang = self.gang_states.get(ref)
        if gang is None:
            gang = self.gang_states[ref] = GangState(ref, lone)
        return gang

    # ── pods ───────────────────────────────────────────────────────────────────────────────────────

    def _pod_seen(self, pod: Pod) -> None:
        key, before = pod.key, self.pods.get(pod.key)
        if before is not None:
            if before == pod:
                return
            if before.uid != pod.uid or before.gang != pod.gang or before.ours != pod.ours:
                self._replaced(before, pod)
                before = None
        self.pods[key] = pod
        if pod.foreign_claims:
            self.devices.signs_of_others += 1
        if pod.gang is not None:
            self.members.setdefault(pod.gang, {})[key] = None
        if pod.node or pod.finished:
            self._confirmed(pod)
        self._update_nomination(before, pod)
        self._update_pod(pod, before)

    def _pod_lost(self, key: PodKey) -> None:
        pod = self.pods.pop(key, None)
        if self.assumed.pop(key, None) is not None:
            self.notes.event(WakeupEvent.DEVICES_CHANGED, self.devices.drop(key))
        self.clear_nomination(key)
        self._preemption_ended(key)
        if self.numa.active:
            self.numa.pod_deleted(key, pod, self.placed.get(key))
        self.notes.event(WakeupEvent.SHARE_CHANGED, self.fair.remove_pod(key))
        self.index.remove(key)
        self.notes.event(WakeupEvent.CAPACITY_FREED, self.nodes.release(key))
        self.notes.event(WakeupEvent.CAPACITY_FREED, self.claims.pod_lost(key))
        if pod is None:
            return
        if pod.gang is not None:
            members = self.members[pod.gang]
            members.pop(key, None)
            if not members:
                del self.members[pod.gang]
        gang = self.gang_states.get(pod.gang or single_pod_ref(key))
        if gang is not None and key in gang.states:
            gang.remove(key)
            self.notes.touch(gang, own=True)

    def _replaced(self, before: Pod, pod: Pod) -> None:
        """A pod was replaced, or moved to another gang: writes in flight for it stay in effect."""
        key, same, old = (
            pod.key,
            before.uid == pod.uid,
            self.gang_states.get(before.gang or single_pod_ref(pod.key)),
        )
        node = self.assumed.get(key) if same and pod.pending else None
        devices = self.devices.assumed_for(key)
        by = self.preempting.pop(key, None) if same else None  # before it counts as deleted
        if node is not None:
            self._gang_state(pod.gang or single_pod_ref(key), pod.gang is None).move_bind(key, old)
        self._pod_lost(key)
        if node is not None:
            self.assumed[key] = node
            self.devices.assume(key, devices)
        if by is not None:
            self.preempting[key] = by

    def _confirmed(self, pod: Pod) -> None:
        """The API shows a pod on its node, or finished: drop the assumed bind."""
        self.assumed.pop(pod.key, None)
        self.clear_nomination(pod.key, pod.node)
        gang = self.gang_states.get(pod.gang or single_pod_ref(pod.key))
        if gang is not None and pod.key in gang.binding:
            del gang.binding[pod.key]
            self.notes.touch(gang, own=False)

    def _update_nomination(self, before: Pod | None, pod: Pod) -> None:
        """A nomination in the API counts unless we have set another one since."""
        if not pod.pending:
            self.clear_nomination(pod.key, pod.node)
            return
        ours, reported = self.nominations.get(pod.key), pod.spec.nominated
        if ours is not None:
            self.nominations[pod.key] = pod, ours[1]
        if before is None or before.spec.nominated != reported:
            if reported:
                self.clear_nomination(pod.key, reported)
                self.nominations[pod.key] = pod, reported
            elif before is not None and ours is not None and ours[1] == before.spec.nominated:
                self.clear_nomination(pod.key)

    def clear_nomination(self, key: PodKey, comes_to: str = "") -> None:
        """Drop a nomination; others may use the capacity, unless the pod is bound to that node now."""
        nomination = self.nominations.pop(key, None)
        if nomination is None:
            return
        self.notes.event(WakeupEvent.CAPACITY_FREED, nomination[1] != comes_to)
        if self.fair.has_queue(nomination[0].gang):  # the nomination counted for its queue
            self.notes.event(
                WakeupEvent.SHARE_CHANGED if nomination[1] != comes_to else WakeupEvent.VICTIMS_ADDED
            )

    def _preemption_ended(self, key: PodKey) -> None:
        """A pod uses no capacity any more; the gang that preempted it may go on."""
        by = self.preempting.pop(key, None)
        gang = None if by is None else self.gang_states.get(by)
        if gang is not None and key in gang.victims:
            del gang.victims[key]
            self.notes.touch(gang, own=False)

    def _update_pod(self, pod: Pod, before: Pod | None = None) -> None:
        """Update capacity, pod index, shares and gang counts for a pod."""
        key, node = pod.key, pod.node or self.assumed.get(pod.key, "")
        leaving = pod.terminating or key in self.preempting
        if self.numa.active:
            self.numa.update_pod(pod, node, self.placed.get(key))
        shown = pod
        if node != pod.node or leaving != pod.terminating:
            shown = replace(pod, node=node, terminating=leaving)
        if shown.uses_capacity:
            if key not in self.placed:
                self.notes.event(WakeupEvent.POD_BOUND)
            elif before is not None and before.spec.signature != pod.spec.signature:
                self.notes.event(WakeupEvent.POD_BOUND)
                self.notes.event(WakeupEvent.CAPACITY_FREED)
            self.notes.event(WakeupEvent.CAPACITY_FREED, self.nodes.hold(shown))
            self.index.add(key, node, pod.spec.signature, leaving=leaving)
        elif key in self.placed:
            self.index.remove(key)
            self.notes.event(WakeupEvent.CAPACITY_FREED, self.nodes.release(key))
            self._preemption_ended(key)
            shown = pod  # it frees no more capacity
        if pod.slot is not None or key in self.claims.slots:
            self.notes.event(WakeupEvent.CAPACITY_FREED, self.claims.pod_seen(shown))
        if self.fair.active:
            self.notes.event(WakeupEvent.SHARE_CHANGED, self.fair.set_pod(shown, usage_kind(shown)))
        if pod.ours or pod.gang is not None:
            self._update_gang(shown, before)
            if pod.finished and pod.gang in self.gang_states:  # it may have been the last one with capacity
                self.notes.touch(self.gang_states[pod.gang], own=False)

    def _on_nodes(self) -> Iterator[Pod]:
        """All pods with a node, including assumed binds."""
        for key, pod in self.pods.items():
            if node := pod.node or self.assumed.get(key):
                yield pod if pod.node else replace(pod, node=node)

    def _update_gang(self, pod: Pod, before: Pod | None) -> None:
        key, lone = pod.key, pod.gang is None
        ref = single_pod_ref(key) if pod.gang is None else pod.gang
        if lone and ref not in self.gang_states and not pod.pending:
            return  # a single pod that is bound needs nothing more
        gang = self._gang_state(ref, lone)
        if lone and gang.spec is None:
            gang.spec = single_pod_spec(pod)
        if key not in gang.seen:
            self._arrivals += 1
            gang.seen[key] = self._arrivals
        changed = gang.set_pod(key, state_of(pod), (pod.pod_set, pod.rank))
        gang.set_unsupported(key, pod.spec.unsupported)
        if key in gang.pending:
            gang.ordered = None
            if before is not None and attempt_key(before) != attempt_key(pod):
                changed = True
                if lone:
                    gang.spec = single_pod_spec(pod)
        if changed:
            gang.changed = gang.changed or key in gang.pending
            self.notes.touch(gang, own=True)

    # ── what was decided, until the API shows it ───────────────────────────────────────────────────

    def assume_bound(self, pod: Pod, node: str, devices: AllocatedClaims = ()) -> None:
        """A bind of a pod is in flight, and with it the allocation of its claims."""
        self.clear_nomination(pod.key, node)
        self.assumed[pod.key] = node
        self.devices.assume(pod.key, devices)
        self._update_pod(pod)

    def assume_unbound(self, key: PodKey) -> None:
        """A bind did not happen. A nomination from before is still in the API, and counts again."""
        if self.assumed.pop(key, None) is not None:
            self.notes.event(WakeupEvent.DEVICES_CHANGED, self.devices.drop(key))
            pod = self.pods[key]
            self._update_pod(pod)
            self._update_nomination(None, pod)

    def assume_nominated(self, pod: Pod, node: str) -> None:
        """Capacity of a node is nominated for a pod."""
        self.nominations[pod.key] = pod, node

    def assume_preempted(self, pod: Pod, by: Ref) -> None:
        """A pod is being preempted for a gang."""
        self.preempting[pod.key] = by
        self._update_pod(pod)

    def assume_not_preempted(self, key: PodKey) -> None:
        """A preemption did not happen: the pod exists and is not terminating."""
        self._preemption_ended(key)
        self._update_pod(self.pods[key])

    def forget(self, ref: Ref) -> None:
        """A gang has neither a spec nor pods any more."""
        del self.gang_states[ref]


class ChangeNotes:
    """Notes of touched gangs and wakeup events. Many changes touch the same gang; it is recomputed once."""

    def __init__(self) -> None:
        self._touched: dict[Ref, bool] = {}  # gang → whether the gang itself changed
        self._hints: set[WakeupEvent] = set()

    def touch(self, gang: GangState, own: bool) -> None:
        """Recompute the state of a gang; `own`: the gang itself changed."""
        gang.note_started()
        self.mark(gang.ref, own)

    def mark(self, ref: Ref, own: bool) -> None:
        """The same for a gang given by reference only."""
        self._touched[ref] = own or self._touched.get(ref, False)

    def event(self, hint: WakeupEvent, happened: bool = True) -> None:
        """Note an event that may make pending gangs schedulable."""
        if happened:
            self._hints.add(hint)

    def take_touched(self) -> list[tuple[Ref, bool]]:
        """The gangs touched since the last call, and whether they themselves changed."""
        touched, self._touched = list(self._touched.items()), {}
        return touched

    def take_events(self) -> set[WakeupEvent]:
        """The wakeup events since the last call."""
        events, self._hints = self._hints, set()
        return events
