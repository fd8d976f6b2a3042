"""What happened out there, in the model's words: the only way into the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.node import Node, Topology
from bayplan.model.numa import NodeZones
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Check, FairQueue, Flavor, NamespaceQueue, Queue, QuotaNode
from bayplan.model.storage import NodeVolumes, StorageCapacity, StorageClass, Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node is there, as it is now."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A topology is defined, as it is now."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyLost:
    """A topology is no longer defined."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod is there, as it is now."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodLost:
    """A pod is no more."""

    key: PodKey


@dataclass(frozen=True, slots=True)
class GangSpecSeen:
    """The rules of a gang are there, as they are now."""

    charter: GangSpec


@dataclass(frozen=True, slots=True)
class GangSpecLost:
    """The rules of a gang are no more, or it is over."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """So many pods of a kind may be made to go."""

    budget: DisruptionBudget


@dataclass(frozen=True, slots=True)
class BudgetLost:
    """Nobody limits how many pods of a kind may go."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """A claim, volume, class or room for volumes is there, as it is now."""

    item: VolumeClaim | Volume | StorageClass | StorageCapacity | NodeVolumes
    key: str = ""  # tells apart items that have no name of their own


@dataclass(frozen=True, slots=True)
class StorageLost:
    """Something about volumes is no more."""

    kind: str  # the class of the item
    key: str  # its name; for a claim, namespace and name with a slash between


@dataclass(frozen=True, slots=True)
class ImagesSeen:
    """A node has these images, by size."""

    node: str
    images: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NumaReportSeen:
    """A node reports what lies inside it, as it is now."""

    report: NodeZones


@dataclass(frozen=True, slots=True)
class NumaReportLost:
    """A node reports nothing of its inside any more."""

    node: str


@dataclass(frozen=True, slots=True)
class FairQueueSeen:
    """A queue that shares the nodes with others is there, as it is now."""

    queue: FairQueue


@dataclass(frozen=True, slots=True)
class FairQueueLost:
    """A queue that shared the nodes with others is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class FlavorSeen:
    """A flavor is defined, as it is now."""

    flavor: Flavor


@dataclass(frozen=True, slots=True)
class FlavorLost:
    """A flavor is no longer defined."""

    name: str


@dataclass(frozen=True, slots=True)
class QuotaNodeSeen:
    """A node of the quota tree that queues share is defined, as it is now."""

    node: QuotaNode


@dataclass(frozen=True, slots=True)
class QuotaNodeLost:
    """A shared node of the quota tree is no longer defined."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A queue is there, as it is now."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueLost:
    """A queue is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceQueueSeen:
    """An entrance to a queue is there, as it is now."""

    entrance: NamespaceQueue


@dataclass(frozen=True, slots=True)
class NamespaceQueueLost:
    """An entrance is no more."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CheckSeen:
    """A check is there, as it is now."""

    check: Check


@dataclass(frozen=True, slots=True)
class CheckLost:
    """A check is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """A namespace is there, with these labels."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NamespaceLost:
    """A namespace is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class QueuedGangSeen:
    """A gang asks for quota, or has it, as it is now."""

    demand: QueuedGang


@dataclass(frozen=True, slots=True)
class QueuedGangLost:
    """A gang no longer asks for quota, and holds none."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Started:
    """A scheduler began to look: nothing from before is known any more."""


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
