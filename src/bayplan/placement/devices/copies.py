"""How many pods with the same claims fit on each node by their devices: one answer for nodes of equal shape.

The number on a node is how many pods the allocator serves there one after the other, so that what was counted
can be allocated. Nodes have the same shape if their devices differ only in what no claim asks about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bayplan.model.devices.claims import DeviceClaim, DeviceClaimKey
from bayplan.model.devices.inventory import DeviceSlice
from bayplan.model.node import Node
from bayplan.placement.cluster.node_index import NodeIndex, terms_mask
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.devices.allocate import (
    INVALID_POOLS,
    NOT_ALLOCATED,
    DeviceAllocator,
    NodeAllocation,
    stopped,
)
from bayplan.placement.devices.in_use import DevicesInUse, UsageOf, merged
from bayplan.placement.devices.pools import NodeIdentity, NodePool, reaches
from bayplan.placement.devices.problem import DeviceError, NodeProblem
from bayplan.placement.devices.recipes import AllocationRecipe, recipe_of
from bayplan.placement.devices.search import DeviceSearch, DeviceSearchStopped

RECIPES_MAX = 1024
ASKED_MAX = 32
Counts = npt.NDArray[np.int64]
Shape = tuple[object, ...]
NodeShape = tuple[tuple[NodePool, ...], int]
"""The pools of a node, and a number that equal ones share, as far as claims do not decide it."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCopies:
    """How many pods fit on each node, and why no more fit on those with too few.

    `coupled`: nodes share devices or counters, so that each number holds only if other nodes take none.
    """

    counts: Counts
    # rows of the nodes without room for a single pod, by reason
    reasons: Mapping[str, Sequence[int]] = field(default_factory=dict)
    coupled: bool = False
    shapes: int = 0


def reachable_nodes(node_index: NodeIndex, claims: Iterable[DeviceClaim]) -> Bools:
    """The nodes that can use the devices which the claims have already."""
    reachable = np.ones(len(node_index), dtype=bool)
    for claim in claims:
        if claim.allocation is not None and claim.allocation.terms is not None:
            reachable &= terms_mask(node_index, claim.allocation.terms)
    return reachable


@dataclass(frozen=True, slots=True)
class _Answer:
    count: int
    reason: str = ""  # if the count is 0
    coupled: bool = False


@dataclass(slots=True)
class _Asked:
    claims: tuple[DeviceClaim, ...]
    selectors: tuple[str, ...]
    compared: tuple[str, ...]  # attributes
    found: dict[Shape, AllocationRecipe] = field(default_factory=dict)
    answers: dict[Shape, _Answer] = field(default_factory=dict)  # by shape, most pods and shared claims


class CopyCounter:
    """Counts pods on the nodes of one index of slices. What no claim decides is remembered for each node."""

    def __init__(self, allocator: DeviceAllocator) -> None:
        self.allocator = allocator
        self._nodes: dict[str, NodeShape] = {}
        self._numbers: dict[Shape, int] = {}
        self._known: dict[int, _Asked] = {}  # by the identity of the claims, which are kept

    def slice_changed(self, part: DeviceSlice) -> None:
        """A slice was added or removed in the index: forget the nodes that may see its pool."""
        self._known.clear()  # devices of other nodes may draw on the same counters
        of_pool = (*self.allocator.index.by_pool.get(part.pool, ()), part)
        nodes = {one.reach.node for one in of_pool}
        if "" in nodes:
            self._nodes.clear()
        for node in nodes:
            self._nodes.pop(node, None)

    def node_changed(self, name: str) -> None:
        """A node is gone, or has other labels."""
        self._known.clear()
        self._nodes.pop(name, None)

    def pools(self, node: Node) -> tuple[NodePool, ...]:
        """The pools of a node in the order in which their devices are tried."""
        return (self._nodes.get(node.name) or self._remember(node))[0]

    def count(
        self,
        nodes: Sequence[Node],
        claims: tuple[DeviceClaim, ...],
        usage: UsageOf,
        most: int,
        shared: Collection[DeviceClaimKey] = (),
    ) -> DeviceCopies:
        """How many pods fit on each node, at most `most`; `shared` claims are one for all the pods."""
        asked = self._asked(claims)
        counts = np.zeros(len(nodes), dtype=np.int64)
        answers: dict[Shape, _Answer] = {}
        reasons: dict[str, list[int]] = {}
        for row, node in enumerate(nodes):
            pools, shape = self._shape(node, asked, usage)
            key = (shape, most, tuple(shared))
            answer = asked.answers.get(key)
            if answer is None:
                while len(asked.answers) >= RECIPES_MAX:
                    del asked.answers[next(iter(asked.answers))]
                in_use = merged(usage, pools)
                answer = asked.answers[key] = self._answer(node, pools, claims, in_use, most, shared)
            answers[shape] = answer
            counts[row] = answer.count
            if answer.reason:
                reasons.setdefault(answer.reason, []).append(row)
        coupled = any(answer.coupled for answer in answers.values())
        return DeviceCopies(counts, reasons, coupled, len(answers))

    def allocate(self, node: Node, claims: tuple[DeviceClaim, ...], usage: UsageOf) -> NodeAllocation:
        """Devices of a node for some claims. What was found for a node is right for others of its shape."""
        asked = self._asked(claims)
        pools, shape = self._shape(node, asked, usage)
        known = asked.found.get(shape)
        if known is not None:
            return known.on(node, pools)
        identity = NodeIdentity(node.name, node.labels)
        found = self.allocator.allocate(identity, claims, merged(usage, pools), pools)
        recipe = recipe_of(found, pools)
        if recipe is not None:
            while len(asked.found) >= RECIPES_MAX:
                del asked.found[next(iter(asked.found))]
            asked.found[shape] = recipe
        return found

    def classes_changed(self) -> None:
        """Classes have other selectors."""
        self._known.clear()

    def _asked(self, claims: tuple[DeviceClaim, ...]) -> _Asked:
        """What the claims ask about devices, and what was found for them before."""
        known = self._known.get(id(claims))
        if known is None:
            selectors = tuple(dict.fromkeys(self._selectors(claims)))
            compared = sorted({one.match or one.distinct for claim in claims for one in claim.constraints})
            while len(self._known) >= ASKED_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[id(claims)] = _Asked(claims, selectors, tuple(compared))
        return known

    def _shape(self, node: Node, asked: _Asked, usage: UsageOf) -> tuple[tuple[NodePool, ...], Shape]:
        """The pools of a node, and all that decides which of their devices the claims get."""
        pools, number = self._nodes.get(node.name) or self._remember(node)
        return pools, (
            number,
            tuple(self._verdicts(pools, asked.selectors)),
            tuple(_compared_values(pools, name) for name in asked.compared),
            tuple(_used_devices(pools, usage)),
        )

    def _remember(self, node: Node) -> NodeShape:
        identity = NodeIdentity(node.name, node.labels)
        pools = self.allocator.index.pools(identity)
        shape = tuple((_pool_shape(pool), tuple(_device_shapes(pool, identity))) for pool in pools)
        found = self._nodes[node.name] = pools, self._numbers.setdefault(shape, len(self._numbers))
        return found

    def _selectors(self, claims: tuple[DeviceClaim, ...]) -> Iterator[str]:
        for claim in claims:
            for request in claim.requests:
                for ask in request.asks:
                    device_class = self.allocator.builder.classes.get(ask.device_class)
                    for selector in (*(device_class.selectors if device_class else ()), *ask.selectors):
                        if selector is not None:
                            yield selector

    def _verdicts(self, pools: tuple[NodePool, ...], selectors: tuple[str, ...]) -> Iterator[bytes]:
        for pool in pools:
            for part in pool.slices:
                for selector in selectors:
                    yield self.allocator.builder.select(selector, part).matches

    def _answer(
        self,
        node: Node,
        pools: tuple[NodePool, ...],
        claims: tuple[DeviceClaim, ...],
        in_use: DevicesInUse,
        most: int,
        shared: Collection[DeviceClaimKey],
    ) -> _Answer:
        """How many pods fit on a node, which stands for all of its shape; the reason if none does."""
        own = tuple(claim for claim in claims if claim.key not in shared)
        identity, build = NodeIdentity(node.name, node.labels), self.allocator.builder.build
        count, reason, coupled = 0, "", False
        try:
            problem = build(identity, pools, claims)
            following = problem if len(own) == len(claims) else build(identity, pools, own)
            coupled = _is_coupled(problem)
            while count < most:
                search = DeviceSearch(following if count else problem, in_use, self.allocator.steps_max)
                if not search.run():
                    reason = INVALID_POOLS if any(pool.invalid for pool in pools) else NOT_ALLOCATED
                    break
                taken = [one for number in range(len(search.taken)) for one in search.results(number)]
                if count and all(device.admin for device in taken):
                    count = most  # what holds no devices fits any number of times
                    break
                in_use = in_use.plus(taken)
                count += 1
        except DeviceError as error:
            reason = str(error)
        except DeviceSearchStopped:
            reason = stopped(self.allocator.steps_max)
        return _Answer(count, "" if count else reason, coupled)


def _is_coupled(problem: NodeProblem) -> bool:
    """Whether a device that the claims may get is one of several nodes, or draws on counters of several."""
    asks = (ask for requests in problem.asks for asks in requests for ask in asks)
    wanted = {position for ask in asks for position in ask.candidates.positions}
    return any(_is_shared(problem.devices[at].part, problem.devices[at].pool) for at in wanted)


def _is_shared(part: DeviceSlice, pool: NodePool) -> bool:
    """Whether other nodes use the same devices or counters."""
    return not part.reach.node or bool(pool.counters and pool.elsewhere)


def _pool_shape(pool: NodePool) -> Shape:
    """Pools of one node are alike if they have the same counters; others only if they are the same."""
    shared = any(_is_shared(part, pool) for part in pool.slices)
    counters = tuple(sorted(pool.counters.items()))
    return pool.key if shared else (), len(pool.slices), counters, pool.incomplete, bool(pool.invalid)


def _device_shapes(pool: NodePool, node: NodeIdentity) -> Iterator[Shape]:
    """What of the devices decides an answer, apart from selectors and compared attributes."""
    for part in pool.slices:
        for device in part.devices:
            reachable = not part.by_device or reaches(device.reach, node)
            yield (
                "" if part.reach.node else device.name, device.taints, device.consumes, device.capacity,
                device.shareable, bool(part.unusable), bool(device.binding_conditions), reachable,
            )  # fmt: skip


def _compared_values(pools: tuple[NodePool, ...], name: str) -> tuple[object, ...]:
    """The values of an attribute on a node, numbered: equal ones have equal numbers, whatever they are."""
    values = [
        device.attribute(part.pool.driver, name)
        for pool in pools
        for part in pool.slices
        for device in part.devices
    ]
    if any(value is not None and isinstance(value.value, tuple) for value in values):
        return tuple(values)  # lists that differ may have single values in common
    numbers: dict[object, int] = {None: -1}
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)


def _used_devices(pools: tuple[NodePool, ...], usage: UsageOf) -> Iterator[tuple[object, ...]]:
    """The devices of a node that are in use, by position; those of other nodes by name."""
    for number, pool in enumerate(pools):
        used = usage(pool.key)
        if used is not None:
            devices = (one.key(device) for one in pool.slices for device in one.devices)
            places = {key: at for at, key in enumerate(devices)}
            yield (
                number,
                *(
                    (
                        places.get(key, key),
                        key in used.alone,
                        tuple(sorted(used.consumed.get(key, {}).items())),
                    )
                    for key in used.devices()
                ),
            )
