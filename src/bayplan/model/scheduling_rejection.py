"""Why a gang whose pods are known does not start: what it waits for, or where it was refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bayplan.model.assignment import Misfit
from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey


class RejectionReason(StrEnum):
    """What is in the way."""

    NO_CHARTER = "no_charter"  # what its pods name is not there
    NO_GROUP = "no_group"  # it is there, but has no part of that name
    TOO_FEW = "too_few"  # pods: fewer are there than its minimum
    GATED = "gated"  # a pod of it is held back
    FLAWED = "flawed"  # what it asks for contradicts itself
    NO_QUEUE = "no_queue"  # the queue it names is not there, or holds other queues
    OVER_LIMIT = "over_limit"  # its queue, or one above, would have more than it ever may
    OVER_QUOTA = "over_quota"  # it lasts, and its queue would have more than is its own
    NO_ROOM = "no_room"
    MAKING_ROOM = "making_room"  # others are on their way out
    KEPT_FREE = "kept_free"  # it would fit, but the room is kept for one that has waited longer
    TAKEN_BACK = "taken_back"  # it could not be started whole, and what had started was taken back
    INTERNAL = "internal"  # deciding on it failed; `about` is the id of the error
    OUT_OF_TIME = "out_of_time"  # deciding on it took longer than `about` seconds

    @property
    def backs_off(self) -> bool:
        """Whether nothing that happens helps for sure: it is tried again at a certain time."""
        return self in (RejectionReason.TAKEN_BACK, RejectionReason.INTERNAL, RejectionReason.OUT_OF_TIME)

    @property
    def was_tried(self) -> bool:
        """Whether nodes were looked at: more nodes may help then."""
        return self in (RejectionReason.NO_ROOM, RejectionReason.MAKING_ROOM, RejectionReason.KEPT_FREE)


class PreemptionSearchOutcome(StrEnum):
    """What came of looking for others who could go."""

    NOTHING = "nothing"  # nobody looked
    NEVER = "never"  # it may not make others go
    NOBODY = "nobody"  # nobody is less important
    NO_HELP = "no_help"  # even without all of them there is no place
    FOUND = "found"


class FairShareWakeup(StrEnum):
    """What would have to become of others so that a gang of a queue has room if some of them go."""

    OTHERS = "others"  # they may be made to go, though now they may not
    EXCESS = "excess"  # queues have more than is theirs, and it may take that from them
    PLACE = "place"  # who would have to go for the limit of its queue is there, but a place then is not


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """What a queue would have beyond what it may have of one resource."""

    queue: str
    resource: str
    bound: Fraction
    used: int  # that counts towards the bound
    asked: int


@dataclass(frozen=True, slots=True)
class SchedulingRejection:
    """The facts; sentences are made of them at the edges."""

    hindrance: RejectionReason
    minimum: int = 0
    there: int = 0  # pods that exist, gated ones too
    fit: int = 0  # pods that have or would have a place
    pod: PodKey | None = None  # the first that fits nowhere
    unfit: FilterFailure | None = None  # and why
    misfit: Misfit | None = None  # the same in domains, if one domain was asked for
    sought: PreemptionSearchOutcome = PreemptionSearchOutcome.NOTHING
    displaced: int = 0  # pods that are on their way out for it
    unsure: bool = False  # a place may exist: not everything was tried
    about: str = ""  # the name of what is missing, or what is wrong
    part: str = ""  # the pod set that lacks places or pods, if it is one; `minimum` is its own then
    excess: QuotaExcess | None = None  # of its queue, or of one above
    again: float | None = field(default=None, compare=False)  # when time alone may help
    hopes: frozenset[FairShareWakeup] = field(default=frozenset(), compare=False)
