"""Claims, volumes, storage classes and what attaches to nodes, as the API server sends them and as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.model.storage import ClaimKey, StorageCapacity, StorageClass, Volume, VolumeClaim

BOUND = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
STORAGE = "storage"
BLOCK = "Block"


class ClaimSpec(Struct, frozen=True):
    """What is claimed."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: ContainerResources | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Struct, frozen=True):
    """How it fares."""

    phase: str | None = None


class ClaimWire(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimRef(Struct, frozen=True):
    """Whom a volume is meant for."""

    namespace: str = ""
    name: str = ""


class CsiSource(Struct, frozen=True):
    """A driver's name for a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(Struct, frozen=True):
    """Who reaches a volume."""

    required: NodeTerms | None = None


class VolumeSpec(Struct, frozen=True):
    """What a volume is."""

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
    """Nodes that a class may make volumes for."""

    match_label_expressions: list[RequirementWire] | None = None


class StorageClassWire(Struct, frozen=True):
    """A StorageClass."""

    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverLimit(Struct, frozen=True):
    """How many volumes attach."""

    count: int | None = None


class DriverWire(Struct, frozen=True):
    """A driver that a node has."""

    name: str = ""
    allocatable: DriverLimit | None = None


class CsiNodeSpec(Struct, frozen=True):
    """The drivers of a node."""

    drivers: list[DriverWire] | None = None


class CsiNodeWire(Struct, frozen=True):
    """A CSINode, named as its node."""

    metadata: Metadata = Metadata()
    spec: CsiNodeSpec = CsiNodeSpec()


class StoreRoomWire(Struct, frozen=True):
    """A CSIStorageCapacity."""

    metadata: Metadata = Metadata()
    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None
    node_topology: LabelSelector | None = None


CLAIMS = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", wire=ClaimWire)
VOLUMES = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, wire=PersistentVolumeWire)
GROUP = "storage.k8s.io"  # a cluster may do without
CLASSES = Kind(
    GROUP, "v1", "StorageClass", "storageclasses", namespaced=False, wire=StorageClassWire, optional=True
)
CSI_NODES = Kind(GROUP, "v1", "CSINode", "csinodes", namespaced=False, wire=CsiNodeWire, optional=True)
STORE_ROOMS = Kind(
    GROUP, "v1", "CSIStorageCapacity", "csistoragecapacities", wire=StoreRoomWire, optional=True
)


def claim_of(wire: ClaimWire) -> VolumeClaim:
    """A claim as a value."""
    meta, spec = wire.metadata, wire.spec
    notes = meta.annotations or {}
    owners = [owner.uid for owner in meta.owner_references or () if owner.kind == "Pod" and owner.controller]
    volume = spec.volume_name or ""
    return VolumeClaim(
        namespace=meta.namespace or "default",
        name=meta.name,
        storage_class=notes.get(OLD_CLASS, spec.storage_class_name or ""),
        volume=volume,
        bound=bool(volume) and BOUND in notes,
        size=_size((spec.resources or ContainerResources()).requests),
        modes=tuple(spec.access_modes or ()),
        block=spec.volume_mode == BLOCK,
        selector=selector(spec.selector) if spec.selector is not None else None,
        attributes=spec.volume_attributes_class_name or "",
        selected_node=notes.get(SELECTED_NODE, ""),
        lost=wire.status.phase == "Lost",
        leaving=meta.deletion_timestamp is not None,
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
        leaving=meta.deletion_timestamp is not None,
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
        waits=wire.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(_topology(term) for term in wire.allowed_topologies or ()),
    )


def limits_of(wire: CsiNodeWire) -> Mapping[str, int]:
    """How many volumes of each driver a node takes; drivers without a limit are left out."""
    drivers: Iterable[DriverWire] = wire.spec.drivers or ()
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def store_room_of(wire: StoreRoomWire) -> StorageCapacity:
    """How much room a driver says there is."""
    largest = wire.maximum_volume_size if wire.maximum_volume_size is not None else wire.capacity
    return StorageCapacity(
        wire.storage_class_name,
        _bytes(largest) if largest is not None else -1,
        selector(wire.node_topology),
    )


def claim_write(claim: ClaimKey, uid: str, node: str) -> Write:
    """Tell a claim on which node its volume is needed, so that one is made there."""
    body = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    return Write(Verb.MERGE_PATCH, CLAIMS, *claim, body, uid=uid)


def volume_write(volume: str, version: str, claim: ClaimKey, uid: str) -> Write:
    """Tell a volume which claim it is for, unless it changed since."""
    namespace, name = claim
    meant = {"apiVersion": "v1", "kind": CLAIMS.kind, "namespace": namespace, "name": name, "uid": uid}
    body = {"metadata": {"annotations": {BOUND_BY_US: "yes"}}, "spec": {"claimRef": meant}}
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
    """A size in bytes; one that cannot be read is larger than any volume."""
    try:
        return max(0, amount(STORAGE, value))
    except ValueError:
        return AMOUNT_MAX
