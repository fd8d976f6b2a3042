"""A frozen picture of the cluster's room: what the engine reads and never writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bayplan.model.assignment import Path
from bayplan.placement.nodes import NodeTable
from bayplan.placement.tree import Bools, Ints, Tree, find


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """Free amounts per resource (first axis) and node row (second), and who may be used at all.

    Where a leaf holds several nodes, what gangs hold there is known per leaf only: `claimed`.
    """

    tree: Tree
    table: NodeTable
    resources: Mapping[str, int]
    free: Ints
    active: Bools
    hosts: Mapping[str, Path]  # host name → full path
    claimed: Ints | None = None

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

    def leaf(self, values: Path) -> int | None:
        """The leaf that an assignment's values name (a lone host name, or a full path), if it is usable."""
        tree = self.tree
        if tree.topology.ends_at_host:
            values = self.hosts.get(values[-1], values)
        low, high = find(tree, values)
        if low >= high or not self.active[low:high].any():
            return None
        return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
