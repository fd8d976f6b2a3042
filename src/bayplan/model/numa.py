"""NUMA zones of nodes: reports, topology manager policies, alignment requests of pods, and staleness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_ZONES_MAX = 8
"""The number of zones a node is assumed to align over, if it does not say."""

ALIGNED = "room in zones"
"""What a node lacks that cannot align another pod, where it is reported like a resource."""

Amounts = tuple[tuple[str, int], ...]


class TopologyManagerPolicy(StrEnum):
    """The topology manager policy of a node: what happens to a pod whose resources are not in one zone."""

    NONE = "none"
    BEST_EFFORT = "best_effort"  # tries to align, and admits the pod anyway
    RESTRICTED = "restricted"  # rejects the pod unless no smaller set of zones could ever suffice
    SINGLE_ZONE = "single_zone"  # rejects the pod


class TopologyManagerScope(StrEnum):
    """What has to be aligned together."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a node aligns pods."""

    policy: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    scope: TopologyManagerScope = TopologyManagerScope.CONTAINER
    zones_max: int = DEFAULT_ZONES_MAX


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA zone of a node. A resource that it does not list is not available in it."""

    number: int
    available: Mapping[str, int]
    allocatable: Mapping[str, int] = field(default_factory=dict)
    distances: Mapping[int, int] = field(default_factory=dict)  # by number of the other zone


@dataclass(frozen=True, slots=True)
class ZoneAssignment:
    """The zones of pinned containers: positions in the sorted list of all pinned containers, by zone.

    Containers without an entry are in the busiest zone.
    """

    containers: int
    busiest: int
    places: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeZones:
    """A node's report of its zones, and a fingerprint of the pods it includes."""

    node: str
    zones: tuple[Zone, ...] = ()  # as listed; numbers are unique and may have gaps
    alignment: Alignment = Alignment()
    fingerprint: int | None = None  # fingerprint of the pods included; None: unsigned
    exclusive_only: bool = False  # the fingerprint includes only pods with exclusive resources
    assignment: ZoneAssignment | None = None

    def __post_init__(self) -> None:
        assert len({zone.number for zone in self.zones}) == len(self.zones), self

    @property
    def resources(self) -> frozenset[str]:
        """All resources that any zone lists."""
        return frozenset(resource for zone in self.zones for resource in zone.available)


class QosClass(StrEnum):
    """The QoS class of a pod."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BEST_EFFORT = "best_effort"


class ContainerType(StrEnum):
    """When a container runs."""

    INIT = "init"  # before the app containers
    SIDECAR = "sidecar"  # from before the app containers to the end
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A container's own requests, zeros included: a zero request is explicit."""

    name: str
    requests: Amounts
    type: ContainerType = ContainerType.APP


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """What a pod asks of NUMA zones. Equal values share one result; containers start in this order."""

    qos: QosClass
    containers: tuple[ContainerRequest, ...]
    overhead: Amounts = ()


class FitRule(StrEnum):
    """What is compared with the capacity of a zone."""

    STRICT = "strict"  # all that a node would pin; containers one after the other
    PLAIN = "plain"  # each container by itself; memory and huge pages always fit


class ZoneScore(StrEnum):
    """How nodes are scored."""

    LEAST_ALLOCATED = "least_allocated"
    MOST_ALLOCATED = "most_allocated"
    BALANCED = "balanced"
    FEWEST_ZONES = "fewest_zones"


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """Configured rules for NUMA zones."""

    fit: FitRule = FitRule.STRICT
    sidecars_stay: bool = True  # sidecars keep their resources; otherwise as init containers
    score: ZoneScore = ZoneScore.LEAST_ALLOCATED
    weights: Amounts = ()  # 1 for a resource that is not listed

    def weight(self, resource: str) -> int:
        """The weight of a resource in the score, at least 1."""
        return max(dict(self.weights).get(resource, 1), 1)


class OverReserve(StrEnum):
    """What is done about pods that a report does not include yet."""

    NONE = "none"  # use the last report as it is
    SKIP = "skip"  # skip a node while a pod is being bound to it
    RESERVE = "reserve"  # subtract their requests from every zone until a report includes them


class Whose(StrEnum):
    """A set of pods."""

    ALL = "all"
    EXCLUSIVE = "exclusive"  # pods with exclusive resources
    NONE = "none"
    AS_REPORTED = "as_reported"  # as the report says


@dataclass(frozen=True, slots=True)
class NumaStalenessPolicy:
    """Configured policy for late reports."""

    over_reserve: OverReserve = OverReserve.NONE
    period: float = 0.0  # seconds between two checks of outdated nodes
    foreign_pods: Whose = Whose.ALL  # which pods of other schedulers make a report outdated
    counted: Whose = Whose.AS_REPORTED  # which pods the fingerprint of a report includes
    count_starting: bool = True  # pods count once bound, not only once running
    follow_settings: bool = True  # a changed topology manager policy applies at once
    simulate_evictions: bool = False  # simulate evictions zone by zone
    accept_early: bool = True  # accept an up-to-date report even if no pod was rejected

    @property
    def simulates_evictions(self) -> bool:
        """Whether evictions are simulated: only if it is known which pods a report includes."""
        return self.simulate_evictions and self.over_reserve is OverReserve.RESERVE


class AlignmentTarget(StrEnum):
    """What could not be aligned."""

    STALE = "stale"  # the content of the zones is unknown
    CONTAINER = "container"
    INIT_CONTAINER = "init_container"
    SIDECAR = "sidecar"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class ZoneShortage:
    """The first resource that a zone lacks; `available` is None where the zone does not list it."""

    zone: int
    resource: str
    available: int | None


@dataclass(frozen=True, slots=True)
class Unaligned:
    """Why a node cannot align a pod: which container, its requests, and what each zone lacks."""

    node: str
    cause: AlignmentTarget
    container: str = ""
    asked: Amounts = ()
    shortages: tuple[ZoneShortage, ...] = ()
    missing: str = ""  # a resource that the whole node lacks


class EvictionUnknown(StrEnum):
    """Why an eviction cannot be simulated."""

    NO_VICTIMS = "no_victims"
    SEATS_UNKNOWN = "seats_unknown"
    SEATS_EMPTY = "seats_empty"
    NOTHING_FREED = "nothing_freed"
    TOO_MUCH_FREED = "too_much_freed"  # more than the zone has: the report must be wrong
