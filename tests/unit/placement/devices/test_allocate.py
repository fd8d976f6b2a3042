"""The claims of a pod get devices of a node, or a reason."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.model.devices.claims import (
    ALL,
    DeviceAsk,
    DeviceClaim,
    DeviceClaimKey,
    DeviceConstraint,
    DeviceFeatures,
    DeviceRequest,
)
from bayplan.model.devices.inventory import (
    UNIT,
    DeviceCapacity,
    DeviceKey,
    DeviceSlice,
    NodeReach,
    PoolKey,
)
from bayplan.model.node import Node
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.placement.devices.allocate import INVALID_POOLS, NOT_ALLOCATED, DeviceAllocator, NodeAllocation
from bayplan.placement.devices.copies import CopyCounter
from bayplan.placement.devices.in_use import NOTHING_IN_USE, DevicesInUse
from bayplan.placement.devices.pools import NodeIdentity
from tests.support.devices import CLASSES, DRIVER, claim_for, device, exactly, select, slice_on

NO_POOL: dict[PoolKey, DevicesInUse] = {}  # nothing is in use
NODE = NodeIdentity("n", {"rack": "r1"})
FOUR = slice_on("n", *(device(f"d{number}") for number in range(4)))
RACK = (NodeSelectorTerm((Requirement("rack", "In", ("r1",)),)),)


def allocated(
    *claims: DeviceClaim,
    slices: tuple[DeviceSlice, ...] = (FOUR,),
    in_use: DevicesInUse = NOTHING_IN_USE,
    **more: Any,
) -> NodeAllocation:
    return DeviceAllocator(slices, CLASSES, select, **more).allocate(NODE, claims, in_use)


def names(found: NodeAllocation) -> list[list[str]]:
    return [[one.key.name for one in allocation.devices] for allocation in found.allocations]


def test_claims_of_one_pod_get_different_devices_in_their_order() -> None:
    found = allocated(claim_for(exactly("r", 2), name="a"), claim_for(exactly("r"), name="b"))
    assert names(found) == [["d0", "d1"], ["d2"]]


def test_all_claims_are_allocated_or_none() -> None:
    found = allocated(claim_for(exactly("r", 2), name="a"), claim_for(exactly("r", 3), name="b"))
    assert (found.reason, found.error, found.allocations) == (NOT_ALLOCATED, False, ())


def test_a_claim_on_local_devices_is_bound_to_the_node() -> None:
    (found,) = allocated(claim_for(exactly("r"))).allocations
    assert found.terms == (NodeSelectorTerm((Requirement("metadata.name", "In", ("n",), True),)),)


def test_a_claim_on_devices_of_a_rack_is_bound_to_the_rack() -> None:
    net = DeviceSlice("net", PoolKey(DRIVER, "net"), reach=NodeReach(terms=RACK), devices=(device("x"),))
    (found,) = allocated(claim_for(exactly("r")), slices=(net,)).allocations
    assert found.terms == RACK


def test_a_claim_on_devices_of_all_nodes_is_bound_to_no_node() -> None:
    net = DeviceSlice("net", PoolKey(DRIVER, "net"), reach=NodeReach(everywhere=True), devices=(device("x"),))
    (found,) = allocated(claim_for(exactly("r")), slices=(net,)).allocations
    assert found.terms is None


def test_devices_that_name_other_nodes_themselves_are_not_used() -> None:
    devices = (
        device("x", {"reach": NodeReach("other")}),
        device("y", {"reach": NodeReach("n")}),
    )
    net = DeviceSlice("net", PoolKey(DRIVER, "net"), by_device=True, devices=devices)
    assert names(allocated(claim_for(exactly("r")), slices=(net,))) == [["y"]]


def test_a_pool_that_is_not_complete_gives_no_devices() -> None:
    part = slice_on("n", device("x"), slice_count=2)
    assert allocated(claim_for(exactly("r")), slices=(part,)).reason == NOT_ALLOCATED
    every = DeviceRequest("r", (DeviceAsk("r", "gpu", mode=ALL),))
    assert "currently being updated" in allocated(claim_for(every), slices=(part,)).reason


def test_a_newer_generation_replaces_the_older_one_at_once() -> None:
    old, new = slice_on("n", device("old")), slice_on("n", device("new"), generation=2)
    assert names(allocated(claim_for(exactly("r")), slices=(old, new))) == [["new"]]


def test_an_invalid_pool_is_told_if_nothing_else_fits() -> None:
    twice = slice_on("n", device("x"), device("x"))
    found = allocated(claim_for(exactly("r")), slices=(twice,))
    assert (found.reason, found.here_only) == (INVALID_POOLS, True)
    other = slice_on("n", device("y"), pool="other")
    assert names(allocated(claim_for(exactly("r")), slices=(twice, other))) == [["y"]]


def test_admin_access_gets_devices_in_use_and_holds_none() -> None:
    held = DevicesInUse(frozenset({DeviceKey(DRIVER, "n", "d0")}))
    found = allocated(claim_for(exactly("r", admin=True)), in_use=held)
    assert names(found) == [["d0"]]
    assert found.allocations[0].devices[0].admin
    assert NOTHING_IN_USE.plus(found.allocations[0].devices) == NOTHING_IN_USE


def test_a_shared_device_is_given_until_its_capacity_is_used() -> None:
    memory = (("memory", DeviceCapacity(10 * UNIT)),)
    part = slice_on("n", device("x", {"shareable": True, "capacity": memory}))
    four = claim_for(exactly("r", capacity=(("memory", 4 * UNIT),)))
    counted = CopyCounter(DeviceAllocator((part,), CLASSES, select)).count(
        [Node("n", {}, {})], (four,), NO_POOL.get, 10
    )
    assert counted.counts.tolist() == [2]


DISTINCT_ROOTS = DeviceConstraint(distinct=f"{DRIVER}/root")


def test_an_alternative_with_too_many_devices_is_left_at_once() -> None:
    many = slice_on("n", *(device(f"d{number:02}") for number in range(60)))
    asks = (DeviceAsk("large", "gpu", count=20), DeviceAsk("small", "gpu", count=2))
    requests = [DeviceRequest(f"r{number}", asks, first_available=True) for number in range(6)]
    found = allocated(claim_for(*requests), slices=(many,), steps_max=2000)
    assert found.fits
    assert [len(found.allocations[0].devices), found.preference] == [30, 8 + 5 * 7]


def test_a_search_that_takes_too_long_says_so_and_is_no_refusal() -> None:
    many = slice_on("n", *(device(f"d{number}", root=number) for number in range(24)))
    claim = claim_for(exactly("a", 11), exactly("b", 11), exactly("c", 3), constraints=(DISTINCT_ROOTS,))
    found = allocated(claim, slices=(many,), steps_max=500)
    assert found.out_of_steps
    assert "stopped after 500 steps" in found.reason


def test_of_interchangeable_devices_one_that_fails_stands_for_all() -> None:
    many = slice_on("n", *(device(f"d{number}", root=number) for number in range(24)))
    found = allocated(
        claim_for(exactly("a", 11), exactly("b", 11), exactly("c", 3)), slices=(many,), steps_max=500
    )
    assert not found.fits
    assert not found.out_of_steps


def test_many_claims_do_not_exhaust_the_stack() -> None:
    parts = tuple(slice_on("n", *(device(f"d{n}") for n in range(64)), pool=f"p{at:02}") for at in range(24))
    claims = [claim_for(exactly("r", 32), name=f"c{number}") for number in range(48)]
    assert allocated(*claims, slices=parts).fits


def test_what_is_switched_off_is_an_error() -> None:
    off = DeviceFeatures(admin_access=False)
    found = allocated(claim_for(exactly("r", admin=True)), features=off)
    assert found.error
    assert found.reason.endswith("admin access is requested, but the feature is disabled")


@pytest.mark.parametrize("most", [1, 3, 10])
def test_no_more_pods_are_counted_than_asked_for(most: int) -> None:
    counter = CopyCounter(DeviceAllocator((FOUR,), CLASSES, select))
    found = counter.count([Node("n", {}, {})], (claim_for(exactly("r")),), NO_POOL.get, most)
    assert found.counts.tolist() == [min(most, 4)]


def test_nodes_that_differ_in_what_no_claim_asks_about_share_an_answer() -> None:
    parts = [slice_on(f"n{number}", device(f"u{number}", uuid=f"u{number}")) for number in range(50)]
    nodes = [Node(f"n{number}", {}, {}) for number in range(51)]
    counter = CopyCounter(DeviceAllocator(parts, CLASSES, select))
    found = counter.count(nodes, (claim_for(exactly("r")),), NO_POOL.get, 8)
    assert found.counts.tolist() == [1] * 50 + [0]
    assert (found.shapes, found.reasons) == (2, {NOT_ALLOCATED: [50]})


def test_one_claim_for_all_pods_takes_its_devices_once() -> None:
    claims = (claim_for(exactly("r", 2), name="channel"), claim_for(exactly("r"), name="own"))
    counter = CopyCounter(DeviceAllocator((FOUR,), CLASSES, select))
    nodes = [Node("n", {}, {})]
    shared = {DeviceClaimKey("ns", "channel")}
    assert counter.count(nodes, claims, NO_POOL.get, 9).counts.tolist() == [1]
    assert counter.count(nodes, claims, NO_POOL.get, 9, shared).counts.tolist() == [2]


def test_devices_of_several_nodes_couple_their_counts() -> None:
    net = DeviceSlice("net", PoolKey(DRIVER, "net"), reach=NodeReach(everywhere=True), devices=(device("x"),))
    nodes = [Node("n", {}, {}), Node("m", {}, {})]
    found = CopyCounter(DeviceAllocator((net,), CLASSES, select)).count(
        nodes, (claim_for(exactly("r")),), NO_POOL.get, 9
    )
    assert (found.counts.tolist(), found.coupled) == ([1, 1], True)


def test_a_changed_slice_is_counted_anew() -> None:
    allocator = DeviceAllocator((FOUR,), CLASSES, select)
    counter, nodes = CopyCounter(allocator), [Node("n", {}, {})]
    wanted = (claim_for(exactly("r")),)
    assert counter.count(nodes, wanted, NO_POOL.get, 9).counts.tolist() == [4]
    allocator.index.remove(FOUR)
    counter.slice_changed(FOUR)
    assert counter.count(nodes, wanted, NO_POOL.get, 9).counts.tolist() == [0]
