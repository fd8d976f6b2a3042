"""The answer to a gang: where every pod goes, or exactly why it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.numa import Unaligned

Path = tuple[str, ...]
"""A domain's values, one per level from the top."""


@dataclass(frozen=True, slots=True)
class DomainAssignment:
    """`count` pods in the domain `values`."""

    values: Path
    count: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the pods of one pod set go. Shares stand in rank order: rank 0 is in the first share."""

    levels: tuple[str, ...]
    shares: tuple[DomainAssignment, ...]
    proven: bool = False  # an exact search showed that no better answer exists

    @property
    def count(self) -> int:
        return sum(share.count for share in self.shares)

    def ranks(self) -> Iterator[Path]:
        """The domain of rank 0, 1, 2, …"""
        for share in self.shares:
            for _ in range(share.count):
                yield share.values


class Code(StrEnum):
    """Why a pod set has no place."""

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
    NOT_DECIDED = "not_decided"  # the search ran out of time without an answer
    NOT_INSTALLED = "not_installed"  # the strategy needs an extra that is missing


@dataclass(frozen=True, slots=True)
class Exclusions:
    """How many nodes were out of the question, each counted once, under the first rule it broke."""

    nodes: int = 0
    selector: int = 0
    affinity: int = 0
    outside: int = 0  # not in the domain that the survivors of a replacement demand
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
    """A resource of which a domain has too little in total, wherever in it the pods would be."""

    resource: str
    asked: int  # by all pods together
    free: int


@dataclass(frozen=True, slots=True)
class DomainFit:
    """How many of the pods a domain holds, and what it lacks if not all ask for the same resources."""

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
    resource: str = ""  # what runs out first there
    lacking: int = 0  # how much more of it would do
    lacks: tuple[Lack, ...] = ()  # if not all pods ask for the same resources


@dataclass(frozen=True, slots=True)
class Oversized:
    """One pod is larger than every node that it may use, even if that were empty."""

    pod_set: str
    node: str  # the one that comes closest
    lacks: tuple[tuple[str, int, int], ...]  # resource, how much the pod asks for, how much the node has


@dataclass(frozen=True, slots=True)
class Misfit:
    """A refusal with its facts. Dialects make sentences of it."""

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
    holds: tuple[DomainFit, ...] = ()  # by domain, if they are few
    lacking: tuple[tuple[str, int], ...] = ()  # else, if each lacks something: by resource, how many do
    in_all: int | None = None  # how many of the pods all domains hold together
    unlabelled: tuple[str, ...] = ()  # without any domain: the levels whose label no node has
    domain: str = ""
    sizes: tuple[int, int] = (0, 0)
    unaligned: Unaligned | None = field(default=None, compare=False)  # a node that can align no more
    oversized: Oversized | None = None  # if not even one pod could be placed on empty nodes

    @property
    def is_too_large(self) -> bool:
        """Whether even all domains together hold too few."""
        return self.in_all is not None and self.in_all < self.asked * self.unit

    @property
    def lacked(self) -> frozenset[str]:
        """The resources of which domains have too little in total, as far as that is told."""
        near = () if self.nearest is None else self.nearest.lacks
        found = (lack.resource for lacks in (near, *(one.lacks for one in self.holds)) for lack in lacks)
        return frozenset((*found, *(resource for resource, _ in self.lacking)))


@dataclass(frozen=True, slots=True)
class Placement:
    """All pod sets placed, or the misfit that stopped it (with what was placed before it)."""

    assignments: Mapping[str, Assignment]
    misfit: Misfit | None = None

    @property
    def ok(self) -> bool:
        return self.misfit is None
