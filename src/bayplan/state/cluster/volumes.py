"""State of volumes and claims: their snapshot for decisions, and which volumes a placed pod gets."""

from __future__ import annotations

from bayplan.model.pod_spec import PodSignature
from bayplan.model.storage import (
    ClaimKey,
    NodeVolumes,
    Storage,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
)
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.filters.volumes import candidates, reach

Item = VolumeClaim | Volume | StorageClass | StorageCapacity | NodeVolumes


class VolumeState:
    """All storage objects. A snapshot shares these dicts; a change makes the next snapshot a new object."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, NodeVolumes] = {}
        self.capacities: dict[str, StorageCapacity] = {}
        self._snapshot: Storage | None = None

    def seen(self, item: Item, key: str) -> bool:
        """Store an object. Returns whether it changed."""
        match item:
            case VolumeClaim():
                return self._put(self.claims, item.key, item)
            case Volume():
                return self._put(self.volumes, item.name, item)
            case StorageClass():
                return self._put(self.classes, item.name, item)
            case NodeVolumes():
                return self._put(self.nodes, item.node, item)
            case StorageCapacity():
                return self._put(self.capacities, key, item)

    def lost(self, group: str, key: str) -> bool:
        """Remove an object. Returns whether it existed."""
        namespace, _, name = key.partition("/")
        known: dict[str, tuple[dict, object]] = {  # type: ignore[type-arg]
            "VolumeClaim": (self.claims, (namespace, name)),
            "Volume": (self.volumes, key),
            "StorageClass": (self.classes, key),
            "NodeVolumes": (self.nodes, key),
            "StoreRoom": (self.capacities, key),
        }
        items, at = known[group]
        if items.pop(at, None) is None:
            return False
        self._snapshot = None
        return True

    def _put(self, items: dict, key: object, item: Item) -> bool:  # type: ignore[type-arg]
        if items.get(key) == item:
            return False
        items[key] = item
        self._snapshot = None
        return True

    def snapshot(self) -> Storage:
        """A snapshot of all storage objects; the same object until something changes."""
        if self._snapshot is None:
            classes = {room.storage_class for room in self.capacities.values()}
            self._snapshot = Storage(
                claims=self.claims,
                volumes=self.volumes,
                classes=self.classes,
                limits={name: volumes.limits for name, volumes in self.nodes.items()},
                measured=frozenset(self.classes[name].provisioner for name in classes & self.classes.keys()),
                capacities=tuple(self.capacities.values()),
            )
        return self._snapshot


def volumes_for(
    node_index: NodeIndex, storage: Storage, shape: PodSignature, node: str
) -> dict[ClaimKey, str]:
    """For each unbound claim the volume to bind on the node; an empty name: one is to be provisioned.

    No volume is used twice, and each claim gets the smallest sufficient one, as in the volume filter.
    """
    claims = [storage.claims.get((shape.namespace, use.name)) for use in shape.claims]
    unbound = sorted((one for one in claims if one is not None and not one.bound), key=lambda one: one.size)
    row = node_index.row(node)
    found: dict[ClaimKey, str] = {}
    for claim in unbound:
        near = [
            volume.name
            for volume in (() if claim.selected_node else candidates(storage, claim))
            if volume.name not in found.values() and row >= 0 and reach(node_index, volume)[row]
        ]
        found[claim.key] = near[0] if near else ""
    return found
