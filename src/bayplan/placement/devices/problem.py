"""What is asked of one node: its devices in order, the asks of the claims, and what selects which device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bayplan.model.devices.claims import (
    ALL,
    EXACT_COUNT,
    RESULTS_MAX,
    DeviceAsk,
    DeviceClaim,
    DeviceFeatures,
    DeviceRequest,
)
from bayplan.model.devices.inventory import (
    Device,
    DeviceClass,
    DeviceKey,
    DeviceSlice,
    SelectDevices,
    SelectorVerdicts,
)
from bayplan.placement.devices.pools import NodeIdentity, NodePool, reaches
from bayplan.placement.devices.shares import NOTHING, AmountError, consumed, fits


class DeviceError(Exception):
    """A claim that cannot be allocated anywhere until it, a class or a slice changes."""


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device on a node: where it stands, and whether the node can use it."""

    device: Device
    part: DeviceSlice
    pool: NodePool
    index: int  # in its slice
    key: DeviceKey
    reachable: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """The devices that an ask may get, as positions on the node, and errors at some of them."""

    positions: tuple[int, ...]
    errors: Mapping[int, str]  # the error that ends the search if it gets there


@dataclass(frozen=True, slots=True)
class AskOnNode:
    """An ask, and how many devices it gets. For all devices: exactly its candidates."""

    claim: DeviceClaim
    request: DeviceRequest
    ask: DeviceAsk
    device_class: DeviceClass
    count: int
    candidates: Candidates

    @property
    def wants_all(self) -> bool:
        return self.ask.mode == ALL

    @property
    def title(self) -> str:
        return f"claim {self.claim.key}, request {self.ask.name}"


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """All that the search needs to know. `asks` has the alternatives of each request of each claim."""

    node: NodeIdentity
    features: DeviceFeatures
    pools: tuple[NodePool, ...]
    devices: tuple[NodeDevice, ...]
    claims: tuple[DeviceClaim, ...]
    asks: tuple[tuple[tuple[AskOnNode, ...], ...], ...]


class ProblemBuilder:
    """Reads the claims of a pod for one node after the other; raises DeviceError if that is no use."""

    def __init__(
        self, features: DeviceFeatures, classes: Mapping[str, DeviceClass], select: SelectDevices
    ) -> None:
        self.features, self.classes, self.select = features, classes, select

    def build(
        self, node: NodeIdentity, pools: tuple[NodePool, ...], claims: tuple[DeviceClaim, ...]
    ) -> NodeProblem:
        """The problem of one node."""
        devices = tuple(_devices(pools, node))
        asks = tuple(tuple(self._requests(claim, pools, devices)) for claim in claims)
        return NodeProblem(node, self.features, pools, devices, claims, asks)

    def _requests(
        self, claim: DeviceClaim, pools: tuple[NodePool, ...], devices: tuple[NodeDevice, ...]
    ) -> Iterator[tuple[AskOnNode, ...]]:
        if claim.unsupported:
            raise DeviceError(f"claim {claim.key}: {claim.unsupported}")
        least_total = 0
        for request in claim.requests:
            self._check_features(claim, request)
            asks = tuple(self._ask(claim, request, ask, pools, devices) for ask in request.asks)
            least = min(ask.count for ask in asks)
            if least > RESULTS_MAX - least_total:
                raise DeviceError(
                    f"claim {claim.key}, request {request.name}: adding {least} devices exceeds the claim "
                    f"limit of {RESULTS_MAX}, with {least_total} already accounted for"
                )
            least_total += least
            yield asks
        for number, constraint in enumerate(claim.constraints):
            if not constraint.match and not constraint.distinct:
                raise DeviceError(
                    f"claim {claim.key}, constraint #{number}: empty constraint "
                    "(unsupported constraint type?)"
                )

    def _check_features(self, claim: DeviceClaim, request: DeviceRequest) -> None:
        if request.first_available and not self.features.alternatives:
            raise DeviceError(
                f"claim {claim.key}, request {request.name}: has subrequests, but the DRAPrioritizedList "
                "feature is disabled"
            )
        if self.features.shares:
            return
        for ask in request.asks:
            if ask.capacity is not None:
                word = "subrequest" if request.first_available else "request"
                raise DeviceError(
                    f"claim {claim.key}, {word} {ask.name}: has capacity requests, but the "
                    "DRAConsumableCapacity feature is disabled"
                )

    def _ask(
        self,
        claim: DeviceClaim,
        request: DeviceRequest,
        ask: DeviceAsk,
        pools: tuple[NodePool, ...],
        devices: tuple[NodeDevice, ...],
    ) -> AskOnNode:
        title = f"claim {claim.key}, request {ask.name}"
        device_class = self._checked_class(ask, title)
        if ask.mode == EXACT_COUNT:
            found = self._candidates(claim, ask, device_class, devices)
            return AskOnNode(claim, request, ask, device_class, ask.count, found)
        if ask.mode != ALL:
            raise DeviceError(f"{title}: unsupported count mode {ask.mode}")
        for pool in pools:
            if not pool.is_usable:
                state = "currently being updated" if pool.incomplete else "currently invalid"
                raise DeviceError(f"{title}: asks for all devices, but resource pool {pool.key} is {state}")
        found = self._candidates(claim, ask, device_class, devices)
        for position in found.positions:
            if position in found.errors:
                raise DeviceError(found.errors[position])
        if self.features.shares:
            large = tuple(at for at in found.positions if self._is_large_enough(title, ask, devices[at]))
            found = Candidates(large, {})
        return AskOnNode(claim, request, ask, device_class, len(found.positions), found)

    def _checked_class(self, ask: DeviceAsk, title: str) -> DeviceClass:
        if ask.unsupported:
            raise DeviceError(f"{title}: {ask.unsupported}")
        for number, selector in enumerate(ask.selectors):
            if selector is None:
                raise DeviceError(
                    f"{title}, selector #{number}: CEL expression empty (unsupported selector type?)"
                )
        if ask.admin is not None and not self.features.admin_access:
            raise DeviceError(f"{title}: admin access is requested, but the feature is disabled")
        if not ask.device_class:
            raise DeviceError(f"{title}: missing device class name (unsupported request type?)")
        if ask.device_class not in self.classes:
            raise DeviceError(
                f'{title}: could not retrieve device class {ask.device_class}: "{ask.device_class}" not found'
            )
        return self.classes[ask.device_class]

    def _is_large_enough(self, title: str, ask: DeviceAsk, found: NodeDevice) -> bool:
        """Whether the device would do if nothing of it were in use."""
        fractions = self.features.fractions
        try:
            taken = consumed(found.device, ask.capacity, fractions=fractions)
        except AmountError as error:
            raise DeviceError(
                f"{title}: checking capacity for device {found.device.name}: {error}"
            ) from error
        return taken is not None and fits(found.device, taken, NOTHING, fractions=fractions)

    def _candidates(
        self,
        claim: DeviceClaim,
        ask: DeviceAsk,
        device_class: DeviceClass,
        devices: tuple[NodeDevice, ...],
    ) -> Candidates:
        positions: list[int] = []
        errors: dict[int, str] = {}
        part: DeviceSlice | None = None
        selected: Sequence[bool | str] = ()
        for position, found in enumerate(devices):
            if found.part is not part:
                part = found.part
                selected = self._selected(claim, ask, device_class, part)
            verdict = selected[found.index]
            if verdict is False or (found.device.binding_conditions and not self.features.binding_conditions):
                continue
            if verdict is not True:
                errors[position] = verdict
            elif not found.reachable:
                continue
            positions.append(position)
        return Candidates(tuple(positions), errors)

    def _selected(
        self, claim: DeviceClaim, ask: DeviceAsk, device_class: DeviceClass, part: DeviceSlice
    ) -> Sequence[bool | str]:
        """Whether all selectors of class and ask select each device, or the error of the first that fails."""
        answers: list[bool | str] = [True] * len(part.devices)
        for title, selectors in (
            (f"class {device_class.name}", device_class.selectors),
            (f"claim {claim.key}", ask.selectors),
        ):
            for number, selector in enumerate(selectors):
                name = f"{title}: selector #{number}"
                if selector is None:
                    flaw = f"{name}: CEL expression empty (unsupported selector type?)"
                    answers = [flaw if one is True else one for one in answers]
                    continue
                verdicts = self.select(selector, part)
                if verdicts.flaw:
                    flaw = f"{name}: CEL compile error: {verdicts.flaw}"
                    answers = [flaw if one is True else one for one in answers]
                    continue
                for index, verdict in enumerate(verdicts.matches):
                    if verdict != 1 and answers[index] is True:
                        answers[index] = bool(verdict) and _runtime_error(name, verdicts, part, index)
        return answers


def _runtime_error(name: str, verdicts: SelectorVerdicts, part: DeviceSlice, index: int) -> str:
    key = part.key(part.devices[index])
    return f"{name} on device {key}: CEL runtime error: {verdicts.error(index)}"


def _devices(pools: tuple[NodePool, ...], node: NodeIdentity) -> Iterator[NodeDevice]:
    """The devices of usable pools in the order in which they are tried."""
    for pool in pools:
        if not pool.is_usable:
            continue
        for part in pool.slices:
            for index, device in enumerate(part.devices):
                reachable = not part.by_device or reaches(device.reach, node)
                yield NodeDevice(device, part, pool, index, part.key(device), reachable)
