"""The search for devices: first fit with backtracking over claims, requests, alternatives and devices.

Claims are taken in the order of the pod, requests in that of the claim, and devices in that of the node.
Within one request devices are tried in combinations, not in permutations, and of interchangeable devices
one that fails stands for all. The first solution wins.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum

from bayplan.model.devices.claims import RESULTS_MAX, AllocatedDevice, DeviceAsk
from bayplan.model.devices.inventory import NO_EXECUTE, NO_SCHEDULE, Device, DeviceKey, PoolKey
from bayplan.placement.devices.constraints import ConstraintState
from bayplan.placement.devices.in_use import DevicesInUse, add_amounts
from bayplan.placement.devices.interchangeable import device_classes
from bayplan.placement.devices.pools import NodePool
from bayplan.placement.devices.problem import AskOnNode, DeviceError, NodeDevice, NodeProblem
from bayplan.placement.devices.shares import AmountError, consumed, fits

STEPS_MAX = 200_000
"""How many steps a search takes before it gives up: about a second."""


class DeviceSearchStopped(Exception):
    """The search was stopped; devices may exist all the same."""


class Outcome(Enum):
    """How a branch of the search ended."""

    FOUND = "found"
    FAILED = "failed"
    TOO_MANY = "too_many"  # more devices than one claim can get, whichever are tried


Branch = Generator["Branch", Outcome, Outcome]


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that an ask got, with the amounts of its share."""

    found: NodeDevice
    ask: AskOnNode
    share: dict[str, int] | None = None  # None: not shared
    counted: bool = False  # its counters were drawn on
    first_share: bool = False


@dataclass(slots=True)
class DeviceSearch:
    """One search on one node. After FOUND, `taken` has the devices of each claim."""

    problem: NodeProblem
    in_use: DevicesInUse
    steps_max: int = STEPS_MAX
    steps: int = 0
    taken: list[list[Taken]] = field(init=False)
    chosen: dict[tuple[int, int], AskOnNode] = field(default_factory=dict)
    _constraints: list[list[ConstraintState]] = field(init=False)
    _holders: dict[DeviceKey, set[int]] = field(default_factory=dict)
    _shares: dict[DeviceKey, dict[str, int]] = field(default_factory=dict)
    _counters: dict[PoolKey, dict[tuple[str, str], int]] = field(default_factory=dict)
    _classes: tuple[int, ...] | None = None  # of the devices; made when the first one was tried in vain

    def __post_init__(self) -> None:
        claims = self.problem.claims
        self.taken = [[] for _ in claims]
        self._constraints = [
            [ConstraintState(one, self.problem.features.lists) for one in claim.constraints]
            for claim in claims
        ]

    def run(self) -> bool:
        """Whether devices for all claims were found. The stack is our own: it may be deep."""
        stack = [self._claim(0)]
        outcome: Outcome | None = None
        while stack:
            try:
                branch = next(stack[-1]) if outcome is None else stack[-1].send(outcome)
            except StopIteration as ended:
                stack.pop()
                outcome = ended.value
            else:
                outcome = None
                stack.append(branch)
                self.steps += 1
                if self.steps > self.steps_max:
                    raise DeviceSearchStopped
        return outcome is Outcome.FOUND

    # ── branches ───────────────────────────────────────────────────────────────────────────────────

    def _claim(self, claim: int) -> Branch:
        if claim >= len(self.problem.claims):
            return Outcome.FOUND
        outcome = yield self._request(claim, 0)
        return outcome

    def _request(self, claim: int, request: int) -> Branch:
        """One request of a claim, and all that follows it."""
        asks = self.problem.asks[claim]
        if request >= len(asks):
            outcome = yield self._claim(claim + 1)
            # Another choice for an earlier claim may leave this one an alternative with fewer devices.
            return Outcome.FAILED if outcome is Outcome.TOO_MANY else outcome
        only_too_many = asks[request][0].request.first_available
        for ask in asks[request]:
            outcome = yield self._devices(claim, request, ask, 0, 0)
            if outcome is Outcome.FOUND:
                self.chosen[claim, request] = ask
                return outcome
            if not ask.request.first_available:
                return outcome
            only_too_many = only_too_many and outcome is Outcome.TOO_MANY
        return Outcome.TOO_MANY if only_too_many else Outcome.FAILED

    def _devices(self, claim: int, request: int, ask: AskOnNode, number: int, start: int) -> Branch:
        """The device of this number for an ask, from a position on, and all that follows it."""
        if ask.wants_all and not ask.candidates.positions:
            return Outcome.FAILED
        if number >= ask.count:
            outcome = yield self._request(claim, request + 1)
            return outcome
        if ask.count - number > RESULTS_MAX - len(self.taken[claim]):
            return Outcome.TOO_MANY
        positions = ask.candidates.positions
        if ask.wants_all:
            return (yield from self._device(claim, request, ask, number, number)) or Outcome.FAILED
        failed: set[int] = set()  # classes of devices with which what follows fails
        for at in range(start, len(positions)):
            if failed and self._class_of(positions[at]) in failed:
                continue
            tried = yield from self._device(claim, request, ask, number, at)
            if tried is Outcome.FOUND or tried is Outcome.TOO_MANY:
                return tried
            if tried is Outcome.FAILED:
                failed.add(self._class_of(positions[at]))
        return Outcome.FAILED

    def _device(
        self, claim: int, request: int, ask: AskOnNode, number: int, at: int
    ) -> Generator[Branch, Outcome, Outcome | None]:
        """Try one candidate, and all that follows it; None if it cannot be taken."""
        position = ask.candidates.positions[at]
        if self._is_taken(claim, ask.ask, self.problem.devices[position].key):
            return None
        if position in ask.candidates.errors:
            raise DeviceError(ask.candidates.errors[position])
        if not self._take(claim, ask, self.problem.devices[position]):
            return None
        outcome = yield self._devices(claim, request, ask, number + 1, at + 1)
        if outcome is not Outcome.FOUND:
            self._give_back(claim)
        return outcome

    def _class_of(self, position: int) -> int:
        """The class of a device; a device that a claim of this search has is in a class of its own."""
        key = self.problem.devices[position].key
        if self._holders.get(key) or key in self._shares:
            return -1 - position
        if self._classes is None:
            self._classes = device_classes(self.problem, self.in_use)
        return self._classes[position]

    # ── taking and giving back ─────────────────────────────────────────────────────────────────────

    def _is_taken(self, claim: int, ask: DeviceAsk, key: DeviceKey) -> bool:
        if ask.admin:
            return claim in self._holders.get(key, ())
        return key in self.in_use.alone or bool(self._holders.get(key))

    def _take(self, claim: int, ask: AskOnNode, found: NodeDevice) -> bool:
        """Take a device if it is available. Otherwise nothing changes."""
        device, features = found.device, self.problem.features
        shared = features.shares and device.shareable
        share = self._share(ask, found) if features.shares else {}
        if share is None and not ask.wants_all:
            return False
        if found.part.unusable or (device.consumes and not features.counters):
            return False
        if features.taints and is_tainted(device, ask.ask):
            return False
        has_shares = found.key in self._shares or self.in_use.has_shares(found.key)
        counted = bool(device.consumes) and not (shared and has_shares)
        if counted and not self._draw(found):
            return False
        if not self._constrain(claim, ask, found):
            if counted:
                self._undraw(found)
            return False
        if share is None:  # for all devices the constraints come first: their violation is an error
            self._release(claim, ask, found, counted)
            return False
        first_share = False
        if shared:
            first_share = found.key not in self._shares
            add_amounts(self._shares.setdefault(found.key, {}), tuple(share.items()))
        else:
            self._holders.setdefault(found.key, set()).add(claim)
        self.taken[claim].append(Taken(found, ask, share if shared else None, counted, first_share))
        return True

    def _give_back(self, claim: int) -> None:
        taken = self.taken[claim].pop()
        key = taken.found.key
        if taken.share is None:
            self._holders[key].discard(claim)
        elif taken.first_share:
            del self._shares[key]
        else:
            add_amounts(self._shares[key], tuple(taken.share.items()), -1)
        self._release(claim, taken.ask, taken.found, taken.counted)

    def _release(self, claim: int, ask: AskOnNode, found: NodeDevice, counted: bool) -> None:
        for constraint in reversed(self._constraints[claim]):
            constraint.give_back(ask.request, ask.ask)
        if counted:
            self._undraw(found)

    def _constrain(self, claim: int, ask: AskOnNode, found: NodeDevice) -> bool:
        constraints = self._constraints[claim]
        for number, constraint in enumerate(constraints):
            if not constraint.take(ask.request, ask.ask, found.key.driver, found.device):
                for earlier in constraints[:number]:
                    earlier.give_back(ask.request, ask.ask)
                if ask.wants_all:
                    raise DeviceError(
                        f"{ask.title}: cannot add device {found.key} because a claim constraint would not be "
                        "satisfied"
                    )
                return False
        return True

    def _share(self, ask: AskOnNode, found: NodeDevice) -> dict[str, int] | None:
        """What the ask takes of the capacities of a device; None if that is not left."""
        device, fractions = found.device, self.problem.features.fractions
        try:
            share = consumed(device, ask.ask.capacity, fractions=fractions)
        except AmountError as error:
            raise DeviceError(f"{ask.title}: checking capacity for device {found.key}: {error}") from error
        if share is None:
            return None
        used = dict(self.in_use.consumed.get(found.key, {}))
        add_amounts(used, tuple(self._shares.get(found.key, {}).items()))
        return share if fits(device, share, used, fractions=fractions) else None

    def _draw(self, found: NodeDevice) -> bool:
        """Draw on the counters of a pool; nothing is drawn if one of them has too little left."""
        left = self._counters.get(found.pool.key)
        if left is None:
            left = self._counters[found.pool.key] = _counters_left(found.pool, self.in_use)
        for name, amounts in found.device.consumes:
            for counter, amount in amounts:
                left[name, counter] -= amount
        if min(left.values(), default=0) < 0:
            self._undraw(found)
            return False
        return True

    def _undraw(self, found: NodeDevice) -> None:
        left = self._counters[found.pool.key]
        for name, amounts in found.device.consumes:
            for counter, amount in amounts:
                left[name, counter] += amount

    # ── the solution ───────────────────────────────────────────────────────────────────────────────

    def results(self, claim: int) -> tuple[AllocatedDevice, ...]:
        """The devices of a claim."""
        return tuple(
            AllocatedDevice(
                request=one.ask.request.result_name(one.ask.ask),
                key=one.found.key,
                admin=bool(one.ask.ask.admin),
                share=None if one.share is None else "",
                consumed=tuple(sorted((one.share or {}).items())),
                tolerations=one.ask.ask.tolerations_text,
                binding_conditions=one.found.device.binding_conditions,
                binding_failure_conditions=one.found.device.binding_failure_conditions,
            )
            for one in self.taken[claim]
        )


def is_tainted(device: Device, ask: DeviceAsk) -> bool:
    """Whether a taint that matters is not tolerated; taints with unknown effects do not matter."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(one.accepts(taint) for one in ask.tolerations)
        for taint in device.taints
    )


def _counters_left(pool: NodePool, in_use: DevicesInUse) -> dict[tuple[str, str], int]:
    """What devices in use, also those on other nodes, leave of the counters of a pool."""
    left = {(name, counter): amount for name, amounts in pool.counters.items() for counter, amount in amounts}
    for part in (*pool.slices, *pool.elsewhere):
        for device in part.devices:
            if device.consumes and in_use.holds(part.key(device)):
                for name, amounts in device.consumes:
                    for counter, amount in amounts:
                        left[name, counter] -= amount
    return left
