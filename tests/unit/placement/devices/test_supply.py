"""Devices on trial: pods take them, give them back, and every step can be undone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bayplan.model.devices.claims import DeviceClaimKey, PodDevices
from bayplan.model.devices.inventory import DeviceSlice, NodeReach, PoolKey
from bayplan.model.node import Node
from bayplan.model.pod import PodKey
from bayplan.placement.cluster.counters import NodeIds
from bayplan.placement.cluster.node_index import NodeIndex, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.devices.allocate import DeviceAllocator
from bayplan.placement.devices.in_use import merged
from bayplan.placement.devices.pools import NodeIdentity
from bayplan.placement.devices.supply import DeviceSupply
from bayplan.state.cluster.device_state import DeviceState
from tests.support.devices import CLASSES, DRIVER, claim_for, device, exactly, select, slice_on

NODES = ("n0", "n1", "n2")
NETWORK = DeviceSlice(
    "net",
    PoolKey(DRIVER, "net"),
    reach=NodeReach(everywhere=True),
    devices=(device("net-0", tier="fast"), device("net-1", tier="fast")),
)
FAST = claim_for(exactly("r", 1, "fast"))
TWO = claim_for(exactly("r", 2), name="own")
SHARED = claim_for(exactly("r"), name="shared")
WANTED = (
    PodDevices((TWO,)),
    PodDevices((FAST,)),
    PodDevices((SHARED,), (SHARED.key,)),
    PodDevices((SHARED, TWO), (SHARED.key,)),
)


@pytest.fixture
def state() -> DeviceState:
    state = DeviceState(select)
    for one in CLASSES.values():
        state.seen(one)
    state.seen(NETWORK)
    state.seen(SHARED)
    for node in NODES:
        state.seen(slice_on(node, *(device(f"d{number}", tier="slow") for number in range(4))))
    return state


def index() -> NodeIndex:
    nodes = np.empty(len(NODES), dtype=object)
    nodes[:] = [Node(name, {}, {}) for name in NODES]
    return node_index_of(table_of(nodes), NodeIds())


def supply_of(state: DeviceState) -> DeviceSupply:
    supply = state.supply()
    assert supply is not None
    return supply


def add(supply: DeviceSupply, nodes: NodeIndex, wanted: PodDevices, name: str, row: int) -> None:
    supply.step(wanted, [PodKey("ns", name)], np.array([row]), nodes.table.nodes, added=True)


def remove(supply: DeviceSupply, nodes: NodeIndex, name: str, row: int) -> None:
    supply.step(None, [PodKey("ns", name)], np.array([row]), nodes.table.nodes, added=False)


def counts(supply: DeviceSupply, nodes: NodeIndex) -> list[list[int]]:
    return [supply.counts(nodes, wanted, 8).tolist() for wanted in WANTED]


def test_a_pod_takes_devices_of_its_node_and_gives_them_back(state: DeviceState) -> None:
    nodes, trial = index(), supply_of(state).trial()
    assert trial.counts(nodes, WANTED[0], 8).tolist() == [3, 3, 3], (
        "two of its own for two pods, and the network"
    )
    add(trial, nodes, WANTED[0], "p", 1)
    assert trial.counts(nodes, WANTED[0], 8).tolist() == [3, 2, 3]
    remove(trial, nodes, "p", 1)
    assert trial.counts(nodes, WANTED[0], 8).tolist() == [3, 3, 3]


def test_a_device_of_the_network_that_is_taken_is_missing_on_all_nodes(state: DeviceState) -> None:
    nodes, trial = index(), supply_of(state).trial()
    add(trial, nodes, WANTED[1], "p", 0)
    assert trial.counts(nodes, WANTED[1], 8).tolist() == [1, 1, 1]
    add(trial, nodes, WANTED[1], "q", 1)
    add(trial, nodes, WANTED[1], "r", 2)
    assert trial.is_missing([PodKey("ns", "r")])
    assert not trial.is_missing([PodKey("ns", "q")])


def test_pods_that_share_a_claim_follow_the_first_and_the_last_gives_it_back(state: DeviceState) -> None:
    nodes, trial = index(), supply_of(state).trial()
    for name in ("p", "q"):
        add(trial, nodes, WANTED[2], name, 1)
    assert trial.unreachable(nodes, WANTED[2]).tolist() == [True, False, True]
    remove(trial, nodes, "p", 1)
    assert trial.unreachable(nodes, WANTED[2]).tolist() == [True, False, True]
    remove(trial, nodes, "q", 1)
    assert trial.unreachable(nodes, WANTED[2]).tolist() == [False, False, False]
    assert counts(trial, nodes) == counts(supply_of(state), nodes)


@pytest.mark.parametrize("seed", range(20))
def test_undone_steps_leave_no_trace_and_counts_are_as_if_counted_anew(state: DeviceState, seed: int) -> None:
    random, nodes = Random(seed), index()
    trial = supply_of(state).trial()
    before = counts(trial, nodes)
    placed: list[tuple[str, int]] = []
    marks = []
    for number in range(12):
        marks.append((counts(trial, nodes), list(placed)))
        if placed and random.random() < 0.4:
            name, row = placed.pop(random.randrange(len(placed)))
            remove(trial, nodes, name, row)
        else:
            row = random.randrange(len(NODES))
            add(trial, nodes, random.choice(WANTED), f"p{number}", row)
            placed.append((f"p{number}", row))
        anew = supply_of(state).trial()
        anew.changed, anew.allocated = dict(trial.changed), dict(trial.allocated)
        anew.touched = list(trial.touched)
        assert counts(anew, nodes) == counts(trial, nodes)
    for known, _ in reversed(marks):
        trial.undo()
        assert counts(trial, nodes) == known
    assert counts(trial, nodes) == before
    assert (trial.given, trial.allocated, trial.users, trial.lacking, trial.freed) == ({}, {}, {}, {}, {})


def test_a_claim_in_flight_holds_its_devices_until_it_shows_them_or_its_bind_failed(
    state: DeviceState,
) -> None:
    nodes, supply = index(), supply_of(state)
    trial = supply.trial()
    add(trial, nodes, WANTED[2], "p", 0)
    ((_, allocation),) = trial.allocations(PodKey("ns", "p"), WANTED[2])
    before = counts(supply, nodes)
    state.assume(PodKey("ns", "p"), ((DeviceClaimKey("ns", "shared"), allocation),))
    assert counts(supply, nodes) != before
    assert supply.unreachable(nodes, WANTED[2]).tolist() == [False, True, True]
    assert state.drop(PodKey("ns", "p"))
    assert counts(supply, nodes) == before


def test_devices_found_for_a_node_are_found_for_nodes_of_its_shape(state: DeviceState) -> None:
    used = supply_of(state).trial()
    nodes = index()
    add(used, nodes, WANTED[0], "p", 0)
    for wanted in WANTED:
        for node in nodes.table.nodes:
            direct = DeviceAllocator(state.index, CLASSES, select).allocate(
                NodeIdentity(node.name), wanted.claims, merged(used.usage, state.counter.pools(node))
            )
            found = used.allocate(node, wanted.claims)
            assert (found.allocations, found.reason) == (direct.allocations, direct.reason)
