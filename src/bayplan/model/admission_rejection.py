"""Why a gang in a queue is not admitted: facts only, which dialects make sentences of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.assignment import Misfit, NearMiss
from bayplan.model.node_rules import Taint


class AdmissionReason(StrEnum):
    """The one dominant reason, in words that tools can rely on."""

    TO_BE_EVALUATED = "to_be_evaluated"
    NO_PLACE = "no_place"  # quota is there, a place is not, even in an empty cluster
    NO_QUOTA_NOW = "no_quota_now"
    NEVER_ENOUGH_QUOTA = "never_enough_quota"
    NO_FLAVOR = "no_flavor"
    VICTIMS_LEAVING = "victims_leaving"
    MISCONFIGURED = "misconfigured"
    CLOSED = "closed"  # the queue, or the way into it
    ON_HOLD = "on_hold"
    OTHERS_STARTING = "others_starting"
    GATED = "gated"
    INTERNAL = "internal"  # deciding on it failed
    OUT_OF_TIME = "out_of_time"  # deciding on it took longer than it may


class ObstacleKind(StrEnum):
    """What stands between a pod set and a flavor."""

    NOT_COVERED = "not_covered"  # the queue has no quota for the resource at all
    FLAVOR_UNKNOWN = "flavor_unknown"
    TAINT = "taint"
    AFFINITY = "affinity"
    WITHOUT_TOPOLOGY = "without_topology"
    ONLY_TOPOLOGY = "only_topology"
    LEVEL_MISSING = "level_missing"
    TOPOLOGY_UNKNOWN = "topology_unknown"
    SHORT = "short"  # amounts: lacking
    TOO_MUCH = "too_much"  # amounts: of earlier pod sets, of this one, the most there can be
    NOT_NOMINATED = "not_nominated"
    OTHER_FLAVOR_BEFORE = "other_flavor_before"
    NO_TOPOLOGY_FLAVOR = "no_topology_flavor"
    SEVERAL_TOPOLOGY_FLAVORS = "several_topology_flavors"
    NO_TOPOLOGY_AT_ALL = "no_topology_at_all"
    GROWS_AND_REQUIRES = "grows_and_requires"
    GROWS_AND_PREFERS = "grows_and_prefers"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing in the way."""

    what: ObstacleKind
    flavor: str = ""
    resource: str = ""
    taint: Taint | None = None
    amounts: tuple[int, ...] = ()
    flavors: tuple[str, ...] = ()


RejectionDetail = Obstacle | Misfit


class FlavorMode(StrEnum):
    """What trying a flavor came to."""

    NONE = "none"
    NO_VICTIMS = "no_victims"
    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """One flavor that was tried."""

    flavor: str
    chance: FlavorMode
    borrow: int = 0  # how far up the tree quota has to come from
    obstacles: tuple[RejectionDetail, ...] = ()
    token: AdmissionReason | None = None
    possible: FlavorMode | None = None  # of preempting, if that was looked into


@dataclass(frozen=True, slots=True)
class PodSetAttempts:
    """What was tried for one pod set, and what stood in the way."""

    pod_set: str
    obstacles: tuple[RejectionDetail, ...] = ()
    fatal: Obstacle | None = None  # the request itself cannot be met, whatever is free
    attempts: tuple[FlavorAttempt, ...] = ()


class AdmissionRemark(StrEnum):
    """What is said besides, or instead of, what was tried."""

    TRIED = "tried"
    LEAVING = "leaving"  # victims were told to leave
    LEAVING_FAILED = "leaving_failed"
    OVERTAKEN = "overtaken"  # another gang of this round took the room
    SAME_VICTIMS = "same_victims"  # another gang of this round takes them
    SAME_VICTIMS_WILL_FIT = "same_victims_will_fit"
    CHECKS_FAILED = "checks_failed"
    QUEUE_CLOSED = "queue_closed"
    QUEUE_MISSING = "queue_missing"
    NAMESPACE = "namespace"
    ENTRANCE_MISSING = "entrance_missing"
    ENTRANCE_CLOSED = "entrance_closed"
    OTHERS_STARTING = "others_starting"
    RESERVED = "reserved"  # a gang that waits longer has this room set aside
    ALIKE = "alike"  # another gang of the same shape was just refused
    INTERNAL = "internal"  # deciding on it failed
    OUT_OF_TIME = "out_of_time"  # deciding on it took longer than it may


@dataclass(frozen=True, slots=True)
class AdmissionRejection:
    """The whole story of why not."""

    token: AdmissionReason
    remark: AdmissionRemark = AdmissionRemark.TRIED
    tried: tuple[PodSetAttempts, ...] = ()
    victims: int = 0
    queue: str = ""
    about: str = ""  # the gang, if deciding on it failed
    fault: str = ""  # the id of the error, or how many seconds it had

    def only_quota_helps(self) -> bool:
        """Whether room would not change anything: quota is short, and nobody can be made to give any back."""
        if self.token is not AdmissionReason.NO_QUOTA_NOW or self.remark is not AdmissionRemark.TRIED:
            return False
        return all(
            not isinstance(obstacle, Misfit) for tried in self.tried for obstacle in tried.obstacles
        ) and all(
            attempt.chance in (FlavorMode.NONE, FlavorMode.NO_VICTIMS, FlavorMode.FIT)
            for tried in self.tried
            for attempt in tried.attempts
        )

    def near_miss(self) -> tuple[str, NearMiss] | None:
        """The topology and the domain that came closest, if room was missing."""
        for tried in self.tried:
            for obstacle in tried.obstacles:
                if isinstance(obstacle, Misfit) and obstacle.nearest is not None:
                    return obstacle.topology, obstacle.nearest
        return None
