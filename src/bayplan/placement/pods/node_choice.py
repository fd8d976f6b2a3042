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


def choose(floor: NodeOverlay, shape: PodSignature, within: Bools | None) -> int:
    """The row that is best for one more pod, ties by name; ABSENT if none fits."""
    scene, land = floor.scene, floor.scene.ground.land
    if within is None and is_plain(shape) and next(scene.index.stances_towards(shape), None) is None:
        known = kept(floor, shape)
        even = evenness(land, scene.index, shape, known.fits)
        worth = known.worth if even is None else known.worth + WEIGHTS["spread"] * even
        return _first(floor, worth, known.fits)
    verdict = floor.judge(shape)
    fitting = verdict.fits if within is None else verdict.fits & within
    if not fitting.any():
        return ABSENT
    worth = _room_worth(floor, shape) + other_worth(scene, shape, fitting)
    return _first(floor, np.where(fitting, worth, -1), fitting)


def _first(floor: NodeOverlay, worth: Ints, fitting: Bools) -> int:
    if not len(worth):
        return ABSENT
    order = by_name(floor.scene.ground.land)
    at = int(worth.argmax()) if order is None else int(order[worth[order].argmax()])
    return at if fitting[at] else ABSENT


def by_name(land: NodeIndex) -> Ints | None:
    """Rows in the order of their names; None if that is how they stand."""
    return land.remember("by name", lambda: _by_name(land))


def _by_name(land: NodeIndex) -> Ints | None:
    names = [node.name for node in land.table.nodes]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    return None if (order == np.arange(len(names))).all() else order


# ── remembered worth ───────────────────────────────────────────────────────────────────────────────


def kept(floor: NodeOverlay, shape: PodSignature) -> NodeScores:
    """What is remembered of a shape, brought up to date where anything happened."""
    known: NodeScores | None = floor.remembered.get(shape)
    if known is None:  # nobody looks at its labels: all that differ in nothing else share one answer
        bare = replace(shape, labels=())
        known = floor.remembered.get(bare)
        if known is None:
            known = floor.remembered[bare] = _afresh(floor, shape)
        floor.remembered[shape] = known
    rows = _changed(floor, known.seen)
    if rows is None or (len(rows) and not _refresh(floor, shape, known, rows)):
        _look_again(floor, shape, known)
    known.seen = len(floor.touched)
    return known


def _changed(floor: NodeOverlay, seen: int) -> Ints | None:
    """The rows in which anything happened since; None if they are too many to look at each."""
    news = floor.touched[seen:]
    if not news:
        return NO_ROWS
    rows = news[0] if len(news) == 1 and len(news[0]) <= 1 else np.unique(np.concatenate(news))
    return rows if len(rows) <= REFRESHED_MAX else None


def _afresh(floor: NodeOverlay, shape: PodSignature) -> NodeScores:
    land, nowhere = floor.scene.ground.land, NO_ROWS > 0
    compares = bool(shape.rules.preferred) or bool(aversions(land, shape.rules.tolerations).any())
    known = NodeScores(len(floor.touched), nowhere, nowhere, NO_ROWS, NO_ROWS, compares, NO_ROWS)
    _look_again(floor, shape, known)
    return known


def _look_again(floor: NodeOverlay, shape: PodSignature, known: NodeScores) -> None:
    verdict = floor.judge(shape)
    known.fits, known.may_fit = verdict.fits.copy(), verdict.fits.copy()
    for (cause, _), where in verdict.refusals.items():
        if cause in (FilterReason.LACKING, FilterReason.UNALIGNED):
            known.may_fit |= where
    settled = other_views(floor.scene, shape, known.fits)
    settled.pop("spread", None)  # changes with every pod
    known.zoned = WEIGHTS["zones"] * settled.pop("zones", NO_ROWS)
    known.settled = weighed(settled, len(floor))
    worth = known.settled + _room_worth(floor, shape)
    known.worth = np.where(known.fits, worth + known.zoned if len(known.zoned) else worth, UNFIT)


def _refresh(floor: NodeOverlay, shape: PodSignature, known: NodeScores, rows: Ints) -> bool:
    """Look at these rows again; False if the others would have to be looked at, too."""
    fits = known.may_fit[rows]
    for short in lacking(part(floor.scene.ground, rows), shape).values():
        fits = fits & ~short
    fits = _refresh_zones(floor, shape, known, rows, fits)
    if known.compares and bool((fits != known.fits[rows]).any()):
        return False
    known.fits[rows] = fits
    worth = known.settled[rows] + _room_worth(floor, shape)[rows]
    known.worth[rows] = np.where(fits, worth + known.zoned[rows] if len(known.zoned) else worth, UNFIT)
    return True


def _refresh_zones(
    floor: NodeOverlay, shape: PodSignature, known: NodeScores, rows: Ints, fits: Bools
) -> Bools:
    """Which of these rows can still align the pod; how well they do is noted."""
    zones = floor.scene.zones
    if zones is None or shape.zones is None:
        return fits
    some = few(zones, shape.zones, rows)
    known.zoned[rows] = WEIGHTS["zones"] * scored(some, shape.zones)
    return fits if minds(zones, shape) is None else fits & aligned(some.columns, shape.zones, some.rules).good


def _room_worth(floor: NodeOverlay, shape: PodSignature) -> Ints:
    """The part of the rank that room decides, for every node, whether the pod fits it or not."""
    key = ("room", shape.amounts, shape.weighs)
    known: CapacityScores | None = floor.remembered.get(key)
    scene = floor.scene
    rows = None if known is None else _changed(floor, known.seen)
    if known is None or rows is None:
        worth = room_worth(scene.ground, scene.index.weight_of(scene.ground.land.slots), shape)
        known = floor.remembered[key] = CapacityScores(len(floor.touched), worth)
    elif len(rows):
        some = part(scene.ground, rows)
        known.worth[rows] = room_worth(some, scene.index.weight_of(some.land.slots), shape)
        known.seen = len(floor.touched)
    return known.worth


def part(ground: NodeSnapshot, rows: Ints) -> NodeSnapshot:
    """A few rows, for those who only look at room."""
    land = ground.land
    few = NodeIndex(land.table, land.slots[rows], land.known, land.cordoned[rows])
    return NodeSnapshot(few, ground.resources, ground.free[:, rows], ground.allocatable[:, rows])


# ── many at once ───────────────────────────────────────────────────────────────────────────────────


def packed_order(floor: NodeOverlay, shape: PodSignature, rows: Ints) -> Ints:
    """These rows, those that the pod's node preferences like best first, then the fullest, then by name."""
    ground = floor.scene.ground
    land = ground.land
    room = _room_left(ground, shape, rows)
    liked = preference(land, shape.rules)[rows]
    disliked = aversions(land, shape.rules.tolerations)[rows]
    order = by_name(land)
    if order is not None:
        place = np.empty(len(land), dtype=np.int64)
        place[order] = np.arange(len(land))
        return rows[np.lexsort((place[rows], room, -liked, disliked))]
    return rows[np.lexsort((room, -liked, disliked))]


def ranked_order(floor: NodeOverlay, shape: PodSignature, fitting: Bools, rows: Ints) -> Ints:
    """These rows, the best in rank first, then by name."""
    worth = rank(floor.scene, shape, fitting)
    order = by_name(floor.scene.ground.land)
    if order is not None:
        rows = order[np.isin(order, rows)]
    return rows[np.argsort(-worth[rows], kind="stable")]


def _room_left(ground: NodeSnapshot, shape: PodSignature, rows: Ints) -> Ints:
    """What is free of what counts most for the pod: what is left over on large nodes is of more use."""
    at = ground.resources.get(leading(name for name, amount in shape.amounts if amount > 0))
    return np.zeros(len(rows), np.int64) if at is None else ground.free[at][rows]
