"""What was decided: actions, each with all that is needed to carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.admission_rejection import AdmissionRejection, PodSetAttempts
from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.scheduling_rejection import SchedulingRejection


@dataclass(frozen=True, slots=True)
class Bind:
    """Run this pod on this node."""

    gang: Ref
    pod: Pod
    node: str
    zones: tuple[tuple[str, int], ...] = ()  # that its containers were meant for, if it is to hear of it


@dataclass(frozen=True, slots=True)
class Nominate:
    """Room is being made for this pod on this node; an empty node: no longer."""

    gang: Ref
    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class PreemptPod:
    """This pod has to go: for another's sake, or because its own gang could not start whole."""

    pod: Pod
    by: Ref
    by_uid: str = ""
    whole: bool = False  # for a gang, or with its gang: not one pod for one pod
    undoes: bool = False  # the gang is its own: what was started of it is taken back
    to: str = ""  # it only moves: there is room for whatever takes its place on this node

    @property
    def gang(self) -> Ref:
        """On whose account."""
        return self.by


@dataclass(frozen=True, slots=True)
class ReportUnschedulable:
    """The gang, or these pods of it, have no place now; say why."""

    gang: Ref
    why: SchedulingRejection
    pods: tuple[Pod, ...] = ()  # those that go without
    news: bool = True  # the reason is another than last time
    uid: str = ""  # of the gang
    keeps: tuple[str, ...] = ()  # nodes whose room is kept for it from now on


@dataclass(frozen=True, slots=True)
class MarkStarted:
    """The gang has its minimum: put it on record."""

    gang: Ref
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Admit:
    """Give the gang this quota and these places (the places only, if it has the quota already)."""

    demand: QueuedGang
    admission: Admission
    checks: tuple[str, ...] = ()  # what has to say yes before it starts
    tried: tuple[PodSetAttempts, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


class EvictionReason(StrEnum):
    """On what grounds a gang has to leave."""

    PRIORITY = "priority"  # to a more important gang of its own queue
    RECLAIM = "reclaim"  # its queue uses what belongs to the other
    RECLAIM_WHILE_BORROWING = "reclaim_while_borrowing"
    FAIR_SHARE = "fair_share"
    NODES_FAILED = "nodes_failed"  # and there is no replacement
    NO_PLACE_IN_TIME = "no_place_in_time"  # quota was kept for it long enough


@dataclass(frozen=True, slots=True)
class EvictGang:
    """The gang has to leave, for another one's sake or for want of nodes."""

    demand: QueuedGang
    why: EvictionReason
    by: QueuedGang | None = None
    path: tuple[str, ...] = ()  # of its queue, from the root of the quota tree
    by_path: tuple[str, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


class Requeue(StrEnum):
    """When a gang that was declined is looked at again."""

    AT_ONCE = "at_once"
    WHEN_IT_MAY_HELP = "when_it_may_help"  # after an event that could change the answer
    AFTER_A_WHILE = "after_a_while"


@dataclass(frozen=True, slots=True)
class ReportNotAdmitted:
    """The gang is not admitted now; say why."""

    demand: QueuedGang
    refusal: AdmissionRejection
    again: Requeue = Requeue.WHEN_IT_MAY_HELP
    progress: tuple[Mapping[str, int], ...] = ()  # where the search for flavors goes on
    seconds: float = 0.0  # how long a while is
    reserves: tuple[str, Path] | None = None  # a topology and a domain of it to be kept for the gang
    crowded: bool = False  # room that others only wait for may be all that is in its way
    outrun: bool = False  # its place went to gangs admitted at the same time, whom it might displace

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


def reserving(action: object) -> tuple[QueuedGang, tuple[str, Path]] | None:
    """The gang that an action keeps room for, and where."""
    if isinstance(action, ReportNotAdmitted) and action.reserves is not None:
        return action.demand, action.reserves
    return None


Action = (
    Bind | Nominate | PreemptPod | MarkStarted | ReportUnschedulable | Admit | EvictGang | ReportNotAdmitted
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one decision, in the order they were decided."""

    actions: tuple[Action, ...] = ()
    left: tuple[Ref, ...] = ()  # gangs that did not have their turn: they have it in the next decision
