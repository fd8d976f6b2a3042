"""What was decided: actions, each with all that is needed to carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.assignment import Misfit, Path
from bayplan.model.demand import Admission, Demand
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.model.refusal import Refusal, Tried


@dataclass(frozen=True, slots=True)
class Bind:
    """Run this pod on this node."""

    gang: Ref
    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The gang has no place now; say why."""

    gang: Ref
    misfit: Misfit
    news: bool  # the reason is another than last time
    uid: str = ""  # of the gang


@dataclass(frozen=True, slots=True)
class Admit:
    """Give the gang this quota and these places (the places only, if it has the quota already)."""

    demand: Demand
    admission: Admission
    checks: tuple[str, ...] = ()  # what has to say yes before it starts
    tried: tuple[Tried, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


class Why(StrEnum):
    """On what grounds a gang has to leave."""

    PRIORITY = "priority"  # to a more important gang of its own queue
    RECLAIM = "reclaim"  # its queue uses what belongs to the other
    RECLAIM_WHILE_BORROWING = "reclaim_while_borrowing"
    FAIR_SHARE = "fair_share"
    NODES_FAILED = "nodes_failed"  # and there is no replacement
    NO_PLACE_IN_TIME = "no_place_in_time"  # quota was kept for it long enough


@dataclass(frozen=True, slots=True)
class Evict:
    """The gang has to leave, for another one's sake or for want of nodes."""

    demand: Demand
    why: Why
    by: Demand | None = None
    path: tuple[str, ...] = ()  # of its queue, from the root of the quota tree
    by_path: tuple[str, ...] = ()

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


class Again(StrEnum):
    """When a gang that was declined is looked at again."""

    AT_ONCE = "at_once"
    WHEN_IT_MAY_HELP = "when_it_may_help"  # after an event that could change the answer
    AFTER_A_WHILE = "after_a_while"


@dataclass(frozen=True, slots=True)
class Decline:
    """The gang is not admitted now; say why."""

    demand: Demand
    refusal: Refusal
    again: Again = Again.WHEN_IT_MAY_HELP
    progress: tuple[Mapping[str, int], ...] = ()  # where the search for flavors goes on
    seconds: float = 0.0  # how long a while is
    reserves: tuple[str, Path] | None = None  # a topology and a domain of it to be kept for the gang
    crowded: bool = False  # room that others only wait for may be all that is in its way
    outrun: bool = False  # its place went to gangs admitted at the same time, whom it might displace

    @property
    def gang(self) -> Ref:
        return self.demand.gang.source


def reserving(action: object) -> tuple[Demand, tuple[str, Path]] | None:
    """The gang that an action keeps room for, and where."""
    if isinstance(action, Decline) and action.reserves is not None:
        return action.demand, action.reserves
    return None


Action = Bind | Refuse | Admit | Evict | Decline


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one decision, in the order they were decided."""

    actions: tuple[Action, ...] = ()
