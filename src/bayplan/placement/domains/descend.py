"""Distributes the pods of the chosen domains down to the leaves, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.placement.cluster.topology_tree import Ints, Tree
from bayplan.placement.domains.counts import DomainCounts, has_extra_pods
from bayplan.placement.domains.fill import NOWHERE, Shared, fill, fill_led, ranked
from bayplan.placement.domains.request import PlacementRequest
from bayplan.placement.domains.select import Chosen, chosen, is_tight


def descend(tree: Tree, counts: DomainCounts, request: PlacementRequest, top: Chosen) -> Chosen:
    """Split each domain's pods over its children until the leaves are reached.

    Above the segment level all children of the chosen domains are one pool, so that as few as possible are
    used; from there on the pods of a parent stay in that parent.
    """
    here = _with_last_segment(top, request)
    while here.level < tree.lowest:
        if here.level < request.segment_level:
            here = _into_pool(tree, counts, request, here)
        else:
            here = _into_each(tree, counts, request, here, _units_below(counts, request, here.level))
        here = _with_last_segment(here, request)
    return here


def descend_apart(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, top: Chosen, by_segments: bool
) -> Chosen | None:
    """As `descend`, but the pods of a parent stay in it on all levels; None if one cannot hold its pods.

    Above the segment level a child holds the segments counted in it (`by_segments`), or as many as its pod
    count would make, which is more where the capacity is scattered over several domains below.
    """
    here = top
    while here.level < tree.lowest:
        units = _units_below(counts, request, here.level, by_segments)
        if not _suffices(tree, counts, request, here, units):
            return None
        here = _into_each(tree, counts, request, here, units)
    return here


def children_of(tree: Tree, level: int, domains: Ints) -> tuple[Ints, Ints]:
    """All children of some domains, parent by parent, and the position of the parent of each."""
    spans = tree.spans[level][domains]
    owner = np.repeat(np.arange(len(domains)), spans)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(spans) - spans, spans)
    return tree.children[level][domains][owner] + offset, owner


def _with_last_segment(here: Chosen, request: PlacementRequest) -> Chosen:
    """At the segment level, add the last, smaller segment to the domain that was reserved for it."""
    if here.level != request.segment_level or request.leader or here.leader == NOWHERE:
        return here
    pods = here.pods + np.where(here.domains == here.leader, request.remainder, 0)
    return Chosen(here.level, here.domains, pods, last=here.leader)


def _into_pool(tree: Tree, counts: DomainCounts, request: PlacementRequest, here: Chosen) -> Chosen:
    below = here.level + 1
    domains, _ = children_of(tree, here.level, np.sort(here.domains))
    units, affinity = counts.segments[below], counts.affinity_at(below)
    if not has_extra_pods(request):
        domains = domains[units[domains] > 0]
    domains = ranked(domains, units, counts.pods[below], request.strategy, affinity)
    tight = is_tight(request.strategy)
    if has_extra_pods(request):
        led, leads = counts.segments_led[below], counts.leads[below]
        shared = fill_led(domains, units, led, leads, request.units, tight, affinity)
    elif len(domains):
        alone = np.zeros(len(domains), np.int64)
        shared = fill(domains, alone, units, np.array([request.units]), tight, affinity)
    else:
        shared = Shared(domains, domains)
    return chosen(below, shared, request.size)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The unit that children of one level are filled with: its pods, and the units that each domain holds."""

    size: int
    room: Ints
    room_led: Ints  # beside the leader


def _units_below(
    counts: DomainCounts, request: PlacementRequest, level: int, by_segments: bool = False
) -> Units:
    below = level + 1
    if level < request.segment_level and by_segments:
        return Units(request.size, counts.segments[below], counts.segments_led[below])
    size = request.size if level < request.segment_level else request.inner.get(below, 1)
    pods, led = counts.pods[below], counts.pods_led[below]
    return Units(size, pods // size, led // size) if size > 1 else Units(size, pods, led)


def _suffices(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, here: Chosen, units: Units
) -> bool:
    """Whether the children of every domain hold its share in whole units."""
    domains, owner = children_of(tree, here.level, here.domains)
    room = np.bincount(owner, units.room[domains], len(here.domains)).astype(np.int64)
    need = -(-here.pods // units.size)
    led = here.domains == here.leader
    if (room < need)[~led].any():
        return False
    if not led.any():
        return True
    domains, _ = children_of(tree, here.level, np.array([here.leader]))
    left = room[led] - (units.room - units.room_led)[domains]
    return bool((counts.leads[here.level + 1][domains] & (left >= need[led])).any())


def _into_each(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, here: Chosen, units: Units
) -> Chosen:
    below = here.level + 1
    parts: list[Chosen] = []
    led = here.domains == here.leader
    plain = Chosen(here.level, here.domains[~led], here.pods[~led])
    if len(plain.domains):
        parts.append(_each_plain(tree, counts, request, plain, units))
    if led.any():
        parts.append(_one_led(tree, counts, request, here, units))
    return Chosen(
        below,
        np.concatenate([part.domains for part in parts] or [np.zeros(0, np.int64)]),
        np.concatenate([part.pods for part in parts] or [np.zeros(0, np.int64)]),
        next((part.leader for part in parts if part.leader != NOWHERE), NOWHERE),
        here.last,
    )


def _each_plain(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, here: Chosen, units: Units
) -> Chosen:
    below, affinity = here.level + 1, counts.affinity_at(here.level + 1)
    here = Chosen(here.level, here.domains[here.pods > 0], here.pods[here.pods > 0])
    if not len(here.domains):
        return Chosen(below, here.domains, here.pods)
    domains, owner = children_of(tree, here.level, here.domains)
    room = _room_key(counts, request, here.level, units.room)
    domains = ranked(domains, room, counts.pods[below], request.strategy, affinity, owner)
    need = -(-here.pods // units.size)
    shared = fill(domains, owner, units.room, need, is_tight(request.strategy), affinity)
    pods = shared.units * units.size
    excess = need * units.size - here.pods
    if excess.any():
        pods = _trimmed(tree, shared.domains, pods, here, excess)
    return Chosen(below, shared.domains, pods)


def _room_key(counts: DomainCounts, request: PlacementRequest, level: int, units: Ints) -> Ints:
    """The sort key of the children: whole segments above the segment level, units below it."""
    return units if request.packs and level >= request.segment_level else counts.segments[level + 1]


def _trimmed(tree: Tree, domains: Ints, pods: Ints, here: Chosen, excess: Ints) -> Ints:
    """Trim the last child of a parent whose last segment is not a whole multiple of the unit."""
    parents = tree.ancestors(here.level + 1, domains, here.level)
    trimmed = pods.copy()
    for parent, over in zip(here.domains[excess > 0].tolist(), excess[excess > 0].tolist(), strict=True):
        mine = np.flatnonzero(parents == parent)
        trimmed[mine[np.argmax(domains[mine])]] -= over
    return trimmed


def _one_led(
    tree: Tree, counts: DomainCounts, request: PlacementRequest, here: Chosen, units: Units
) -> Chosen:
    """Fill the parent with the leader: the leader first, then its share of the workers."""
    below, affinity = here.level + 1, counts.affinity_at(here.level + 1)
    domains, _ = children_of(tree, here.level, np.array([here.leader]))
    room = _room_key(counts, request, here.level, units.room)
    domains = ranked(domains, room, counts.pods[below], request.strategy, affinity)
    need = int(here.pods[here.domains == here.leader][0]) // units.size
    tight = is_tight(request.strategy)
    shared = fill_led(domains, units.room, units.room_led, counts.leads[below], need, tight, affinity)
    return chosen(below, shared, units.size)
