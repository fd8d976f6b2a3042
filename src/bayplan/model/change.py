"""Changes of the cluster, decoded into the model: the only input of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.devices.claims import DeviceAllocation, DeviceClaim, DeviceClaimKey
from bayplan.model.devices.inventory import DeviceClass, DeviceSlice
from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.node import Node, Topology
from bayplan.model.numa import NodeZones
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Check, FairQueue, Flavor, NamespaceQueue, Queue, QuotaNode
from bayplan.model.storage import NodeVolumes, StorageCapacity, StorageClass, Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was added or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A topology was added or changed."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyLost:
    """A topology was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod was added or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodLost:
    """A pod was deleted."""

    key: PodKey


@dataclass(frozen=True, slots=True)
class GangSpecSeen:
    """The spec of a gang was added or changed."""

    spec: GangSpec


@dataclass(frozen=True, slots=True)
class GangSpecLost:
    """The spec of a gang was deleted, or the gang finished."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A disruption budget was added or changed."""

    budget: DisruptionBudget


@dataclass(frozen=True, slots=True)
class BudgetLost:
    """A disruption budget was deleted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """A claim, volume, storage class, storage capacity or volume limit was added or changed."""

    item: VolumeClaim | Volume | StorageClass | StorageCapacity | NodeVolumes
    key: str = ""  # identifies items without a name of their own


@dataclass(frozen=True, slots=True)
class StorageLost:
    """A storage object was deleted."""

    kind: str  # the kind of the item
    key: str  # its name; for namespaced items `namespace/name`


@dataclass(frozen=True, slots=True)
class DeviceObjectSeen:
    """A claim, a class or a slice of devices was added or changed."""

    item: DeviceClaim | DeviceClass | DeviceSlice


@dataclass(frozen=True, slots=True)
class DeviceObjectLost:
    """A claim, a class or a slice of devices was deleted; as last seen."""

    item: DeviceClaim | DeviceClass | DeviceSlice


@dataclass(frozen=True, slots=True)
class DevicesAssumed:
    """A pod is being bound, for which these claims get devices; none: it is not bound after all."""

    pod: PodKey
    allocations: tuple[tuple[DeviceClaimKey, DeviceAllocation], ...] = ()


@dataclass(frozen=True, slots=True)
class ImagesSeen:
    """The images of a node, by size."""

    node: str
    images: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NumaReportSeen:
    """The NUMA report of a node was added or changed."""

    report: NodeZones


@dataclass(frozen=True, slots=True)
class NumaReportLost:
    """The NUMA report of a node was deleted."""

    node: str


@dataclass(frozen=True, slots=True)
class FairQueueSeen:
    """A fair-share queue was added or changed."""

    queue: FairQueue


@dataclass(frozen=True, slots=True)
class FairQueueLost:
    """A fair-share queue was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class FlavorSeen:
    """A flavor was added or changed."""

    flavor: Flavor


@dataclass(frozen=True, slots=True)
class FlavorLost:
    """A flavor was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class QuotaNodeSeen:
    """A shared node of the quota tree was added or changed."""

    node: QuotaNode


@dataclass(frozen=True, slots=True)
class QuotaNodeLost:
    """A shared node of the quota tree was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A queue was added or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueLost:
    """A queue was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceQueueSeen:
    """A namespace queue was added or changed."""

    queue: NamespaceQueue


@dataclass(frozen=True, slots=True)
class NamespaceQueueLost:
    """A namespace queue was deleted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CheckSeen:
    """An admission check was added or changed."""

    check: Check


@dataclass(frozen=True, slots=True)
class CheckLost:
    """An admission check was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """A namespace was added or changed."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NamespaceLost:
    """A namespace was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class QueuedGangSeen:
    """A queued gang was added or changed."""

    queued_gang: QueuedGang


@dataclass(frozen=True, slots=True)
class QueuedGangLost:
    """A queued gang was deleted, or finished."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Started:
    """A scheduler process started: its state is empty."""


Change = (
    Started
    | NodeSeen
    | NodeLost
    | TopologySeen
    | TopologyLost
    | PodSeen
    | PodLost
    | GangSpecSeen
    | GangSpecLost
    | BudgetSeen
    | BudgetLost
    | StorageSeen
    | StorageLost
    | DeviceObjectSeen
    | DeviceObjectLost
    | DevicesAssumed
    | ImagesSeen
    | NumaReportSeen
    | NumaReportLost
    | FairQueueSeen
    | FairQueueLost
    | FlavorSeen
    | FlavorLost
    | QuotaNodeSeen
    | QuotaNodeLost
    | QueueSeen
    | QueueLost
    | NamespaceQueueSeen
    | NamespaceQueueLost
    | CheckSeen
    | CheckLost
    | NamespaceSeen
    | NamespaceLost
    | QueuedGangSeen
    | QueuedGangLost
)
