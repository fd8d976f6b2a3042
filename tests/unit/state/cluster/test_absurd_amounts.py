"""Amounts that no machine has: sums stay exact or stop at a bound, and never wrap around."""

from __future__ import annotations

import pytest

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, ROOM_MAX, Node, Topology
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import CLAIMED_MAX, TopologyState
from tests.support.model_objects import node

HOSTS = Topology("t", ("rack", HOSTNAME))
RACKS = Topology("t", ("block", "rack"))


def rack_node(name: str, cpu: int = 8000) -> Node:
    return node(name, {"block": "b1", "rack": "r1"}, cpu=cpu)


def of(topology: Topology, *nodes: Node) -> TopologyState:
    cluster = TopologyState(topology)
    cluster.load(nodes)
    return cluster


def free_cpu(cluster: TopologyState) -> list[int]:
    supply = cluster.snapshot()
    return [int(amount) for amount in supply.free[supply.resources["cpu"]]]


def test_more_use_than_fits_into_an_array_is_bounded_and_given_back_exactly() -> None:
    cluster = of(HOSTS, rack_node("x1"))
    for _ in range(100):
        cluster.use_node("x1", {"cpu": 2**62})
    assert free_cpu(cluster) == [-ROOM_MAX]
    cluster.upsert(rack_node("x1", 9000))
    assert free_cpu(cluster) == [-ROOM_MAX]
    for _ in range(100):
        cluster.use_node("x1", {"cpu": 2**62}, -1)
    assert free_cpu(cluster) == [9000]


def test_a_gang_that_holds_more_than_there_is_leaves_a_bounded_amount() -> None:
    cluster = of(HOSTS, rack_node("x1"))
    cluster.use_domain(("r1", "x1"), {"cpu": 2**62 * 1000})
    assert free_cpu(cluster) == [-ROOM_MAX]
    cluster.use_domain(("r1", "x1"), {"cpu": 2**62 * 1000}, -1)
    assert free_cpu(cluster) == [8000]


def test_a_gang_that_holds_more_than_a_rack_has_leaves_a_bounded_amount() -> None:
    cluster = of(RACKS, rack_node("x1"), rack_node("x2"))
    cluster.use_domain(("b1", "r1"), {"cpu": 2**62 * 1000})
    claimed = cluster.snapshot().claimed
    assert claimed is not None
    assert claimed.max() == CLAIMED_MAX
    cluster.use_domain(("b1", "r1"), {"cpu": 2**62 * 1000}, -1)
    claimed = cluster.snapshot().claimed
    assert claimed is not None
    assert claimed.max() == 0


@pytest.mark.parametrize("topology", [HOSTS, RACKS])
@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_gang_of_absurd_pods_is_refused_whatever_the_strategy(
    topology: Topology, strategy: Strategy, count: int
) -> None:
    nodes = [rack_node(f"x{number}", ROOM_MAX - 1) for number in range(100)]
    supply = of(topology, *nodes).snapshot()
    pods = PodSet("main", count, count, requests={"cpu": 2**62}, locality=Locality(required="rack"))
    gang = Gang(Ref("x", "Workload", "default", "huge"), Group("", (pods,), 1))
    profile = Profile(required=strategy, preferred=strategy, unconstrained=strategy)
    state = place(supply, gang, profile).misfit
    assert isinstance(state, Misfit)
