"""Quota: a tree of quota nodes with queues at its leaves, and the tree of fair-share queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bayplan.model.node_rules import Requirement, Taint, Toleration

Cell = tuple[str, str]
"""A flavor and a resource: what quota is counted in."""


@dataclass(frozen=True, slots=True)
class Quota:
    """An amount of one's own, and how far it may be exceeded or lent to others (None: without limit)."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """A node of the quota tree: what it brings in, and what it shares with its siblings."""

    name: str
    parent: str = ""
    quotas: Mapping[Cell, Quota] = field(default_factory=dict)
    weight: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Flavor:
    """A sort of nodes. With a topology, gangs are placed on them; without, only quota is counted."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that are taken from one flavor together, and the flavors in the order they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class FlavorSearchPolicy(StrEnum):
    """What happens to the search for a flavor when one would do, at a price."""

    STOP = "stop"
    GO_ON = "go_on"


class FlavorPreference(StrEnum):
    """What is rather paid for a place."""

    BORROW = "borrow"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True)
class Fungibility:
    """How far to look for a better flavor."""

    when_borrowing: FlavorSearchPolicy = FlavorSearchPolicy.STOP
    when_preempting: FlavorSearchPolicy = FlavorSearchPolicy.GO_ON
    rather: FlavorPreference = FlavorPreference.BORROW


class VictimPolicy(StrEnum):
    """Who may have to yield."""

    NEVER = "never"
    LOWER = "lower"  # of lower priority
    LOWER_OR_NEWER = "lower_or_newer"  # or of the same priority and queued later
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who has to yield to gangs of a queue."""

    within: VictimPolicy = VictimPolicy.NEVER
    reclaim: VictimPolicy = VictimPolicy.NEVER
    while_borrowing: bool = False
    threshold: int | None = None  # while borrowing: only victims up to this priority


class StopPolicy(StrEnum):
    """Whether a queue is closed."""

    OPEN = "open"
    HOLD = "hold"  # nobody enters
    DRAIN = "drain"  # and whoever is in has to leave


@dataclass(frozen=True, slots=True)
class Queue:
    """A leaf of the quota tree where gangs line up."""

    node: QuotaNode
    groups: tuple[ResourceGroup, ...] = ()
    strict: bool = False  # the first in line blocks those behind it
    fungibility: Fungibility = Fungibility()
    preemption: Preemption = Preemption()
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name → flavors, () for all
    namespaces: tuple[Requirement, ...] | None = None  # label rules; None: no namespace may enter
    stop: StopPolicy = StopPolicy.OPEN
    leaving: bool = False  # it is being deleted: what it admitted may finish, nothing else begins
    unprotected: bool = False  # could vanish any moment: gangs wait until deleting it has to wait for them

    @property
    def name(self) -> str:
        return self.node.name

    def group_of(self, resource: str) -> ResourceGroup | None:
        """The group that covers a resource."""
        return next((group for group in self.groups if resource in group.resources), None)

    def flavors(self) -> tuple[str, ...]:
        """All flavors, in order."""
        return tuple(flavor for group in self.groups for flavor in group.flavors)


@dataclass(frozen=True, slots=True)
class NamespaceQueue:
    """Where the users of a namespace hand in gangs for a queue."""

    namespace: str
    name: str
    queue: str
    stop: StopPolicy = StopPolicy.OPEN


class CheckKind(StrEnum):
    """What kind of check stands between quota and start."""

    OTHER = "other"
    PROVISIONING = "provisioning"  # nodes are made to order: a place can only be found afterwards
    ELSEWHERE = "elsewhere"  # another cluster finds the place


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to say yes before an admitted gang may start."""

    name: str
    sort: CheckKind = CheckKind.OTHER
    active: bool = True


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a queue may have of one resource. None means without bound."""

    quota: Fraction | None = Fraction(0)  # its own, whatever others want
    limit: Fraction | None = None  # never more than this
    weight: Fraction = Fraction(1)  # its part of what nobody has a quota for


@dataclass(frozen=True, slots=True)
class FairQueue:
    """A queue, or queues together. Of siblings, those of higher priority are served first beyond quota."""

    name: str
    parent: str = ""
    priority: int = 0
    entitlements: Mapping[str, Entitlement] = field(default_factory=dict)
    created: float = 0.0
    preempt_after: float | None = None  # seconds a gang may run before one of its own queue displaces it
    reclaim_after: float | None = None  # and before another queue takes back what is its own
