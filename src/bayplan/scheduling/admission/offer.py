"""An offer of a queue to a gang: flavors by pod set, the mode of admission, and the obstacles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.gang import PodSet
from bayplan.model.queued_gang import Admission, Delayed, PodSetAdmission, QueuedGang
from bayplan.model.quota import Cell, Queue
from bayplan.model.rejection import (
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    RejectionDetail,
    RejectionReason,
)
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad
from bayplan.state.admission.usage import PlacedPods, placed_pods

SEVERITY = (
    RejectionReason.NO_PLACE,
    RejectionReason.NO_QUOTA_NOW,
    RejectionReason.NEVER_ENOUGH_QUOTA,
    RejectionReason.NO_FLAVOR,
)
CHANCES = (FlavorMode.NONE, FlavorMode.NO_VICTIMS, FlavorMode.PREEMPT, FlavorMode.RECLAIM, FlavorMode.FIT)


class Mode(IntEnum):
    """How a gang could be admitted, worst first."""

    NO_FIT = 0
    PREEMPT = 1
    LATER = 2  # it fits once the victims of other gangs have left
    FIT = 3


def mode_of(chance: FlavorMode) -> Mode:
    """The admission mode that a flavor mode amounts to."""
    if chance is FlavorMode.FIT:
        return Mode.FIT
    return Mode.NO_FIT if chance is FlavorMode.NONE else Mode.PREEMPT


def more_severe(one: RejectionReason | None, other: RejectionReason | None) -> RejectionReason | None:
    """The more severe of two reasons."""
    if one is None or other is None:
        return one or other
    return one if SEVERITY.index(one) >= SEVERITY.index(other) else other


@dataclass(slots=True)
class FlavorChoice:
    """The flavor chosen for one resource of a pod set."""

    flavor: str
    mode: Mode
    borrow: int = 0
    tried: int = -1  # index of the last flavor tried; -1 if all were tried


@dataclass(slots=True)
class PodSetOffer:
    """What one pod set would get."""

    name: str
    count: int
    requests: dict[str, int]
    choices: dict[str, FlavorChoice] = field(default_factory=dict)
    obstacles: list[RejectionDetail] = field(default_factory=list)
    fatal: Obstacle | None = None
    attempts: tuple[FlavorAttempt, ...] = ()
    place: Assignment | None = None
    delayed: Delayed | None = None

    @property
    def mode(self) -> Mode:
        if self.fatal is not None:
            return Mode.NO_FIT
        if not self.obstacles:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)

    def set_mode(self, mode: Mode) -> None:
        for choice in self.choices.values():
            choice.mode = mode


@dataclass(slots=True)
class Offer:
    """What the whole gang would get. A mode set explicitly overrides the modes of the pod sets."""

    parts: list[PodSetOffer] = field(default_factory=list)
    quota: dict[Cell, int] = field(default_factory=dict)
    borrow: int = 0
    explicit_mode: Mode | None = None
    reason: RejectionReason | None = None

    @property
    def mode(self) -> Mode:
        if not self.parts:
            return Mode.NO_FIT
        return self.explicit_mode if self.explicit_mode is not None else min(part.mode for part in self.parts)

    def part(self, name: str) -> PodSetOffer:
        return next(part for part in self.parts if part.name == name)

    def downgrade(self, name: str, mode: Mode) -> None:
        """Lower the mode of one pod set, and so of the whole gang."""
        self.part(name).set_mode(mode)
        self.explicit_mode = mode

    def set_mode(self, mode: Mode) -> None:
        for part in self.parts:
            part.set_mode(mode)
        self.explicit_mode = mode

    def tried(self) -> tuple[PodSetAttempts, ...]:
        """The flavors tried so far, by pod set."""
        return tuple(
            PodSetAttempts(part.name, tuple(part.obstacles), part.fatal, part.attempts) for part in self.parts
        )

    def progress(self) -> tuple[Mapping[str, int], ...]:
        """Where the next flavor search continues."""
        return tuple(
            {resource: choice.tried for resource, choice in part.choices.items()} for part in self.parts
        )

    def admission(self, queue: str) -> Admission:
        return Admission(
            queue,
            tuple(
                PodSetAdmission(
                    part.name,
                    part.count,
                    {resource: choice.flavor for resource, choice in sorted(part.choices.items())},
                    {resource: part.requests.get(resource, 0) for resource in sorted(part.choices)},
                    part.place,
                    part.delayed,
                )
                for part in self.parts
            ),
        )


def add_part(offer: Offer, part: PodSetOffer, before: Mapping[str, int]) -> None:
    """Add a pod set to the offer; `before` is the admission of its earlier version."""
    offer.parts.append(part)
    offer.explicit_mode = None
    for resource, choice in part.choices.items():
        offer.borrow = max(offer.borrow, choice.borrow)
        cell = (choice.flavor, resource)
        more = part.requests.get(resource, 0) - before.get(resource, 0)
        offer.quota[cell] = offer.quota.get(cell, 0) + more


def settle_reason(offer: Offer, queue: Queue) -> None:
    """Choose the dominant reason: the mildest of alternatives, the most severe of requirements."""
    if offer.mode is not Mode.NO_FIT:
        return
    found: RejectionReason | None = None
    for part in offer.parts:
        if part.mode is not Mode.NO_FIT:
            continue
        if not part.attempts:
            found = more_severe(found, RejectionReason.NO_FLAVOR)
            continue
        mildest: dict[int, RejectionReason | None] = {}
        for number, attempt in enumerate(part.attempts):
            if attempt.mode is not FlavorMode.NONE:
                continue
            groups = [i for i, group in enumerate(queue.groups) if attempt.flavor in group.flavors]
            for group in groups or [-1 - number]:
                if group not in mildest or _rank(attempt.reason) < _rank(mildest[group]):
                    mildest[group] = attempt.reason
        for reason in mildest.values():
            found = more_severe(found, reason)
    offer.reason = found


def _rank(reason: RejectionReason | None) -> int:
    return -1 if reason is None else SEVERITY.index(reason)


def new_placements(
    offer: Offer, queued_gang: QueuedGang, shapes: Mapping[str, PodSet], simulation: AdmissionSimulation
) -> Iterator[PlacedPods]:
    """Placements of the pods that do not run there yet."""
    earlier = simulation.previous_version(queued_gang)
    held = queued_gang.admission or (earlier.admission if earlier is not None else None)
    for part in offer.parts:
        flavor = topology_flavor(part, simulation)
        if part.place is None or isinstance(flavor, Obstacle):
            continue
        before = held.pod_set(part.name) if held is not None else None
        known = _counts(before.assignment) if before is not None and before.assignment is not None else {}
        shares = [(share, share.count - known.get(share.values, 0)) for share in _joined(part.place).shares]
        more = tuple(DomainAssignment(share.values, count) for share, count in shares if count > 0)
        if more:
            place = Assignment(part.place.levels, more)
            yield placed_pods(flavor, place, shapes[part.name], queued_gang.gang.source)


def _counts(place: Assignment) -> dict[tuple[str, ...], int]:
    counts: dict[tuple[str, ...], int] = {}
    for share in place.shares:
        counts[share.values] = counts.get(share.values, 0) + share.count
    return counts


def _joined(place: Assignment) -> Assignment:
    """The same assignment with every domain named once."""
    counts = _counts(place)
    if len(counts) == len(place.shares):
        return place
    return Assignment(
        place.levels, tuple(DomainAssignment(values, count) for values, count in counts.items())
    )


def topology_flavor(part: PodSetOffer, simulation: AdmissionSimulation) -> str | Obstacle:
    """The one flavor with a topology among those of a pod set."""
    found = sorted({c.flavor for c in part.choices.values() if simulation.overlay.has_topology(c.flavor)})
    if not found:
        return Obstacle(ObstacleKind.NO_TOPOLOGY_FLAVOR)
    if len(found) > 1:
        return Obstacle(ObstacleKind.SEVERAL_TOPOLOGY_FLAVORS, flavors=tuple(found))
    return found[0]


def net_load(
    offer: Offer, queued_gang: QueuedGang, shapes: Mapping[str, PodSet], simulation: AdmissionSimulation
) -> GangLoad:
    """The load that admitting the offer adds to what the gang already uses."""
    quota = {} if queued_gang.admission is not None else offer.quota
    return GangLoad(quota, tuple(new_placements(offer, queued_gang, shapes, simulation)))
