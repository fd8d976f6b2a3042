"""The arguments of the NodeResourceTopologyMatch plugin, as cases give them, as rules of the model."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from bayplan.model.numa import NumaStalenessPolicy, OverReserve, Whose, ZoneRules, ZoneScore

Word = TypeVar("Word", bound=StrEnum | bool)

SCORES = {
    "LeastAllocated": ZoneScore.LEAST_ALLOCATED,
    "MostAllocated": ZoneScore.MOST_ALLOCATED,
    "BalancedAllocation": ZoneScore.BALANCED,
    "LeastNUMANodes": ZoneScore.FEWEST_ZONES,
}
FOREIGN_PODS = {"All": Whose.ALL, "None": Whose.NONE, "OnlyExclusiveResources": Whose.EXCLUSIVE}
RESYNC_METHODS = {
    "Autodetect": Whose.AS_REPORTED,
    "All": Whose.ALL,
    "OnlyExclusiveResources": Whose.EXCLUSIVE,
}
INFORMER_MODES = {"Shared": False, "Dedicated": True}
RESYNC_SCOPES = {"All": True, "OnlyResources": False}
PREEMPTION_MODES = {"Enabled": True, "Disabled": False}


def numa_settings(args: Mapping[str, Any]) -> tuple[ZoneRules, NumaStalenessPolicy, tuple[str, ...]]:
    """NUMA rules, staleness policy, and errors. For an unsupported value the default is used."""
    errors: list[str] = []
    strategy, cache = args.get("scoringStrategy") or {}, args.get("cache") or {}
    kind = strategy.get("type") or "LeastAllocated"
    if kind not in SCORES:
        errors.append(f'scoringStrategy.type: Invalid value: "{kind}": invalid ScoringStrategyType')
    weights = tuple(
        (str(one.get("name")), _integer(one.get("weight"))) for one in strategy.get("resources") or ()
    )
    rules = ZoneRules(score=SCORES.get(kind, ZoneScore.LEAST_ALLOCATED), weights=weights)
    period = float(_integer(args.get("cacheResyncPeriodSeconds")))
    staleness = NumaStalenessPolicy(
        over_reserve=_over_reserve(period, skip=bool(args.get("discardReservedNodes"))),
        period=max(period, 0.0),
        foreign_pods=_choice(cache, "cache.foreignPodsDetect", FOREIGN_PODS, "All", errors),
        counted=_choice(cache, "cache.resyncMethod", RESYNC_METHODS, "Autodetect", errors),
        count_starting=_choice(cache, "cache.informerMode", INFORMER_MODES, "Dedicated", errors),
        follow_settings=_choice(cache, "cache.resyncScope", RESYNC_SCOPES, "All", errors),
        simulate_evictions=_choice(args, "preemptionMode", PREEMPTION_MODES, "Disabled", errors),
        accept_early=True,
    )
    return rules, staleness, tuple(errors)


def _over_reserve(period: float, *, skip: bool) -> OverReserve:
    if skip:
        return OverReserve.SKIP
    return OverReserve.RESERVE if period > 0 else OverReserve.NONE


def _choice(
    args: Mapping[str, Any], path: str, choices: Mapping[str, Word], default: str, errors: list[str]
) -> Word:
    value = args.get(path.rpartition(".")[2])
    if value is not None and value not in choices:
        errors.append(f'{path}: Unsupported value: "{value}": supported values: {", ".join(sorted(choices))}')
        value = None
    return choices[value or default]


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
