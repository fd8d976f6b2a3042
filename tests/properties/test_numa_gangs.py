"""Gangs on random nodes with zones: never placed unaligned, whatever the strategy; nothing is freed twice."""

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
from tests.properties.numa_worlds import GPU, World, wants, world
from tests.support.numa_nodes import amounts, report

RULES = ZoneRules()
RACK = "rack"


def gang(seed: int) -> Gang:
    """One to three pod sets that ask for different things, in one rack or anywhere."""
    random = Random(seed)
    locality = Locality(required=RACK) if random.random() < 0.5 else Locality()
    sets = []
    for number in range(random.randrange(1, 4)):
        asked = wants(random.randrange(1 << 30))
        requests = dict(whole_pod(asked, sidecars_stay=True))
        count = random.randrange(1, 4)
        sets.append(PodSet(f"s{number}", count, count, requests, locality, zones=asked))
    return Gang(Ref("x", "Gang", "ns", "g"), Group("", tuple(sets), len(sets)))


def cluster(found: World) -> TopologyState:
    made = TopologyState(Topology("t", (RACK, HOSTNAME)))
    made.load(
        replace(
            node,
            labels={HOSTNAME: node.name, RACK: f"r{at % 2}"},
            allocatable={**node.allocatable, "pods": 110},
        )
        for at, node in enumerate(found.nodes)
    )
    return made


@pytest.mark.parametrize("strategy", list(Strategy))
@given(seed=st.integers(0, 1 << 30))
def test_a_gang_is_never_placed_unaligned(seed: int, strategy: Strategy) -> None:
    found, asked = world(seed), gang(seed)
    supply = cluster(found).snapshot()
    profile = Profile(required=strategy, preferred=strategy, unconstrained=strategy, exact_seconds=0.5)
    columns = zone_columns(supply.tree.nodes.tolist(), found.reports, found.stale)
    answer = place_aligned(supply, asked, columns, RULES, partial(place, profile=profile)).placement
    if answer.misfit is not None:
        return
    rooms = {name: oracle.rooms_of(report) for name, report in found.reports.items()}
    nodes = {node.name: node for node in found.nodes}
    for pod_set in asked.root.pod_sets():
        assert pod_set.zones is not None
        for share in answer.assignments[pod_set.name].shares:
            name = share.values[-1]
            report = found.reports.get(name)
            if report is None or not oracle.relevant(pod_set.zones, report):
                continue
            assert name not in found.stale
            for _ in range(share.count):
                fits = oracle.first_fit(rooms[name], pod_set.zones, report, nodes[name], sidecars_stay=True)
                assert fits is not None, (seed, name, pod_set.name)


@given(seed=st.integers(0, 1 << 30))
def test_whoever_leaves_frees_no_more_than_it_had_wherever_it_sat(seed: int) -> None:
    """Pods sit in zones that nobody tells of; some of their gangs leave."""
    random = Random(seed)
    zones = random.randrange(1, 4)
    full = [amounts(cpu=8, gpu=8) for _ in range(zones)]
    left = [dict(one) for one in full]
    lodgers: dict[tuple[int, int], PendingPods] = {}
    sat: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number in range(random.randrange(1, 5)):
        gpus = random.randrange(1, 4)
        asked = NumaRequest(QosClass.GUARANTEED, (ContainerRequest("c", (("cpu", 1000), (GPU, gpus))),))
        seats = [
            zone
            for zone in random.choices(range(zones), k=random.randrange(1, 4))
            if left[zone][GPU] >= gpus and left[zone]["cpu"] >= 1000
        ]
        for zone in list(seats):
            if left[zone][GPU] < gpus:
                seats.remove(zone)
                continue
            left[zone][GPU] -= gpus
            left[zone]["cpu"] -= 1000
        lodgers[number, 0] = PendingPods(
            asked, 0, tuple(("ns", f"p{number}-{at}") for at in range(len(seats)))
        )
        sat[number, 0] = [(zone, gpus) for zone in seats]
    told = report(*left)
    node = replace(world(seed).nodes[0], name="n", allocatable={"cpu": 1, GPU: 1})
    columns = zone_columns([node], {"n": told})
    whole = zone_columns([node], {"n": report(*full)})
    stock = NumaStock(columns, lambda: whole, ["n"], {0: lodgers}, lambda _: None)
    gone = [key for key in lodgers if random.random() < 0.6]
    one = np.zeros(1, np.int64)
    moves = [PodMove(-1, key, lodgers[key].wants, one, one + 1) for key in gone]
    after = TopologyNumaOverlay({"t": stock}, RULES).after("t", moves)
    assert after is not None
    for zone in range(zones):
        truth = left[zone][GPU] + sum(gpus for key in gone for at, gpus in sat[key] if at == zone)
        believed = int(after.available[after.resources[GPU], zone, 0])
        assert left[zone][GPU] <= believed <= truth
    if len(gone) == len(lodgers):
        assert [int(a) for a in after.available[after.resources[GPU], :, 0]] == [8] * zones


def test_an_exact_answer_counts_zones() -> None:
    """By room all six would fit the first node, which the strategy likes best; it can align four."""
    zone = amounts(cpu=8, memory=8, gpu=4)
    made = TopologyState(Topology("t", (RACK, HOSTNAME)))
    base = world(1).nodes[0]
    offers = {"cpu": 24_000, "memory": 99 << 30, GPU: 12, "pods": 110}
    names = ("a", "b")
    made.load(
        replace(base, name=name, labels={HOSTNAME: name, RACK: "r"}, allocatable=offers) for name in names
    )
    asked = NumaRequest(
        QosClass.GUARANTEED, (ContainerRequest("c", (("cpu", 3000), ("memory", 1 << 30), (GPU, 2))),)
    )
    one = PodSet("s", 6, 6, dict(whole_pod(asked, sidecars_stay=True)), Locality(required=RACK), zones=asked)
    wide = Gang(Ref("x", "Gang", "ns", "g"), Group("", (one,), 1))
    supply = made.snapshot()
    reports = {name: report(zone, zone, name=name) for name in names}
    columns = zone_columns(supply.tree.nodes.tolist(), reports)
    exact = Profile(required=Strategy.EXACT)
    found = place_aligned(supply, wide, columns, RULES, partial(place, profile=exact)).placement
    assert found.misfit is None
    assert sorted(share.count for share in found.assignments["s"].shares) == [2, 4]
    assert [share.count for share in place(supply, wide, exact).assignments["s"].shares] == [6]
