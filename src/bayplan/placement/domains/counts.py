"""Rolls capacity up the topology: how many pods and segments fit into every domain of every level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.request import PlacementRequest

FAR = np.int64(2**31 - 1)


@dataclass(slots=True, eq=False)
class DomainCounts:
    """Capacity by domain, one array per level.

    The `_led` counts leave room for the extra pods: a leader, or a last segment. `leads` says in which
    domains those fit at all. Below the segment level no segments are counted.
    """

    pods: list[Ints]
    segments: list[Ints]
    pods_led: list[Ints]
    segments_led: list[Ints]
    leads: list[Bools]
    affinity: list[Ints] | None
    leaf_free: Ints | None = None  # of the leading resource, by leaf; only for `pack_racks`

    def affinity_at(self, level: int) -> Ints | None:
        return None if self.affinity is None else self.affinity[level]


@dataclass(frozen=True, slots=True, eq=False)
class LeafCounts:
    """How many pods fit on each leaf, before the roll-up."""

    pods: Ints
    pods_led: Ints
    leads: Bools
    affinity: Ints | None = None
    free: Ints | None = None  # of the leading resource; only for `pack_racks`


def has_extra_pods(request: PlacementRequest) -> bool:
    """Whether a leader or a last, smaller segment has to fit besides the equal units."""
    return request.leader or request.remainder > 0


def count_up(tree: Tree, request: PlacementRequest, leaf: LeafCounts) -> DomainCounts:
    """Roll leaf counts up to the top level."""
    return count_up_branch(len(tree.levels), dict(enumerate(tree.children)), request, leaf)


def count_up_branch(
    depth: int, children: Mapping[int, Ints], request: PlacementRequest, leaf: LeafCounts
) -> DomainCounts:
    """Roll leaf counts up through the levels that have children given: per domain, its first child."""
    nothing: list[Ints] = [np.zeros(0, np.int64)] * depth
    counts = DomainCounts(
        list(nothing), list(nothing), list(nothing), list(nothing), [np.zeros(0, bool)] * depth,
        None if leaf.affinity is None else list(nothing), leaf.free,
    )  # fmt: skip
    counts.pods[-1], counts.pods_led[-1], counts.leads[-1] = leaf.pods, leaf.pods_led, leaf.leads
    counts.segments[-1] = counts.segments_led[-1] = np.zeros(len(leaf.pods), np.int64)
    if counts.affinity is not None and leaf.affinity is not None:
        counts.affinity[-1] = leaf.affinity
    for level in range(depth - 1, -1, -1):
        if level < depth - 1:
            if level not in children:
                break
            _gather(counts, level, children[level], request)
        if level == request.segment_level:
            _cut_into_segments(counts, level, request)
    return counts


def _gather(counts: DomainCounts, level: int, first: Ints, request: PlacementRequest) -> None:
    """Sum the children of each domain. An inner layer lets a child count only in whole multiples."""
    below = level + 1
    pods, led = counts.pods[below], counts.pods_led[below]
    step = request.inner.get(below, 1)
    if step > 1:
        pods, led = pods // step * step, led // step * step
    counts.pods[level] = np.add.reduceat(pods, first)
    if counts.affinity is not None:
        counts.affinity[level] = np.add.reduceat(counts.affinity[below], first)
    if counts.segments[below] is pods:
        counts.segments[level] = counts.pods[level]
    else:
        counts.segments[level] = np.add.reduceat(counts.segments[below], first)
    if not has_extra_pods(request):
        counts.leads[level] = np.zeros(len(first), dtype=bool)
        counts.pods_led[level], counts.segments_led[level] = counts.pods[level], counts.segments[level]
        return
    counts.leads[level] = np.logical_or.reduceat(counts.leads[below], first)
    # The extra pods go where they cost least, so a domain loses the smallest loss of its children.
    leads, any_leads = counts.leads[below], counts.leads[level]
    loss = np.minimum.reduceat(np.where(leads, pods - led, FAR), first)
    counts.pods_led[level] = np.where(any_leads, counts.pods[level] - loss, 0)
    if counts.segments[below] is pods and counts.segments_led[below] is led:
        counts.segments_led[level] = counts.pods_led[level]
        return
    fewer = counts.segments[below] - counts.segments_led[below]
    lost = np.minimum.reduceat(np.where(leads, fewer, FAR), first)
    counts.segments_led[level] = np.where(any_leads, counts.segments[level] - lost, 0)


def _cut_into_segments(counts: DomainCounts, level: int, request: PlacementRequest) -> None:
    pods = counts.pods[level]
    if request.remainder and not request.leader:
        rest = last_segment(request)
        counts.leads[level] = pods >= rest
        counts.pods_led[level] = np.where(counts.leads[level], pods - rest, pods)
    led = counts.pods_led[level]
    if request.size == 1:
        counts.segments[level], counts.segments_led[level] = pods, led
        return
    counts.segments[level] = pods // request.size
    counts.segments_led[level] = counts.segments[level] if led is pods else led // request.size


def last_segment(request: PlacementRequest) -> int:
    """Pods reserved for the last, smaller segment: whole inner multiples, so that it nests as well."""
    step = request.inner.get(request.segment_level + 1, 1)
    return -(-request.remainder // step) * step
