"""The topology tree as sorted rows: every domain of every level is a contiguous range of nodes."""

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
        """The node name of each row (computed on demand)."""
        return objects([node.name for node in self.nodes])

    @property
    def values(self) -> tuple[Objects, ...]:
        """Per level, each row's label value (computed on demand)."""
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

    def below(self, level: int, domains: tuple[int, int], target: int) -> tuple[int, int]:
        """The domains of a lower level under a range of domains."""
        first, last = domains
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
    """Sort nodes by path, then name, and divide the rows into domains."""
    levels = topology.levels
    sorted_nodes = [([node.labels[level] for level in levels], node.name, node) for node in nodes]
    sorted_nodes.sort(key=itemgetter(0, 1))
    rows = objects([node for _, _, node in sorted_nodes])
    opens: list[Bools] = []
    differs = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for level in range(len(levels)):
        column = objects([path[level] for path, _, _ in sorted_nodes])
        differs = differs | (column[1:] != column[:-1])
        opens.append(np.concatenate((np.ones(min(len(rows), 1), dtype=bool), differs)))
    if topology.ends_at_host:  # a host is a leaf of its own, even if its label is not unique
        opens[-1] = np.ones(len(rows), dtype=bool)
    return _tree_of_starts(topology, rows, tuple(opens))


def find(tree: Tree, path: Path) -> tuple[int, int]:
    """The range of rows whose path starts with this one; an empty range at the insertion point if none do."""
    low, high = 0, tree.rows
    for level, value in zip(tree.levels, path, strict=False):

        def label(node: Node, level: str = level) -> str:
            return node.labels[level]

        low = bisect_left(tree.nodes, value, low, high, key=label)
        high = bisect_right(tree.nodes, value, low, high, key=label)
    return low, high


def find_row(tree: Tree, path: Path, name: str) -> int:
    """The row of a node, or its insertion point."""
    low, high = find(tree, path)
    return bisect_left(tree.nodes, name, low, high, key=lambda node: node.name)


def inserted(tree: Tree, row: int, node: Node) -> Tree:
    """The tree with a node added at the row that `find_row` returned."""
    opens = tuple(spliced(column, row, True) for column in tree.opens)
    return _with_starts_at(tree.topology, spliced(tree.nodes, row, node), opens, row)


def removed(tree: Tree, row: int) -> Tree:
    """The tree with the node of a row removed."""
    opens = tuple(np.delete(column, row) for column in tree.opens)
    return _with_starts_at(tree.topology, np.delete(tree.nodes, row), opens, row)


def changed(tree: Tree, row: int, node: Node) -> Tree:
    """The tree with the node of a row replaced by one of the same path."""
    nodes = tree.nodes.copy()
    nodes[row] = node
    return Tree(tree.topology, nodes, tree.opens, tree.starts, tree.children, tree.spans)


def part(tree: Tree, rows: tuple[int, int]) -> Tree:
    """A tree of a range of rows only."""
    opens = tuple(column[slice(*rows)].copy() for column in tree.opens)
    for column in opens:
        column[:1] = True
    return _tree_of_starts(tree.topology, tree.nodes[slice(*rows)], opens)


def objects(items: list[Any]) -> Objects:
    """An array of Python objects."""
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def spliced(column: NDArray[Any], row: int, item: object) -> NDArray[Any]:
    """A column with an item inserted; much faster than numpy.insert."""
    extended = np.empty(len(column) + 1, dtype=column.dtype)
    extended[:row], extended[row], extended[row + 1 :] = column[:row], item, column[row:]
    return extended


def _with_starts_at(topology: Topology, nodes: Objects, opens: tuple[Bools, ...], row: int) -> Tree:
    """Recompute the domain starts around one inserted or removed row."""
    for near in (row, row + 1):
        if near >= len(nodes):
            continue
        differs = near == 0
        for level, marks in zip(topology.levels, opens, strict=True):
            differs = differs or nodes[near].labels[level] != nodes[near - 1].labels[level]
            marks[near] = differs
        if topology.ends_at_host:
            opens[-1][near] = True
    return _tree_of_starts(topology, nodes, opens)


def _tree_of_starts(topology: Topology, nodes: Objects, opens: tuple[Bools, ...]) -> Tree:
    starts = tuple(np.flatnonzero(marks) for marks in opens)
    children = tuple(np.searchsorted(below, level_starts) for level_starts, below in pairwise(starts))
    spans = tuple(
        np.diff(first, append=len(below)) for first, below in zip(children, starts[1:], strict=False)
    )
    return Tree(topology, nodes, opens, starts, children, spans)
