"""Classes of leaves that hold the same patterns of items, so that the search treats them alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.exact.bounds import Grid

PATTERNS_MAX = 64  # beyond that a leaf is searched item by item
TRIES_MAX = 256  # patterns enumerated to find the maximal ones

Pattern = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafClass:
    """Interchangeable leaves of one parent: their maximal patterns, or none if there are too many."""

    parent: int
    leaves: tuple[int, ...]
    patterns: tuple[Pattern, ...]
    free: int  # pods of the largest shape on each


def leaf_classes(grid: Grid, leaves: Ints, parents: Ints) -> list[LeafClass]:
    """Group leaves by parent and by what they can hold."""
    scale = row_scale(grid)
    needs = (grid.needs // scale).tolist()
    shapes, which = np.unique(_shapes(grid, leaves, scale), axis=1, return_inverse=True)
    patterns = [fullest(shape[: len(needs)], needs, shape[len(needs) :]) for shape in shapes.T.tolist()]
    free = grid.problem.free[grid.problem.lowest][leaves].tolist()
    by_class: dict[tuple[int, tuple[Pattern, ...], int, int], list[int]] = {}
    columns = (leaves.tolist(), parents.tolist(), which.tolist(), free)
    for leaf, parent, shape, room in zip(*columns, strict=True):
        unlisted = -1 if patterns[shape] else shape
        by_class.setdefault((parent, patterns[shape], unlisted, room), []).append(leaf)
    return [
        LeafClass(parent, tuple(members), listed, room)
        for (parent, listed, _, room), members in by_class.items()
    ]


def row_scale(grid: Grid) -> Ints:
    """By row: the greatest common divisor of all needs."""
    scale: Ints = np.maximum(np.gcd.reduce(grid.needs, axis=0), 1)
    return scale


def _shapes(grid: Grid, leaves: Ints, scale: Ints) -> Ints:
    """What distinguishes leaves, one column each: how many of each item fit, and the usable amounts."""
    fits = grid.fits[:, leaves]
    usable = (grid.needs // scale).T @ fits
    rooms = np.minimum(grid.problem.rooms[:, leaves] // scale[:, None], usable)
    return np.concatenate((fits, rooms))


def fullest(most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]) -> tuple[Pattern, ...]:
    """All maximal patterns of items; empty if there are too many."""
    tried = list(islice(_patterns(0, most, needs, room), TRIES_MAX + 1))
    if len(tried) > TRIES_MAX:
        return ()
    full = tuple(pattern for pattern in tried if _is_full(pattern, most, needs, room))
    return full if len(full) <= PATTERNS_MAX else ()


def _patterns(
    item: int, most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]
) -> Iterator[Pattern]:
    """All patterns of the items from this one on that take as many as possible of the last."""
    need = needs[item]
    top = min(most[item], *(have // want for have, want in zip(room, need, strict=True) if want))
    if item + 1 == len(most):
        yield (top,)
        return
    for times in range(top, -1, -1):
        left = [have - times * want for have, want in zip(room, need, strict=True)]
        for rest in _patterns(item + 1, most, needs, left):
            yield (times, *rest)


def _is_full(
    pattern: Pattern, most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]
) -> bool:
    left = [
        have - sum(times * need[row] for times, need in zip(pattern, needs, strict=True))
        for row, have in enumerate(room)
    ]
    return not any(
        times < top and all(have >= want for have, want in zip(left, need, strict=True))
        for times, top, need in zip(pattern, most, needs, strict=True)
    )
