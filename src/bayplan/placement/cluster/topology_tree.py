"""The data centre as sorted rows: every domain of every level is a contiguous range of nodes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayplan.model.assignment import Path
from bayplan.model.node import Node, Topology

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Objects = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes sorted by their full path. Immutable, and shared by every snapshot until a node moves."""

    topology: Topology
    nodes: Objects  # the Node of each row
    opens: tuple[Bools, ...]  # per level: whether the row is the first of its domain
    starts: tuple[Ints, ...]  # per level: the first row of each domain
    children: tuple[Ints, ...]  # per level but the lowest: each domain's first child
    spans: tuple[Ints, ...]  # per level but the lowest: how many children

    @property
    def levels(self) -> tuple[str, ...]:
        return self.topology.levels

    @property
    def rows(self) -> int:
        return len(self.nodes)

    @property
    def lowest(self) -> int:
        """Index of the level whose domains are the leaves."""
        return len(self.topology.levels) - 1

    @property
    def names(self) -> Objects:
        """The node name of each row (made on demand)."""
        return objects([node.name for node in self.nodes])

    @property
    def values(self) -> tuple[Objects, ...]:
        """Per level, each row's value (made on demand)."""
        return tuple(objects([node.labels[level] for node in self.nodes]) for level in self.levels)

    def size(self, level: int) -> int:
        """How many domains the level has."""
        return len(self.starts[level])

    def path(self, level: int, domain: int) -> Path:
        """A domain's values from the top level down."""
        labels = self.nodes[self.starts[level][domain]].labels
        return tuple(labels[above] for above in self.levels[: level + 1])

    def row_range(self, level: int, domain: int) -> tuple[int, int]:
        """The rows of a domain."""
        starts = self.starts[level]
        stop = int(starts[domain + 1]) if domain + 1 < len(starts) else self.rows
        return int(starts[domain]), stop

    def leaf_range(self, level: int, domain: int) -> tuple[int, int]:
        """The leaves below a domain."""
        return self.below(level, (domain, domain + 1), self.lowest)

    def below(self, level: int, run: tuple[int, int], target: int) -> tuple[int, int]:
        """The domains of a lower level under a run of domains."""
        first, last = run
        for step in range(level, target):
            last = int(self.children[step][last - 1] + self.spans[step][last - 1])
            first = int(self.children[step][first])
        return first, last

    def first_leaves(self, level: int, domains: Ints) -> Ints:
        """The first leaf below each domain."""
        for step in range(level, self.lowest):
            domains = self.children[step][domains]
        return domains

    def ancestors(self, level: int, domains: Ints, above: int) -> Ints:
        """For each domain of a level, the index of its ancestor at a level above."""
        return np.searchsorted(self.starts[above], self.starts[level][domains], side="right") - 1


def build(topology: Topology, nodes: Iterable[Node]) -> Tree:
    """Sort nodes by path (then name) and cut the rows into domains."""
    levels = topology.levels
    placed = [([node.labels[level] for level in levels], node.name, node) for node in nodes]
    placed.sort(key=itemgetter(0, 1))
    rows = objects([node for _, _, node in placed])
    opens: list[Bools] = []
    differs = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for number in range(len(levels)):
        column = objects([path[number] for path, _, _ in placed])
        differs = differs | (column[1:] != column[:-1])
        opens.append(np.concatenate((np.ones(min(len(rows), 1), dtype=bool), differs)))
    if topology.ends_at_host:  # a host is a leaf of its own, even if its label is not unique
        opens[-1] = np.ones(len(rows), dtype=bool)
    return _ranged(topology, rows, tuple(opens))


def find(tree: Tree, path: Path) -> tuple[int, int]:
    """The rows whose path starts with this one, as a range; empty where it would stand if there are none."""
    low, high = 0, tree.rows
    for level, value in zip(tree.levels, path, strict=False):

        def label(node: Node, level: str = level) -> str:
            return node.labels[level]

        low = bisect_left(tree.nodes, value, low, high, key=label)
        high = bisect_right(tree.nodes, value, low, high, key=label)
    return low, high


def find_row(tree: Tree, path: Path, name: str) -> int:
    """The row of a node, or where it belongs."""
    low, high = find(tree, path)
    return bisect_left(tree.nodes, name, low, high, key=lambda node: node.name)


def inserted(tree: Tree, row: int, node: Node) -> Tree:
    """A tree with one more node at the row that `find_row` gave."""
    opens = tuple(spliced(column, row, True) for column in tree.opens)
    return _mended(tree.topology, spliced(tree.nodes, row, node), opens, row)


def removed(tree: Tree, row: int) -> Tree:
    """A tree without the node of that row."""
    opens = tuple(np.delete(column, row) for column in tree.opens)
    return _mended(tree.topology, np.delete(tree.nodes, row), opens, row)


def changed(tree: Tree, row: int, node: Node) -> Tree:
    """A tree with another node in a row, at the same path."""
    nodes = tree.nodes.copy()
    nodes[row] = node
    return Tree(tree.topology, nodes, tree.opens, tree.starts, tree.children, tree.spans)


def part(tree: Tree, rows: tuple[int, int]) -> Tree:
    """A range of rows as a tree of its own."""
    opens = tuple(column[slice(*rows)].copy() for column in tree.opens)
    for column in opens:
        column[:1] = True
    return _ranged(tree.topology, tree.nodes[slice(*rows)], opens)


def objects(items: list[Any]) -> Objects:
    """An array of Python objects."""
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def spliced(column: NDArray[Any], row: int, item: object) -> NDArray[Any]:
    """A column with one more item; a good deal faster than numpy's general insert."""
    longer = np.empty(len(column) + 1, dtype=column.dtype)
    longer[:row], longer[row], longer[row + 1 :] = column[:row], item, column[row:]
    return longer


def _mended(topology: Topology, nodes: Objects, opens: tuple[Bools, ...], row: int) -> Tree:
    """Set the marks around one row that came or went; everything else stays as it was."""
    for near in (row, row + 1):
        if near >= len(nodes):
            continue
        differs = near == 0
        for level, marks in zip(topology.levels, opens, strict=True):
            differs = differs or nodes[near].labels[level] != nodes[near - 1].labels[level]
            marks[near] = differs
        if topology.ends_at_host:
            opens[-1][near] = True
    return _ranged(topology, nodes, opens)


def _ranged(topology: Topology, nodes: Objects, opens: tuple[Bools, ...]) -> Tree:
    starts = tuple(np.flatnonzero(marks) for marks in opens)
    children = tuple(np.searchsorted(below, here) for here, below in pairwise(starts))
    spans = tuple(
        np.diff(first, append=len(below)) for first, below in zip(children, starts[1:], strict=False)
    )
    return Tree(topology, nodes, opens, starts, children, spans)
