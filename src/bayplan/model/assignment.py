"""The result of placing a gang: a domain for every pod, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.numa import Unaligned

Path = tuple[str, ...]
"""A domain: one label value per level, from the top."""


@dataclass(frozen=True, slots=True)
class DomainAssignment:
    """`count` pods in the domain `values`."""

    values: Path
    count: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The domains of the pods of one pod set, in rank order: rank 0 is in the first share."""

    levels: tuple[str, ...]
    shares: tuple[DomainAssignment, ...]
    proven: bool = False  # an exact search proved that no better assignment exists

    @property
    def count(self) -> int:
        return sum(share.count for share in self.shares)

    def ranks(self) -> Iterator[Path]:
        """The domains of rank 0, 1, 2, …"""
        for share in self.shares:
            for _ in range(share.count):
                yield share.values


class Code(StrEnum):
    """Why a pod set has no placement."""

    NO_ROOM = "no_room"
    NO_DOMAINS = "no_domains"
    UNKNOWN_LEVEL = "unknown_level"
    UNKNOWN_SEGMENT_LEVEL = "unknown_segment_level"
    UNKNOWN_INNER_LEVEL = "unknown_inner_level"
    SEGMENT_ABOVE_LOCALITY = "segment_above_locality"
    SEGMENT_SIZE_MISSING = "segment_size_missing"
    INNER_LEVEL_NOT_LOWER = "inner_level_not_lower"
    INNER_SIZE_NOT_DIVISOR = "inner_size_not_divisor"
    STALE_ASSIGNMENT = "stale_assignment"
    NO_REPLACEMENT = "no_replacement"
    NOT_DECIDED = "not_decided"  # the search hit its time limit
    NOT_BINDABLE = "not_bindable"  # a filter of binding rejects pods on the nodes found
    NOT_INSTALLED = "not_installed"  # the strategy needs an optional dependency that is not installed


@dataclass(frozen=True, slots=True)
class Exclusions:
    """How many nodes were excluded, each counted once, under the first rule it failed."""

    nodes: int = 0
    selector: int = 0
    affinity: int = 0
    outside: int = 0  # not in the domain that the remaining pods of the gang require
    taints: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerFit:
    """How many segments of one layer fit in the best domain."""

    level: str
    fit: int
    asked: int


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource that a whole domain has too little of."""

    resource: str
    asked: int  # by all pods together
    free: int


@dataclass(frozen=True, slots=True)
class DomainFit:
    """How many of the pods fit in a domain, and what it lacks if pods have different requests."""

    domain: Path
    fit: int
    lacks: tuple[Lack, ...] = ()


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The domain that came closest, and what it lacks."""

    domain: Path
    level: str
    fit: int  # pods
    short: int  # pods
    resource: str = ""  # the resource that runs out first
    lacking: int = 0  # how much more of it would suffice
    lacks: tuple[Lack, ...] = ()  # if pods have different requests


@dataclass(frozen=True, slots=True)
class Oversized:
    """One pod is larger than every node that it may use, even if the node were empty."""

    pod_set: str
    node: str  # the one that comes closest
    lacks: tuple[tuple[str, int, int], ...]  # resource, amount requested, amount on the node


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why pod sets have no placement, as facts from which dialects make messages."""

    code: Code
    pod_sets: tuple[str, ...]
    topology: str = ""
    level: str = ""
    other_level: str = ""
    fit: int = 0  # in segments if unit > 1, else in pods
    asked: int = 0
    unit: int = 1
    layers: tuple[LayerFit, ...] = ()
    excluded: Exclusions = Exclusions()
    nearest: NearMiss | None = None
    domains: tuple[DomainFit, ...] = ()  # by domain, if there are few domains
    lacking: tuple[tuple[str, int], ...] = ()  # otherwise: by resource, how many domains lack it
    total_fit: int | None = None  # how many of the pods fit in all domains together
    unlabelled: tuple[str, ...] = ()  # without any domain: the levels whose label no node has
    domain: str = ""
    sizes: tuple[int, int] = (0, 0)
    unaligned: Unaligned | None = field(default=None, compare=False)  # a node that cannot align another pod
    oversized: Oversized | None = None  # if not even one pod fits on an empty node
    filter_failure: FilterFailure | None = None  # if the pods cannot be bound to the nodes found

    @property
    def is_too_large(self) -> bool:
        """Whether too few pods fit even in all domains together."""
        return self.total_fit is not None and self.total_fit < self.asked * self.unit

    @property
    def lacked(self) -> frozenset[str]:
        """The resources that whole domains have too little of, as far as known."""
        near = () if self.nearest is None else self.nearest.lacks
        found = (lack.resource for lacks in (near, *(one.lacks for one in self.domains)) for lack in lacks)
        return frozenset((*found, *(resource for resource, _ in self.lacking)))


@dataclass(frozen=True, slots=True)
class Placement:
    """The assignments of all pod sets, or the misfit (with the assignments made before it)."""

    assignments: Mapping[str, Assignment]
    misfit: Misfit | None = None

    @property
    def ok(self) -> bool:
        return self.misfit is None
