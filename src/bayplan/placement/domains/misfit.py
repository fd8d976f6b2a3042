"""The facts of a refusal: what was excluded by which rule, and which domain came closest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.model.assignment import Code, Exclusions, LayerFit, Misfit, NearMiss, Oversized, Path
from bayplan.model.gang import PodSet
from bayplan.model.numa import ALIGNED
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.capacity import AssumedUsage, copies, room_beside, with_slot
from bayplan.placement.cluster.oversize import oversized
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.counts import DomainCounts, has_odd_one
from bayplan.placement.domains.request import PlacementRequest
from bayplan.placement.domains.select import Shortfall, best_single


@dataclass(frozen=True, slots=True, eq=False)
class PlacementQuery:
    """What was asked of which nodes; enough to explain a refusal."""

    supply: CapacitySnapshot
    pod_set: PodSet
    pod_sets: tuple[str, ...]
    taken: AssumedUsage
    rows: Bools  # node rows that count
    leaves: Bools  # leaves that count
    within: tuple[int, int] | None  # leaves that a replacement may use


def no_room(
    inquiry: PlacementQuery,
    request: PlacementRequest,
    counts: DomainCounts,
    short: Shortfall,
    leader: PodSet | None = None,
) -> Misfit:
    """The misfit for a request that was understood but found no place."""
    tree = inquiry.supply.tree
    usable = _usable(inquiry, short.level)
    return Misfit(
        Code.NO_ROOM,
        inquiry.pod_sets,
        topology=tree.topology.name,
        level=tree.levels[short.level],
        fit=short.fit if short.together else best_single(counts, short.level, request, usable),
        asked=request.units,
        unit=request.size,
        layers=_layers(inquiry, request, counts, short, usable),
        excluded=exclusions(inquiry),
        nearest=_nearest(inquiry, request, counts, short, usable),
        oversized=_oversized(inquiry, counts, leader),
    )


def _oversized(inquiry: PlacementQuery, counts: DomainCounts, leader: PodSet | None) -> Oversized | None:
    """A pod that no leaf holds may be larger than any of the nodes."""
    rows = inquiry.supply.tree.nodes[inquiry.rows]
    known = [name for name in inquiry.supply.resources if not name.startswith(ALIGNED)]
    candidates = [] if counts.pods[-1].any() else [inquiry.pod_set]
    candidates += [leader] if leader is not None and not counts.leads[-1].any() else []
    for pod_set in candidates:
        asked = {name: amount for name, amount in pod_set.requests.items() if name in known}
        found = oversized(rows, pod_set.name, asked)
        if found is not None:
            return found
    return None


def _usable(inquiry: PlacementQuery, level: int) -> Bools:
    """Domains of a level with at least one node that counts at all."""
    tree = inquiry.supply.tree
    first = tree.first_leaves(level, np.arange(tree.size(level)))
    return np.logical_or.reduceat(inquiry.supply.active_leaves(), first)


def exclusions(inquiry: PlacementQuery) -> Exclusions:
    """Count every unusable leaf once, under the first rule it breaks."""
    supply, rules = inquiry.supply, inquiry.pod_set.rules
    usable = supply.active_leaves()
    selector = affinity = 0
    taints: dict[str, int] = {}
    if supply.tree.topology.ends_at_host:
        welcome = node_table.tolerated(supply.table, rules.tolerations)
        for row in np.flatnonzero(usable & ~welcome).tolist():
            repelled_by = node_table.first_repelling(supply.table.nodes[row].taints, rules.tolerations)
            taints[str(repelled_by)] = taints.get(str(repelled_by), 0) + 1
        chosen = node_table.selected(supply.table, rules)
        selector = int((usable & welcome & ~chosen).sum())
        affinity = int((usable & welcome & chosen & ~node_table.attracted(supply.table, rules)).sum())
    candidates = inquiry.leaves
    outside = 0
    if inquiry.within is not None:
        inside = np.zeros(len(candidates), dtype=bool)
        inside[slice(*inquiry.within)] = True
        outside = int((candidates & ~inside).sum())
        candidates = candidates & inside
    return Exclusions(int(usable.sum()), selector, affinity, outside, taints, _exhausted(inquiry, candidates))


def _exhausted(inquiry: PlacementQuery, candidates: Bools) -> dict[str, int]:
    """Leaves that hold no pod at all, by the first resource (alphabetically) that has none left."""
    left, found = candidates.copy(), {}
    for name, amount in sorted(with_slot(inquiry.pod_set.requests).items()):
        if amount:
            empty = left & (room_beside(inquiry.supply, inquiry.rows, name, inquiry.taken) < amount)
            if empty.any():
                found[name] = int(empty.sum())
                left &= ~empty
    return found


def _layers(
    inquiry: PlacementQuery, request: PlacementRequest, counts: DomainCounts, short: Shortfall, usable: Bools
) -> tuple[LayerFit, ...]:
    """With several layers of segments: how many of each fit in the domain that has most room."""
    if not request.layers:
        return ()
    tree, level = inquiry.supply.tree, short.level
    best = int(np.argmax(np.where(usable, counts.segments[level], -1)))
    found = []
    for name, layer_level, size in request.layers:
        first, last = tree.below(level, (best, best + 1), layer_level)
        fit = int((counts.pods[layer_level][first:last] // size).sum())
        found.append(LayerFit(name, fit, inquiry.pod_set.count // size))
    return tuple(found)


def _nearest(
    inquiry: PlacementQuery, request: PlacementRequest, counts: DomainCounts, short: Shortfall, usable: Bools
) -> NearMiss | None:
    tree, level = inquiry.supply.tree, short.level
    asked = request.count + request.remainder
    path: Path = ()
    if short.together:
        first, last, name, domains = 0, inquiry.supply.leaves, "", usable
    else:
        best = int(np.argmax(np.where(usable, counts.segments[level], -1)))
        first, last = tree.leaf_range(level, best)
        path, name = tree.path(level, best), tree.levels[level]
        domains = np.arange(tree.size(level)) == best
    fit, odd_one_fits = _pods_that_fit(counts, level, request, domains)
    missing = max(asked - fit, 0 if odd_one_fits else 1)
    resource = _scarcest(inquiry, first, last)
    lacking = missing * with_slot(inquiry.pod_set.requests).get(resource, 0)
    return NearMiss(path, name, fit, missing, resource, lacking)


def _pods_that_fit(
    counts: DomainCounts, level: int, request: PlacementRequest, domains: Bools
) -> tuple[int, bool]:
    """Pods that these domains hold, beside a leader if there is one; and whether the odd one fits as well."""
    segments, led = counts.segments[level][domains], counts.segments_led[level][domains]
    leads = counts.leads[level][domains]
    plain = int(segments.sum()) * request.size
    if not has_odd_one(request):
        return plain, True
    if not leads.any():
        return plain, False
    beside = plain - int((segments - led)[leads].min()) * request.size
    if request.leader:
        return beside, True
    return max(plain, beside + request.remainder), True


def _scarcest(inquiry: PlacementQuery, first: int, last: int) -> str:
    """The resource that holds the fewest pods over these leaves."""
    totals: list[tuple[int, str]] = []
    usable = inquiry.leaves[first:last]
    for name, amount in with_slot(inquiry.pod_set.requests).items():
        if amount:
            here = room_beside(inquiry.supply, inquiry.rows, name, inquiry.taken)[first:last][usable]
            most: Ints = copies(here, amount)
            totals.append((int(most.sum()), name))
    return min(totals)[1]
