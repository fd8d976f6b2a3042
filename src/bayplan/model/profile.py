"""How to choose when several answers are right. Families differ by profile, not by engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.numa import ZoneRules

EVERY_ZONE_COUNTS = ZoneRules()


class Strategy(StrEnum):
    """Named by what it does with the free room of domains."""

    BEST_FIT = "best_fit"  # fullest use first, and the tightest domain for the last pods
    MOST_FREE = "most_free"  # most room first, to the end
    LEAST_FREE = "least_free"  # tightest single domain, else fill up from the smallest
    BALANCED = "balanced"  # for preferred localities: as even as possible over as few domains as possible
    EXACT = "exact"  # complete search: fewest domains from the top down, then least left over


class Remainder(StrEnum):
    """What happens to pods that do not fill a whole segment."""

    LAST_SEGMENT = "last_segment"  # placed together as a last, smaller segment
    LEAVE_OUT = "leave_out"  # not placed


class LeaderRules(StrEnum):
    """Whose node rules decide where the leader of a group may go."""

    OWN = "own"
    WORKERS = "workers"


class NodeChoice(StrEnum):
    """Which of the nodes that fit a gang's pods are taken first."""

    PACK = "pack"  # the fullest: large holes stay large
    SPREAD = "spread"  # the emptiest, as for lone pods


class FairRule(StrEnum):
    """When a gang may displace one of a queue that is further above its share."""

    FINAL_SHARE = "final_share"  # its share is not above what the other is left with
    INITIAL_SHARE = "initial_share"  # its share is below what the other has


class PreemptionMeans(StrEnum):
    """How room is made for a gang of a queue."""

    CONSOLIDATE = "consolidate"  # others move, and each of them has a new place
    RECLAIM = "reclaim"  # queues that have more than their share give it back
    PREEMPT = "preempt"  # less important gangs of its own queue go


@dataclass(frozen=True, slots=True)
class Profile:
    """The choices of a family or an administrator. The default strategies are known as Mixed."""

    required: Strategy = Strategy.BEST_FIT
    preferred: Strategy = Strategy.BEST_FIT
    unconstrained: Strategy = Strategy.LEAST_FREE
    remainder: Remainder = Remainder.LAST_SEGMENT
    leader_rules: LeaderRules = LeaderRules.OWN
    pack_segments: bool = True  # inside a segment's domain the fullest use comes first, as anywhere else
    preferred_affinity: bool = False  # preferred node affinity outranks the strategy
    rules_below_leaf: bool = True  # node rules also count inside leaves that hold several nodes
    exact_seconds: float = 5.0  # time limit of one exact search
    fair_sharing: bool = False  # queues take turns by share, and yield by share
    fair_rules: tuple[FairRule, ...] = (FairRule.FINAL_SHARE, FairRule.INITIAL_SHARE)
    recompute: bool = True  # a place that an earlier gang of the round took is looked for again
    replace_fast: bool = True  # one attempt to replace failed nodes, then the gang is evicted
    place_first: float = 10.0  # seconds until a place is sought again for a gang that has quota, then doubled
    place_limit: float = 300.0  # a gang that would have to wait longer is evicted
    replace_first: float = 1.0  # the same for nodes that failed, without an end
    replace_limit: float = 30.0
    by_selector_alone: bool = False  # a pod set that one domain holds is sent there by a node selector
    reserve: bool = False  # the first gang that waits for room keeps others from taking it
    ignore_uncovered: bool = False  # resources that a queue has no quota for are not counted
    gang_nodes: NodeChoice = NodeChoice.PACK
    displace: bool = True  # more important gangs may make others go
    fair_means: tuple[PreemptionMeans, ...] = (
        PreemptionMeans.CONSOLIDATE,
        PreemptionMeans.RECLAIM,
        PreemptionMeans.PREEMPT,
    )  # in that order
    heal_seconds: float = 60.0  # how long a gang may stand in part before what started of it is taken back
    zones: ZoneRules = EVERY_ZONE_COUNTS
    zone_hints: bool = False  # pods are told which zones they were meant for
    decision_seconds: float = 5.0  # for so long a decision may go on about one gang
    keep_after_seconds: float = 300.0  # from then on room is kept for the first gang that waits; 0: never
