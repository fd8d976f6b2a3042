"""Balanced placement: as few domains as possible, and as evenly filled as those allow.

One domain above the preferred level must hold all pods. In it, the threshold (the smallest share of a
used domain) is made as large as possible; domains that cannot hold the threshold are left out; of the
rest the fewest, then the tightest, are taken and filled evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.profile import Strategy
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.counts import DomainCounts, LeafCounts, count_up_branch
from bayplan.placement.domains.descend import descend_apart
from bayplan.placement.domains.fill import NOWHERE, order, ranked
from bayplan.placement.domains.knapsack import fewest
from bayplan.placement.domains.request import PlacementRequest
from bayplan.placement.domains.select import Chosen


@dataclass(frozen=True, slots=True, eq=False)
class EvenChoice:
    """The domains to fill, and the counts for the descent, without the domains left out."""

    counts: DomainCounts
    chosen: Chosen


@dataclass(frozen=True, slots=True, eq=False)
class SiblingDomains:
    """Sibling domains with the tree below them, counted on their own: local indices from 0."""

    level: int
    offsets: tuple[int, ...]  # per level: where the branch starts in the tree
    counts: DomainCounts


@dataclass(frozen=True, slots=True)
class Greedy:
    """How many of the largest domains hold the request, and the last taken with and without the leader."""

    used: int
    last_led: int = NOWHERE
    last: int = NOWHERE


def place_evenly(tree: Tree, counts: DomainCounts, request: PlacementRequest) -> Chosen | None:
    """Leaves with even shares, or None if no domain above the preferred level can hold the request evenly.

    First all capacity for pods counts. If the segments below do not fit into the domains chosen so, capacity
    is counted again, exactly: in whole segments and whole multiples of the inner layers.
    """
    if not request.units:
        return None
    even = _choose(tree, counts, replace(request, inner={}))
    leaves = None if even is None else descend_apart(tree, even.counts, request, even.chosen, False)
    if even is None or leaves is not None:
        return leaves
    even = _choose(tree, counts, request)
    return None if even is None else descend_apart(tree, even.counts, request, even.chosen, True)


def _choose(tree: Tree, counts: DomainCounts, request: PlacementRequest) -> EvenChoice | None:
    best = _best_branch(tree, counts, request)
    if best is None:
        return None
    branch, threshold = best
    level, domains = request.level, np.arange(len(branch.counts.pods[request.level]))
    if request.level < request.segment_level:
        picked = _fewest(branch, level, domains, request, by_evenness=True, tree=tree)
        if picked is None:
            return None
        level += 1
        domains = _children(tree, branch, request.level, picked)
    picked = _fewest(branch, level, domains, request, by_evenness=False, tree=tree)
    if picked is None:
        return None
    chosen = _spread(branch, level, picked, request, threshold)
    return None if chosen is None else EvenChoice(_grafted(tree, counts, branch, level), chosen)


def _best_branch(
    tree: Tree, counts: DomainCounts, request: PlacementRequest
) -> tuple[SiblingDomains, int] | None:
    """The siblings with the highest threshold, and among equals those that need fewest domains."""
    best: tuple[SiblingDomains, int] | None = None
    best_threshold, fewest_used = 0, 0
    lower = request.level + 1 if request.level < request.segment_level else request.level
    for first, last in _siblings(tree, request.level):
        low, high = tree.below(request.level, (first, last), lower)
        if counts.segments[lower][low:high].sum() < request.units:
            continue
        reach = _greedy(counts, lower, np.arange(low, high), request)
        if reach is None:
            continue
        for threshold in _thresholds(counts, lower, reach, request):
            if threshold <= 0 or threshold < best_threshold:
                break
            if (
                best
                and threshold == best_threshold
                and _at_least(counts, request, first, last) >= fewest_used
            ):
                break
            branch = _pruned(tree, counts, request, first, last, threshold)
            used = _greedy(branch.counts, request.level, np.arange(last - first), request)
            if used is None:
                continue
            if threshold > best_threshold or used.used < fewest_used:
                best, best_threshold, fewest_used = (branch, threshold), threshold, used.used
            break
    return best


def _at_least(counts: DomainCounts, request: PlacementRequest, first: int, last: int) -> int:
    """A lower bound of the siblings needed, before any domain is left out."""
    reach = _greedy(counts, request.level, np.arange(first, last), request)
    return reach.used if reach else last - first + 1


def _siblings(tree: Tree, level: int) -> list[tuple[int, int]]:
    if level == 0:
        return [(0, tree.size(0))]
    first, span = tree.children[level - 1], tree.spans[level - 1]
    return list(zip(first.tolist(), (first + span).tolist(), strict=True))


def _greedy(counts: DomainCounts, level: int, domains: Ints, request: PlacementRequest) -> Greedy | None:
    """Take the largest domains until the request fits; None if it does not fit."""
    need, used, last_led = request.units, 0, NOWHERE
    affinity = counts.affinity_at(level)
    if request.leader:
        leads = counts.leads[level]
        led = counts.segments_led[level]
        domains = ranked(
            domains, led, counts.pods_led[level], Strategy.BEST_FIT, affinity,
            (~leads[domains]).astype(np.int64),
        )  # fmt: skip
        last_led = int(domains[0])
        if not leads[last_led]:
            return None
        need, used, domains = need - int(led[last_led]), 1, np.sort(domains[1:])
        if need <= 0:
            return Greedy(used, last_led)
    room = counts.segments[level]
    if affinity is None and not request.leader:
        domains = domains[
            np.argsort(-room[domains], kind="stable")
        ]  # the order of equal domains does not matter here
    else:
        domains = ranked(domains, room, counts.pods[level], Strategy.BEST_FIT, affinity)
    units = room[domains]
    stop = int(np.argmin(units > 0)) if (units <= 0).any() else len(units)
    assumed = int(np.searchsorted(np.cumsum(units[:stop]), need))
    if assumed >= stop:
        return None
    return Greedy(used + assumed + 1, last_led, int(domains[assumed]))


def _thresholds(counts: DomainCounts, level: int, reach: Greedy, request: PlacementRequest) -> list[int]:
    """The share that every used domain could get; as a fallback, one that leaves room for the leader."""
    threshold = request.units // reach.used
    if reach.last_led != NOWHERE:
        threshold = min(threshold, int(counts.segments_led[level][reach.last_led]))
    if reach.last == NOWHERE:
        return [threshold]
    threshold = min(threshold, int(counts.segments[level][reach.last]))
    if not request.leader:
        return [threshold]
    reserved = min(threshold, int(counts.segments_led[level][reach.last]))
    return [threshold, reserved] if reserved < threshold else [threshold]


def _pruned(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, first: int, last: int, threshold: int
) -> SiblingDomains:
    """The siblings without the domains, on two levels, that cannot hold the threshold."""
    level = request.level
    ranges = {level: (first, last)}
    for below in range(level + 1, tree.lowest + 1):
        ranges[below] = tree.below(below - 1, ranges[below - 1], below)
    low, high = ranges[tree.lowest]
    dead, idle = np.zeros(high - low, bool), np.zeros(high - low, bool)
    if level < tree.lowest:
        child = slice(*ranges[level + 1])
        weak = counts.segments[level + 1][child] < threshold
        unfit = counts.leads[level + 1][child] & (counts.segments_led[level + 1][child] < threshold)
        spans = np.diff(tree.first_leaves(level + 1, np.arange(*ranges[level + 1])), append=high)
        dead, idle = np.repeat(weak, spans), np.repeat(unfit, spans)
    branch = _recounted(tree, counts, request, ranges, dead, idle if request.leader else np.zeros_like(idle))
    here = branch.counts
    weak = here.segments[level] < threshold
    for figures in (here.pods, here.segments, here.pods_led, here.segments_led):
        figures[level] = np.where(weak, 0, figures[level])
    unfit = here.segments_led[level] < threshold if request.leader else np.zeros_like(weak)
    here.leads[level] = here.leads[level] & ~weak & ~unfit
    if request.leader:
        for figures in (here.pods_led, here.segments_led):
            figures[level] = np.where(unfit, 0, figures[level])
    return branch


def _recounted(
    tree: Tree,
    counts: DomainCounts,
    request: PlacementRequest,
    ranges: dict[int, tuple[int, int]],
    dead: Bools,
    idle: Bools,
) -> SiblingDomains:
    leaf = slice(*ranges[tree.lowest])
    affinity = counts.affinity_at(tree.lowest)
    figures = LeafCounts(
        np.where(dead, 0, counts.pods[-1][leaf]),
        np.where(dead | idle, 0, counts.pods_led[-1][leaf]),
        counts.leads[-1][leaf] & ~dead & ~idle,
        None if affinity is None else affinity[leaf],
    )
    local = {
        level: tree.children[level][slice(*ranges[level])] - ranges[level + 1][0]
        for level in ranges
        if level < tree.lowest
    }
    offsets = tuple(ranges[level][0] if level in ranges else 0 for level in range(len(tree.levels)))
    return SiblingDomains(request.level, offsets, count_up_branch(len(tree.levels), local, request, figures))


def _children(tree: Tree, branch: SiblingDomains, level: int, domains: Ints) -> Ints:
    """Local indices of all children of some local domains."""
    real = domains + branch.offsets[level]
    runs = [
        np.arange(start, start + span) - branch.offsets[level + 1]
        for start, span in zip(tree.children[level][real], tree.spans[level][real], strict=True)
    ]
    return np.concatenate(runs)


def _fewest(
    branch: SiblingDomains,
    level: int,
    domains: Ints,
    request: PlacementRequest,
    by_evenness: bool,
    tree: Tree,
) -> Ints | None:
    """The fewest domains that hold the request, and among such sets the one with the least spare capacity."""
    counts = branch.counts
    reach = _greedy(counts, level, np.sort(domains), request)
    if reach is None:
        return None
    domains = np.sort(domains)
    if by_evenness:
        evenness = np.array([_entropy(tree, branch, level, domain) for domain in domains.tolist()])
        rank = np.unique(-evenness, return_inverse=True)[1]
        leads = (~counts.leads[level][domains]).astype(np.int64)
        domains = domains[order(leads, -counts.segments_led[level][domains], rank.astype(np.int64))]
    domains = domains[(counts.segments[level][domains] > 0) | counts.leads[level][domains]]
    pods = counts.pods[level][domains] * (counts.segments[level][domains] > 0)
    led = np.where(counts.leads[level][domains], counts.pods_led[level][domains], NOWHERE)
    chosen = fewest(pods.tolist(), led.tolist(), request.units * request.size, reach.used, request.leader)
    return None if chosen is None else domains[chosen]


def _entropy(tree: Tree, branch: SiblingDomains, level: int, domain: int) -> float:
    """How evenly the capacity of a domain is spread over its children."""
    pods = branch.counts.pods[level + 1][_children(tree, branch, level, np.array([domain]))]
    total = int(pods.sum())
    return sum(-(p / total) * math.log2(p / total) for p in sorted(pods.tolist()) if p > 0) if total else 0.0


def _spread(
    branch: SiblingDomains, level: int, domains: Ints, request: PlacementRequest, threshold: int
) -> Chosen | None:
    """Give every domain the threshold, and the rest to the largest domains first."""
    counts, need = branch.counts, request.units
    if need < len(domains) * threshold:
        return None
    leads = counts.leads[level]
    domains = ranked(
        np.sort(domains), counts.segments_led[level], counts.pods_led[level], Strategy.BEST_FIT,
        counts.affinity_at(level), (~leads[np.sort(domains)]).astype(np.int64),
    )  # fmt: skip
    room = counts.segments[level][domains]
    if request.leader:
        room = np.concatenate((counts.segments_led[level][domains[:1]], room[1:]))
    spare = room - threshold
    left = need - len(domains) * threshold
    before = np.cumsum(spare) - spare
    extra = np.clip(left - before, 0, spare)
    if int(extra.sum()) < left:
        return None
    offset = branch.offsets[level]
    leader = int(domains[0]) + offset if request.leader else NOWHERE
    return Chosen(level, domains + offset, (threshold + extra) * request.size, leader)


def _grafted(tree: Tree, counts: DomainCounts, branch: SiblingDomains, level: int) -> DomainCounts:
    """The full counts with those of the branch below the chosen level, for the descent."""
    if level >= tree.lowest:
        return counts
    merged = DomainCounts(
        list(counts.pods), list(counts.segments), list(counts.pods_led), list(counts.segments_led),
        list(counts.leads), counts.affinity,
    )  # fmt: skip
    pairs = (
        (merged.pods, branch.counts.pods),
        (merged.segments, branch.counts.segments),
        (merged.pods_led, branch.counts.pods_led),
        (merged.segments_led, branch.counts.segments_led),
    )
    for below in range(level + 1, tree.lowest + 1):
        start = branch.offsets[below]
        for target, source in pairs:
            target[below] = target[below].copy()
            target[below][start : start + len(source[below])] = source[below]
        leads = branch.counts.leads[below]
        merged.leads[below] = merged.leads[below].copy()
        merged.leads[below][start : start + len(leads)] = leads
    return merged
