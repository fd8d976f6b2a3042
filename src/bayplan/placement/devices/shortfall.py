"""Why nodes have no devices for the claims of a pod: the request, and the step at which too few are left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from bayplan.model.devices.claims import ALL, DeviceAsk, DeviceClaim, DeviceRequest
from bayplan.model.devices.inventory import DeviceSlice
from bayplan.model.node import Node
from bayplan.placement.devices.copies import CopyCounter
from bayplan.placement.devices.in_use import DevicesInUse, UsageOf, merged
from bayplan.placement.devices.pools import NodeIdentity, NodePool, reaches
from bayplan.placement.devices.search import is_tainted

SELECTED = 1


class DeviceStep(IntEnum):
    """What leaves devices out, in the order in which it is looked at."""

    POOLS = 0  # a pool is incomplete or invalid
    PUBLISHED = 1
    CLASS = 2
    SELECTORS = 3
    TAINTS = 4
    IN_USE = 5
    CONSTRAINTS = 6
    TOGETHER = 7  # each request has enough, but not all of them at once


@dataclass(frozen=True, slots=True)
class DeviceShortfall:
    """One request of a claim on some nodes."""

    claim: str
    request: str
    device_class: str
    step: DeviceStep
    asked: int
    most: int  # left after that step, on the node that has the most
    nodes: int


@dataclass(frozen=True, slots=True)
class _Lack:
    claim: str
    request: str
    device_class: str
    step: DeviceStep
    asked: int
    left: int


def device_shortfalls(
    counter: CopyCounter, nodes: Iterable[Node], claims: tuple[DeviceClaim, ...], usage: UsageOf
) -> tuple[DeviceShortfall, ...]:
    """What claims lack on nodes that have no devices for them, by request and step."""
    found: dict[tuple[str, str, DeviceStep], tuple[_Lack, int, int]] = {}
    for node in nodes:
        pools = counter.pools(node)
        lack = _lack(counter, NodeIdentity(node.name, node.labels), pools, claims, merged(usage, pools))
        if lack is not None:
            key = lack.claim, lack.request, lack.step
            _, most, count = found.get(key, (lack, 0, 0))
            found[key] = lack, max(most, lack.left), count + 1
    return tuple(
        DeviceShortfall(one.claim, one.request, one.device_class, one.step, one.asked, most, count)
        for one, most, count in found.values()
    )


def _lack(
    counter: CopyCounter, node: NodeIdentity, pools: tuple[NodePool, ...],
    claims: tuple[DeviceClaim, ...], in_use: DevicesInUse,
) -> _Lack | None:  # fmt: skip
    """The first request for which too few devices are left."""
    for claim in claims:
        for request in claim.requests:
            lacks = [_ask(counter, node, pools, claim, request, ask, in_use) for ask in request.asks]
            if all(lack is not None for lack in lacks):
                return max((lack for lack in lacks if lack is not None), key=lambda lack: lack.step)
    for claim in claims:
        step = DeviceStep.CONSTRAINTS if claim.constraints else DeviceStep.TOGETHER
        if claim.constraints or claim is claims[-1]:
            asked = sum(request.asks[-1].count for request in claim.requests)
            return _Lack(claim.key.name, "", claim.requests[0].asks[0].device_class, step, asked, 0)
    return None


def _ask(
    counter: CopyCounter, node: NodeIdentity, pools: tuple[NodePool, ...],
    claim: DeviceClaim, request: DeviceRequest, ask: DeviceAsk, in_use: DevicesInUse,
) -> _Lack | None:  # fmt: skip
    """At which step too few devices are left for an ask; None if there are enough."""
    published = [
        (part, index)
        for pool in pools
        if pool.is_usable
        for part in pool.slices
        for index, device in enumerate(part.devices)
        if not part.by_device or reaches(device.reach, node)
    ]
    asked, unusable = ask.count if ask.mode != ALL else 1, any(not pool.is_usable for pool in pools)
    first = DeviceStep.POOLS if unusable and len(published) < asked else DeviceStep.PUBLISHED
    for step, left in _steps(counter, ask, published, in_use, first):
        if ask.mode == ALL and step is DeviceStep.SELECTORS:
            asked = max(len(left), 1)
        if len(left) < asked:
            name = request.result_name(ask)
            return _Lack(claim.key.name, name, ask.device_class, step, asked, len(left))
    return None


Place = tuple[DeviceSlice, int]


def _steps(
    counter: CopyCounter, ask: DeviceAsk, left: list[Place], in_use: DevicesInUse, first: DeviceStep
) -> Iterator[tuple[DeviceStep, list[Place]]]:
    """What is left after each step."""
    yield first, left
    device_class = counter.allocator.builder.classes.get(ask.device_class)
    of_class = () if device_class is None else device_class.selectors
    for step, selectors in ((DeviceStep.CLASS, of_class), (DeviceStep.SELECTORS, ask.selectors)):
        for expression in selectors:
            left = [one for one in left if expression is not None and _is_selected(counter, expression, one)]
        yield step, left
    left = [(part, index) for part, index in left if not is_tainted(part.devices[index], ask)]
    yield DeviceStep.TAINTS, left
    if not ask.admin:
        left = [(part, index) for part, index in left if part.key(part.devices[index]) not in in_use.alone]
    yield DeviceStep.IN_USE, left


def _is_selected(counter: CopyCounter, expression: str, place: Place) -> bool:
    part, index = place
    verdicts = counter.allocator.builder.select(expression, part)
    return not verdicts.flaw and verdicts.matches[index] == SELECTED
