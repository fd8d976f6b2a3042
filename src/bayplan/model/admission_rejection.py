"""Why a queued gang is not admitted: facts, from which dialects make messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.assignment import Misfit, NearMiss
from bayplan.model.node_rules import Taint


class AdmissionReason(StrEnum):
    """The dominant reason, with stable values for tools."""

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
    GATED = "gated"
    INTERNAL = "internal"  # an error occurred during the decision
    OUT_OF_TIME = "out_of_time"  # the decision on this gang exceeded its time limit


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
    reason: AdmissionReason | None = None
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
    EQUIVALENT = "equivalent"  # a gang of the same shape was rejected in this cycle
    INTERNAL = "internal"  # an error occurred during the decision
    OUT_OF_TIME = "out_of_time"  # the decision exceeded its time limit


@dataclass(frozen=True, slots=True)
class AdmissionRejection:
    """Everything known about why a gang is not admitted."""

    reason: AdmissionReason
    remark: AdmissionRemark = AdmissionRemark.TRIED
    tried: tuple[PodSetAttempts, ...] = ()
    victims: int = 0
    queue: str = ""
    about: str = ""  # the gang, if the decision failed
    error: str = ""  # the id of the error, or the time limit in seconds

    def only_quota_helps(self) -> bool:
        """Whether free capacity would not help: quota is short, and no victims can free any."""
        if self.reason is not AdmissionReason.NO_QUOTA_NOW or self.remark is not AdmissionRemark.TRIED:
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
