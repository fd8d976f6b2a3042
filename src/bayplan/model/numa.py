"""What lies inside a node: zones with room of their own, how pods are aligned with them, what pods ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ZONES_USUAL = 8
"""How many zones a node is taken to be able to align over, if it does not say."""

ALIGNED = "room in zones"
"""What a node lacks that can align no more pods, where that is told like a resource."""

Amounts = tuple[tuple[str, int], ...]


class TopologyManagerPolicy(StrEnum):
    """What a node does with a pod whose resources do not lie in one zone."""

    NONE = "none"
    BEST_EFFORT = "best_effort"  # tries, and takes the pod anyway
    RESTRICTED = "restricted"  # refuses it unless no fewer zones could ever do
    SINGLE_ZONE = "single_zone"  # refuses it


class TopologyManagerScope(StrEnum):
    """What has to lie together."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a node aligns pods."""

    policy: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    scope: TopologyManagerScope = TopologyManagerScope.CONTAINER
    zones_max: int = ZONES_USUAL


@dataclass(frozen=True, slots=True)
class Zone:
    """A part of a node. A resource that it does not list has no home in it."""

    number: int
    available: Mapping[str, int]
    allocatable: Mapping[str, int] = field(default_factory=dict)
    distances: Mapping[int, int] = field(default_factory=dict)  # by number of the other zone


@dataclass(frozen=True, slots=True)
class ZoneAssignment:
    """Which pinned containers sit where: their places in the sorted list of all of them, by zone.

    Whoever is in no list sits in the busiest zone.
    """

    containers: int
    busiest: int
    places: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeZones:
    """A node's report of its zones, and by which pods it was made."""

    node: str
    zones: tuple[Zone, ...] = ()  # as listed; numbers are unique and may have gaps
    alignment: Alignment = Alignment()
    sign: int | None = None  # of the pods that the report counts; None: it does not say
    exclusive_only: bool = False  # only pods with something to themselves are in the sign
    seating: ZoneAssignment | None = None

    def __post_init__(self) -> None:
        assert len({zone.number for zone in self.zones}) == len(self.zones), self

    @property
    def resources(self) -> frozenset[str]:
        """Everything that some zone lists."""
        return frozenset(resource for zone in self.zones for resource in zone.available)


class QosClass(StrEnum):
    """How much of what it asks for a pod is promised."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BEST_EFFORT = "best_effort"


class ContainerType(StrEnum):
    """When a container runs."""

    INIT = "init"  # before the others, and then no more
    SIDECAR = "sidecar"  # from before the others to the end
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A container's own requests, zeros included: asking for nothing of something is a statement, too."""

    name: str
    requests: Amounts
    role: ContainerType = ContainerType.APP


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """What a pod asks of zones. Equal values share one answer; containers start in this order."""

    service: QosClass
    containers: tuple[ContainerRequest, ...]
    overhead: Amounts = ()


class FitRule(StrEnum):
    """What is compared with the room of a zone."""

    STRICT = "strict"  # all that a node would pin; containers one after the other
    PLAIN = "plain"  # each container by itself, memory and huge pages always fit


class ZoneScore(StrEnum):
    """Which nodes are liked."""

    LEAST_ALLOCATED = "least_allocated"
    MOST_ALLOCATED = "most_allocated"
    BALANCED = "balanced"
    FEWEST_ZONES = "fewest_zones"


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """An administrator's choices."""

    fit: FitRule = FitRule.STRICT
    sidecars_stay: bool = True  # they keep what they take; otherwise they are checked like any init container
    score: ZoneScore = ZoneScore.LEAST_ALLOCATED
    weights: Amounts = ()  # 1 for a resource that is not named

    def weight(self, resource: str) -> int:
        """How much a resource counts in the score; what is not positive counts once."""
        return max(dict(self.weights).get(resource, 1), 1)


class OverReserve(StrEnum):
    """What is done about pods that a report cannot know yet."""

    NONE = "none"  # the last report counts as it stands
    SKIP = "skip"  # a node that a pod is being bound to is left alone until it is
    RESERVE = "reserve"  # their requests are taken from every zone until the report catches up


class Whose(StrEnum):
    """Which pods are meant."""

    ALL = "all"
    EXCLUSIVE = "exclusive"  # those with something to themselves
    NONE = "none"
    AS_REPORTED = "as_reported"  # whichever the report says that it counts


@dataclass(frozen=True, slots=True)
class NumaStalenessPolicy:
    """An administrator's choices about late reports."""

    caution: OverReserve = OverReserve.NONE
    period: float = 0.0  # seconds between two looks at nodes in doubt
    strangers: Whose = Whose.ALL  # whose pods, put there by others, cast doubt on a node
    counted: Whose = Whose.AS_REPORTED  # which pods the sign of a report counts
    starting: bool = True  # pods count as soon as they leave the line, not only once they run
    heed_settings: bool = True  # a changed policy is taken over at once
    make_room: bool = False  # evictions are thought through zone by zone
    eager: bool = True  # a report that has caught up is taken over even if nobody was refused

    @property
    def thinks_ahead(self) -> bool:
        """Whether evictions are imagined: only if it is known which pods a report counts."""
        return self.make_room and self.caution is OverReserve.RESERVE


class AlignmentTarget(StrEnum):
    """What could not be aligned."""

    STALE = "stale"  # nobody knows what the zones hold
    CONTAINER = "container"
    INIT_CONTAINER = "init_container"
    SIDECAR = "sidecar"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class ZoneShortage:
    """The first thing that a zone lacks; `available` is None where the zone does not list it at all."""

    zone: int
    resource: str
    available: int | None


@dataclass(frozen=True, slots=True)
class Unaligned:
    """Why a node cannot align a pod: who asked, for what, and what each zone lacks."""

    node: str
    cause: AlignmentTarget
    container: str = ""
    asked: Amounts = ()
    shortages: tuple[ZoneShortage, ...] = ()
    missing: str = ""  # a resource that the whole node lacks


class EvictionUnknown(StrEnum):
    """Why an eviction cannot be thought through."""

    NOBODY = "nobody"
    SEATS_UNKNOWN = "seats_unknown"
    SEATS_EMPTY = "seats_empty"
    NOTHING_FREED = "nothing_freed"
    TOO_MUCH_FREED = "too_much_freed"  # more than the zone has: what is known cannot be right
