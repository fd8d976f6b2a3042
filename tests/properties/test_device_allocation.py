"""The allocator of devices against a search that tries all, and counts against allocating one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.devices.claims import (
    ALL,
    DeviceAsk,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
)
from bayplan.model.devices.inventory import CounterSet, Device, DeviceKey, DeviceSlice, NodeReach, PoolKey
from bayplan.model.node import Node
from bayplan.model.node_rules import Taint, Toleration
from bayplan.placement.devices.allocate import DeviceAllocator
from bayplan.placement.devices.copies import CopyCounter
from bayplan.placement.devices.in_use import DevicesInUse, by_pool
from bayplan.placement.devices.pools import NodeIdentity
from tests.properties.amounts import seeds
from tests.support.devices import CLASSES, DRIVER, claim_for, device, select

NODE = NodeIdentity("n")
BROKEN = Taint("broken", "", "NoSchedule")
TOLERATED = (Toleration("broken", "Exists"),)
COUNTERS = 4


@st.composite
def devices(draw: st.DrawFn, most: int = 5) -> tuple[Device, ...]:
    found = []
    for number in range(draw(st.integers(0, most))):
        more: dict[str, Any] = {"taints": (BROKEN,)} if draw(st.integers(0, 4)) == 0 else {}
        if draw(st.booleans()):
            more["consumes"] = (("set", (("slots", draw(st.integers(1, 3))),)),)
        attributes: dict[str, Any] = {"tier": draw(st.sampled_from(["fast", "slow"]))}
        if draw(st.integers(0, 5)):
            attributes["root"] = draw(st.integers(0, 2))
        found.append(device(f"d{number}", more, **attributes))
    return tuple(found)


def slices_of(node: str, found: tuple[Device, ...]) -> list[DeviceSlice]:
    """A pool of two slices: the devices, and the counters that they share."""
    pool, reach = PoolKey(DRIVER, f"pool-{node}"), NodeReach(node)
    return [
        DeviceSlice(f"{node}-a", pool, slice_count=2, reach=reach, devices=found),
        DeviceSlice(
            f"{node}-b", pool, slice_count=2, reach=reach,
            counter_sets=(CounterSet("set", (("slots", COUNTERS),)),),
        ),
    ]  # fmt: skip


@st.composite
def claims(draw: st.DrawFn) -> tuple[DeviceClaim, ...]:
    def ask(name: str) -> DeviceAsk:
        mode = ALL if draw(st.integers(0, 7)) == 0 else "ExactCount"
        return DeviceAsk(
            name,
            draw(st.sampled_from(["gpu", "fast"])),
            mode=mode,
            count=draw(st.integers(1, 3)),
            tolerations=TOLERATED if draw(st.booleans()) else (),
        )

    def request(name: str) -> DeviceRequest:
        if draw(st.integers(0, 2)):
            return DeviceRequest(name, (ask(name),))
        asks = tuple(ask(f"s{number}") for number in range(draw(st.integers(1, 2))))
        return DeviceRequest(name, asks, first_available=True)

    found = []
    for number in range(draw(st.integers(1, 2))):
        requests = [request(f"r{at}") for at in range(draw(st.integers(1, 2)))]
        name = f"{DRIVER}/root"
        constraint = draw(
            st.sampled_from(
                [(), (DeviceConstraint(match=name),), (DeviceConstraint(("r0",), distinct=name),)]
            )
        )
        found.append(claim_for(*requests, name=f"c{number}", constraints=constraint))
    return tuple(found)


Chosen = list[tuple[DeviceClaim, DeviceRequest, DeviceAsk, tuple[int, ...]]]


def choices(found: tuple[Device, ...], wanted: tuple[DeviceClaim, ...]) -> Iterator[Chosen]:
    """Every choice of alternatives and devices, in the order in which the first that is allowed wins."""
    parts = [(claim, request) for claim in wanted for request in claim.requests]

    def below(at: int) -> Iterator[Chosen]:
        if at == len(parts):
            yield []
            return
        claim, request = parts[at]
        for ask in request.asks:
            fitting = [n for n, one in enumerate(found) if ask.device_class == "gpu" or _tier(one) == "fast"]
            sets = [tuple(fitting)] if ask.mode == ALL else list(combinations(fitting, ask.count))
            for positions in sets:
                if positions:
                    for rest in below(at + 1):
                        yield [(claim, request, ask, positions), *rest]

    yield from below(0)


def _tier(one: Device) -> object:
    return dict(one.attributes)["tier"].value


def is_allowed(found: tuple[Device, ...], chosen: Chosen, used: set[int]) -> bool:
    """Whether a choice keeps to all rules."""
    taken = [position for _, _, _, positions in chosen for position in positions]
    if len(set(taken)) < len(taken) or used & set(taken):
        return False
    for _, _, ask, positions in chosen:
        if not ask.tolerations and any(found[position].taints for position in positions):
            return False
    if any(found[position].consumes for position in taken):
        drawn = [found[position].consumes for position in {*taken, *used} if found[position].consumes]
        if sum(amounts[0][1] for sets in drawn for _, amounts in sets) > COUNTERS:
            return False
    for claim in {id(one[0]): one[0] for one in chosen}.values():
        for constraint in claim.constraints:
            covered = [
                position
                for of, request, ask, positions in chosen
                if of is claim and constraint.covers(request, ask)
                for position in positions
            ]
            values = [dict(found[position].attributes).get("root") for position in covered]
            if None in values:
                return False
            if constraint.match and len(set(values)) > 1:
                return False
            if constraint.distinct and len(set(values)) < len(values):
                return False
    return True


@settings(max_examples=seeds(100, 1000), deadline=None)
@given(devices(), claims(), st.sets(st.integers(0, 4), max_size=2))
def test_the_first_choice_that_is_allowed_is_allocated(
    found: tuple[Device, ...], wanted: tuple[DeviceClaim, ...], held: set[int]
) -> None:
    used = {number for number in held if number < len(found)}
    in_use = DevicesInUse(frozenset(DeviceKey(DRIVER, "pool-n", found[n].name) for n in used))
    allocator = DeviceAllocator(slices_of("n", found), CLASSES, select)
    got = allocator.allocate(NODE, wanted, in_use)
    if got.error:  # a constraint that all devices cannot keep
        assert any(ask.mode == ALL for claim in wanted for one in claim.requests for ask in one.asks)
        return
    first = next((one for one in choices(found, wanted) if is_allowed(found, one, used)), None)
    assert got.fits is (first is not None)
    if first is not None:
        expected = [
            [
                (request.result_name(ask), found[position].name)
                for of, request, ask, positions in first
                if of is claim
                for position in positions
            ]
            for claim in wanted
        ]
        assert [
            [(one.request, one.key.name) for one in given.devices] for given in got.allocations
        ] == expected


@settings(max_examples=seeds(30, 300), deadline=None)
@given(
    st.lists(devices(3), min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=6), claims(), st.data()
)
def test_as_many_pods_are_counted_as_can_be_allocated_one_by_one(
    kinds: list[tuple[Device, ...]], more: list[int], wanted: tuple[DeviceClaim, ...], data: st.DataObject
) -> None:
    machines = [*range(len(kinds)), *(kind % len(kinds) for kind in more)]
    nodes = [Node(f"n{number}", {}, {}) for number in range(len(machines))]
    parts = [
        part for node, kind in zip(nodes, machines, strict=True) for part in slices_of(node.name, kinds[kind])
    ]
    allocator = DeviceAllocator(parts, CLASSES, select)
    held = frozenset(
        part.key(one) for part in parts for one in part.devices if data.draw(st.integers(0, 9)) == 0
    )
    counted = CopyCounter(allocator).count(nodes, wanted, by_pool(DevicesInUse(held)).get, 4)
    assert not counted.coupled
    for row, node in enumerate(nodes):
        in_use, fitting = DevicesInUse(held), 0
        while fitting < 4:
            got = allocator.allocate(NodeIdentity(node.name), wanted, in_use)
            if not got.fits:
                break
            in_use = in_use.plus(one for given in got.allocations for one in given.devices)
            fitting += 1
        assert counted.counts[row] == fitting
