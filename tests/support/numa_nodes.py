"""Nodes with zones and pods that ask for them, in a few words."""

from __future__ import annotations

from typing import Any

import msgspec

from bayplan.dialects.nrt.wire import NodeTopologyWire
from bayplan.model.node import Node
from bayplan.model.numa import (
    Alignment,
    ContainerRequest,
    ContainerType,
    NodeZones,
    NumaRequest,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
)
from bayplan.placement.numa.columns import NumaColumns, zone_columns

GPU = "nvidia.com/gpu"
GI = 1 << 30


def amounts(**given: int) -> dict[str, int]:
    """`cpu` in whole CPUs, `memory` in Gi, `gpu` in pieces."""
    found = {}
    if "cpu" in given:
        found["cpu"] = given["cpu"] * 1000
    if "memory" in given:
        found["memory"] = given["memory"] * GI
    if "gpu" in given:
        found[GPU] = given["gpu"]
    return found


def report(
    *zones: dict[str, int],
    name: str = "n",
    scope: TopologyManagerScope = TopologyManagerScope.CONTAINER,
    numbers: tuple[int, ...] = (),
    **more: Any,
) -> NodeZones:
    """A node that insists on one zone; what its zones have left is all they have."""
    places = numbers or tuple(range(len(zones)))
    made = tuple(Zone(number, zone, zone) for number, zone in zip(places, zones, strict=True))
    return NodeZones(name, made, Alignment(TopologyManagerPolicy.SINGLE_ZONE, scope), **more)


def columns(*reports: NodeZones, stale: tuple[str, ...] = ()) -> NumaColumns:
    nodes = [Node(one.node, {}, dict.fromkeys(one.resources | {GPU}, 1 << 40)) for one in reports]
    return zone_columns(nodes, {one.node: one for one in reports}, stale)


def container(name: str = "main", role: ContainerType = ContainerType.APP, **asked: int) -> ContainerRequest:
    return ContainerRequest(name, tuple(amounts(**asked).items()), role)


def request_of(*containers: ContainerRequest, service: QosClass = QosClass.GUARANTEED) -> NumaRequest:
    return NumaRequest(service, containers)


def topology(**fields: Any) -> NodeTopologyWire:
    """A report as it comes over the wire."""
    return msgspec.convert({"metadata": {"name": "n"}, **fields}, NodeTopologyWire)


def wire_zone(name: str, **more: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "4"}]
    return {"name": name, "type": "Node", "resources": resources, **more}
