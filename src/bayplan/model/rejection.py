"""Why a gang is not admitted or not bound: one reason and its facts, from which dialects make messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bayplan.model.assignment import Misfit, NearMiss
from bayplan.model.filter_failure import FilterFailure
from bayplan.model.node_rules import Taint
from bayplan.model.pod import PodKey


class RejectionReason(StrEnum):
    """The dominant reason, with stable values for tools."""

    # both roles
    GATED = "gated"  # admission is gated, or a pod has scheduling gates
    INTERNAL = "internal"  # an error occurred during the decision; `about` is its id
    OUT_OF_TIME = "out_of_time"  # the decision took longer than `about` seconds

    # admission
    TO_BE_EVALUATED = "to_be_evaluated"
    NO_PLACE = "no_place"  # quota suffices, but no placement exists, even in an empty cluster
    NO_QUOTA_NOW = "no_quota_now"
    NEVER_ENOUGH_QUOTA = "never_enough_quota"
    NO_FLAVOR = "no_flavor"
    VICTIMS_LEAVING = "victims_leaving"
    MISCONFIGURED = "misconfigured"
    CLOSED = "closed"  # the queue or the namespace queue is stopped
    ON_HOLD = "on_hold"
    OTHERS_STARTING = "others_starting"

    # binding
    NO_SPEC = "no_spec"  # the gang spec that its pods name does not exist
    NO_GROUP = "no_group"  # it exists, but has no part of that name
    TOO_FEW = "too_few"  # fewer pods exist than its minimum
    INVALID = "invalid"  # its spec is invalid
    UNSUPPORTED = "unsupported"  # a pod asks for what we cannot give; `about` says what
    NO_QUEUE = "no_queue"  # its queue does not exist, or is a parent of other queues
    OVER_LIMIT = "over_limit"  # its queue, or an ancestor, would exceed its limit
    OVER_QUOTA = "over_quota"  # it is not preemptible, and its queue would exceed its quota
    NO_CAPACITY = "no_capacity"
    PREEMPTING = "preempting"  # victims are terminating
    RESERVED = "reserved"  # it would fit, but a gang that is pending longer has reserved the nodes
    NODE_TAKEN = "node_taken"  # other pods were bound to the node `about`, where it has a slot
    HELD_BACK = "held_back"  # `about`, of higher priority, waits for victims and needs such pods elsewhere
    UNDONE = "undone"  # it could not start as a whole, and its partial start was undone

    @property
    def backs_off(self) -> bool:
        """Whether no event is certain to help: the gang is retried after a delay."""
        return self in (RejectionReason.UNDONE, RejectionReason.INTERNAL, RejectionReason.OUT_OF_TIME)

    @property
    def was_tried(self) -> bool:
        """Whether nodes were tried: more nodes may help."""
        return self in (RejectionReason.NO_CAPACITY, RejectionReason.PREEMPTING, RejectionReason.RESERVED)


class ObstacleKind(StrEnum):
    """What keeps a pod set from using a flavor."""

    NOT_COVERED = "not_covered"  # the queue has no quota for the resource
    FLAVOR_UNKNOWN = "flavor_unknown"
    TAINT = "taint"
    AFFINITY = "affinity"
    WITHOUT_TOPOLOGY = "without_topology"
    ONLY_TOPOLOGY = "only_topology"
    LEVEL_MISSING = "level_missing"
    TOPOLOGY_UNKNOWN = "topology_unknown"
    SHORT = "short"  # amounts: what is lacking
    TOO_MUCH = "too_much"  # amounts: of earlier pod sets, of this one, the maximum
    NOT_NOMINATED = "not_nominated"
    OTHER_FLAVOR_BEFORE = "other_flavor_before"
    NO_TOPOLOGY_FLAVOR = "no_topology_flavor"
    SEVERAL_TOPOLOGY_FLAVORS = "several_topology_flavors"
    NO_TOPOLOGY_AT_ALL = "no_topology_at_all"
    GROWS_AND_REQUIRES = "grows_and_requires"
    GROWS_AND_PREFERS = "grows_and_prefers"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One obstacle to a flavor."""

    kind: ObstacleKind
    flavor: str = ""
    resource: str = ""
    taint: Taint | None = None
    amounts: tuple[int, ...] = ()
    flavors: tuple[str, ...] = ()


RejectionDetail = Obstacle | Misfit


class FlavorMode(StrEnum):
    """The result of trying a flavor."""

    NONE = "none"
    NO_VICTIMS = "no_victims"
    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """One flavor that was tried."""

    flavor: str
    mode: FlavorMode
    borrow: int = 0  # how far up the quota tree the gang has to borrow
    obstacles: tuple[RejectionDetail, ...] = ()
    reason: RejectionReason | None = None
    preemption_mode: FlavorMode | None = None  # the result of preemption, if it was simulated


@dataclass(frozen=True, slots=True)
class PodSetAttempts:
    """What was tried for one pod set, and the obstacles."""

    pod_set: str
    obstacles: tuple[RejectionDetail, ...] = ()
    fatal: Obstacle | None = None  # the request can never be met, whatever is free
    attempts: tuple[FlavorAttempt, ...] = ()


class AdmissionRemark(StrEnum):
    """Why a gang is not admitted, apart from the obstacles of its flavors."""

    TRIED = "tried"
    PREEMPTING = "preempting"  # victims are terminating
    PREEMPTION_FAILED = "preemption_failed"
    OTHERS_ENDING = "others_ending"  # it would preempt, but other gangs end just now: it waits a moment
    OVERTAKEN = "overtaken"  # another gang of this cycle took the capacity
    SAME_VICTIMS = "same_victims"  # another gang of this cycle preempts the same victims
    SAME_VICTIMS_WILL_FIT = "same_victims_will_fit"
    CHECKS_FAILED = "checks_failed"
    QUEUE_INACTIVE = "queue_inactive"
    QUEUE_MISSING = "queue_missing"
    NAMESPACE = "namespace"
    NAMESPACE_QUEUE_MISSING = "namespace_queue_missing"
    NAMESPACE_QUEUE_STOPPED = "namespace_queue_stopped"
    OTHERS_STARTING = "others_starting"
    RESERVED = "reserved"  # the capacity is reserved for a gang that is pending longer
    REFUSED = "refused"  # it cannot be admitted as it is; `about` says why
    EQUIVALENT = "equivalent"  # a gang of the same shape was rejected in this cycle


class PreemptionSearchOutcome(StrEnum):
    """The result of the search for victims."""

    NOT_SEARCHED = "not_searched"  # not searched
    NOT_ALLOWED = "not_allowed"  # it may not preempt
    NO_CANDIDATES = "no_candidates"  # no pod has lower priority
    INSUFFICIENT = "insufficient"  # it does not fit even without all of them
    PAUSED = "paused"  # preemptions for it got it no node: it preempts again after a delay
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
class Rejection:
    """The reason and its facts. A fact that is unknown, or of the other role, has its default."""

    reason: RejectionReason
    minimum: int = 0
    existing: int = 0  # existing pods, including gated ones
    fit: int = 0  # pods that have or would have a node
    pod: PodKey | None = None  # the first pod without a node
    filter_failure: FilterFailure | None = None  # and why
    misfit: Misfit | None = None  # the same by domain, if one domain was asked for
    preemption: PreemptionSearchOutcome = PreemptionSearchOutcome.NOT_SEARCHED
    victims: int = 0  # pods or gangs being preempted for it
    incomplete: bool = False  # a placement may exist: the search was not exhaustive
    about: str = ""  # the name of what is missing, what is invalid, the id of an error, or a time limit
    part: str = ""  # the pod set that lacks nodes or pods, if it is one; `minimum` is its own then
    excess: QuotaExcess | None = None  # of its queue, or of an ancestor
    queue: str = ""  # the queue that it was to be admitted by
    remark: AdmissionRemark = AdmissionRemark.TRIED
    tried: tuple[PodSetAttempts, ...] = ()  # the flavors, if it was tried to admit it
    gang: str = ""  # namespace/name, if the decision on admission failed
    retry_at: float | None = field(default=None, compare=False)  # when time alone may help
    wakeups: frozenset[FairShareWakeup] = field(default=frozenset(), compare=False)

    def only_quota_helps(self) -> bool:
        """Whether free capacity would not help: quota is short, and no victims can free any."""
        if self.reason is not RejectionReason.NO_QUOTA_NOW or self.remark is not AdmissionRemark.TRIED:
            return False
        return all(
            not isinstance(obstacle, Misfit) for tried in self.tried for obstacle in tried.obstacles
        ) and all(
            attempt.mode in (FlavorMode.NONE, FlavorMode.NO_VICTIMS, FlavorMode.FIT)
            for tried in self.tried
            for attempt in tried.attempts
        )

    def near_miss(self) -> tuple[str, NearMiss] | None:
        """The topology and the domain that came closest, if capacity was short."""
        for tried in self.tried:
            for obstacle in tried.obstacles:
                if isinstance(obstacle, Misfit) and obstacle.nearest is not None:
                    return obstacle.topology, obstacle.nearest
        return None
