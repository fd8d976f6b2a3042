"""Summaries of queues, namespace queues, shared quota and topology levels, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.quota import Quota
from bayplan.model.rejection import RejectionReason


class Flaw(StrEnum):
    """Why a queue is inactive."""

    TERMINATING = "terminating"  # it is being deleted
    STOPPED = "stopped"  # names: of the queue itself
    FLAVOR_MISSING = "flavor_missing"  # names: of missing flavors
    CHECK_MISSING = "check_missing"  # names: of missing checks
    CHECK_INACTIVE = "check_inactive"
    SEVERAL_MULTI_CLUSTER = "several_multi_cluster"  # names: of checks of that kind
    MULTI_CLUSTER_PER_FLAVOR = "multi_cluster_per_flavor"
    MULTI_CLUSTER_AND_PROVISIONING = "multi_cluster_and_provisioning"
    TOPOLOGY_MISSING = "topology_missing"  # names: of a flavor, and of its missing topology
    CYCLE = "cycle"  # names: of a shared quota node that is its own ancestor
    TOO_DEEP = "too_deep"  # names: of a shared quota node too many levels below its root
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class QueueFault:
    """A flaw, and the objects it is about."""

    flaw: Flaw
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangCounts:
    """Gangs by state."""

    ready: int = 0  # pending, and tried when they are first
    inadmissible: int = 0  # pending, and not tried until something changes
    reserving: int = 0  # have quota
    admitted: int = 0  # have quota, all checks and all placements
    unchecked: int = 0  # have quota and wait for a check
    unplaced: int = 0  # have quota and wait for a placement
    rejected: Mapping[RejectionReason, int] = field(
        default_factory=dict
    )  # pending gangs by the reason reported last

    @property
    def pending(self) -> int:
        """All pending gangs."""
        return self.ready + self.inadmissible


@dataclass(frozen=True, slots=True)
class CellUse:
    """Quota of one flavor and resource: how much is reserved, and used by admitted gangs."""

    flavor: str
    resource: str
    quota: Quota
    reserved: int = 0
    used: int = 0
    can_borrow: bool = False  # part of a quota tree: usage above its own quota is borrowed

    def borrowed(self, amount: int) -> int:
        """How much of an amount is borrowed."""
        return max(0, amount - self.quota.nominal) if self.can_borrow else 0


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue. `path` names its ancestors from the parent to the root."""

    name: str
    counts: GangCounts = GangCounts()
    cells: tuple[CellUse, ...] = ()  # in the order of its flavors, then by resource
    wanted: Mapping[str, int] = field(default_factory=dict)  # by resource: requests of pending gangs
    ready_shapes: int = 0  # number of different shapes of ready gangs
    inadmissible_shapes: int = 0
    faults: tuple[QueueFault, ...] = ()
    path: tuple[str, ...] = ()
    share: float | None = None  # None: fair sharing is off

    @property
    def active(self) -> bool:
        return not self.faults


@dataclass(frozen=True, slots=True)
class NamespaceQueueSummary:
    """One namespace queue, and whether its queue is active."""

    namespace: str
    name: str
    queue: str
    counts: GangCounts = GangCounts()
    cells: tuple[CellUse, ...] = ()
    stopped: bool = False
    queue_known: bool = True
    queue_active: bool = True

    @property
    def active(self) -> bool:
        return self.queue_active and self.queue_known and not self.stopped


@dataclass(frozen=True, slots=True)
class SharedCell:
    """Quota of a shared quota node and its subtree, and the reserved part."""

    flavor: str
    resource: str
    quota: int
    reserved: int


@dataclass(frozen=True, slots=True)
class SharedSummary:
    """One shared quota node. `path` names its ancestors from the parent to the root."""

    name: str
    path: tuple[str, ...] = ()
    cells: tuple[SharedCell, ...] = ()
    admitted: int = 0  # gangs of all queues of the subtree
    share: float | None = None


@dataclass(frozen=True, slots=True)
class LevelCapacity:
    """Free capacity of a resource at one level of a topology.

    `largest` is the most that a gang within one domain can use. `fragmentation` compares it with what it
    could use if all free capacity were in one domain: 0 is optimal, near 1 means many small pieces.
    """

    resource: str
    free: int
    largest: int
    fragmentation: float


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """One level of a topology; only domains with a usable node count."""

    topology: str
    level: str
    domains: int
    capacities: tuple[LevelCapacity, ...] = ()


@dataclass(frozen=True, slots=True)
class Summaries:
    """All summaries at one moment."""

    queues: Mapping[str, QueueSummary] = field(default_factory=dict)
    namespace_queues: Mapping[tuple[str, str], NamespaceQueueSummary] = field(default_factory=dict)
    shared: Mapping[str, SharedSummary] = field(default_factory=dict)
    levels: tuple[LevelSummary, ...] = ()
    flavors_in_use: frozenset[str] = frozenset()  # referenced by a queue
    checks_in_use: frozenset[str] = frozenset()  # referenced by a queue
    topologies_in_use: frozenset[str] = frozenset()  # referenced by a flavor
