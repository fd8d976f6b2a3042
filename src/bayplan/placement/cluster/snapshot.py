"""A frozen snapshot of capacity under one topology, which placement reads and never writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from bayplan.model.assignment import Path
from bayplan.placement.cluster.cache import cached
from bayplan.placement.cluster.node_table import NodeTable
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree, find, find_row, part

T = TypeVar("T")
CHANGES_MAX = 256
CHANGES_KEPT = 16  # the same for a directory that is small
REMEMBERED_MAX = 4  # cached values are arrays over all nodes, so only the most recent are kept


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """An immutable map of names to paths; a change returns a new directory."""

    settled: Mapping[str, Path] = field(default_factory=dict)
    changed: Mapping[str, Path | None] = field(default_factory=dict)  # None: removed

    def get(self, name: str) -> Path | None:
        """The path of a name, or None if it is unknown."""
        return self.changed[name] if name in self.changed else self.settled.get(name)

    def with_path(self, name: str, path: Path | None) -> Directory:
        """A directory with one name moved or removed. Changes are merged once there are many of them."""
        changed = {**self.changed, name: path}
        if len(changed) < min(CHANGES_MAX, CHANGES_KEPT + len(self.settled) // 2):
            return Directory(self.settled, changed)
        merged = {**self.settled, **changed}
        return Directory({known: where for known, where in merged.items() if where is not None})


@dataclass(frozen=True, slots=True, eq=False)
class CapacitySnapshot:
    """Free amounts, resource by node row, and the nodes that may be used.

    Where a leaf has several nodes, the usage of gangs is known per leaf only: `claimed`.
    """

    tree: Tree
    table: NodeTable
    resources: Mapping[str, int]
    free: Ints
    active: Bools
    hosts: Directory  # by host label
    paths: Directory  # by node name
    largest: Mapping[str, int]  # by resource, the largest amount that any node ever had
    claimed: Ints | None = None
    gang_usage: Ints | None = None  # usage of placed gangs; axes as in `free`
    memory: dict[Hashable, Any] = field(default_factory=dict)

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of a key for this snapshot, computed if it is missing."""
        return cached(self.memory, REMEMBERED_MAX, key, compute)

    def limited(self, active: Bools) -> CapacitySnapshot:
        """The snapshot with another mask of usable nodes. Called often, so it avoids the slower `replace`."""
        return CapacitySnapshot(
            self.tree, self.table, self.resources, self.free, active, self.hosts, self.paths, self.largest,
            self.claimed, self.gang_usage,
        )  # fmt: skip

    def part(self, leaves: tuple[int, int]) -> CapacitySnapshot:
        """A snapshot of a range of leaves only, so that work on it is proportional to its size."""
        starts = self.tree.starts[self.tree.lowest]
        first, last = leaves
        rows = slice(int(starts[first]), int(starts[last]) if last < len(starts) else self.tree.rows)
        table = NodeTable(
            self.table.nodes[rows], self.table.taints[rows], self.table.taint_sets, self.table.vocabularies,
            {key: column[rows] for key, column in self.table.columns.items()},
            {rules: mask[rows] for rules, mask in self.table.masks.items()},
        )  # fmt: skip
        claimed = None if self.claimed is None else self.claimed[:, slice(*leaves)]
        held = None if self.gang_usage is None else self.gang_usage[:, rows]
        return CapacitySnapshot(
            part(self.tree, (rows.start, rows.stop)), table, self.resources, self.free[:, rows],
            self.active[rows], self.hosts, self.paths, self.largest, claimed, held,
        )  # fmt: skip

    def without_gangs(self) -> CapacitySnapshot:
        """The snapshot without the usage of any placed gang."""
        free = self.free if self.gang_usage is None else self.free + self.gang_usage
        claimed = None if self.claimed is None else np.zeros_like(self.claimed)
        return replace(self, free=free, claimed=claimed, gang_usage=None, memory={})

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
        """The row of a node, usable or not: pods on a cordoned node keep their place."""
        path = self.paths.get(name)
        if path is None:
            return None
        row = find_row(self.tree, path, name)
        return row if row < self.tree.rows and self.tree.nodes[row].name == name else None

    def leaf(self, values: Path, *, usable: bool = True) -> int | None:
        """The leaf that an assignment's values name (a single host name, or a full path).

        None if it does not exist, or if `usable` and none of its nodes may be used.
        """
        tree = self.tree
        if tree.topology.ends_at_host:
            values = self.hosts.get(values[-1]) or values
        if len(values) < len(tree.levels):
            return None  # a removed host; a larger domain may have the same name
        low, high = find(tree, values)
        if low >= high or (usable and not self.active[low:high].any()):
            return None
        return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
