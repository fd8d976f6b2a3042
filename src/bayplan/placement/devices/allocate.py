"""The allocation of the claims of one pod on one node: all of them, or none with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bayplan.model.devices.claims import DeviceAllocation, DeviceClaim, DeviceFeatures
from bayplan.model.devices.inventory import DeviceClass, DeviceConfig, DeviceSlice, SelectDevices
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.placement.devices.in_use import DevicesInUse
from bayplan.placement.devices.pools import NodeIdentity, NodePool, SliceIndex
from bayplan.placement.devices.problem import AskOnNode, DeviceError, ProblemBuilder
from bayplan.placement.devices.search import STEPS_MAX, DeviceSearch, DeviceSearchStopped, Taken

INVALID_POOLS = "invalid resource pools were encountered"
NOT_ALLOCATED = "cannot allocate all claims"


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """The allocations of the claims, in their order, or why there are none."""

    allocations: tuple[DeviceAllocation, ...] = ()
    reason: str = ""  # why the claims cannot be allocated on this node; empty if they are
    error: bool = False  # the reason is one of the claims or of a whole pool, not of the free devices
    here_only: bool = False  # an error of this node only
    out_of_steps: bool = False
    preference: int = 0  # the sum over the requests with alternatives: more for earlier ones
    steps: int = 0

    @property
    def fits(self) -> bool:
        return not self.reason


class DeviceAllocator:
    """Allocates the claims of one pod after the other, on any node. Nothing is remembered between answers."""

    def __init__(
        self,
        slices: Iterable[DeviceSlice] | SliceIndex,
        classes: Mapping[str, DeviceClass],
        select: SelectDevices,
        features: DeviceFeatures | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        features = features or DeviceFeatures()
        self.index = slices if isinstance(slices, SliceIndex) else SliceIndex(slices, features)
        self.builder = ProblemBuilder(self.index.features, classes, select)
        self.steps_max = steps_max

    def allocate(
        self,
        node: NodeIdentity,
        claims: tuple[DeviceClaim, ...],
        in_use: DevicesInUse,
        pools: tuple[NodePool, ...] | None = None,
    ) -> NodeAllocation:
        """Devices for all the claims, none of which has any yet. `pools` are those of the node, if known."""
        if pools is None:
            pools = self.index.pools(node)
        try:
            problem = self.builder.build(node, pools, claims)
            search = DeviceSearch(problem, in_use, self.steps_max)
            found = search.run()
        except DeviceError as error:
            return NodeAllocation(reason=str(error), error=True)
        except DeviceSearchStopped:
            return NodeAllocation(reason=stopped(self.steps_max), out_of_steps=True, steps=self.steps_max)
        if not found:
            if any(pool.invalid for pool in pools):
                return NodeAllocation(reason=INVALID_POOLS, error=True, here_only=True, steps=search.steps)
            return NodeAllocation(reason=NOT_ALLOCATED, steps=search.steps)
        try:
            allocations = tuple(_allocation(search, number, node) for number in range(len(claims)))
        except DeviceError as error:
            return NodeAllocation(reason=str(error), error=True)
        return NodeAllocation(allocations, preference=_preference(search), steps=search.steps)


def stopped(steps: int) -> str:
    """Why a search without an answer ended."""
    return f"the search for devices was stopped after {steps} steps; ask for fewer devices or alternatives"


ALTERNATIVES_MAX = 8


def _preference(search: DeviceSearch) -> int:
    chosen = (ask for ask in search.chosen.values() if ask.request.first_available)
    return sum(ALTERNATIVES_MAX - ask.request.asks.index(ask.ask) for ask in chosen)


def _allocation(search: DeviceSearch, number: int, node: NodeIdentity) -> DeviceAllocation:
    claim = search.problem.claims[number]
    chosen = [search.chosen[number, request] for request in range(len(claim.requests))]
    return DeviceAllocation(
        search.results(number),
        _terms(claim, search.taken[number], node),
        tuple(_config(claim, chosen)),
    )


def _config(claim: DeviceClaim, chosen: list[AskOnNode]) -> list[DeviceConfig]:
    """The parameters of the classes, then those of the claim that are for requests or chosen alternatives."""
    by_class: dict[str, list[str]] = {}
    for ask in chosen:
        by_class.setdefault(ask.device_class.name, []).append(ask.request.result_name(ask.ask))
    classes = {ask.device_class.name: ask.device_class for ask in chosen}
    found = [
        replace(config, requests=tuple(requests), from_class=True)
        for name, requests in by_class.items()
        for config in classes[name].config
    ]
    met = {name for ask in chosen for name in (ask.request.name, ask.request.result_name(ask.ask))}
    found += [one for one in claim.config if not one.requests or met & set(one.requests)]
    return [_for_all(one, chosen) for one in found]


def _for_all(config: DeviceConfig, chosen: list[AskOnNode]) -> DeviceConfig:
    """Parameters for all requests name none."""
    named = set(config.requests)
    for ask in chosen:
        if ask.request.name not in named and ask.request.result_name(ask.ask) not in named:
            return config
    return replace(config, requests=())


def _terms(claim: DeviceClaim, taken: list[Taken], node: NodeIdentity) -> tuple[NodeSelectorTerm, ...] | None:
    """The nodes that can use all the devices; None if all nodes can."""
    requirements: dict[tuple[str, str, frozenset[str], bool], Requirement] = {}
    for one in taken:
        part, device = one.found.part, one.found.device
        reach = device.reach if part.by_device else part.reach
        if reach.node or device.binds_to_node:
            return (NodeSelectorTerm((Requirement("metadata.name", "In", (node.name,), True),)),)
        if reach.terms is None:
            continue
        if len(reach.terms) > 1:
            raise DeviceError(
                f"create NodeSelector for claim {claim.key.name}: unsupported ResourceSlice.NodeSelector "
                f"with {len(reach.terms)} terms"
            )
        for term in reach.terms:
            for rule in term.requirements:
                requirements.setdefault((rule.key, rule.operator, frozenset(rule.values), rule.field), rule)
    return (NodeSelectorTerm(tuple(requirements.values())),) if requirements else None
