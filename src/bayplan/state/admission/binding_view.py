"""Pods, volumes and nodes as the filters of binding read them, for admission.

The pod index is made when the first gang or pod needs it: most clusters admit gangs that no filter concerns.
It refers to the signatures that the scheduler of the process has as well. The index itself is not shared:
each role applies its changes in its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bayplan.model.assignment import Path
from bayplan.model.change import (
    Change,
    DeviceObjectLost,
    DeviceObjectSeen,
    DevicesAssumed,
    NamespaceLost,
    NamespaceSeen,
    NodeLost,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    StorageLost,
    StorageSeen,
)
from bayplan.model.gang import PodSet, Ref
from bayplan.model.node import Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodAffinityTerm
from bayplan.model.queued_gang import QueuedGang
from bayplan.placement.cluster.node_index import NodeIndex, NodeSnapshot, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.state.admission.other_pods import UnmanagedPods
from bayplan.state.admission.usage import AdmittedUsage
from bayplan.state.cluster.device_state import DeviceState
from bayplan.state.cluster.volumes import VolumeState


@dataclass(frozen=True, slots=True)
class SlotPods:
    """The pods of one pod set of an admitted gang in one domain: those that exist, and how many do not."""

    pod_set: PodSet
    levels: tuple[str, ...]
    domain: Path
    pods: tuple[PodKey, ...]
    missing: int


@dataclass(frozen=True, slots=True, eq=False)
class BindingView:
    """The input of the filters: all nodes, without amounts; all pods on nodes; volumes; pods of gangs."""

    filter_input: FilterInput
    usage: AdmittedUsage
    unmanaged: UnmanagedPods
    repelling: Mapping[Ref, tuple[PodAffinityTerm, ...]]  # anti-affinity terms of queued and admitted gangs
    devices: DeviceState

    def node_of(self, host: str) -> str:
        """The name of the node with this host label."""
        return self.usage.hosts.get(host, host)

    def gangs(self) -> Iterable[Ref]:
        """The admitted gangs."""
        return self.usage.by_gang

    def is_complete(self, ref: Ref) -> bool:
        """Whether all pods of an admitted gang are on nodes."""
        usage = self.usage.by_gang[ref]
        family = self.unmanaged.families.get(usage.queued_gang.family)
        return family is not None and len(family.pods) >= sum(family.slots.values())

    def slots_of(self, ref: Ref) -> Iterator[SlotPods]:
        """The slots of an admitted gang, and the pods that have them."""
        usage = self.usage.by_gang.get(ref)
        family = None if usage is None else self.unmanaged.families.get(usage.queued_gang.family)
        if usage is None or family is None:
            return
        shapes = {pod_set.name: pod_set for pod_set in usage.queued_gang.gang.root.pod_sets()}
        for (name, levels, domain), count in family.slots.items():
            if name in shapes:
                pods = tuple(family.inside.get((name, levels, domain), ()))[:count]
                yield SlotPods(shapes[name], levels, domain, pods, count - len(pods))


class BindingFacts:
    """Follows pods, nodes, namespaces and volumes."""

    def __init__(self, usage: AdmittedUsage, unmanaged: UnmanagedPods, devices: DeviceState) -> None:
        self.usage, self.unmanaged, self.devices = usage, unmanaged, devices
        self.volumes = VolumeState()
        self.claiming: set[Ref] = set()  # queued and admitted gangs whose pods claim devices
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.index: PodIndex | None = None
        self.sought: dict[Ref, tuple[PodAffinityTerm, ...]] = {}  # pods that queued gangs have to be near
        self.repelling: dict[Ref, tuple[PodAffinityTerm, ...]] = {}  # anti-affinity of queued gangs
        self._nodes: NodeIndex | None = None

    def view(self) -> BindingView | None:
        """What the filters read; None if no gang and no pod has used any of them yet."""
        if self.index is None:
            return None
        if self._nodes is None:
            nodes = np.empty(len(self.usage.nodes), dtype=object)
            nodes[:] = list(self.usage.nodes.values())
            self._nodes = node_index_of(table_of(nodes), self.index.slots)
        none = np.zeros((0, len(self._nodes)), dtype=np.int64)
        node_snapshot = NodeSnapshot(self._nodes, {}, none, none)
        supply = self.devices.supply(always=bool(self.claiming))
        filter_input = FilterInput(node_snapshot, self.index, self.volumes.snapshot(), devices=supply)
        return BindingView(filter_input, self.usage, self.unmanaged, self.repelling, self.devices)

    def apply(self, change: Change) -> bool:
        """Follow a change that the state has applied. Returns whether it may help a gang that waits."""
        match change:
            case PodSeen(pod):
                return self._pod_seen(pod)
            case PodLost(key):
                return self._pod_lost(key)
            case DevicesAssumed(pod_key, allocations):
                freed = self.devices.drop(pod_key)
                self.devices.assume(pod_key, allocations)
                return freed and bool(self.claiming)
            case DeviceObjectSeen(part):
                return self.devices.seen(part) and bool(self.claiming)
            case DeviceObjectLost(part):
                return self.devices.lost(part) and bool(self.claiming)
            case QueuedGangSeen(queued):
                self._gang_seen(queued)
            case QueuedGangLost(ref):
                self.sought.pop(ref, None)
                self.repelling.pop(ref, None)
                self.claiming.discard(ref)
            case NodeLost(name):
                self._node_lost(name)
            case NamespaceSeen(name, labels):
                return self._namespace(name, labels)
            case NamespaceLost(name):
                return self._namespace(name, None)
            case StorageSeen(item, key):
                return self.volumes.seen(item, key) and self.index is not None
            case StorageLost(kind, key):
                return self.volumes.lost(kind, key) and self.index is not None
        return False

    def nodes_seen(self, nodes: Mapping[str, Node]) -> None:
        """Nodes are about to be added or changed."""
        for name, node in nodes.items():
            if self.usage.nodes.get(name) != node:
                self._nodes = None
                self.devices.node_changed(name)

    def forget_nodes(self) -> None:
        """Build the node index anew when it is needed."""
        self._nodes = None

    def _node_lost(self, name: str) -> None:
        self._nodes = None
        self.devices.node_changed(name)
        if self.index is not None:
            self.index.slots.drop(name)
            self.index.tidy()

    def _gang_seen(self, queued: QueuedGang) -> None:
        templates = [one.template for one in queued.gang.root.pod_sets() if one.template is not None]
        if any(template.needs_trial for template in templates):
            self._start()
        if any(template.devices is not None for template in templates):
            self.claiming.add(queued.gang.source)
        else:
            self.claiming.discard(queued.gang.source)
        required = (term for template in templates for term in template.affinity.required)
        anti = (term for template in templates for term in template.affinity.required_anti)
        for known, terms in ((self.sought, required), (self.repelling, anti)):
            in_namespace = tuple(term.in_namespace(queued.gang.source.namespace) for term in terms)
            if in_namespace:
                known[queued.gang.source] = in_namespace
            else:
                known.pop(queued.gang.source, None)

    def _pod_lost(self, key: PodKey) -> bool:
        """Returns whether devices are free again."""
        if self.index is not None:
            self.index.remove(key)
            self.index.tidy()
        return self.devices.drop(key) and bool(self.claiming)

    def _pod_seen(self, pod: Pod) -> bool:
        """Returns whether a queued gang has to be near the pod."""
        shape = pod.spec.signature
        if self.index is None:
            if shape.affinity.required_anti and pod.uses_capacity:
                self._start()  # with this pod
            return False
        before = self.index.pods.get(pod.key)
        if pod.uses_capacity:
            self.index.add(pod.key, pod.node, shape, leaving=pod.terminating)
        else:
            self.index.remove(pod.key)
        after = self.index.pods.get(pod.key)
        self.index.tidy()
        return after is not None and after is not before and self._is_sought(pod)

    def _namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Returns whether a queued gang has to be near pods of other namespaces."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        if self.index is not None and (labels is not None or name in self.index.namespaces):
            self.index.set_namespace(name, labels)
        return bool(self.sought)

    def _start(self) -> None:
        if self.index is not None:
            return
        self.index = PodIndex()
        self.index.slots.users.append(self._has_node)
        for name, labels in self.namespaces.items():
            self.index.set_namespace(name, labels)
        for pod in self.unmanaged.pods():
            if pod.uses_capacity:
                self.index.add(pod.key, pod.node, pod.spec.signature, leaving=pod.terminating)

    def _has_node(self, name: str) -> bool:
        return name in self.usage.nodes

    def _is_sought(self, pod: Pod) -> bool:
        namespace, labels = pod.key.namespace, dict(pod.spec.signature.labels)
        about = self.namespaces.get(namespace, {})
        return any(term.selects(namespace, about, labels) for terms in self.sought.values() for term in terms)
