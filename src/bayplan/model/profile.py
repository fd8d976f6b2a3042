"""Profiles: how to choose among valid placements. API families differ by profile, not by engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.numa import ZoneRules

DEFAULT_ZONE_RULES = ZoneRules()


class Strategy(StrEnum):
    """Placement strategies, named by how they choose domains."""

    BEST_FIT = "best_fit"  # fullest use first, and the tightest domain for the last pods
    MOST_FREE = "most_free"  # most free capacity first, to the end
    LEAST_FREE = "least_free"  # the tightest single domain, else fill up from the smallest
    PACK_RACKS = "pack_racks"  # the lowest level with a domain for all pods; hosts in broken racks first
    BALANCED = "balanced"  # for preferred localities: as even as possible over as few domains as possible
    EXACT = "exact"  # complete search: fewest domains from the top down, then least capacity left over


class Remainder(StrEnum):
    """What happens to pods that do not fill a whole segment."""

    LAST_SEGMENT = "last_segment"  # placed together as a last, smaller segment
    LEAVE_OUT = "leave_out"  # not placed


class LeaderRules(StrEnum):
    """Whose node rules apply to the leader of a group."""

    OWN = "own"
    WORKERS = "workers"


class NodeChoice(StrEnum):
    """Which of the feasible nodes of a gang's pods are used first."""

    PACK_RACKS = "pack_racks"  # one host, else one rack; broken racks first, to keep whole ones free
    PACK = "pack"  # the fullest, whatever their rack
    SPREAD = "spread"  # the emptiest, as for single pods


class FairRule(StrEnum):
    """When a gang may preempt a gang of a queue with a higher share."""

    FINAL_SHARE = "final_share"  # its share does not exceed the victim's share after the preemption
    INITIAL_SHARE = "initial_share"  # its share is below the victim's share before the preemption


class PreemptionMeans(StrEnum):
    """How capacity is freed for a gang of a fair-share queue."""

    CONSOLIDATE = "consolidate"  # victims move: each of them has another placement
    RECLAIM = "reclaim"  # queues above their share are reclaimed from
    PREEMPT = "preempt"  # gangs of its own queue with lower priority are preempted


@dataclass(frozen=True, slots=True)
class Profile:
    """The choices of a family or an administrator."""

    required: Strategy = Strategy.BEST_FIT
    preferred: Strategy = Strategy.BEST_FIT
    unconstrained: Strategy = Strategy.PACK_RACKS
    remainder: Remainder = Remainder.LAST_SEGMENT
    leader_rules: LeaderRules = LeaderRules.OWN
    pack_segments: bool = True  # pack inside the domain of a segment as anywhere else
    preferred_affinity: bool = False  # preferred node affinity outranks the strategy
    rules_below_leaf: bool = True  # node rules also apply inside leaves of several nodes
    binding_filters: bool = True  # admission applies the filters of binding (ports, volumes, spread …)
    exact_seconds: float = 5.0  # time limit of one exact search
    fair_sharing: bool = False  # queues are ordered and preempted by share
    fair_rules: tuple[FairRule, ...] = (FairRule.FINAL_SHARE, FairRule.INITIAL_SHARE)
    recompute: bool = True  # search again if an earlier gang of the cycle took the placement
    replace_fast: bool = True  # one attempt to replace failed nodes, then the gang is evicted
    place_first: float = 10.0  # seconds until the next search for a gang with quota; then doubled
    place_limit: float = 300.0  # a gang that would have to wait longer is evicted
    replace_first: float = 1.0  # the same for failed nodes, without an end
    replace_limit: float = 30.0
    by_selector_alone: bool = False  # a pod set within one domain is placed by a node selector
    detailed_reasons: bool = True  # conditions tell apart why a gang waits
    reserve: bool = False  # reserve the domain of the first gang that waits for capacity
    ignore_uncovered: bool = False  # resources that a queue has no quota for are not counted
    gang_nodes: NodeChoice = NodeChoice.PACK_RACKS
    preemption: bool = True  # gangs of higher priority may preempt
    preemption_means: tuple[PreemptionMeans, ...] = (
        PreemptionMeans.CONSOLIDATE,
        PreemptionMeans.RECLAIM,
        PreemptionMeans.PREEMPT,
    )  # in that order
    heal_seconds: float = 60.0  # how long a gang may be partially bound before its start is undone
    zones: ZoneRules = DEFAULT_ZONE_RULES
    zone_hints: bool = False  # publish the zones chosen for a pod
    decision_seconds: float = 5.0  # time limit of a decision on one gang
    keep_after_seconds: float = 300.0  # pending time until nodes are reserved for the first gang; 0: never
