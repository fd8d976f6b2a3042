"""Quota: a tree of quota nodes with queues at its leaves, and the tree of fair-share queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bayplan.model.node_rules import Requirement, Taint, Toleration

Cell = tuple[str, str]
"""A flavor and a resource: the unit of quota."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A nominal amount, and how much may be borrowed or lent (None: unlimited)."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


QUEUE_DEPTH_MAX = 64
"""The most levels above a queue. Trees of people have a handful; a longer chain is a mistake or an attack."""


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """A node of the quota tree: its own quota, which it shares with its siblings."""

    name: str
    parent: str = ""
    quotas: Mapping[Cell, Quota] = field(default_factory=dict)
    weight: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Flavor:
    """A resource flavor. With a topology, gangs are placed on its nodes; without, only quota counts."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that are assigned the same flavor, and the flavors in the order they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class FlavorSearchPolicy(StrEnum):
    """Whether the search for flavors stops at a flavor that needs borrowing or preemption."""

    STOP = "stop"
    CONTINUE = "continue"


class FlavorPreference(StrEnum):
    """Whether borrowing or preemption is preferred."""

    BORROW = "borrow"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True)
class Fungibility:
    """Flavor fungibility: how far to search for a better flavor."""

    when_borrowing: FlavorSearchPolicy = FlavorSearchPolicy.STOP
    when_preempting: FlavorSearchPolicy = FlavorSearchPolicy.CONTINUE
    preference: FlavorPreference = FlavorPreference.BORROW


class VictimPolicy(StrEnum):
    """Which gangs may be preempted."""

    NEVER = "never"
    LOWER = "lower"  # of lower priority
    LOWER_OR_NEWER = "lower_or_newer"  # or of the same priority and queued later
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which gangs a queue may preempt."""

    within: VictimPolicy = VictimPolicy.NEVER
    reclaim: VictimPolicy = VictimPolicy.NEVER
    while_borrowing: bool = False
    threshold: int | None = None  # while borrowing: only victims up to this priority


class StopPolicy(StrEnum):
    """Whether a queue is stopped."""

    OPEN = "open"
    HOLD = "hold"  # no gang is admitted
    DRAIN = "drain"  # and admitted gangs are evicted


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: a leaf of the quota tree with pending gangs."""

    node: QuotaNode
    groups: tuple[ResourceGroup, ...] = ()
    strict: bool = False  # strict FIFO: the first gang blocks the others
    fungibility: Fungibility = Fungibility()
    preemption: Preemption = Preemption()
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name → flavors, () for all
    namespaces: tuple[Requirement, ...] | None = None  # label requirements; None: no namespace may use it
    stop: StopPolicy = StopPolicy.OPEN
    terminating: bool = False  # terminating: admitted gangs may finish, no gang is admitted
    unprotected: bool = False  # without a finalizer yet: gangs stay pending until it has one

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
    """A namespaced queue that points at a queue."""

    namespace: str
    name: str
    queue: str
    stop: StopPolicy = StopPolicy.OPEN


class CheckKind(StrEnum):
    """The kind of an admission check."""

    OTHER = "other"
    PROVISIONING = "provisioning"  # nodes are provisioned on demand: placement follows afterwards
    MULTI_CLUSTER = "multi_cluster"  # another cluster finds the placement


@dataclass(frozen=True, slots=True)
class Check:
    """An admission check: it has to be ready before an admitted gang may start."""

    name: str
    kind: CheckKind = CheckKind.OTHER
    active: bool = True


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a fair-share queue may use of one resource. None means unlimited."""

    quota: Fraction | None = Fraction(0)  # guaranteed, whatever other queues request
    limit: Fraction | None = None  # maximum usage
    weight: Fraction = Fraction(1)  # its share of the capacity beyond all quotas


@dataclass(frozen=True, slots=True)
class FairQueue:
    """A fair-share queue or a parent of queues. Beyond quota, siblings of higher priority come first."""

    name: str
    parent: str = ""
    priority: int = 0
    entitlements: Mapping[str, Entitlement] = field(default_factory=dict)
    created: float = 0.0
    preempt_after: float | None = None  # seconds a gang runs before its own queue may preempt it
    reclaim_after: float | None = None  # seconds a gang runs before other queues may reclaim from it
