"""The object a change is about, so that only the newest change of every object has to be kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from bayplan.model import change as changes
from bayplan.model.change import Change
from bayplan.model.devices.claims import DeviceClaim
from bayplan.model.storage import NodeVolumes, StorageCapacity, VolumeClaim

Subject = tuple[str, Hashable]


def subject_of(change: Change) -> Subject:
    """The kind and the key of the object that a change is about."""
    kind, key = _KEYS[type(change)]
    return kind, key(change)


def is_loss(change: Change) -> bool:
    """Whether a change is a deletion."""
    return type(change) in _LOSSES


def is_start(change: Change) -> bool:
    """Whether a change marks the start of a scheduler process."""
    return type(change) is changes.Started


def _storage_key(change: changes.StorageSeen) -> Hashable:
    item = change.item
    match item:
        case VolumeClaim():
            return type(item).__name__, f"{item.namespace}/{item.name}"
        case NodeVolumes():
            return type(item).__name__, item.node
        case StorageCapacity():
            return type(item).__name__, change.key
    return type(item).__name__, item.name


def _device_key(change: changes.DeviceObjectSeen | changes.DeviceObjectLost) -> Hashable:
    item = change.item
    return type(item).__name__, str(item.key) if isinstance(item, DeviceClaim) else item.name


_KEYS: dict[type[Any], tuple[str, Callable[[Any], Hashable]]] = {
    changes.Started: ("Start", lambda change: ""),
    changes.NodeSeen: ("Node", lambda change: change.node.name),
    changes.NodeLost: ("Node", lambda change: change.name),
    changes.TopologySeen: ("Topology", lambda change: change.topology.name),
    changes.TopologyLost: ("Topology", lambda change: change.name),
    changes.PodSeen: ("Pod", lambda change: change.pod.key),
    changes.PodLost: ("Pod", lambda change: change.key),
    changes.GangSpecSeen: ("GangSpec", lambda change: change.spec.source),
    changes.GangSpecLost: ("GangSpec", lambda change: change.ref),
    changes.BudgetSeen: ("Budget", lambda change: (change.budget.namespace, change.budget.name)),
    changes.BudgetLost: ("Budget", lambda change: (change.namespace, change.name)),
    changes.StorageSeen: ("Storage", _storage_key),
    changes.StorageLost: ("Storage", lambda change: (change.kind, change.key)),
    changes.DeviceObjectSeen: ("Device", _device_key),
    changes.DeviceObjectLost: ("Device", _device_key),
    changes.ImagesSeen: ("Images", lambda change: change.node),
    changes.NumaReportSeen: ("NumaReport", lambda change: change.report.node),
    changes.NumaReportLost: ("NumaReport", lambda change: change.node),
    changes.FairQueueSeen: ("FairQueue", lambda change: change.queue.name),
    changes.FairQueueLost: ("FairQueue", lambda change: change.name),
    changes.FlavorSeen: ("Flavor", lambda change: change.flavor.name),
    changes.FlavorLost: ("Flavor", lambda change: change.name),
    changes.QuotaNodeSeen: ("QuotaNode", lambda change: change.node.name),
    changes.QuotaNodeLost: ("QuotaNode", lambda change: change.name),
    changes.QueueSeen: ("Queue", lambda change: change.queue.name),
    changes.QueueLost: ("Queue", lambda change: change.name),
    changes.NamespaceQueueSeen: (
        "NamespaceQueue",
        lambda change: (change.queue.namespace, change.queue.name),
    ),
    changes.NamespaceQueueLost: ("NamespaceQueue", lambda change: (change.namespace, change.name)),
    changes.CheckSeen: ("Check", lambda change: change.check.name),
    changes.CheckLost: ("Check", lambda change: change.name),
    changes.NamespaceSeen: ("Namespace", lambda change: change.name),
    changes.NamespaceLost: ("Namespace", lambda change: change.name),
    changes.QueuedGangSeen: ("QueuedGang", lambda change: change.queued_gang.gang.source),
    changes.QueuedGangLost: ("QueuedGang", lambda change: change.ref),
}
_LOSSES = frozenset(kind for kind in _KEYS if kind.__name__.endswith("Lost"))
