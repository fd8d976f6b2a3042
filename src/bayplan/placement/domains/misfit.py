"""Explains why a pod set does not fit: which rule excluded which nodes, and the closest domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.model.assignment import Code, Exclusions, LayerFit, Misfit, NearMiss, Oversized, Path
from bayplan.model.filter_failure import FILTERED
from bayplan.model.gang import PodSet
from bayplan.model.numa import ALIGNED
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.capacity import AssumedUsage, copies, free_after_usage, with_slot
from bayplan.placement.cluster.oversize import oversized
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.counts import DomainCounts, has_extra_pods
from bayplan.placement.domains.request import PlacementRequest
from bayplan.placement.domains.select import Shortfall, best_single


@dataclass(frozen=True, slots=True, eq=False)
class PlacementQuery:
    """A request and the nodes that may serve it; enough to explain a misfit."""

    snapshot: CapacitySnapshot
    pod_set: PodSet
    pod_sets: tuple[str, ...]
    assumed: AssumedUsage
    rows: Bools  # node rows that may be used
    leaves: Bools  # leaves that may be used
    leaf_range: tuple[int, int] | None  # limit for a replacement


def no_room(
    query: PlacementQuery,
    request: PlacementRequest,
    counts: DomainCounts,
    short: Shortfall,
    leader: PodSet | None = None,
) -> Misfit:
    """The misfit for a valid request that does not fit."""
    tree = query.snapshot.tree
    usable = _usable(query, short.level)
    return Misfit(
        Code.NO_ROOM,
        query.pod_sets,
        topology=tree.topology.name,
        level=tree.levels[short.level],
        fit=short.fit if short.together else best_single(counts, short.level, request, usable),
        asked=request.units,
        unit=request.size,
        layers=_layers(query, request, counts, short, usable),
        excluded=exclusions(query),
        nearest=_nearest(query, request, counts, short, usable),
        oversized=_oversized(query, counts, leader),
    )


def _oversized(query: PlacementQuery, counts: DomainCounts, leader: PodSet | None) -> Oversized | None:
    """A pod that fits no leaf because it is larger than every node, if that is the reason."""
    candidates = [] if counts.pods[-1].any() else [query.pod_set]
    candidates += [leader] if leader is not None and not counts.leads[-1].any() else []
    if not candidates:
        return None
    rows = query.snapshot.tree.nodes[query.rows]
    known = [name for name in query.snapshot.resources if not name.startswith((ALIGNED, FILTERED))]
    for pod_set in candidates:
        asked = {name: amount for name, amount in pod_set.requests.items() if name in known}
        larger = oversized(rows, pod_set.name, asked)
        if larger is not None:
            return larger
    return None


def _usable(query: PlacementQuery, level: int) -> Bools:
    """Domains of a level with at least one usable node."""
    tree = query.snapshot.tree
    first = tree.first_leaves(level, np.arange(tree.size(level)))
    return np.logical_or.reduceat(query.snapshot.active_leaves(), first)


def exclusions(query: PlacementQuery) -> Exclusions:
    """Count every unusable leaf once, under the first rule it breaks."""
    snapshot, rules = query.snapshot, query.pod_set.rules
    usable = snapshot.active_leaves()
    selector = affinity = 0
    taints: dict[str, int] = {}
    if snapshot.tree.topology.ends_at_host:
        welcome = node_table.tolerated(snapshot.table, rules.tolerations)
        for row in np.flatnonzero(usable & ~welcome).tolist():
            repelled_by = node_table.first_repelling(snapshot.table.nodes[row].taints, rules.tolerations)
            taints[str(repelled_by)] = taints.get(str(repelled_by), 0) + 1
        chosen = node_table.matching_selector(snapshot.table, rules)
        selector = int((usable & welcome & ~chosen).sum())
        affinity = int(
            (usable & welcome & chosen & ~node_table.matching_affinity(snapshot.table, rules)).sum()
        )
    candidates = query.leaves
    outside = 0
    if query.leaf_range is not None:
        inside = np.zeros(len(candidates), dtype=bool)
        inside[slice(*query.leaf_range)] = True
        outside = int((candidates & ~inside).sum())
        candidates = candidates & inside
    return Exclusions(int(usable.sum()), selector, affinity, outside, taints, _exhausted(query, candidates))


def _exhausted(query: PlacementQuery, candidates: Bools) -> dict[str, int]:
    """Leaves that hold no pod at all, by the first resource (alphabetically) that has none left."""
    left, by_resource = candidates.copy(), {}
    for name, amount in sorted(with_slot(query.pod_set.requests).items()):
        if amount:
            empty = left & (free_after_usage(query.snapshot, query.rows, name, query.assumed) < amount)
            if empty.any():
                by_resource[name] = int(empty.sum())
                left &= ~empty
    return by_resource


def _layers(
    query: PlacementQuery, request: PlacementRequest, counts: DomainCounts, short: Shortfall, usable: Bools
) -> tuple[LayerFit, ...]:
    """With several layers of segments: how many of each fit in the domain with the most capacity."""
    if not request.layers:
        return ()
    tree, level = query.snapshot.tree, short.level
    best = int(np.argmax(np.where(usable, counts.segments[level], -1)))
    fits = []
    for name, layer_level, size in request.layers:
        first, last = tree.below(level, (best, best + 1), layer_level)
        fit = int((counts.pods[layer_level][first:last] // size).sum())
        fits.append(LayerFit(name, fit, query.pod_set.count // size))
    return tuple(fits)


def _nearest(
    query: PlacementQuery, request: PlacementRequest, counts: DomainCounts, short: Shortfall, usable: Bools
) -> NearMiss | None:
    tree, level = query.snapshot.tree, short.level
    asked = request.count + request.remainder
    path: Path = ()
    if short.together:
        first, last, name, domains = 0, query.snapshot.leaves, "", usable
    else:
        best = int(np.argmax(np.where(usable, counts.segments[level], -1)))
        first, last = tree.leaf_range(level, best)
        path, name = tree.path(level, best), tree.levels[level]
        domains = np.arange(tree.size(level)) == best
    fit, extra_fits = _pods_that_fit(counts, level, request, domains)
    missing = max(asked - fit, 0 if extra_fits else 1)
    resource = _scarcest(query, first, last)
    lacking = missing * with_slot(query.pod_set.requests).get(resource, 0)
    return NearMiss(path, name, fit, missing, resource, lacking)


def _pods_that_fit(
    counts: DomainCounts, level: int, request: PlacementRequest, domains: Bools
) -> tuple[int, bool]:
    """Pods that these domains hold, beside a leader if any; and whether the leader or last segment fits."""
    segments, led = counts.segments[level][domains], counts.segments_led[level][domains]
    leads = counts.leads[level][domains]
    plain = int(segments.sum()) * request.size
    if not has_extra_pods(request):
        return plain, True
    if not leads.any():
        return plain, False
    beside = plain - int((segments - led)[leads].min()) * request.size
    if request.leader:
        return beside, True
    return max(plain, beside + request.remainder), True


def _scarcest(query: PlacementQuery, first: int, last: int) -> str:
    """The resource that limits the pods on these leaves most."""
    totals: list[tuple[int, str]] = []
    usable = query.leaves[first:last]
    for name, amount in with_slot(query.pod_set.requests).items():
        if amount:
            here = free_after_usage(query.snapshot, query.rows, name, query.assumed)[first:last][usable]
            fit: Ints = copies(here, amount)
            totals.append((int(fit.sum()), name))
    return min(totals)[1]
