"""Plans: the actions that were decided, each with all that is needed to execute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.assignment import Path
from bayplan.model.devices.claims import DeviceAllocation, DeviceClaimKey
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.quota import Cell
from bayplan.model.rejection import PodSetAttempts, Rejection


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind this pod to this node."""

    gang: Ref
    pod: Pod
    node: str
    zones: tuple[tuple[str, int], ...] = ()  # zones for its containers, if they are published
    devices: tuple[tuple[DeviceClaimKey, DeviceAllocation], ...] = ()  # for those of its claims without any


@dataclass(frozen=True, slots=True)
class Nominate:
    """Nominate a node for this pod, for which victims terminate; an empty node clears the nomination."""

    gang: Ref
    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class PreemptPod:
    """Preempt this pod for another gang, or because its own gang could not start as a whole."""

    pod: Pod
    by: Ref
    by_uid: str = ""
    with_gang: bool = False  # as part of a gang preemption: not one pod for one pod
    undoes: bool = False  # the gang is its own: its partial start is undone
    moves_to: str = ""  # the pod only moves: this node has capacity for its replacement

    @property
    def gang(self) -> Ref:
        """The gang that the pod is preempted for."""
        return self.by


@dataclass(frozen=True, slots=True)
class ReportUnschedulable:
    """The gang, or some pods of it, are unschedulable."""

    gang: Ref
    rejection: Rejection
    pods: tuple[Pod, ...] = ()  # the pods without a node
    changed: bool = True  # the reason changed since the last report
    uid: str = ""  # of the gang
    reserved_nodes: tuple[str, ...] = ()  # nodes that are reserved for it from now on


@dataclass(frozen=True, slots=True)
class MarkStarted:
    """The gang has its minimum: record that."""

    gang: Ref
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Admit:
    """Admit the gang with this quota and placement (only the placement, if it already has quota)."""

    queued_gang: QueuedGang
    admission: Admission
    checks: tuple[str, ...] = ()  # checks that have to pass before it starts
    tried: tuple[PodSetAttempts, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.queued_gang.gang.source


class EvictionReason(StrEnum):
    """Why a gang is evicted."""

    PRIORITY = "priority"  # preempted by a gang of its own queue with higher priority
    RECLAIM = "reclaim"  # its queue borrows quota that is reclaimed
    RECLAIM_WHILE_BORROWING = "reclaim_while_borrowing"
    FAIR_SHARE = "fair_share"
    NODES_FAILED = "nodes_failed"  # without a replacement
    NODES_TAKEN = "nodes_taken"  # other pods were bound to its nodes before its own
    NO_PLACE_IN_TIME = "no_place_in_time"  # the search for a placement timed out


@dataclass(frozen=True, slots=True)
class EvictGang:
    """Evict the gang, for another gang or because its nodes failed."""

    queued_gang: QueuedGang
    reason: EvictionReason
    by: QueuedGang | None = None
    path: tuple[str, ...] = ()  # of its queue, from the root of the quota tree
    by_path: tuple[str, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.queued_gang.gang.source


class Requeue(StrEnum):
    """When a gang that was not admitted is tried again."""

    AT_ONCE = "at_once"
    ON_EVENT = "on_event"  # after an event that could change the answer
    AFTER_DELAY = "after_delay"


@dataclass(frozen=True, slots=True)
class ReservedCapacity:
    """Quota of a queue, and domains of a topology, that are reserved for a gang that was not admitted."""

    queue: str
    quota: Mapping[Cell, int]
    topology: str = ""  # empty: no domains
    domains: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportNotAdmitted:
    """The gang is not admitted now."""

    queued_gang: QueuedGang
    rejection: Rejection
    requeue: Requeue = Requeue.ON_EVENT
    progress: tuple[Mapping[str, int], ...] = ()  # where the search for flavors continues
    delay: float = 0.0  # the delay
    reserves: ReservedCapacity | None = None  # what is reserved for the gang from now on
    contended: bool = False  # capacity that other pending gangs wait for may be the only obstacle
    overtaken: bool = False  # gangs admitted in the same cycle took its capacity, and it may preempt them

    @property
    def gang(self) -> Ref:
        return self.queued_gang.gang.source


def reservation_of(action: object) -> tuple[QueuedGang, ReservedCapacity] | None:
    """The gang that an action reserves capacity for, and that capacity."""
    if isinstance(action, ReportNotAdmitted) and action.reserves is not None:
        return action.queued_gang, action.reserves
    return None


Action = (
    Bind | Nominate | PreemptPod | MarkStarted | ReportUnschedulable | Admit | EvictGang | ReportNotAdmitted
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one decision, in order."""

    actions: tuple[Action, ...] = ()
    undecided: tuple[Ref, ...] = ()  # gangs that the next cycle decides on
