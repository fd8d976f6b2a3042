"""A frozen picture of the cluster's room: what the engine reads and never writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from bayplan.model.assignment import Path
from bayplan.placement.cluster.cache import recall
from bayplan.placement.cluster.node_table import NodeTable
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree, find, find_row, part

T = TypeVar("T")
CHANGES_MAX = 256
REMEMBERED_MAX = 4  # answers are arrays over all nodes: kept for shapes asked again at once, not for ever


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """Names and the paths they stand for. A change makes a new directory and leaves the old one as it was."""

    settled: Mapping[str, Path] = field(default_factory=dict)
    changed: Mapping[str, Path | None] = field(default_factory=dict)  # None: gone

    def get(self, name: str) -> Path | None:
        """Where the name stands, if it is known."""
        return self.changed[name] if name in self.changed else self.settled.get(name)

    def having(self, name: str, path: Path | None) -> Directory:
        """The same with one name elsewhere, or gone. Many small changes are settled once in a while."""
        changed = {**self.changed, name: path}
        if len(changed) < CHANGES_MAX:
            return Directory(self.settled, changed)
        merged = {**self.settled, **changed}
        return Directory({known: where for known, where in merged.items() if where is not None})


@dataclass(frozen=True, slots=True, eq=False)
class CapacitySnapshot:
    """Free amounts per resource (first axis) and node row (second), and who may be used at all.

    Where a leaf holds several nodes, what gangs hold there is known per leaf only: `claimed`.
    """

    tree: Tree
    table: NodeTable
    resources: Mapping[str, int]
    free: Ints
    active: Bools
    hosts: Directory  # by host label
    paths: Directory  # by node name
    largest: Mapping[str, int]  # the most of a resource that any one node ever had
    claimed: Ints | None = None
    held: Ints | None = None  # of what is not free, the part that placed gangs hold; rows as in `free`
    memory: dict[Hashable, Any] = field(default_factory=dict)

    def remember(self, question: Hashable, work_out: Callable[[], T]) -> T:
        """The answer to a question asked before of this very picture, or a fresh one."""
        return recall(self.memory, REMEMBERED_MAX, question, work_out)

    def limited(self, active: Bools) -> CapacitySnapshot:
        """The same with other nodes out of bounds. Asked for so often that it does without `replace`."""
        return CapacitySnapshot(
            self.tree, self.table, self.resources, self.free, active, self.hosts, self.paths, self.largest,
            self.claimed, self.held,
        )  # fmt: skip

    def part(self, leaves: tuple[int, int]) -> CapacitySnapshot:
        """A range of leaves as a supply of its own: what is asked of it takes no longer than it is large."""
        starts = self.tree.starts[self.tree.lowest]
        first, last = leaves
        rows = slice(int(starts[first]), int(starts[last]) if last < len(starts) else self.tree.rows)
        table = NodeTable(
            self.table.nodes[rows], self.table.taints[rows], self.table.taint_sets, self.table.words,
            {key: column[rows] for key, column in self.table.columns.items()},
            {rules: mask[rows] for rules, mask in self.table.masks.items()},
        )  # fmt: skip
        claimed = None if self.claimed is None else self.claimed[:, slice(*leaves)]
        held = None if self.held is None else self.held[:, rows]
        return CapacitySnapshot(
            part(self.tree, (rows.start, rows.stop)), table, self.resources, self.free[:, rows],
            self.active[rows], self.hosts, self.paths, self.largest, claimed, held,
        )  # fmt: skip

    def emptied(self) -> CapacitySnapshot:
        """The same cluster without any placed gang."""
        free = self.free if self.held is None else self.free + self.held
        claimed = None if self.claimed is None else np.zeros_like(self.claimed)
        return replace(self, free=free, claimed=claimed, held=None, memory={})

    @property
    def leaves(self) -> int:
        return self.tree.size(self.tree.lowest)

    def active_leaves(self) -> Bools:
        """Leaves with at least one usable node."""
        if self.tree.topology.ends_at_host:
            return self.active
        if not self.leaves:
            return np.zeros(0, dtype=bool)
        return np.logical_or.reduceat(self.active, self.tree.starts[self.tree.lowest])

    def row(self, name: str) -> int | None:
        """The row of a node, usable or not: what runs on a cordoned node still stands there."""
        path = self.paths.get(name)
        if path is None:
            return None
        row = find_row(self.tree, path, name)
        return row if row < self.tree.rows and self.tree.nodes[row].name == name else None

    def leaf(self, values: Path, *, usable: bool = True) -> int | None:
        """The leaf that an assignment's values name (a lone host name, or a full path), if it is usable.

        If it need not be: what stands on a cordoned node still stands there.
        """
        tree = self.tree
        if tree.topology.ends_at_host:
            values = self.hosts.get(values[-1]) or values
        if len(values) < len(tree.levels):
            return None  # a host that is no more, though a larger domain may have its name
        low, high = find(tree, values)
        if low >= high or (usable and not self.active[low:high].any()):
            return None
        return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
