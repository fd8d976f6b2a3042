"""All nodes by name, as rows for filters and capacity, independent of topology labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayplan.model.node import HOSTNAME, LEVELS_MAX, Node, Topology
from bayplan.placement.cluster.counters import NodeIds
from bayplan.placement.cluster.node_index import (
    NodeIndex,
    NodeSnapshot,
    allocatable_of,
    node_index_of,
    with_added_node,
    with_changed_node,
    with_removed_node,
)
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.cluster.topology_state import TopologyState

FLAT = Topology("", (HOSTNAME,))


def cluster_of(topology: Topology, cluster: ClusterState | None = None) -> TopologyState:
    """Pods are bound to hosts, so every topology is extended down to them."""
    if topology.ends_at_host or len(topology.levels) >= LEVELS_MAX:
        return TopologyState(Topology(topology.name, topology.levels), cluster=cluster)
    levels = (*topology.levels, HOSTNAME)
    return TopologyState(Topology(topology.name, levels), hosts_by_name=True, cluster=cluster)


class NodeState:
    """The flat topology of all nodes. The node index and allocatable amounts are updated with its rows.

    Nodes are changed through this class; usage may be changed in the topology state itself.
    """

    def __init__(self, slots: NodeIds, cluster: ClusterState | None = None) -> None:
        self.cluster = TopologyState(FLAT, hosts_by_name=True, cluster=cluster)
        self.slots = slots
        slots.users.append(self.cluster.nodes.__contains__)
        self._land: NodeIndex | None = None
        self._allocatable: Ints | None = None
        self._view: tuple[CapacitySnapshot, NodeSnapshot] | None = None
        self._viewed = -1  # the version of the topology state in the view

    def view(self) -> tuple[CapacitySnapshot, NodeSnapshot]:
        """Capacity and nodes by row; the same objects until something changes."""
        self.cluster.settle()
        if self._view is None or self._viewed != self.cluster.version:
            supply = self.cluster.snapshot()
            if self._allocatable is None:
                self._allocatable = allocatable_of(self.cluster.table, self.cluster.resources)
            self._view = (
                supply,
                NodeSnapshot(self.node_index(), supply.resources, supply.free, self._allocatable),
            )
            self._viewed = self.cluster.version
        return self._view

    def node_index(self) -> NodeIndex:
        """The node index; the same object until a node changes in more than amounts."""
        self.cluster.settle()
        if self._land is None:
            self._land = node_index_of(self.cluster.table, self.slots)
        return self._land

    def load(self, nodes: Iterable[Node]) -> None:
        """Add many nodes at once."""
        self.cluster.load(nodes)
        self._land = self._allocatable = None

    def upsert(self, node: Node) -> None:
        """Add or update a node."""
        cluster, name = self.cluster, node.name
        cluster.settle()
        before, row, table = cluster.nodes.get(name), cluster.row_of(name), cluster.table
        if before == node:
            return
        layouts = cluster.layouts
        cluster.upsert(node)
        now = cluster.nodes[name]
        if before is None or cluster.layouts != layouts or cluster.path_of(before) != cluster.path_of(now):
            self._follow(name, row, layouts)
        elif self._land is not None and row is not None:
            if cluster.table is not table or before.schedulable != now.schedulable:
                self._land = with_changed_node(self._land, cluster.table, row)
            if self._allocatable is not None and before.allocatable != now.allocatable:
                self._allocatable = self._allocatable.copy()
                self._allocatable[:, row] = self._amounts(now)

    def remove(self, name: str) -> None:
        """Remove a node."""
        self.cluster.settle()
        row, layouts = self.cluster.row_of(name), self.cluster.layouts
        self.cluster.remove(name)
        self._follow(name, row, layouts)
        self.slots.drop(name)

    def _follow(self, name: str, before: int | None, layouts: int) -> None:
        """The row of a node was removed, inserted, or both."""
        node_index, cluster = self._land, self.cluster
        if node_index is None or cluster.layouts != layouts:  # all rows were rebuilt
            self._land = self._allocatable = None
            return
        if before is not None:
            node_index = with_removed_node(node_index, cluster.table, before)
            if self._allocatable is not None:
                self._allocatable = np.delete(self._allocatable, before, axis=1)
        row = cluster.row_of(name)
        if row is not None:
            node_index = with_added_node(node_index, cluster.table, row)
            if self._allocatable is not None:
                amounts = self._amounts(cluster.nodes[name])
                self._allocatable = np.insert(self._allocatable, row, amounts, axis=1)
        self._land = node_index

    def _amounts(self, node: Node) -> Ints:
        found = (node.allocatable.get(name, 0) for name in self.cluster.resources)
        return np.fromiter(found, np.int64, len(self.cluster.resources))
