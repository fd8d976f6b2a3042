"""Why a gang is pending in the scheduling queue: what blocks it, or why it does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bayplan.model.assignment import Misfit
from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey


class RejectionReason(StrEnum):
    """Why a gang is pending."""

    NO_SPEC = "no_spec"  # the gang spec that its pods name does not exist
    NO_GROUP = "no_group"  # it exists, but has no part of that name
    TOO_FEW = "too_few"  # fewer pods exist than its minimum
    GATED = "gated"  # a pod has scheduling gates
    INVALID = "invalid"  # its spec is invalid
    UNSUPPORTED = "unsupported"  # a pod asks for what we cannot give; `about` says what
    NO_QUEUE = "no_queue"  # its queue does not exist, or is a parent of other queues
    OVER_LIMIT = "over_limit"  # its queue, or an ancestor, would exceed its limit
    OVER_QUOTA = "over_quota"  # it is not preemptible, and its queue would exceed its quota
    NO_CAPACITY = "no_capacity"
    PREEMPTING = "preempting"  # victims are terminating
    RESERVED = "reserved"  # it would fit, but a gang that is pending longer has reserved the nodes
    NODE_TAKEN = "node_taken"  # other pods were bound to the node `about`, where it has a slot
    UNDONE = "undone"  # it could not start as a whole, and its partial start was undone
    INTERNAL = "internal"  # an error occurred during the decision; `about` is its id
    OUT_OF_TIME = "out_of_time"  # the decision took longer than `about` seconds

    @property
    def backs_off(self) -> bool:
        """Whether no event is certain to help: the gang is retried after a delay."""
        return self in (RejectionReason.UNDONE, RejectionReason.INTERNAL, RejectionReason.OUT_OF_TIME)

    @property
    def was_tried(self) -> bool:
        """Whether nodes were tried: more nodes may help."""
        return self in (RejectionReason.NO_CAPACITY, RejectionReason.PREEMPTING, RejectionReason.RESERVED)


class PreemptionSearchOutcome(StrEnum):
    """The result of the search for victims."""

    NOT_SEARCHED = "not_searched"  # not searched
    NOT_ALLOWED = "not_allowed"  # it may not preempt
    NO_CANDIDATES = "no_candidates"  # no pod has lower priority
    INSUFFICIENT = "insufficient"  # it does not fit even without all of them
    FOUND = "found"


class FairShareWakeup(StrEnum):
    """Which change of other gangs could let a gang of a fair-share queue fit by preemption."""

    VICTIMS = "victims"  # victims that may not be preempted now become preemptible
    EXCESS = "excess"  # queues exceed their share, and it may reclaim from them
    NODES = "nodes"  # victims for the limit of its queue exist, but no nodes fit even then


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """By how much a queue would exceed its limit or quota of one resource."""

    queue: str
    resource: str
    bound: Fraction
    used: int  # the usage that counts towards the bound
    asked: int


@dataclass(frozen=True, slots=True)
class SchedulingRejection:
    """The reason and its facts; dialects make messages from them."""

    reason: RejectionReason
    minimum: int = 0
    existing: int = 0  # existing pods, including gated ones
    fit: int = 0  # pods that have or would have a node
    pod: PodKey | None = None  # the first pod without a node
    filter_failure: FilterFailure | None = None  # and why
    misfit: Misfit | None = None  # the same by domain, if one domain was asked for
    preemption: PreemptionSearchOutcome = PreemptionSearchOutcome.NOT_SEARCHED
    victims: int = 0  # pods being preempted for it
    incomplete: bool = False  # a placement may exist: the search was not exhaustive
    about: str = ""  # the name of what is missing, or what is invalid
    part: str = ""  # the pod set that lacks nodes or pods, if it is one; `minimum` is its own then
    excess: QuotaExcess | None = None  # of its queue, or of an ancestor
    retry_at: float | None = field(default=None, compare=False)  # when time alone may help
    wakeups: frozenset[FairShareWakeup] = field(default=frozenset(), compare=False)
