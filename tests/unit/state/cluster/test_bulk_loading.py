"""Bulk loading: shared values are computed once, and rows are built when they are first read."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.decode.wire import (
    ContainerResources,
    ContainerWire,
    Metadata,
    NodeStatusWire,
    NodeWire,
    PodSpecWire,
    PodWire,
    node_of,
)
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.placement.cluster import topology_tree as trees
from bayplan.placement.cluster.oversize import oversized
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.model_objects import node

RACK = "rack"


def rack_node(name: str, cpu: int = 8) -> Node:
    return node(name, {RACK: "r"}, cpu=cpu)


def test_nodes_of_one_model_share_what_they_offer() -> None:
    wires = [
        NodeWire(Metadata(name=name), status=NodeStatusWire(allocatable={"cpu": cpu, "memory": "1Gi"}))
        for name, cpu in (("n1", "8"), ("n2", "8"), ("n3", "4"))
    ]
    first, second, third = (node_of(wire).allocatable for wire in wires)
    assert first is second
    assert (first["cpu"], third["cpu"]) == (8000, 4000)


def test_nodes_that_come_in_several_lots_are_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    built, build = list[int](), trees.build

    def counted(topology: Topology, nodes: list[Node]) -> trees.Tree:
        built.append(len(nodes))
        return build(topology, nodes)

    monkeypatch.setattr(trees, "build", counted)
    cluster.load([rack_node("n1"), rack_node("n2")])
    cluster.use_node("n1", {"cpu": 3})
    cluster.upsert(rack_node("n3"))
    cluster.load([rack_node("n4")])
    cluster.use_domain(("n4",), {"cpu": 5})
    cluster.remove("n2")
    supply = cluster.snapshot()
    cluster.snapshot()
    assert built == [3]
    assert [node.name for node in supply.tree.nodes] == ["n1", "n3", "n4"]
    assert supply.free[supply.resources["cpu"]].tolist() == [5, 8, 3]
    assert supply.gang_usage is not None and supply.gang_usage[supply.resources["cpu"]].tolist() == [0, 0, 5]


def test_pods_with_assigned_hosts_are_read_once_and_keep_their_hosts() -> None:
    shapes = PodSpecCache()
    asks = [ContainerWire(resources=ContainerResources(requests={"cpu": "1"}))]
    specs = [PodSpecWire(containers=asks, node_selector={HOSTNAME: f"n{at}"}) for at in range(3)]
    state = [shapes.of(PodWire(Metadata(name=f"p{at}"), spec)) for at, spec in enumerate(specs)]
    assert len(shapes.templates) == 1
    assert [shape.rules.selector for shape, _ in state] == [((HOSTNAME, f"n{at}"),) for at in range(3)]
    assert len({shape for shape, _ in state}) == 3


def test_of_nodes_that_share_what_they_offer_the_first_by_name_is_named_as_the_largest() -> None:
    offer = {"cpu": 8, "pods": 110}
    nodes = [Node(name, {}, offer) for name in ("n3", "n1", "n2")] + [Node("n0", {}, {"cpu": 4, "pods": 110})]
    state = oversized(nodes, "main", {"cpu": 9})
    assert state is not None and state.node == "n1"
