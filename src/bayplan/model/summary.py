"""How things stand: queues, entrances, shared quota and topology levels in numbers, for people and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.admission_rejection import AdmissionReason
from bayplan.model.quota import Quota


class Flaw(StrEnum):
    """What keeps a queue from admitting anybody."""

    LEAVING = "leaving"  # it is being deleted
    STOPPED = "stopped"  # names: of the queue itself
    FLAVOR_MISSING = "flavor_missing"  # names: of flavors that are not there
    CHECK_MISSING = "check_missing"  # names: of checks that are not there
    CHECK_INACTIVE = "check_inactive"
    SEVERAL_ELSEWHERE = "several_elsewhere"  # names: of checks that each send gangs to other clusters
    ELSEWHERE_PER_FLAVOR = "elsewhere_per_flavor"
    ELSEWHERE_AND_PROVISIONING = "elsewhere_and_provisioning"
    TOPOLOGY_MISSING = "topology_missing"  # names: of a flavor, and of its topology that is not there
    CYCLE = "cycle"  # names: of a shared quota node that is its own ancestor
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class QueueFault:
    """A flaw, and who is meant."""

    flaw: Flaw
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangCounts:
    """Gangs by how far they have come."""

    ready: int = 0  # in line, and tried when it is their turn
    parked: int = 0  # in line, and not tried until something changes
    reserving: int = 0  # have quota
    admitted: int = 0  # have quota, every consent and every place
    unchecked: int = 0  # have quota and wait for a check
    unplaced: int = 0  # have quota and wait for a place
    refused: Mapping[AdmissionReason, int] = field(
        default_factory=dict
    )  # those in line, by what they were told last

    @property
    def pending(self) -> int:
        """All in line."""
        return self.ready + self.parked


@dataclass(frozen=True, slots=True)
class CellUse:
    """How much of one flavor's resource is reserved, and used by admitted gangs."""

    flavor: str
    resource: str
    quota: Quota
    reserved: int = 0
    used: int = 0
    lent: bool = False  # others lend to the queue: what exceeds its own quota is borrowed

    def borrowed(self, amount: int) -> int:
        """How much of an amount is not the queue's own."""
        return max(0, amount - self.quota.nominal) if self.lent else 0


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue. `path` names its ancestors from the parent to the root."""

    name: str
    counts: GangCounts = GangCounts()
    cells: tuple[CellUse, ...] = ()  # in the order of its flavors, then by resource
    wanted: Mapping[str, int] = field(default_factory=dict)  # by resource: what those in line ask for
    ready_shapes: int = 0  # how many different requests are in line and tried
    parked_shapes: int = 0
    faults: tuple[QueueFault, ...] = ()
    path: tuple[str, ...] = ()
    share: float | None = None  # None: nobody asked for fair shares

    @property
    def active(self) -> bool:
        return not self.faults


@dataclass(frozen=True, slots=True)
class NamespaceQueueSummary:
    """One entrance to a queue, and whether the queue lets anybody in."""

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
    """What a shared quota node and all below it bring in, and what their gangs have reserved."""

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
    admitted: int = 0  # gangs of all queues below
    share: float | None = None


@dataclass(frozen=True, slots=True)
class LevelCapacity:
    """What is left of a resource at one level of a topology.

    `largest` is what a gang that must stay within one domain can have at most. `fragmentation` compares it
    with what it could have if the same free room lay together: 0 is as good as can be, near 1 is splinters.
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
    rooms: tuple[LevelCapacity, ...] = ()


@dataclass(frozen=True, slots=True)
class Summaries:
    """Everything at one moment."""

    queues: Mapping[str, QueueSummary] = field(default_factory=dict)
    entrances: Mapping[tuple[str, str], NamespaceQueueSummary] = field(default_factory=dict)
    shared: Mapping[str, SharedSummary] = field(default_factory=dict)
    levels: tuple[LevelSummary, ...] = ()
    flavors_in_use: frozenset[str] = frozenset()  # named by a queue
    checks_in_use: frozenset[str] = frozenset()  # named by a queue
    topologies_in_use: frozenset[str] = frozenset()  # named by a flavor
