"""Which of the nodes that fit is taken: the best in rank for one pod, an order of nodes for many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import PODS
from bayplan.model.unfit import Cause
from bayplan.model.wants import Shape
from bayplan.placement.fit_index import PodIndex
from bayplan.placement.fit_nodes import Ground, Land, aversions, preference
from bayplan.placement.fit_resources import balanced, emptiest, lacking
from bayplan.placement.fit_scores import WEIGHTS, rank, views
from bayplan.placement.floor import Floor
from bayplan.placement.nodes import ABSENT
from bayplan.placement.seating_counts import is_plain
from bayplan.placement.tree import Bools, Ints

BY_ROOM = ("emptiest", "balanced")
REFRESHED_MAX = 256  # with more rows changed than that, everything is looked at again


@dataclass(slots=True, eq=False)
class Worth:
    """What nodes were worth to a shape when so many steps had been taken."""

    seen: int
    fits: Bools
    may_fit: Bools  # as far as room has no say
    worth: Ints
    settled: Ints  # the part of it that room has no say in
    compares: bool  # that part depends on which other nodes fit


def choose(floor: Floor, shape: Shape, within: Bools | None) -> int:
    """The row that is best for one more pod, ties by name; ABSENT if none fits."""
    index = floor.scene.index
    calm = is_plain(shape) and shape.company is None and next(index.stances_towards(shape), None) is None
    if calm and within is None:
        known = _kept(floor, shape)
        return _first(floor, known.worth, known.fits)
    verdict = floor.judge(shape)
    fitting = verdict.fits if within is None else verdict.fits & within
    if not fitting.any():
        return ABSENT
    return _first(floor, rank(floor.scene, shape, fitting), fitting)


def _first(floor: Floor, worth: Ints, fitting: Bools) -> int:
    if not len(worth):
        return ABSENT
    order = by_name(floor.scene.ground.land)
    at = int(worth.argmax()) if order is None else int(order[worth[order].argmax()])
    return at if fitting[at] else ABSENT


def by_name(land: Land) -> Ints | None:
    """Rows in the order of their names; None if that is how they stand."""
    return land.remember("by name", lambda: _by_name(land))


def _by_name(land: Land) -> Ints | None:
    names = [node.name for node in land.table.nodes]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    return None if (order == np.arange(len(names))).all() else order


# ── remembered worth ───────────────────────────────────────────────────────────────────────────────


def _kept(floor: Floor, shape: Shape) -> Worth:
    """What is remembered of a shape, brought up to date where anything happened."""
    signature = floor.scene.index.signature(shape)
    known: Worth | None = floor.remembered.get(signature)
    if known is not None:
        news = floor.touched[known.seen :]
        known.seen = len(floor.touched)
        if not news:
            return known
        rows = np.unique(np.concatenate(news)) if len(news) > 1 or len(news[0]) > 1 else news[0]
        if len(rows) <= REFRESHED_MAX and _refresh(floor, shape, known, rows):
            return known
    known = floor.remembered[signature] = _afresh(floor, shape)
    return known


def _afresh(floor: Floor, shape: Shape) -> Worth:
    scene, verdict = floor.scene, floor.judge(shape)
    land, fits = scene.ground.land, verdict.fits
    may_fit = fits.copy()
    for (cause, _), where in verdict.refusals.items():
        if cause is Cause.LACKING:
            may_fit |= where
    settled = np.zeros(len(land), dtype=np.int64)
    for name, worth in views(scene, shape, fits).items():
        if name not in BY_ROOM:
            settled += WEIGHTS[name] * worth
    compares = bool(shape.rules.preferred) or bool(aversions(land, shape.rules.tolerations).any())
    worth = np.where(fits, settled + _by_room(scene.ground, scene.index, shape), -1)
    return Worth(len(floor.touched), fits.copy(), may_fit, worth, settled, compares)


def _by_room(ground: Ground, index: PodIndex, shape: Shape) -> Ints:
    """The part of the rank that changes as pods come and go."""
    return WEIGHTS["emptiest"] * emptiest(ground, index, shape) + WEIGHTS["balanced"] * balanced(
        ground, shape
    )


def _refresh(floor: Floor, shape: Shape, known: Worth, rows: Ints) -> bool:
    """Look at these rows again; False if the others would have to be looked at, too."""
    small = _part(floor.scene.ground, rows)
    fits = known.may_fit[rows]
    for short in lacking(small, shape).values():
        fits = fits & ~short
    if known.compares and bool((fits != known.fits[rows]).any()):
        return False
    known.fits[rows] = fits
    worth = known.settled[rows] + _by_room(small, floor.scene.index, shape)
    known.worth[rows] = np.where(fits, worth, -1)
    return True


def _part(ground: Ground, rows: Ints) -> Ground:
    """A few rows, for those who only look at room."""
    land = ground.land
    few = Land(land.table, land.slots[rows], land.known, land.cordoned[rows])
    return Ground(few, ground.resources, ground.free[:, rows], ground.allocatable[:, rows])


# ── many at once ───────────────────────────────────────────────────────────────────────────────────


def packed_order(floor: Floor, shape: Shape, rows: Ints) -> Ints:
    """These rows, those that the pod's node preferences like best first, then the fullest, then by name."""
    ground = floor.scene.ground
    land = ground.land
    fullest = _fullness(ground, shape, rows)
    liked = preference(land, shape.rules)[rows]
    disliked = aversions(land, shape.rules.tolerations)[rows]
    order = by_name(land)
    if order is not None:
        place = np.empty(len(land), dtype=np.int64)
        place[order] = np.arange(len(land))
        return rows[np.lexsort((place[rows], -fullest, -liked, disliked))]
    return rows[np.lexsort((-fullest, -liked, disliked))]


def ranked_order(floor: Floor, shape: Shape, fitting: Bools, rows: Ints) -> Ints:
    """These rows, the best in rank first, then by name."""
    worth = rank(floor.scene, shape, fitting)
    order = by_name(floor.scene.ground.land)
    if order is not None:
        rows = order[np.isin(order, rows)]
    return rows[np.argsort(-worth[rows], kind="stable")]


def _fullness(ground: Ground, shape: Shape, rows: Ints) -> NDArray[np.float64]:
    """The share that is in use of all that the pod asks for, summed over resources."""
    total = np.zeros(len(rows), dtype=np.float64)
    for resource, amount in shape.amounts:
        at = ground.resources.get(resource)
        if amount > 0 and at is not None and resource != PODS:
            room = ground.allocatable[at][rows]
            total += 1 - ground.free[at][rows] / np.maximum(room, 1)
    return total
