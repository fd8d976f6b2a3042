"""API objects decoded by Bayplan's own dialect into the input of the filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from bayplan.dialects.kube.decode.pod_spec import default_spread_selector, pod_signature
from bayplan.dialects.kube.decode.volumes import (
    ClaimWire,
    CsiNodeWire,
    PersistentVolumeWire,
    StorageClassWire,
    claim_of,
    class_of,
    limits_of,
    volume_of,
)
from bayplan.dialects.kube.decode.wire import NodeWire, PodWire, node_of
from bayplan.model.node import Node
from bayplan.model.pod_spec import PodSignature
from bayplan.model.storage import Storage
from bayplan.placement.cluster.images import ImageIndex
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.filters.pipeline import FilterInput

Obj = dict[str, Any]
T = TypeVar("T")


def shape_of(world: Obj, pod: Obj) -> PodSignature:
    """A pod's signature, with the selectors of the services that select it."""
    wire = msgspec.convert(pod, PodWire)
    selectors = [
        service["spec"]["selector"]
        for service in world["services"]
        if service["metadata"]["namespace"] == pod["metadata"]["namespace"]
    ]
    return pod_signature(wire, default_spread_selector(wire.metadata.labels or {}, selectors))


def key_of(pod: Obj) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def index_of(world: Obj, pods: Iterable[Obj] | None = None) -> PodIndex:
    index = PodIndex()
    for name, labels in world["namespaces"].items():
        index.set_namespace(name, labels)
    for pod in world["pods"] if pods is None else pods:
        put(index, world, pod)
    return index


def put(index: PodIndex, world: Obj, pod: Obj) -> None:
    leaving = bool(pod["metadata"].get("deletionTimestamp"))
    index.add(key_of(pod), pod["spec"]["nodeName"], shape_of(world, pod), leaving=leaving)


def storage_of(world: Obj) -> Storage:
    claims = [claim_of(msgspec.convert(obj, ClaimWire)) for obj in world["claims"]]
    volumes = [volume_of(msgspec.convert(obj, PersistentVolumeWire)) for obj in world["volumes"]]
    classes = [class_of(msgspec.convert(obj, StorageClassWire)) for obj in world["classes"]]
    nodes = [msgspec.convert(obj, CsiNodeWire) for obj in world["csinodes"]]
    return Storage(
        {claim.key: claim for claim in claims},
        {volume.name: volume for volume in volumes},
        {storage_class.name: storage_class for storage_class in classes},
        {node.metadata.name: limits_of(node) for node in nodes},
    )


def nodes_of(world: Obj) -> list[Node]:
    return [node_of(msgspec.convert(obj, NodeWire)) for obj in world["nodes"]]


def node_snapshot_of(world: Obj, index: PodIndex) -> NodeSnapshot:
    nodes = nodes_of(world)
    table = table_of(np.asarray([*nodes, None], dtype=object)[:-1])
    shapes = [(pod["spec"]["nodeName"], shape_of(world, pod)) for pod in world["pods"]]
    names = {name for node in nodes for name in node.allocatable}
    names |= {name for _, shape in shapes for name, _ in shape.amounts}
    resources = {name: at for at, name in enumerate(sorted(names))}
    allocatable = allocatable_of(table, resources)
    return NodeSnapshot(
        node_index_of(table, index.slots),
        resources,
        allocatable - used(nodes, resources, shapes),
        allocatable,
    )


def used(nodes: list[Node], resources: dict[str, int], shapes: list[tuple[str, PodSignature]]) -> Ints:
    usage = np.zeros((len(resources), len(nodes)), dtype=np.int64)
    rows = {node.name: row for row, node in enumerate(nodes)}
    for node, shape in shapes:
        for resource, amount in shape.amounts:
            usage[resources[resource], rows[node]] += amount
    return usage


def scene_of(world: Obj, index: PodIndex | None = None) -> FilterInput:
    index = index if index is not None else index_of(world)
    images = ImageIndex(index.slots)
    for node in world["nodes"]:
        node_images = node["status"].get("images") or []
        images.note(
            node["metadata"]["name"], {name: one["sizeBytes"] for one in node_images for name in one["names"]}
        )
    return FilterInput(node_snapshot_of(world, index), index, storage_of(world), images)
