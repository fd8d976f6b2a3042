"""numa/*: what all its checks read: pods, nodes and topologies of a case as our values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.numa_request import numa_request
from bayplan.dialects.kube.decode.wire import NodeWire, PodWire, node_of
from bayplan.dialects.nrt.topologies import node_zones
from bayplan.dialects.nrt.wire import NodeTopologyWire
from bayplan.model.node import Node
from bayplan.model.numa import ContainerType, NodeZones, NumaRequest, ZoneRules, ZoneScore
from bayplan.placement.numa.columns import NumaColumns, zone_columns

Object = dict[str, Any]

USUAL, FORGETFUL = ZoneRules(), ZoneRules(sidecars_stay=False)


def rules_for(wants: NumaRequest) -> ZoneRules:
    """Ours, as nobody has configured anything; for pods with sidecars the option that is the peer's way.

    The peer checks sidecars, and then forgets what they took.
    """
    return FORGETFUL if any(one.type is ContainerType.SIDECAR for one in wants.containers) else USUAL


SCORES = {
    "LeastAllocated": ZoneScore.LEAST_ALLOCATED,
    "MostAllocated": ZoneScore.MOST_ALLOCATED,
    "BalancedAllocation": ZoneScore.BALANCED,
    "LeastNUMANodes": ZoneScore.FEWEST_ZONES,
}


def pod_of(case: Object) -> PodWire:
    return msgspec.convert(case, PodWire, strict=False)


def wants_of(case: Object) -> NumaRequest:
    pod = pod_of(case)
    return numa_request(pod.spec, pod.status.qos_class)


def nodes_of(cases: Iterable[Object]) -> list[Node]:
    return [node_of(msgspec.convert(case, NodeWire, strict=False)) for case in cases]


def topology_of(case: Object) -> NodeTopologyWire:
    return msgspec.convert(case, NodeTopologyWire, strict=False)


def zones_of(case: Object) -> NodeZones:
    return node_zones(topology_of(case))[0]


def columns_of(nodes: list[Node], topologies: Iterable[Object] | None) -> NumaColumns:
    reports = [zones_of(one) for one in topologies or ()]
    return zone_columns(nodes, {report.node: report for report in reports})
