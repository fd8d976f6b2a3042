"""Freed usage leaves nothing behind: names of nodes and resources come and go, and must not pile up."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.dialects.nrt.wire import TOPOLOGIES, NodeTopologyWire, ZoneResourceWire, ZoneWire
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import NodeRules, Taint, Toleration
from bayplan.placement.cluster.node_table import COLUMNS_MAX, MASKS_MAX, mask
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.model_objects import node

RACK = "rack"


def rack_node(name: str) -> Node:
    return node(name, {RACK: "r"}, cpu=8, pods=10)


def test_a_resource_that_no_pod_uses_any_more_is_forgotten() -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    cluster.load([rack_node("n1")])
    for number in range(100):
        amounts = {"cpu": 1, f"example.com/{number}": 1}
        cluster.use_node("n1", amounts)
        cluster.use_node("n1", amounts, -1)
    cluster.use_node("n1", {"cpu": 3})
    assert cluster.used == {"n1": {"cpu": 3}}
    assert cluster.snapshot().free[cluster.resources["cpu"], 0] == 5


def test_hosts_that_came_and_went_are_forgotten() -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    for number in range(100):
        name = f"n{number}"
        cluster.upsert(rack_node(name))
        cluster.use_node(name, {"cpu": 1})
        cluster.use_domain((name,), {"cpu": 2})
        cluster.use_domain((name,), {"cpu": 2}, -1)
        cluster.use_node(name, {"cpu": 1}, -1)
        cluster.remove(name)
    assert (cluster.used, cluster.held) == ({}, {})


def test_names_of_resources_that_no_node_has_any_more_are_forgotten() -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    for number in range(100):
        cluster.upsert(replace(rack_node("n1"), allocatable={"cpu": 8, f"example.com/{number}": 1}))
    assert cluster.largest == {"cpu": 8, "example.com/99": 1}


def test_what_a_gang_gives_back_in_a_rack_is_free_again() -> None:
    cluster = TopologyState(Topology("hall", (RACK,)))
    cluster.load([rack_node("n1"), rack_node("n2")])
    cluster.use_domain(("r",), {"cpu": 5})
    cluster.use_domain(("r",), {"cpu": 5}, -1)
    supply = cluster.snapshot()
    assert supply.claimed is not None and not supply.claimed.any()
    assert cluster.held == {}


def test_rejections_reported_by_another_controller_are_not_kept() -> None:
    """Invalid NUMA reports arrive one after the other, each invalid in another way."""
    role = AdmissionController(tells=False)
    for number in range(20):
        odd = ZoneWire("node-0", "Node", resources=[ZoneResourceWire("cpu", allocatable=f"odd{number}")])
        meta = Metadata(name="n1", uid="u", resource_version=str(number))
        list(role.decode(Event(Happened.SEEN, TOPOLOGIES, NodeTopologyWire(meta, ["None"], None, [odd]))))
        assert role.dialects.numa.problems
        list(role.reconcile(1e9 + number))
    assert role.dialects.numa.problems == []


def test_taints_that_tell_the_time_are_forgotten() -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    cluster.load([rack_node("n1"), replace(rack_node("n2"), taints=(Taint("x", "", "NoSchedule"),))])
    for second in range(500):
        cluster.upsert(replace(rack_node("n1"), taints=(Taint("candidate", str(second), "NoSchedule"),)))
    table = cluster.snapshot().table
    assert len(table.taint_sets) < 100
    assert [table.taint_sets[code] for code in table.taints] == [node.taints for node in table.nodes]
    accepts = NodeRules(tolerations=(Toleration("candidate", "Equal", "499", "NoSchedule"),))
    assert list(mask(table, accepts)) == [True, False]


def test_masks_of_unused_node_rules_are_dropped() -> None:
    cluster = TopologyState(Topology("hall", (RACK, HOSTNAME)))
    cluster.load([rack_node("n1"), rack_node("n2")])
    table = cluster.snapshot().table
    for number in range(MASKS_MAX + 10):
        assert not mask(table, NodeRules(selector=((f"key-{number}", "x"),))).any()
    assert len(table.masks) <= MASKS_MAX and len(table.columns) <= COLUMNS_MAX
    assert list(mask(table, NodeRules(selector=((HOSTNAME, "n2"),)))) == [False, True]
