"""Bounds of an exact search: which domains may hold the gang, and the best score possible in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.exact.problem import FREE, ExactProblem, fits


@dataclass(frozen=True, slots=True)
class Item:
    """Pods that go to one leaf together: so many of each pod set."""

    pods: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Items and where they fit, with a level chosen for each locality group."""

    problem: ExactProblem
    levels: tuple[int, ...]  # by locality group
    pods: Ints  # item by pod set
    counts: Ints  # by item
    needs: Ints  # item by row
    fits: Ints  # item by leaf, no more than the item's count
    usable: Bools  # leaves that hold at least one item
    held: tuple[Ints, ...]  # by level: item by domain
    rooms: tuple[Ints, ...]  # by level: row by domain, over usable leaves
    open: tuple[Bools, ...]  # by level: domains with a usable leaf


def build_grid(problem: ExactProblem, levels: tuple[int, ...]) -> Grid:
    """Build the items for these levels, and roll their counts up the tree."""
    items = tuple(_items(problem, levels))
    pods = np.array([item.pods for item in items], np.int64).reshape(len(items), len(problem.names))
    counts = np.array([item.count for item in items], np.int64)
    needs = pods @ problem.needs
    fits_by_leaf = np.zeros((len(items), problem.allowed.shape[1]), np.int64)
    for row, item in enumerate(items):
        allowed: Bools = np.logical_and.reduce(problem.allowed[np.flatnonzero(item.pods)], axis=0)
        fits_by_leaf[row] = np.minimum(fits(needs[row], problem.rooms, allowed), item.count)
    usable: Bools = np.logical_or.reduce(fits_by_leaf > 0, axis=0)
    rooms = np.where(usable, problem.rooms, 0)
    return Grid(
        problem, levels, pods, counts, needs, fits_by_leaf, usable,
        tuple(np.add.reduceat(fits_by_leaf, first, axis=1) for first in problem.firsts),
        tuple(np.add.reduceat(rooms, first, axis=1) for first in problem.firsts),
        tuple(np.logical_or.reduceat(usable, first) for first in problem.firsts),
    )  # fmt: skip


def _items(problem: ExactProblem, levels: tuple[int, ...]) -> Iterator[Item]:
    """Single pods; segments of the lowest level; and locality groups that one leaf has to hold."""
    counts = problem.counts.tolist()
    merged_groups: list[set[int]] = []
    for group, level in zip(problem.groups, levels, strict=True):
        if level == problem.lowest:
            joined = set(group.pod_sets).union(
                *(merged_group for merged_group in merged_groups if merged_group & set(group.pod_sets))
            )
            merged_groups = [merged_group for merged_group in merged_groups if not merged_group & joined] + [
                joined
            ]
    for merged_group in merged_groups:
        if any(counts[position] for position in merged_group):
            yield Item(
                tuple(count if position in merged_group else 0 for position, count in enumerate(counts)), 1
            )
    for position, count in enumerate(counts):
        if any(position in merged_group for merged_group in merged_groups):
            continue
        size = next((layer.size for layer in problem.layers[position] if layer.level == problem.lowest), 1)
        for together, times in ((size, count // size), (count % size, 1)):
            if together and times:
                yield Item(tuple(together if p == position else 0 for p in range(len(counts))), times)


def top_level(grid: Grid) -> int:
    """The level at which one domain has to hold the whole gang; FREE if there is none."""
    whole_gang = set(np.flatnonzero(grid.problem.counts).tolist())
    bound = zip(grid.problem.groups, grid.levels, strict=True)
    return max((level for group, level in bound if whole_gang <= set(group.pod_sets)), default=FREE)


def candidates(grid: Grid, level: int) -> list[tuple[tuple[int, ...], int]]:
    """Domains of a level that may hold the whole gang, the most promising first, each with its best score."""
    able = np.flatnonzero(_able(grid, level)).tolist()
    return sorted((bound(grid, level, domain), domain) for domain in able)


def single_leaf(grid: Grid) -> int | None:
    """The tightest leaf that holds the whole gang, in the tightest domains."""
    leaves = np.flatnonzero(_able(grid, grid.problem.lowest))
    if not len(leaves):
        return None
    room = np.zeros(len(leaves), np.int64)
    for free, first in zip(grid.problem.free, grid.problem.firsts, strict=True):
        room += free[np.searchsorted(first, leaves, side="right") - 1]
    return int(leaves[np.argmin(room)])


def span(grid: Grid, level: int, domain: int, below: int) -> tuple[int, int]:
    """The domains of a lower level inside a domain (all of them if the level is FREE)."""
    firsts = grid.problem.firsts
    if level == FREE:
        return 0, len(firsts[below])
    low, high = grid.problem.scope.snapshot.tree.leaf_range(level, domain)
    return int(np.searchsorted(firsts[below], low)), int(np.searchsorted(firsts[below], high))


def bound(grid: Grid, level: int, domain: int) -> tuple[int, ...]:
    """A lower bound of the score of any placement in this domain."""
    problem = grid.problem
    least, room = [1] * (level + 1), room_around(grid, level, domain)
    for below in range(level + 1, problem.lowest + 1):
        part = slice(*span(grid, level, domain, below))
        fewest = max(
            *map(_fewest, grid.held[below][:, part], grid.counts),
            *map(_fewest, grid.rooms[below][:, part], grid.counts @ grid.needs),
            least[-1] if least else 1,
        )
        free = np.sort(problem.free[below][part][grid.open[below][part]])
        room += max(int(free[:fewest].sum()), int(problem.counts[problem.largest]))
        least.append(fewest)
    return (*least, room)


def room_around(grid: Grid, level: int, domain: int) -> int:
    """The free capacity of a domain and of its ancestors, summed over the levels."""
    total = 0
    for above in range(level + 1):
        firsts = grid.problem.firsts
        ancestor = int(np.searchsorted(firsts[above], firsts[level][domain], side="right")) - 1
        total += int(grid.problem.free[above][ancestor])
    return total


def _fewest(room: Ints, need: int) -> int:
    """How many of the largest are needed to reach the need; one more than all if they do not."""
    return int(np.searchsorted(np.cumsum(np.sort(room)[::-1]), need)) + 1 if need else 0


def _able(grid: Grid, level: int) -> Bools:
    """By domain: whether every item fits alone, all by sum, and locality groups and segments may fit."""
    problem, counted = grid.problem, max(level, 0)
    alone = _rolled(grid, grid.held[counted], counted, level) >= grid.counts[:, None]
    total = (grid.counts @ grid.needs)[:, None]
    together = _rolled(grid, grid.rooms[counted], counted, level) >= total
    able: Bools = np.logical_and.reduce(np.concatenate((alone, together)), axis=0)
    for group, bound_to in zip(problem.groups, grid.levels, strict=True):
        if bound_to > level:
            of_group = grid.pods[:, list(group.pod_sets)].any(axis=1)
            holds_group = np.logical_and.reduce(
                grid.held[bound_to][of_group] >= grid.counts[of_group, None], axis=0
            )
            able &= _rolled(grid, holds_group[None].astype(np.int64), bound_to, level)[0] > 0
    for position, layers in enumerate(problem.layers):
        for layer in layers:
            if level < layer.level:
                segments = grid.pods[:, position] @ grid.held[layer.level] // layer.size
                wanted = int(problem.counts[position]) // layer.size
                able &= _rolled(grid, segments[None], layer.level, level)[0] >= wanted
    return able


def _rolled(grid: Grid, values: Ints, below: int, level: int) -> Ints:
    """Sum values of a lower (or the same) level over the domains of a level."""
    firsts = grid.problem.firsts
    starts = np.zeros(1, np.int64) if level == FREE else np.searchsorted(firsts[below], firsts[level])
    sums: Ints = np.add.reduceat(values, starts, axis=1)
    return sums
