"""Nodes, labels, selectors and pods come and go: caches stay within bounds, and nothing else is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.change import (
    Change,
    ImagesSeen,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    TopologySeen,
)
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import NodeRules, Requirement, Taint
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import (
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    PodSpec,
    Selector,
    TopologySpread,
)
from bayplan.model.profile import Profile
from bayplan.placement.cluster import node_table, pod_columns, pod_index
from bayplan.placement.cluster.node_table import mask
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.admission.state import AdmissionState
from bayplan.state.pending_queue import SPARE
from bayplan.state.scheduling.state import SchedulingState
from tests.fuzz.sizes import sizes_of
from tests.support import model_objects
from tests.support.memory import bytes_of

RACKS = Topology("racks", ("rack", HOSTNAME))
NODES = int(os.environ.get("CHURN_NODES", "2000"))
"""How many nodes are there at once and then gone; `make test-long` has 20,000 of them."""
SELECTORS, BYTES_MAX = 3000, 32 << 20
"""So many different selectors at 1,000 nodes, and the most memory that the state then has for everything."""
AMOUNTS = (("cpu", 10), ("pods", 1))


def named_node(name: str, **more: str) -> Node:
    return model_objects.node(name, {"rack": "r", **more}, cpu=64_000)


def pod_of(number: int, signature: PodSignature, on: str = "") -> Pod:
    spec = PodSpec(signature, 0, True)
    return Pod(PodKey("ns", f"p{number}"), f"u{number}", dict(AMOUNTS), on, spec=spec, ours=True)


def odd_node(number: int) -> Node:
    """A node with a label, taint and resource that no other has."""
    name = f"odd-{number}"
    labels = {HOSTNAME: f"host-{number}", "rack": f"r{number}", f"key-{number}": "x", "serial": str(number)}
    taints = (Taint("since", str(number), "PreferNoSchedule"),)
    return Node(name, labels, {"cpu": 8, "pods": 9, f"example.com/{number % 50}": 1}, taints)


def use(state: SchedulingState | AdmissionState) -> None:
    """Caches are filled: masks, columns and rows are read."""
    if isinstance(state, SchedulingState):
        state.heads(0.0)
        table = state.snapshot([], 0.0).supply.table
        mask(table, NodeRules(selector=(("serial", "7"), ("rack", "r"))))
    else:
        state.usage.topologies["racks"].snapshot()


@pytest.mark.parametrize("made", [SchedulingState, AdmissionState])
def test_nodes_that_were_there_together_leave_nothing_behind(
    made: type[SchedulingState | AdmissionState],
) -> None:
    state = made()
    state.apply_all([TopologySeen(RACKS), NodeSeen(named_node("stays"))])
    use(state)
    before = sizes_of({"state": state})
    odd = [odd_node(number) for number in range(NODES)]
    running = [
        pod_of(number, PodSignature("ns", amounts=AMOUNTS), one.name) for number, one in enumerate(odd)
    ]
    state.apply_all([NodeSeen(one) for one in odd])
    state.apply_all([ImagesSeen(one.name, {f"image-{at}": 1 << 30}) for at, one in enumerate(odd)])
    state.apply_all([PodSeen(one) for one in running])
    use(state)
    changes: list[Change] = [PodLost(one.key) for one in running]
    changes += [NodeLost(one.name) for one in odd]
    Random(1).shuffle(changes)
    state.apply_all(changes)
    use(state)
    grown = {
        where: (before.get(where, 0), size)
        for where, size in sizes_of({"state": state}).items()
        if size > before.get(where, 0) + 64
    }
    assert grown == {}


def test_unschedulable_pods_that_are_gone_leave_nothing_behind_even_if_no_event_would_wake_them() -> None:
    state = SchedulingState()
    state.apply_all([NamespaceSeen("ns", {}), NodeSeen(named_node("stays"))])
    before = sizes_of({"queue": state.gangs.queue})
    pods = [pod_of(number, signatures(number)[0]) for number in range(300)]
    decided(state, [PodSeen(one) for one in pods])
    assert len(state.gangs.queue.pending.classes) == 300
    state.apply_all([PodLost(one.key) for one in pods])
    state.heads(1.0)
    after = sizes_of({"queue": state.gangs.queue})
    assert {where: size for where, size in after.items() if size > before.get(where, 0) + 3 * SPARE} == {}


def test_a_node_whose_hostname_changes_is_known_by_the_newest_one_only() -> None:
    state = SchedulingState()
    for number in range(20):
        state.apply(NodeSeen(Node("n", {HOSTNAME: f"host-{number}"}, {"cpu": 8, "pods": 9})))
    assert state.store.nodes.by_hostname == {"host-19": "n"}
    assert state.store.nodes.node_of("host-3") == "host-3"


# ── selectors ──────────────────────────────────────────────────────────────────────────────────────


def selecting(number: int) -> Selector:
    return Selector((Requirement(f"app-{number}", "In", ("x",)),))


def signatures(number: int) -> list[PodSignature]:
    """Pods that each select by a label that no other names."""
    labels, term = ((f"app-{number}", "x"),), PodAffinityTerm("rack", selecting(number), ("ns",))
    return [
        PodSignature("ns", amounts=AMOUNTS, rules=NodeRules(selector=((f"key-{number}", "x"),))),
        PodSignature("ns", labels, AMOUNTS, affinity=PodAffinity(required_anti=(term,))),
        PodSignature("ns", labels, AMOUNTS, affinity=PodAffinity(preferred=((5, term),))),
        PodSignature("ns", labels, AMOUNTS, spread=(TopologySpread("rack", 1, selecting(number)),)),
    ]


def decided(state: SchedulingState, changes: list[Change]) -> None:
    state.apply_all(changes)
    heads = state.heads(0.0)
    state.assume(decide_gangs(state.snapshot(heads, 0.0), Profile(), 0.0), 0.0)


def within_bounds(state: SchedulingState) -> Iterator[str]:
    index, table = state.store.index, state.store.nodes.flat.cluster.table
    if len(index.columns.columns) > pod_columns.COLUMNS_MAX + 1:
        yield f"{len(index.columns.columns)} columns of pod labels"
    if len(index.columns.labels) > 4 * len(index.pods) + pod_columns.ROWS_KEPT:
        yield f"{len(index.columns.labels)} rows for {len(index.pods)} pods"
    if len(index.queries) > pod_index.QUERIES_MAX:
        yield f"{len(index.queries)} queries"
    if len(table.columns) > node_table.COLUMNS_MAX or len(table.masks) > node_table.MASKS_MAX:
        yield f"{len(table.columns)} columns of node labels, {len(table.masks)} masks"
    if len(index.slots) > len(index.slots.numbers) + len(index.slots.spare):
        yield f"{len(index.slots)} ids of {len(index.slots.numbers)} nodes"


@pytest.mark.long
def test_three_thousand_selectors_at_a_thousand_nodes_stay_within_the_limit() -> None:
    state = SchedulingState()
    nodes = [
        NodeSeen(model_objects.node(f"n{at}", {"rack": f"r{at // 32}"}, cpu=64_000)) for at in range(1000)
    ]
    state.apply_all([TopologySeen(RACKS), NamespaceSeen("ns", {}), *nodes])
    every = [signatures(number)[number % 4] for number in range(SELECTORS)]
    for first in range(0, SELECTORS, 500):
        decided(state, [PodSeen(pod_of(at, every[at])) for at in range(first, first + 500)])
    assert len(state.store.index.pods) > SELECTORS // 2
    assert list(within_bounds(state)) == []
    assert bytes_of(state) < BYTES_MAX


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_pods_and_selectors_that_come_and_go_stay_within_bounds(seed: int) -> None:
    random, state = Random(seed), SchedulingState()
    state.apply_all([TopologySeen(RACKS), NamespaceSeen("ns", {})])
    nodes, pods, made = [named_node("n0")], list[Pod](), 0
    state.apply_all([NodeSeen(nodes[0])])
    for _ in range(30):
        changes: list[Change] = []
        for _ in range(random.randrange(6)):
            made += 1
            pods.append(pod_of(made, random.choice(signatures(made))))
            changes.append(PodSeen(pods[-1]))
        if random.random() < 0.4:
            made += 1
            nodes.append(named_node(f"n{made}", **{f"key-{made}": "x"}))
            changes.append(NodeSeen(nodes[-1]))
        if random.random() < 0.3 and len(nodes) > 1:
            changes.append(NodeLost(nodes.pop(random.randrange(len(nodes))).name))
        while pods and random.random() < 0.8:
            changes.append(PodLost(pods.pop(random.randrange(len(pods))).key))
        decided(state, changes)
        assert list(within_bounds(state)) == []
    state.apply_all([*(PodLost(one.key) for one in pods), *(NodeLost(one.name) for one in nodes)])
    index = state.store.index
    assert not index.pods and not index.affinity_terms and not index.keys and not index.pod_counts
    assert not index.slots.numbers and not len(index.slots) and not index.slots.spare
    assert not state.store.nodes.by_name and not state.store.nodes.ledger.claims
    assert not index.weight.any()
