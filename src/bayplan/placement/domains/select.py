"""Selects the level and the domains that hold a request, before the descent to leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.profile import Strategy
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.counts import DomainCounts, has_extra_pods
from bayplan.placement.domains.fill import NOWHERE, Shared, fill, fill_led, prefer_leader, ranked
from bayplan.placement.domains.request import PlacementRequest

COUNTABLE_MAX = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Domains of one level with the pods of each (without the leader or last segment)."""

    level: int
    domains: Ints
    pods: Ints
    leader: int = NOWHERE
    last: int = NOWHERE  # the domain of the segment level that holds the last, smaller segment


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The request does not fit: no single domain of the level holds it, or not even all of them together."""

    level: int
    fit: int  # units, if together
    together: bool


def choose(tree: Tree, counts: DomainCounts, request: PlacementRequest) -> Chosen | Shortfall:
    """Select one domain of the requested level; else of a level above if allowed; else several domains."""
    level = request.level
    while True:
        single = _single(tree, counts, level, request)
        if single is not None:
            return _share(counts, level, np.array([single]), request)
        may_climb = level > 0 and _may_climb(request)
        if not may_climb:
            break
        level -= 1
    if request.required:
        return Shortfall(level, 0, together=False)
    found = _several(counts, level, request)
    if isinstance(found, Shortfall) and request.unconstrained:
        return replace(found, level=request.level)
    return found


def _may_climb(request: PlacementRequest) -> bool:
    if request.unconstrained:
        return request.strategy is Strategy.PACK_RACKS
    return not request.required or request.climbs


def _single(tree: Tree, counts: DomainCounts, level: int, request: PlacementRequest) -> int | None:
    """The domain to take, if a single domain holds the request."""
    room, leads = counts.segments_led[level], counts.leads[level]
    affinity = counts.affinity_at(level)
    able = room >= request.units
    if has_extra_pods(request):
        able = able & leads
    if request.strategy is not Strategy.LEAST_FREE and affinity is not None and not request.required:
        # A preferred locality never skips the domains with the highest affinity.
        best = affinity == affinity[leads].max() if leads.any() else affinity == affinity.max()
        able = able & best
    candidates = np.flatnonzero(able)
    if not len(candidates):
        return None
    if affinity is not None:
        tier = affinity[candidates]
        candidates = candidates[tier == tier.max()]
    if request.strategy is Strategy.PACK_RACKS:
        return _most_broken(tree, counts, level, candidates)
    value = room[candidates]
    edge = value.max() if request.strategy is Strategy.MOST_FREE else value.min()
    candidates = candidates[value == edge]
    return int(candidates[np.argmin(counts.pods_led[level][candidates])])


def _most_broken(tree: Tree, counts: DomainCounts, level: int, candidates: Ints) -> int:
    """The tightest; of leaves those in use first, and in the most broken domain above.

    A leaf counts as unused if no other has more free. A domain is the more broken, the fewer such leaves it
    has, then the less is free there.
    """
    if level == tree.lowest and counts.leaf_free is not None:
        return _leaf_in_use(tree, counts.leaf_free, level, candidates)
    keys = [counts.segments_led[level][candidates], counts.pods_led[level][candidates]]
    if level:
        keys.append(counts.pods[level - 1][tree.ancestors(level, candidates, level - 1)])
    return int(candidates[_first(*keys)])


def _leaf_in_use(tree: Tree, free: Ints, level: int, candidates: Ints) -> int:
    """The leaf to take. Domains are compared first, since there are far fewer of them than leaves."""
    unused = free == free.max()
    in_use = candidates[~unused[candidates]]
    pool = in_use if len(in_use) else candidates
    if level:
        able = np.zeros(len(free), dtype=bool)
        able[pool] = True
        first = tree.children[level - 1]
        domains = np.flatnonzero(np.logical_or.reduceat(able, first))
        broken = (np.add.reduceat(one, first)[domains] for one in (unused.astype(np.int64), free))
        start, stop = tree.leaf_range(level - 1, int(domains[_first(*broken)]))
        pool = pool[(pool >= start) & (pool < stop)]
    return int(pool[_first(free[pool])])


def _first(*keys: Ints) -> int:
    """The position of the first in the order of several keys."""
    left = np.arange(len(keys[0]))
    for key in keys:
        value = key[left]
        left = left[value == value.min()]
    return int(left[0])


def best_single(counts: DomainCounts, level: int, request: PlacementRequest, usable: Bools) -> int:
    """Units in the usable domain that ranks first, for the misfit."""
    if request.strategy is Strategy.LEAST_FREE:
        return int(counts.segments[level].max())
    order = _led_order(counts, level, request)
    return int(counts.segments[level][order[usable[order]][0]])


def _led_order(counts: DomainCounts, level: int, request: PlacementRequest) -> Ints:
    all_domains = np.arange(len(counts.pods[level]))
    return ranked(
        all_domains, counts.segments_led[level], counts.pods_led[level], request.strategy,
        counts.affinity_at(level), (~counts.leads[level]).astype(np.int64),
    )  # fmt: skip


def _plain_order(counts: DomainCounts, level: int, request: PlacementRequest, domains: Ints) -> Ints:
    return ranked(
        np.sort(domains), counts.segments[level], counts.pods[level], request.strategy,
        counts.affinity_at(level),
    )  # fmt: skip


def _several(counts: DomainCounts, level: int, request: PlacementRequest) -> Chosen | Shortfall:
    units, units_led, leads = counts.segments[level], counts.segments_led[level], counts.leads[level]
    need = request.units
    if not has_extra_pods(request):
        fit = int(units.sum())
        if fit < need:
            return Shortfall(level, fit, together=True)
        used = _enough(counts, level, request)
        return _share(counts, level, _plain_order(counts, level, request, used), request)
    order = prefer_leader(_led_order(counts, level, request), units, units_led, leads, need)
    if not leads[order[0]]:
        return Shortfall(level, 0, together=True)
    rest = _plain_order(counts, level, request, order[1:])
    fit = int(units_led[order[0]] + units[rest].sum())
    if fit < need:
        return Shortfall(level, fit, together=True)
    return _share(counts, level, np.concatenate((order[:1], rest)), request)


def _enough(counts: DomainCounts, level: int, request: PlacementRequest) -> Ints:
    """The domains to rank. With LEAST_FREE, only the smallest ones whose sum suffices."""
    units = counts.segments[level]
    if request.strategy is not Strategy.LEAST_FREE or counts.affinity is not None:
        return np.flatnonzero(units)
    largest = int(units.max())
    if largest >= COUNTABLE_MAX:
        return np.flatnonzero(units)
    held = np.cumsum(np.bincount(units, minlength=largest + 1) * np.arange(largest + 1))
    edge = int(np.searchsorted(held, request.units))
    if not edge:
        return np.flatnonzero(units)[:1]
    last = np.flatnonzero(units == edge)
    if counts.pods[level] is units:  # equal domains then rank by path alone, so the first of them suffice
        last = last[: -(-(request.units - int(held[edge - 1])) // edge)]
    return np.concatenate((np.flatnonzero((units > 0) & (units < edge)), last))


def _share(counts: DomainCounts, level: int, domains: Ints, request: PlacementRequest) -> Chosen:
    """Distribute the whole segments over the domains, given in order of preference."""
    tight = is_tight(request.strategy)
    affinity = counts.affinity_at(level)
    if has_extra_pods(request):
        shared = fill_led(
            domains, counts.segments[level], counts.segments_led[level], counts.leads[level],
            request.units, tight, affinity,
        )  # fmt: skip
    else:
        alone = np.zeros(len(domains), np.int64)
        shared = fill(domains, alone, counts.segments[level], np.array([request.units]), tight, affinity)
    return chosen(level, shared, request.size)


def chosen(level: int, shared: Shared, size: int) -> Chosen:
    """Convert units to pods."""
    return Chosen(level, shared.domains, shared.units * size, shared.leader)


def is_tight(strategy: Strategy) -> bool:
    """Whether the last share goes to the tightest domain."""
    return strategy not in (Strategy.LEAST_FREE, Strategy.MOST_FREE)
