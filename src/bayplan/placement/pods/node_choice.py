"""Chooses among the nodes that fit: the best score for one pod, an order of nodes for many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeIndex, NodeSnapshot, preference, soft_taint_counts
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.resource_fit import lacking, leading
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.score import (
    WEIGHTS,
    remaining_score,
    remaining_scores,
    resource_score,
    score_nodes,
    weighted_sum,
)
from bayplan.placement.filters.topology_spread import spread_score
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.snapshot import narrowed_snapshot, numa_request_of, numa_scores
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import needs_only_resources

NO_ROWS = np.zeros(0, dtype=np.int64)
UNFIT = -(1 << 40)
REFRESHED_MAX = 256  # with more changed rows than that, all nodes are scored again


@dataclass(slots=True, eq=False)
class NodeScores:
    """Cached node scores for a signature, as of `seen` overlay steps."""

    seen: int
    fits: Bools
    may_fit: Bools  # apart from resources
    scores: Ints
    fixed: Ints  # the part of the score that does not depend on free resources
    compares: bool  # that part is normalised over the nodes that fit
    numa: Ints  # the NUMA part of the score; empty if NUMA does not matter


@dataclass(slots=True, eq=False)
class CapacityScores:
    """Cached resource part of the node scores, as of `seen` overlay steps."""

    seen: int
    scores: Ints


def choose(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None) -> int:
    """The row with the best score for one more pod, ties by name; ABSENT if none fits."""
    filter_input, node_index = overlay.filter_input, overlay.filter_input.node_snapshot.node_index
    if (
        allowed_nodes is None
        and shape.devices is None
        and needs_only_resources(shape)
        and next(filter_input.index.matching_terms(shape), None) is None
    ):
        cached = scores_of(overlay, shape)
        even = spread_score(node_index, filter_input.index, shape, cached.fits)
        scores = cached.scores if even is None else cached.scores + WEIGHTS["spread"] * even
        return _best_row(overlay, scores, cached.fits)
    filter_result = overlay.run_filters(shape)
    fitting = filter_result.fits if allowed_nodes is None else filter_result.fits & allowed_nodes
    if not fitting.any():
        return ABSENT
    scores = _capacity_score(overlay, shape) + remaining_score(filter_input, shape, fitting)
    return _best_row(overlay, np.where(fitting, scores, -1), fitting)


def _best_row(overlay: NodeOverlay, scores: Ints, fitting: Bools) -> int:
    if not len(scores):
        return ABSENT
    order = by_name(overlay.filter_input.node_snapshot.node_index)
    at = int(scores.argmax()) if order is None else int(order[scores[order].argmax()])
    return at if fitting[at] else ABSENT


def by_name(node_index: NodeIndex) -> Ints | None:
    """Rows ordered by node name; None if they are in that order already."""
    return node_index.remember("by name", lambda: _by_name(node_index))


def _by_name(node_index: NodeIndex) -> Ints | None:
    names = [node.name for node in node_index.table.nodes]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    return None if (order == np.arange(len(names))).all() else order


# ── cached scores ──────────────────────────────────────────────────────────────────────────────────


def scores_of(overlay: NodeOverlay, shape: PodSignature) -> NodeScores:
    """The cached scores for a signature, refreshed on the rows that changed."""
    cached: NodeScores | None = overlay.cache.get(shape)
    if cached is None:  # no selector uses its labels: signatures that differ only in them share scores
        bare = replace(shape, labels=())
        cached = overlay.cache.get(bare)
        if cached is None:
            cached = overlay.cache[bare] = _score_all(overlay, shape)
        overlay.cache[shape] = cached
    rows = _changed(overlay, cached.seen)
    if rows is None or (len(rows) and not _refresh(overlay, shape, cached, rows)):
        _rescore(overlay, shape, cached)
    cached.seen = len(overlay.touched)
    return cached


def _changed(overlay: NodeOverlay, seen: int) -> Ints | None:
    """The rows that changed since; None if there are too many to refresh one by one."""
    changed = overlay.touched[seen:]
    if not changed:
        return NO_ROWS
    rows = changed[0] if len(changed) == 1 and len(changed[0]) <= 1 else np.unique(np.concatenate(changed))
    return rows if len(rows) <= REFRESHED_MAX else None


def _score_all(overlay: NodeOverlay, shape: PodSignature) -> NodeScores:
    node_index, nowhere = overlay.filter_input.node_snapshot.node_index, NO_ROWS > 0
    compares = bool(shape.rules.preferred) or bool(
        soft_taint_counts(node_index, shape.rules.tolerations).any()
    )
    cached = NodeScores(len(overlay.touched), nowhere, nowhere, NO_ROWS, NO_ROWS, compares, NO_ROWS)
    _rescore(overlay, shape, cached)
    return cached


def _rescore(overlay: NodeOverlay, shape: PodSignature, cached: NodeScores) -> None:
    filter_result = overlay.run_filters(shape)
    cached.fits, cached.may_fit = filter_result.fits.copy(), filter_result.fits.copy()
    for (cause, _), where in filter_result.rejections.items():
        if cause in (FilterReason.INSUFFICIENT, FilterReason.UNALIGNED, FilterReason.DEVICES):
            cached.may_fit |= where
    fixed = remaining_scores(overlay.filter_input, shape, cached.fits)
    fixed.pop("spread", None)  # changes with every pod
    cached.numa = WEIGHTS["zones"] * fixed.pop("zones", NO_ROWS)
    cached.fixed = weighted_sum(fixed, len(overlay))
    scores = cached.fixed + _capacity_score(overlay, shape)
    cached.scores = np.where(cached.fits, scores + cached.numa if len(cached.numa) else scores, UNFIT)


def _refresh(overlay: NodeOverlay, shape: PodSignature, cached: NodeScores, rows: Ints) -> bool:
    """Rescore these rows; False if the scores of the other rows would change too."""
    fits = cached.may_fit[rows]
    for short in lacking(part(overlay.filter_input.node_snapshot, rows), shape).values():
        fits = fits & ~short
    fits = _refresh_zones(overlay, shape, cached, rows, fits)
    if shape.devices is not None and overlay.devices is not None:
        node_index = overlay.filter_input.node_snapshot.node_index
        fits = fits & (overlay.devices.counts(node_index, shape.devices, 1)[rows] > 0)
    if cached.compares and bool((fits != cached.fits[rows]).any()):
        return False
    cached.fits[rows] = fits
    scores = cached.fixed[rows] + _capacity_score(overlay, shape)[rows]
    cached.scores[rows] = np.where(fits, scores + cached.numa[rows] if len(cached.numa) else scores, UNFIT)
    return True


def _refresh_zones(
    overlay: NodeOverlay, shape: PodSignature, cached: NodeScores, rows: Ints, fits: Bools
) -> Bools:
    """Which of these rows can still align the pod; their NUMA scores are updated."""
    zones = overlay.filter_input.zones
    if zones is None or shape.zones is None:
        return fits
    subset = narrowed_snapshot(zones, shape.zones, rows)
    cached.numa[rows] = WEIGHTS["zones"] * numa_scores(subset, shape.zones)
    return (
        fits
        if numa_request_of(zones, shape) is None
        else fits & aligned(subset.columns, shape.zones, subset.rules).good
    )


def _capacity_score(overlay: NodeOverlay, shape: PodSignature) -> Ints:
    """The resource part of the score of every node, whether the pod fits it or not."""
    key = ("room", shape.amounts, shape.score_requests)
    cached: CapacityScores | None = overlay.cache.get(key)
    filter_input = overlay.filter_input
    rows = None if cached is None else _changed(overlay, cached.seen)
    if cached is None or rows is None:
        scores = resource_score(
            filter_input.node_snapshot,
            filter_input.index.weight_of(filter_input.node_snapshot.node_index.slots),
            shape,
        )
        cached = overlay.cache[key] = CapacityScores(len(overlay.touched), scores)
    elif len(rows):
        subset = part(filter_input.node_snapshot, rows)
        cached.scores[rows] = resource_score(
            subset, filter_input.index.weight_of(subset.node_index.slots), shape
        )
        cached.seen = len(overlay.touched)
    return cached.scores


def part(node_snapshot: NodeSnapshot, rows: Ints) -> NodeSnapshot:
    """A subset of the rows, with resources only."""
    node_index = node_snapshot.node_index
    subset = NodeIndex(
        node_index.table, node_index.slots[rows], node_index.node_ids, node_index.cordoned[rows]
    )
    return NodeSnapshot(
        subset, node_snapshot.resources, node_snapshot.free[:, rows], node_snapshot.allocatable[:, rows]
    )


# ── node order ─────────────────────────────────────────────────────────────────────────────────────


def packed_order(overlay: NodeOverlay, shape: PodSignature, rows: Ints) -> Ints:
    """These rows by the pod's node preferences, then the fullest first, then by name."""
    node_snapshot = overlay.filter_input.node_snapshot
    room = _room_left(node_snapshot, shape, rows)
    avoided, preferred = _preferences(node_snapshot.node_index, shape)
    position = _positions(node_snapshot.node_index)
    if position is not None:
        return rows[np.lexsort((position[rows], room, -preferred[rows], avoided[rows]))]
    return rows[np.lexsort((room, -preferred[rows], avoided[rows]))]


def preferred_rows(overlay: NodeOverlay, shape: PodSignature, rows: Ints) -> Ints:
    """Those of the rows that the pod's node preferences rank first, by name."""
    node_index = overlay.filter_input.node_snapshot.node_index
    avoided, preferred = _preferences(node_index, shape)
    for key in (avoided, -preferred):
        if len(rows):
            rows = rows[key[rows] == key[rows].min()]
    position = _positions(node_index)
    return rows if position is None else rows[np.argsort(position[rows])]


def _preferences(node_index: NodeIndex, shape: PodSignature) -> tuple[Ints, Ints]:
    """By node, the soft taints that the pod does not tolerate, and the weight of its preferred affinity."""
    return soft_taint_counts(node_index, shape.rules.tolerations), preference(node_index, shape.rules)


def _positions(node_index: NodeIndex) -> Ints | None:
    """The position of each row in order of names; None if rows are in that order."""
    order = by_name(node_index)
    if order is None:
        return None
    position = np.empty(len(node_index), dtype=np.int64)
    position[order] = np.arange(len(node_index))
    return position


def ranked_order(overlay: NodeOverlay, shape: PodSignature, fitting: Bools, rows: Ints) -> Ints:
    """These rows by score, best first, then by name."""
    scores = score_nodes(overlay.filter_input, shape, fitting)
    order = by_name(overlay.filter_input.node_snapshot.node_index)
    if order is not None:
        rows = order[np.isin(order, rows)]
    return rows[np.argsort(-scores[rows], kind="stable")]


def _room_left(node_snapshot: NodeSnapshot, shape: PodSignature, rows: Ints) -> Ints:
    """The free amount of the pod's leading resource, by row: less free means a fuller node."""
    at = node_snapshot.resources.get(leading(name for name, amount in shape.amounts if amount > 0))
    return np.zeros(len(rows), np.int64) if at is None else node_snapshot.free[at][rows]
