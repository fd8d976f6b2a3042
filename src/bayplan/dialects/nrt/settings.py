"""The arguments of upstream's plugin in our words, or what is wrong with them."""

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
    """Rules and care for zones. Every value that is not known is told; the default stands in for it."""
    wrong: list[str] = []
    strategy, cache = args.get("scoringStrategy") or {}, args.get("cache") or {}
    kind = strategy.get("type") or "LeastAllocated"
    if kind not in SCORES:
        wrong.append(f'scoringStrategy.type: Invalid value: "{kind}": invalid ScoringStrategyType')
    weights = tuple(
        (str(one.get("name")), _whole(one.get("weight"))) for one in strategy.get("resources") or ()
    )
    rules = ZoneRules(score=SCORES.get(kind, ZoneScore.LEAST_ALLOCATED), weights=weights)
    period = float(_whole(args.get("cacheResyncPeriodSeconds")))
    care = NumaStalenessPolicy(
        caution=_caution(period, skip=bool(args.get("discardReservedNodes"))),
        period=max(period, 0.0),
        strangers=_word(cache, "cache.foreignPodsDetect", STRANGERS, "All", wrong),
        counted=_word(cache, "cache.resyncMethod", COUNTED, "Autodetect", wrong),
        starting=_word(cache, "cache.informerMode", STARTING, "Dedicated", wrong),
        heed_settings=_word(cache, "cache.resyncScope", HEED, "All", wrong),
        make_room=_word(args, "preemptionMode", MODES, "Disabled", wrong),
        eager=True,
    )
    return rules, care, tuple(wrong)


def _caution(period: float, *, skip: bool) -> OverReserve:
    if skip:
        return OverReserve.SKIP
    return OverReserve.RESERVE if period > 0 else OverReserve.NONE


def _word(
    given: Mapping[str, Any], path: str, words: Mapping[str, Word], usual: str, wrong: list[str]
) -> Word:
    value = given.get(path.rpartition(".")[2])
    if value is not None and value not in words:
        wrong.append(f'{path}: Unsupported value: "{value}": supported values: {", ".join(sorted(words))}')
        value = None
    return words[value or usual]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
