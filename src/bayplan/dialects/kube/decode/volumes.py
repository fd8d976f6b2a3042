"""Claims, volumes, storage classes and CSI limits, as the API server sends them and as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kube.decode.pod_spec import node_term, selector
from bayplan.dialects.kube.decode.wire import (
    ContainerResources,
    LabelSelector,
    Metadata,
    NodeTerms,
    RequirementWire,
    Struct,
)
from bayplan.dialects.kube.fields.quantity import AMOUNT_MAX, amount
from bayplan.model.change import Change, StorageLost, StorageSeen
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.model.storage import ClaimKey, NodeVolumes, StorageCapacity, StorageClass, Volume, VolumeClaim

BOUND = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
STORAGE = "storage"
BLOCK = "Block"


class ClaimSpec(Struct, frozen=True):
    """The spec of a PersistentVolumeClaim."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: ContainerResources | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Struct, frozen=True):
    """The status of a claim or volume."""

    phase: str | None = None


class ClaimWire(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimRef(Struct, frozen=True):
    """The claim that a volume is bound to or reserved for."""

    namespace: str = ""
    name: str = ""


class CsiSource(Struct, frozen=True):
    """The CSI driver and handle of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(Struct, frozen=True):
    """The nodes that can access a volume."""

    required: NodeTerms | None = None


class VolumeSpec(Struct, frozen=True):
    """The spec of a PersistentVolume."""

    capacity: dict[str, str | int | float] | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimRef | None = None
    node_affinity: VolumeAffinity | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiSource | None = None


class PersistentVolumeWire(Struct, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class TopologyTerm(Struct, frozen=True):
    """Nodes for which a storage class may provision volumes."""

    match_label_expressions: list[RequirementWire] | None = None


class StorageClassWire(Struct, frozen=True):
    """A StorageClass."""

    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverLimit(Struct, frozen=True):
    """The number of volumes that can be attached."""

    count: int | None = None


class DriverWire(Struct, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: DriverLimit | None = None


class CsiNodeSpec(Struct, frozen=True):
    """The CSI drivers of a node."""

    drivers: list[DriverWire] | None = None


class CsiNodeWire(Struct, frozen=True):
    """A CSINode; it has the name of its node."""

    metadata: Metadata = Metadata()
    spec: CsiNodeSpec = CsiNodeSpec()


class StorageCapacityWire(Struct, frozen=True):
    """A CSIStorageCapacity."""

    metadata: Metadata = Metadata()
    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None
    node_topology: LabelSelector | None = None


CLAIMS = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", wire=ClaimWire)
VOLUMES = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, wire=PersistentVolumeWire)
GROUP = "storage.k8s.io"  # optional in a cluster
CLASSES = Kind(
    GROUP, "v1", "StorageClass", "storageclasses", namespaced=False, wire=StorageClassWire, optional=True
)
CSI_NODES = Kind(GROUP, "v1", "CSINode", "csinodes", namespaced=False, wire=CsiNodeWire, optional=True)
STORAGE_CAPACITIES = Kind(
    GROUP, "v1", "CSIStorageCapacity", "csistoragecapacities", wire=StorageCapacityWire, optional=True
)


def claim_of(wire: ClaimWire) -> VolumeClaim:
    """A claim as a value."""
    meta, spec = wire.metadata, wire.spec
    annotations = meta.annotations or {}
    owners = [owner.uid for owner in meta.owner_references or () if owner.kind == "Pod" and owner.controller]
    volume = spec.volume_name or ""
    return VolumeClaim(
        namespace=meta.namespace or "default",
        name=meta.name,
        storage_class=annotations.get(OLD_CLASS, spec.storage_class_name or ""),
        volume=volume,
        bound=bool(volume) and BOUND in annotations,
        size=_size((spec.resources or ContainerResources()).requests),
        modes=tuple(spec.access_modes or ()),
        block=spec.volume_mode == BLOCK,
        selector=selector(spec.selector) if spec.selector is not None else None,
        attributes=spec.volume_attributes_class_name or "",
        selected_node=annotations.get(SELECTED_NODE, ""),
        lost=wire.status.phase == "Lost",
        terminating=meta.deletion_timestamp is not None,
        owner=owners[0] if owners else "",
    )


def volume_of(wire: PersistentVolumeWire) -> Volume:
    """A volume as a value."""
    meta, spec = wire.metadata, wire.spec
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    csi = spec.csi or CsiSource()
    return Volume(
        name=meta.name,
        size=_size(spec.capacity),
        storage_class=(meta.annotations or {}).get(OLD_CLASS, spec.storage_class_name or ""),
        modes=tuple(spec.access_modes or ()),
        block=spec.volume_mode == BLOCK,
        claim=(spec.claim_ref.namespace, spec.claim_ref.name) if spec.claim_ref is not None else None,
        available=wire.status.phase == "Available",
        terminating=meta.deletion_timestamp is not None,
        labels=meta.labels or {},
        affinity=None if required is None else tuple(map(node_term, required.node_selector_terms or ())),
        attributes=spec.volume_attributes_class_name or "",
        driver=csi.driver,
        handle=csi.volume_handle,
    )


def class_of(wire: StorageClassWire) -> StorageClass:
    """A storage class as a value."""
    return StorageClass(
        name=wire.metadata.name,
        provisioner=wire.provisioner,
        wait_for_consumer=wire.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(_topology(term) for term in wire.allowed_topologies or ()),
    )


def limits_of(wire: CsiNodeWire) -> Mapping[str, int]:
    """The attach limit of each driver of a node; drivers without a limit are left out."""
    drivers: Iterable[DriverWire] = wire.spec.drivers or ()
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def storage_capacity_of(wire: StorageCapacityWire) -> StorageCapacity:
    """A CSIStorageCapacity as a value."""
    largest = wire.maximum_volume_size if wire.maximum_volume_size is not None else wire.capacity
    return StorageCapacity(
        wire.storage_class_name,
        _bytes(largest) if largest is not None else -1,
        selector(wire.node_topology),
    )


def claim_write(claim: ClaimKey, uid: str, node: str) -> Write:
    """Set the selected node of a claim, so that its volume is provisioned there."""
    body = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    return Write(Verb.MERGE_PATCH, CLAIMS, *claim, body, uid=uid)


def volume_write(volume: str, version: str, claim: ClaimKey, uid: str) -> Write:
    """Bind a volume to a claim, unless the volume changed since."""
    namespace, name = claim
    claim_ref = {"apiVersion": "v1", "kind": CLAIMS.kind, "namespace": namespace, "name": name, "uid": uid}
    body = {"metadata": {"annotations": {BOUND_BY_US: "yes"}}, "spec": {"claimRef": claim_ref}}
    return Write(Verb.MERGE_PATCH, VOLUMES, "", volume, body, version=version)


def _topology(wire: TopologyTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(
            Requirement(one.key, "In", tuple(one.values or ())) for one in wire.match_label_expressions or ()
        )
    )


def _size(amounts: Mapping[str, str | int | float] | None) -> int:
    return _bytes((amounts or {}).get(STORAGE, 0))


def _bytes(value: str | int | float) -> int:
    """A size in bytes; an invalid one is larger than any volume."""
    try:
        return max(0, amount(STORAGE, value))
    except ValueError:
        return AMOUNT_MAX


KINDS = (CLAIMS, VOLUMES, CLASSES, CSI_NODES, STORAGE_CAPACITIES)


def storage_changes(kind: str, wire: Any, gone: bool) -> Iterator[Change]:
    """The change that an event of a storage object means; none for other kinds."""
    name = wire.metadata.name
    own = f"{wire.metadata.namespace or 'default'}/{name}"
    match kind:
        case "PersistentVolumeClaim":
            yield StorageLost("VolumeClaim", own) if gone else StorageSeen(claim_of(wire))
        case "PersistentVolume":
            yield StorageLost("Volume", name) if gone else StorageSeen(volume_of(wire))
        case "StorageClass":
            yield StorageLost("StorageClass", name) if gone else StorageSeen(class_of(wire))
        case "CSINode":
            yield (
                StorageLost("NodeVolumes", name) if gone else StorageSeen(NodeVolumes(name, limits_of(wire)))
            )
        case "CSIStorageCapacity":
            yield StorageLost("StoreRoom", own) if gone else StorageSeen(storage_capacity_of(wire), own)
