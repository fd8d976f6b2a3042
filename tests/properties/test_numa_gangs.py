"""Gangs on random nodes with NUMA zones are never placed unaligned, and nothing is released twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.numa import ContainerRequest, NumaRequest, QosClass, ZoneRules
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.domains.node_caps import place_aligned
from bayplan.placement.gang.place import place
from bayplan.placement.numa.columns import zone_columns
from bayplan.placement.numa.resources import whole_pod
from bayplan.placement.overlay.topology_numa_overlay import (
    NumaStock,
    PendingPods,
    PodMove,
    TopologyNumaOverlay,
)
from bayplan.state.cluster.topology_state import TopologyState
from tests.properties import numa_oracle as oracle
from tests.properties.numa_worlds import GPU, World, numa_request, world
from tests.support.model_objects import gang
from tests.support.numa_nodes import amounts, report

RULES = ZoneRules()
RACK = "rack"


def random_gang(seed: int) -> Gang:
    """One to three pod sets with different requests, in one rack or anywhere."""
    random = Random(seed)
    locality = Locality(required=RACK) if random.random() < 0.5 else Locality()
    sets = []
    for number in range(random.randrange(1, 4)):
        request = numa_request(random.randrange(1 << 30))
        requests = dict(whole_pod(request, sidecars_stay=True))
        count = random.randrange(1, 4)
        sets.append(PodSet(f"s{number}", count, count, requests, locality, zones=request))
    return gang(*sets)


def cluster(nodes_world: World) -> TopologyState:
    state = TopologyState(Topology("t", (RACK, HOSTNAME)))
    state.load(
        replace(
            node,
            labels={HOSTNAME: node.name, RACK: f"r{at % 2}"},
            allocatable={**node.allocatable, "pods": 110},
        )
        for at, node in enumerate(nodes_world.nodes)
    )
    return state


@pytest.mark.parametrize("strategy", list(Strategy))
@given(seed=st.integers(0, 1 << 30))
def test_a_gang_is_never_placed_unaligned(seed: int, strategy: Strategy) -> None:
    nodes_world, placed_gang = world(seed), random_gang(seed)
    supply = cluster(nodes_world).snapshot()
    profile = Profile(required=strategy, preferred=strategy, unconstrained=strategy, exact_seconds=0.5)
    columns = zone_columns(supply.tree.nodes.tolist(), nodes_world.reports, nodes_world.stale)
    answer = place_aligned(supply, placed_gang, columns, RULES, partial(place, profile=profile)).placement
    if answer.misfit is not None:
        return
    free = {name: oracle.free_of(report) for name, report in nodes_world.reports.items()}
    nodes = {node.name: node for node in nodes_world.nodes}
    for pod_set in placed_gang.root.pod_sets():
        assert pod_set.zones is not None
        for share in answer.assignments[pod_set.name].shares:
            name = share.values[-1]
            report = nodes_world.reports.get(name)
            if report is None or not oracle.relevant(pod_set.zones, report):
                continue
            assert name not in nodes_world.stale
            for _ in range(share.count):
                fits = oracle.first_fit(free[name], pod_set.zones, report, nodes[name], sidecars_stay=True)
                assert fits is not None, (seed, name, pod_set.name)


@given(seed=st.integers(0, 1 << 30))
def test_a_removed_gang_frees_no_more_than_it_used_whatever_its_zones(seed: int) -> None:
    """The zones of running pods are not reported; some of their gangs are removed."""
    random = Random(seed)
    zones = random.randrange(1, 4)
    full = [amounts(cpu=8, gpu=8) for _ in range(zones)]
    left = [dict(one) for one in full]
    pods_by_gang: dict[tuple[int, int], PendingPods] = {}
    zones_used: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number in range(random.randrange(1, 5)):
        gpus = random.randrange(1, 4)
        request = NumaRequest(QosClass.GUARANTEED, (ContainerRequest("c", (("cpu", 1000), (GPU, gpus))),))
        zones_of_pods = [
            zone
            for zone in random.choices(range(zones), k=random.randrange(1, 4))
            if left[zone][GPU] >= gpus and left[zone]["cpu"] >= 1000
        ]
        for zone in list(zones_of_pods):
            if left[zone][GPU] < gpus:
                zones_of_pods.remove(zone)
                continue
            left[zone][GPU] -= gpus
            left[zone]["cpu"] -= 1000
        pods_by_gang[number, 0] = PendingPods(
            request, 0, tuple(("ns", f"p{number}-{at}") for at in range(len(zones_of_pods)))
        )
        zones_used[number, 0] = [(zone, gpus) for zone in zones_of_pods]
    node_report = report(*left)
    node = replace(world(seed).nodes[0], name="n", allocatable={"cpu": 1, GPU: 1})
    columns = zone_columns([node], {"n": node_report})
    whole = zone_columns([node], {"n": report(*full)})
    stock = NumaStock(columns, lambda: whole, ["n"], {0: pods_by_gang}, lambda _: None)
    removed = [key for key in pods_by_gang if random.random() < 0.6]
    one = np.zeros(1, np.int64)
    moves = [PodMove(-1, key, pods_by_gang[key].request, one, one + 1) for key in removed]
    after = TopologyNumaOverlay({"t": stock}, RULES).after("t", moves)
    assert after is not None
    for zone in range(zones):
        truth = left[zone][GPU] + sum(gpus for key in removed for at, gpus in zones_used[key] if at == zone)
        assumed = int(after.available[after.resources[GPU], zone, 0])
        assert left[zone][GPU] <= assumed <= truth
    if len(removed) == len(pods_by_gang):
        assert [int(a) for a in after.available[after.resources[GPU], :, 0]] == [8] * zones


def test_an_exact_placement_respects_zones() -> None:
    """By node total all six fit the first node, which the strategy prefers; it can align four."""
    zone = amounts(cpu=8, memory=8, gpu=4)
    state = TopologyState(Topology("t", (RACK, HOSTNAME)))
    base = world(1).nodes[0]
    allocatable = {"cpu": 24_000, "memory": 99 << 30, GPU: 12, "pods": 110}
    names = ("a", "b")
    state.load(
        replace(base, name=name, labels={HOSTNAME: name, RACK: "r"}, allocatable=allocatable)
        for name in names
    )
    request = NumaRequest(
        QosClass.GUARANTEED, (ContainerRequest("c", (("cpu", 3000), ("memory", 1 << 30), (GPU, 2))),)
    )
    one = PodSet(
        "s", 6, 6, dict(whole_pod(request, sidecars_stay=True)), Locality(required=RACK), zones=request
    )
    wide = Gang(Ref("x", "Gang", "ns", "g"), Group("", (one,), 1))
    supply = state.snapshot()
    reports = {name: report(zone, zone, name=name) for name in names}
    columns = zone_columns(supply.tree.nodes.tolist(), reports)
    exact = Profile(required=Strategy.EXACT)
    placement = place_aligned(supply, wide, columns, RULES, partial(place, profile=exact)).placement
    assert placement.misfit is None
    assert sorted(share.count for share in placement.assignments["s"].shares) == [2, 4]
    assert [share.count for share in place(supply, wide, exact).assignments["s"].shares] == [6]
