"""Which of the nodes that fit is taken: the best in rank for one pod, an order of nodes for many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeIndex, NodeSnapshot, aversions, preference
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.resource_fit import lacking, leading
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.score import WEIGHTS, other_views, other_worth, rank, room_worth, weighed
from bayplan.placement.filters.topology_spread import evenness
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.snapshot import few, minds, scored
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import is_plain

NO_ROWS = np.zeros(0, dtype=np.int64)
UNFIT = -(1 << 40)
REFRESHED_MAX = 256  # with more rows changed than that, everything is looked at again


@dataclass(slots=True, eq=False)
class NodeScores:
    """What nodes were worth to a shape when so many steps had been taken."""

    seen: int
    fits: Bools
    may_fit: Bools  # as far as room has no say
    worth: Ints
    settled: Ints  # the part of it that room has no say in
    compares: bool  # that part depends on which other nodes fit
    zoned: Ints  # the part that zones decide; nothing if they have no say


@dataclass(slots=True, eq=False)
class CapacityScores:
    """The part of the worth that room decides."""

    seen: int
    worth: Ints


def choose(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None) -> int:
    """The row that is best for one more pod, ties by name; ABSENT if none fits."""
    filter_input, node_index = overlay.scene, overlay.scene.ground.land
    if (
        allowed_nodes is None
        and is_plain(shape)
        and next(filter_input.index.stances_towards(shape), None) is None
    ):
        known = scores_of(overlay, shape)
        even = evenness(node_index, filter_input.index, shape, known.fits)
        worth = known.worth if even is None else known.worth + WEIGHTS["spread"] * even
        return _first(overlay, worth, known.fits)
    filter_result = overlay.judge(shape)
    fitting = filter_result.fits if allowed_nodes is None else filter_result.fits & allowed_nodes
    if not fitting.any():
        return ABSENT
    worth = _capacity_score(overlay, shape) + other_worth(filter_input, shape, fitting)
    return _first(overlay, np.where(fitting, worth, -1), fitting)


def _first(overlay: NodeOverlay, worth: Ints, fitting: Bools) -> int:
    if not len(worth):
        return ABSENT
    order = by_name(overlay.scene.ground.land)
    at = int(worth.argmax()) if order is None else int(order[worth[order].argmax()])
    return at if fitting[at] else ABSENT


def by_name(node_index: NodeIndex) -> Ints | None:
    """Rows in the order of their names; None if that is how they stand."""
    return node_index.remember("by name", lambda: _by_name(node_index))


def _by_name(node_index: NodeIndex) -> Ints | None:
    names = [node.name for node in node_index.table.nodes]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    return None if (order == np.arange(len(names))).all() else order


# ── remembered worth ───────────────────────────────────────────────────────────────────────────────


def scores_of(overlay: NodeOverlay, shape: PodSignature) -> NodeScores:
    """What is remembered of a shape, brought up to date where anything happened."""
    known: NodeScores | None = overlay.remembered.get(shape)
    if known is None:  # nobody looks at its labels: all that differ in nothing else share one answer
        bare = replace(shape, labels=())
        known = overlay.remembered.get(bare)
        if known is None:
            known = overlay.remembered[bare] = _score_all(overlay, shape)
        overlay.remembered[shape] = known
    rows = _changed(overlay, known.seen)
    if rows is None or (len(rows) and not _refresh(overlay, shape, known, rows)):
        _rescore(overlay, shape, known)
    known.seen = len(overlay.touched)
    return known


def _changed(overlay: NodeOverlay, seen: int) -> Ints | None:
    """The rows in which anything happened since; None if they are too many to look at each."""
    news = overlay.touched[seen:]
    if not news:
        return NO_ROWS
    rows = news[0] if len(news) == 1 and len(news[0]) <= 1 else np.unique(np.concatenate(news))
    return rows if len(rows) <= REFRESHED_MAX else None


def _score_all(overlay: NodeOverlay, shape: PodSignature) -> NodeScores:
    node_index, nowhere = overlay.scene.ground.land, NO_ROWS > 0
    compares = bool(shape.rules.preferred) or bool(aversions(node_index, shape.rules.tolerations).any())
    known = NodeScores(len(overlay.touched), nowhere, nowhere, NO_ROWS, NO_ROWS, compares, NO_ROWS)
    _rescore(overlay, shape, known)
    return known


def _rescore(overlay: NodeOverlay, shape: PodSignature, known: NodeScores) -> None:
    filter_result = overlay.judge(shape)
    known.fits, known.may_fit = filter_result.fits.copy(), filter_result.fits.copy()
    for (cause, _), where in filter_result.refusals.items():
        if cause in (FilterReason.LACKING, FilterReason.UNALIGNED):
            known.may_fit |= where
    settled = other_views(overlay.scene, shape, known.fits)
    settled.pop("spread", None)  # changes with every pod
    known.zoned = WEIGHTS["zones"] * settled.pop("zones", NO_ROWS)
    known.settled = weighed(settled, len(overlay))
    worth = known.settled + _capacity_score(overlay, shape)
    known.worth = np.where(known.fits, worth + known.zoned if len(known.zoned) else worth, UNFIT)


def _refresh(overlay: NodeOverlay, shape: PodSignature, known: NodeScores, rows: Ints) -> bool:
    """Look at these rows again; False if the others would have to be looked at, too."""
    fits = known.may_fit[rows]
    for short in lacking(part(overlay.scene.ground, rows), shape).values():
        fits = fits & ~short
    fits = _refresh_zones(overlay, shape, known, rows, fits)
    if known.compares and bool((fits != known.fits[rows]).any()):
        return False
    known.fits[rows] = fits
    worth = known.settled[rows] + _capacity_score(overlay, shape)[rows]
    known.worth[rows] = np.where(fits, worth + known.zoned[rows] if len(known.zoned) else worth, UNFIT)
    return True


def _refresh_zones(
    overlay: NodeOverlay, shape: PodSignature, known: NodeScores, rows: Ints, fits: Bools
) -> Bools:
    """Which of these rows can still align the pod; how well they do is noted."""
    zones = overlay.scene.zones
    if zones is None or shape.zones is None:
        return fits
    some = few(zones, shape.zones, rows)
    known.zoned[rows] = WEIGHTS["zones"] * scored(some, shape.zones)
    return fits if minds(zones, shape) is None else fits & aligned(some.columns, shape.zones, some.rules).good


def _capacity_score(overlay: NodeOverlay, shape: PodSignature) -> Ints:
    """The part of the rank that room decides, for every node, whether the pod fits it or not."""
    key = ("room", shape.amounts, shape.weighs)
    known: CapacityScores | None = overlay.remembered.get(key)
    filter_input = overlay.scene
    rows = None if known is None else _changed(overlay, known.seen)
    if known is None or rows is None:
        worth = room_worth(
            filter_input.ground, filter_input.index.weight_of(filter_input.ground.land.slots), shape
        )
        known = overlay.remembered[key] = CapacityScores(len(overlay.touched), worth)
    elif len(rows):
        some = part(filter_input.ground, rows)
        known.worth[rows] = room_worth(some, filter_input.index.weight_of(some.land.slots), shape)
        known.seen = len(overlay.touched)
    return known.worth


def part(node_snapshot: NodeSnapshot, rows: Ints) -> NodeSnapshot:
    """A few rows, for those who only look at room."""
    node_index = node_snapshot.land
    few = NodeIndex(node_index.table, node_index.slots[rows], node_index.known, node_index.cordoned[rows])
    return NodeSnapshot(
        few, node_snapshot.resources, node_snapshot.free[:, rows], node_snapshot.allocatable[:, rows]
    )


# ── many at once ───────────────────────────────────────────────────────────────────────────────────


def packed_order(overlay: NodeOverlay, shape: PodSignature, rows: Ints) -> Ints:
    """These rows, those that the pod's node preferences like best first, then the fullest, then by name."""
    node_snapshot = overlay.scene.ground
    node_index = node_snapshot.land
    room = _room_left(node_snapshot, shape, rows)
    liked = preference(node_index, shape.rules)[rows]
    disliked = aversions(node_index, shape.rules.tolerations)[rows]
    order = by_name(node_index)
    if order is not None:
        place = np.empty(len(node_index), dtype=np.int64)
        place[order] = np.arange(len(node_index))
        return rows[np.lexsort((place[rows], room, -liked, disliked))]
    return rows[np.lexsort((room, -liked, disliked))]


def ranked_order(overlay: NodeOverlay, shape: PodSignature, fitting: Bools, rows: Ints) -> Ints:
    """These rows, the best in rank first, then by name."""
    worth = rank(overlay.scene, shape, fitting)
    order = by_name(overlay.scene.ground.land)
    if order is not None:
        rows = order[np.isin(order, rows)]
    return rows[np.argsort(-worth[rows], kind="stable")]


def _room_left(node_snapshot: NodeSnapshot, shape: PodSignature, rows: Ints) -> Ints:
    """What is free of what counts most for the pod: what is left over on large nodes is of more use."""
    at = node_snapshot.resources.get(leading(name for name, amount in shape.amounts if amount > 0))
    return np.zeros(len(rows), np.int64) if at is None else node_snapshot.free[at][rows]
