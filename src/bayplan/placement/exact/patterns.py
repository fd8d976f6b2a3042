"""Leaves that hold the same mixes of items are one kind: that is how an exact search avoids looking twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.exact.bounds import Grid

PATTERNS_MAX = 64  # beyond that a leaf is searched item by item
TRIES_MAX = 256  # mixes looked at to find the fullest

Pattern = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafClass:
    """Leaves of one parent, interchangeable: their fullest mixes, or none if these are too many to list."""

    parent: int
    leaves: tuple[int, ...]
    patterns: tuple[Pattern, ...]
    free: int  # pods of the largest shape on each


def leaf_classes(grid: Grid, leaves: Ints, parents: Ints) -> list[LeafClass]:
    """Sort leaves by parent and by what they can hold."""
    scale = row_scale(grid)
    needs = (grid.needs // scale).tolist()
    shapes, which = np.unique(_shapes(grid, leaves, scale), axis=1, return_inverse=True)
    patterns = [fullest(shape[: len(needs)], needs, shape[len(needs) :]) for shape in shapes.T.tolist()]
    free = grid.problem.free[grid.problem.lowest][leaves].tolist()
    found: dict[tuple[int, tuple[Pattern, ...], int, int], list[int]] = {}
    columns = (leaves.tolist(), parents.tolist(), which.tolist(), free)
    for leaf, parent, shape, room in zip(*columns, strict=True):
        unlisted = -1 if patterns[shape] else shape
        found.setdefault((parent, patterns[shape], unlisted, room), []).append(leaf)
    return [
        LeafClass(parent, tuple(alike), listed, room) for (parent, listed, _, room), alike in found.items()
    ]


def row_scale(grid: Grid) -> Ints:
    """By row: the largest amount that every need is a multiple of."""
    scale: Ints = np.maximum(np.gcd.reduce(grid.needs, axis=0), 1)
    return scale


def _shapes(grid: Grid, leaves: Ints, scale: Ints) -> Ints:
    """What tells leaves apart, one column each: how often each item fits, and the room that items can use."""
    fits = grid.fits[:, leaves]
    usable = (grid.needs // scale).T @ fits
    rooms = np.minimum(grid.problem.rooms[:, leaves] // scale[:, None], usable)
    return np.concatenate((fits, rooms))


def fullest(most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]) -> tuple[Pattern, ...]:
    """Every mix of items to which none can be added; empty if there are too many."""
    tried = list(islice(_patterns(0, most, needs, room), TRIES_MAX + 1))
    if len(tried) > TRIES_MAX:
        return ()
    full = tuple(pattern for pattern in tried if _is_full(pattern, most, needs, room))
    return full if len(full) <= PATTERNS_MAX else ()


def _patterns(
    item: int, most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]
) -> Iterator[Pattern]:
    """All mixes of the items from this one on that take as much as they can of the last."""
    need = needs[item]
    top = min(most[item], *(have // want for have, want in zip(room, need, strict=True) if want))
    if item + 1 == len(most):
        yield (top,)
        return
    for often in range(top, -1, -1):
        left = [have - often * want for have, want in zip(room, need, strict=True)]
        for rest in _patterns(item + 1, most, needs, left):
            yield (often, *rest)


def _is_full(
    pattern: Pattern, most: Sequence[int], needs: Sequence[Sequence[int]], room: Sequence[int]
) -> bool:
    left = [
        have - sum(often * need[row] for often, need in zip(pattern, needs, strict=True))
        for row, have in enumerate(room)
    ]
    return not any(
        often < top and all(have >= want for have, want in zip(left, need, strict=True))
        for often, top, need in zip(pattern, most, needs, strict=True)
    )
