"""The data centre as sorted rows: every domain of every level is a contiguous range of nodes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayplan.model.assignment import Path
from bayplan.model.node import Topology

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Objects = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes sorted by their full path. Immutable, and shared by every snapshot until a node moves."""

    topology: Topology
    names: Objects  # the node of each row
    values: tuple[Objects, ...]  # per level: each row's value
    opens: tuple[Bools, ...]  # per level: whether the row is the first of its domain
    starts: tuple[Ints, ...]  # per level: the first row of each domain
    children: tuple[Ints, ...]  # per level but the lowest: each domain's first child
    spans: tuple[Ints, ...]  # per level but the lowest: how many children

    @property
    def levels(self) -> tuple[str, ...]:
        return self.topology.levels

    @property
    def rows(self) -> int:
        return len(self.names)

    @property
    def lowest(self) -> int:
        """Index of the level whose domains are the leaves."""
        return len(self.topology.levels) - 1

    def size(self, level: int) -> int:
        """How many domains the level has."""
        return len(self.starts[level])

    def path(self, level: int, domain: int) -> Path:
        """A domain's values from the top level down."""
        row = int(self.starts[level][domain])
        return tuple(self.values[above][row] for above in range(level + 1))

    def row_range(self, level: int, domain: int) -> tuple[int, int]:
        """The rows of a domain."""
        starts = self.starts[level]
        stop = int(starts[domain + 1]) if domain + 1 < len(starts) else self.rows
        return int(starts[domain]), stop

    def leaf_range(self, level: int, domain: int) -> tuple[int, int]:
        """The leaves below a domain."""
        first, last = domain, domain + 1
        for step in range(level, self.lowest):
            last = int(self.children[step][last - 1] + self.spans[step][last - 1])
            first = int(self.children[step][first])
        return first, last

    def ancestors(self, level: int, domains: Ints, above: int) -> Ints:
        """For each domain of a level, the index of its ancestor at a level above."""
        return np.searchsorted(self.starts[above], self.starts[level][domains], side="right") - 1


def build(topology: Topology, paths: Sequence[Path], names: Sequence[str]) -> Tree:
    """Sort nodes by path (then name) and cut the rows into domains."""
    order = sorted(range(len(names)), key=lambda i: (paths[i], names[i]))
    columns = tuple(_objects([paths[i][level] for i in order]) for level in range(len(topology.levels)))
    return _cut(topology, _objects([names[i] for i in order]), columns)


def find(tree: Tree, path: Path) -> tuple[int, int]:
    """The rows whose path starts with this one, as a range; empty where it would stand if there are none."""
    low, high = 0, tree.rows
    for column, value in zip(tree.values, path, strict=False):
        low, high = bisect_left(column, value, low, high), bisect_right(column, value, low, high)
    return low, high


def find_row(tree: Tree, path: Path, name: str) -> int:
    """The row of a node, or where it belongs."""
    low, high = find(tree, path)
    return bisect_left(tree.names, name, low, high)


def inserted(tree: Tree, row: int, path: Path, name: str) -> Tree:
    """A tree with one more node at the row that `find_row` gave."""
    values = tuple(np.insert(column, row, value) for column, value in zip(tree.values, path, strict=True))
    opens = tuple(np.insert(column, row, True) for column in tree.opens)
    return _recut(tree.topology, np.insert(tree.names, row, name), values, opens, row)


def removed(tree: Tree, row: int) -> Tree:
    """A tree without the node of that row."""
    values = tuple(np.delete(column, row) for column in tree.values)
    opens = tuple(np.delete(column, row) for column in tree.opens)
    return _recut(tree.topology, np.delete(tree.names, row), values, opens, row)


def _objects(items: Sequence[str]) -> Objects:
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def _cut(topology: Topology, names: Objects, values: tuple[Objects, ...]) -> Tree:
    opens: list[Bools] = []
    differs = np.zeros(max(len(names) - 1, 0), dtype=bool)
    for column in values:
        differs = differs | (column[1:] != column[:-1])
        opens.append(np.concatenate((np.ones(min(len(names), 1), dtype=bool), differs)))
    if topology.ends_at_host:  # a host is a leaf of its own, even if its label is not unique
        opens[-1] = np.ones(len(names), dtype=bool)
    return _ranged(topology, names, values, tuple(opens))


def _recut(
    topology: Topology, names: Objects, values: tuple[Objects, ...], opens: tuple[Bools, ...], row: int
) -> Tree:
    """Mend the marks around one row that came or went; everything else stays as it was."""
    for near in (row, row + 1):
        if near >= len(names):
            continue
        differs = near == 0
        for level, column in enumerate(values):
            differs = differs or column[near] != column[near - 1]
            opens[level][near] = differs
        if topology.ends_at_host:
            opens[-1][near] = True
    return _ranged(topology, names, values, opens)


def _ranged(
    topology: Topology, names: Objects, values: tuple[Objects, ...], opens: tuple[Bools, ...]
) -> Tree:
    starts = tuple(np.flatnonzero(marks) for marks in opens)
    children = tuple(np.searchsorted(below, here) for here, below in pairwise(starts))
    spans = tuple(
        np.diff(first, append=len(below)) for first, below in zip(children, starts[1:], strict=False)
    )
    return Tree(topology, names, values, opens, starts, children, spans)
