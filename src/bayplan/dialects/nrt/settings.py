"""The arguments of the NodeResourceTopologyMatch scheduler plugin as rules of the model."""

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
STRANGERS = {"All": Whose.ALL, "None": Whose.NONE, "OnlyExclusiveResources": Whose.EXCLUSIVE}
COUNTED = {
    "Autodetect": Whose.AS_REPORTED,
    "All": Whose.ALL,
    "OnlyExclusiveResources": Whose.EXCLUSIVE,
}
STARTING = {"Shared": False, "Dedicated": True}
HEED = {"All": True, "OnlyResources": False}
MODES = {"Enabled": True, "Disabled": False}


def zone_settings(args: Mapping[str, Any]) -> tuple[ZoneRules, NumaStalenessPolicy, tuple[str, ...]]:
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
        caution=_over_reserve(period, skip=bool(args.get("discardReservedNodes"))),
        period=max(period, 0.0),
        strangers=_choice(cache, "cache.foreignPodsDetect", STRANGERS, "All", errors),
        counted=_choice(cache, "cache.resyncMethod", COUNTED, "Autodetect", errors),
        starting=_choice(cache, "cache.informerMode", STARTING, "Dedicated", errors),
        heed_settings=_choice(cache, "cache.resyncScope", HEED, "All", errors),
        make_room=_choice(args, "preemptionMode", MODES, "Disabled", errors),
        eager=True,
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
