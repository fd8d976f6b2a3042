"""The cluster in one topology: nodes as rows, their free capacity, and frozen snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Path
from bayplan.model.node import HOSTNAME, ROOM_MAX, Node, Topology
from bayplan.placement.cluster import node_table as columns
from bayplan.placement.cluster import topology_tree as trees
from bayplan.placement.cluster.node_index import allocatable_of
from bayplan.placement.cluster.snapshot import CapacitySnapshot, Directory
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.state.cluster.shared_state import ClusterState

NOTHING: Mapping[str, int] = {}
CLAIMED_MAX = 2**60
"""Upper bound of gang usage in a leaf of several nodes; more than all of them have."""


class Hostless(dict[str, str]):
    """Labels of a node without a host label: its name is its host, but no selector sees that label."""

    __slots__ = ("name",)

    def __init__(self, labels: Mapping[str, str], name: str) -> None:
        super().__init__(labels)
        self.name = name

    def __missing__(self, key: str) -> str:
        if key == HOSTNAME:
            return self.name
        raise KeyError(key)


class TopologyState:
    """Applies node and usage changes to arrays. A snapshot shares them; the next change copies them first.

    Nodes added in bulk become rows when the arrays are first read: until then, usage is only summed up.
    `hosts_by_name`: a node without a host label is a host under its own name.
    """

    def __init__(
        self,
        topology: Topology,
        labels: Mapping[str, str] | None = None,
        *,
        hosts_by_name: bool = False,
        cluster: ClusterState | None = None,
    ) -> None:
        self.topology, self.hosts_by_name = topology, hosts_by_name
        self.cluster = cluster or ClusterState()
        self.cluster.join(self)
        self.labels = dict(labels or {})
        self.nodes: dict[str, Node] = {}
        # by node name: all usage but that of placed gangs; values are shared and never changed in place
        self.used: dict[str, Mapping[str, int]] = {}
        self.held: dict[Path, dict[str, int]] = {}  # by host name or leaf path: usage of placed gangs
        self.hosts = Directory()
        self.paths = Directory()
        self.resources: dict[str, int] = {}
        self.largest: dict[str, int] = {}
        self._tree = trees.build(topology, ())
        self._table = columns.table_of(np.zeros(0, dtype=object))
        self._free: Ints = np.zeros((0, 0), np.int64)
        self._claimed: Ints | None = None
        self._held: Ints | None = None  # allocated when the first gang is placed on hosts
        self._usable: Bools = np.zeros(0, dtype=bool)
        self._shared = False
        self._rows: tuple[trees.Tree, dict[str, int | None]] = self._tree, {}
        self.version = 0  # grows when any row or amount changes
        self.layouts = 0  # grows when all rows are rebuilt
        self._stale = False  # the arrays lack nodes that were added

    @property
    def table(self) -> columns.NodeTable:
        """The nodes by row."""
        self.settle()
        return self._table

    def load(self, nodes: Iterable[Node]) -> None:
        """Add many nodes at once."""
        self.nodes.update((node.name, node) for node in map(self._with_host, nodes))
        self.version, self._stale = self.version + 1, True

    def settle(self) -> None:
        """Build the rows of added nodes."""
        if self._stale:
            self._rebuild()

    def snapshot(self, labels: Mapping[str, str] | None = None) -> CapacitySnapshot:
        """A frozen snapshot, limited to the nodes with these labels."""
        self.settle()
        wanted = self.labels if labels is None else labels
        active = self._usable & columns.labelled(self._table, wanted) if wanted else self._usable
        self._shared = True
        return CapacitySnapshot(
            self._tree,
            self._table,
            dict(self.resources),
            self._free,
            active,
            self.hosts,
            self.paths,
            self.largest,
            self._claimed,
            self._held,
        )

    def upsert(self, node: Node) -> None:
        """Add or update a node."""
        before = self.nodes.get(node.name)
        if before == node:
            return
        node, self.version = self._with_host(node), self.version + 1
        if self._stale:
            self.nodes[node.name] = node
            return
        old, new = self.path_of(before), self.path_of(node)
        self.nodes[node.name] = node
        self._note_largest(node)
        if old is None and new is None:
            return
        if old != new or self._unknown(node.allocatable):
            self._move(node.name, old, new)
            return
        assert new is not None
        row = trees.find_row(self._tree, new, node.name)
        self._unshare()
        if before is None or before.labels != node.labels or before.taints != node.taints:
            self._tree = trees.changed(self._tree, row, node)
            self._table = columns.changed(self._table, self._tree.nodes, row)
        else:  # only amounts or readiness changed, which no reader takes from this array
            self._tree.nodes[row] = node
        self._usable[row] = node.ready and node.schedulable
        self._free[:, row] = self._free_of(node)
        if self._held is not None:
            self._held[:, row] = self._held_on(node)

    def remove(self, name: str) -> None:
        """Remove a node. Its usage is kept in case the node comes back."""
        node = self.nodes.pop(name, None)
        if node is not None and not self._stale:
            self._move(name, self.path_of(node), None)

    def use_node(self, name: str, amounts: Mapping[str, int], sign: int = 1) -> None:
        """Pods outside of placed gangs use capacity of a node (sign -1: free it)."""
        total = _sum(self.used.get(name, NOTHING), amounts, sign)
        if total:
            self.used[name] = self.cluster.shared(name, total)
        else:
            self.used.pop(name, None)
        row = None if self._stale else self.row_of(name)
        if row is not None:
            self._update_free(row, amounts)

    def use_domain(self, values: Path, amounts: Mapping[str, int], sign: int = 1) -> None:
        """A placed gang uses capacity of a leaf (sign -1: frees it)."""
        key = values[-1:] if self.topology.ends_at_host else values
        if total := _sum(self.held.get(key, NOTHING), amounts, sign):
            self.held[key] = total
        else:
            self.held.pop(key, None)
        if self._stale:
            return
        if self.topology.ends_at_host:
            if (row := columns.host_row(self._table, key[-1])) is not None:
                self._update_free(row, amounts, held=True)
            return
        low, high = trees.find(self._tree, values)
        if low == high:
            return
        self._unshare()
        assert self._claimed is not None
        leaf = int(np.searchsorted(self._tree.starts[-1], low, side="right")) - 1
        held = self.held.get(key, {})
        for name in amounts:
            if name in self.resources:
                self._claimed[self.resources[name], leaf] = min(held.get(name, 0), CLAIMED_MAX)

    def rows_in(self, path: Path) -> slice:
        """The rows of a domain."""
        self.settle()
        return slice(*trees.find(self._tree, path))

    def nodes_in(self, path: Path) -> list[Node]:
        """The nodes of a domain."""
        rows = self.rows_in(path)  # settles the tree
        found: list[Node] = self._tree.nodes[rows].tolist()
        return found

    def _update_free(self, row: int, names: Iterable[str], *, held: bool = False) -> None:
        """Recompute the free amounts of some resources, and those that gangs hold: the sums are exact, the
        arrays hold them bounded."""
        self._unshare()
        self.version += 1
        if held and self._held is None:
            self._held = np.zeros_like(self._free)
        node: Node = self._tree.nodes[row]
        used, gangs = self.used.get(node.name, NOTHING), self._gangs_on(node)
        for name in names:
            if (index := self.resources.get(name)) is not None:
                of_gangs = gangs.get(name, 0)
                left = node.allocatable.get(name, 0) - used.get(name, 0) - of_gangs
                self._free[index, row] = _bounded(left)
                if held and self._held is not None:
                    self._held[index, row] = _bounded(of_gangs)

    def row_of(self, name: str) -> int | None:
        """The row of a node; cached, since pods come and go far more often than rows move."""
        if self._rows[0] is not self._tree:
            self._rows = self._tree, {}
        rows = self._rows[1]
        if name not in rows:
            path = self.path_of(self.nodes.get(name))
            rows[name] = None if path is None else trees.find_row(self._tree, path, name)
        return rows[name]

    def _unshare(self) -> None:
        """Copy the arrays that a snapshot shares before changing them."""
        if self._shared:
            self._free, self._usable = self._free.copy(), self._usable.copy()
            self._claimed = None if self._claimed is None else self._claimed.copy()
            self._held = None if self._held is None else self._held.copy()
            self._shared = False

    def own_rows(self) -> None:
        """After this state was copied: an array of nodes of its own, as `upsert` changes it in place."""
        nodes = self._tree.nodes.copy()
        self._tree, self._table = replace(self._tree, nodes=nodes), replace(self._table, nodes=nodes)

    def path_of(self, node: Node | None) -> Path | None:
        """The domain path of a node, or None if it lacks a level."""
        if node is None:
            return None
        try:
            return tuple([node.labels[level] for level in self.topology.levels])  # a list is faster here
        except KeyError:
            return None

    def _with_host(self, node: Node) -> Node:
        if not self.hosts_by_name or HOSTNAME in node.labels:
            return node
        return replace(node, labels=Hostless(node.labels, node.name))

    def _note_largest(self, node: Node) -> None:
        for name, amount in node.allocatable.items():
            if amount > self.largest.get(name, 0):
                self.largest[name] = amount

    def _unknown(self, amounts: Mapping[str, int]) -> bool:
        return any(name not in self.resources for name in amounts)

    def _free_of(self, node: Node) -> Ints:
        """Allocatable minus all usage of the node."""
        has, used, held = node.allocatable, self.used.get(node.name, {}), self._gangs_on(node)
        left = (_bounded(has.get(name, 0) - used.get(name, 0) - held.get(name, 0)) for name in self.resources)
        return np.fromiter(left, np.int64, len(self.resources))

    def _held_on(self, node: Node) -> Ints:
        """Usage of placed gangs on a host."""
        held = self._gangs_on(node)
        found = (_bounded(held.get(name, 0)) for name in self.resources)
        return np.fromiter(found, np.int64, len(self.resources))

    def _gangs_on(self, node: Node) -> Mapping[str, int]:
        """The same as exact sums; empty if a leaf is more than a host."""
        if not self.topology.ends_at_host or not self.held:
            return NOTHING
        return self.held.get((node.labels[HOSTNAME],), NOTHING)

    def _move(self, name: str, old: Path | None, new: Path | None) -> None:
        """Remove the row of a node and insert it at its new place."""
        self.version += 1
        node = self.nodes.get(name)
        if node is not None and self._unknown(node.allocatable):
            self._rebuild()
            return
        if old is not None:
            row = trees.find_row(self._tree, old, name)
            self._tree = trees.removed(self._tree, row)
            self._table = columns.removed(self._table, self._tree.nodes, row)
            self._free = np.delete(self._free, row, axis=1)
            self._held = None if self._held is None else np.delete(self._held, row, axis=1)
            self._usable = np.delete(self._usable, row)
            self.paths = self.paths.with_path(name, None)
            low, high = trees.find(self._tree, old)
            if low == high:  # no other node with the same host label
                self.hosts = self.hosts.with_path(old[-1], None)
        if new is not None and node is not None:
            row = trees.find_row(self._tree, new, name)
            self._tree = trees.inserted(self._tree, row, node)
            self._table = columns.inserted(self._table, self._tree.nodes, row)
            self.hosts, self.paths = self.hosts.with_path(new[-1], new), self.paths.with_path(name, new)
            wider = np.empty((len(self.resources), self._tree.rows), np.int64)
            wider[:, :row], wider[:, row], wider[:, row + 1 :] = (
                self._free[:, :row], self._free_of(node), self._free[:, row:],
            )  # fmt: skip
            self._free = wider
            held = self._held_on(node)
            if self._held is not None:
                self._held = np.insert(self._held, row, held, axis=1)
            elif held.any():  # a gang was placed here before the node was added
                self._held = np.zeros_like(self._free)
                self._held[:, row] = held
            self._usable = trees.spliced(self._usable, row, node.ready and node.schedulable)
        self._shared = False
        self._rebuild_claimed()

    def _rebuild(self) -> None:
        """Rebuild all rows, as after a bulk load or a new resource."""
        self._stale, self.version, self.layouts = False, self.version + 1, self.layouts + 1
        placed = [(path, node) for node in self.nodes.values() if (path := self.path_of(node)) is not None]
        offers = {id(node.allocatable): node.allocatable for _, node in placed}
        names = sorted({name for offer in offers.values() for name in offer})
        self.resources = {name: row for row, name in enumerate(names)}
        self.largest = {}
        for node in {id(node.allocatable): node for node in self.nodes.values()}.values():
            self._note_largest(node)
        self._tree = trees.build(self.topology, [node for _, node in placed])
        rows = self._tree.nodes
        self._table = columns.table_of(rows)
        self._usable = np.fromiter((n.ready and n.schedulable for n in rows), bool, len(rows))
        self.paths = Directory({node.name: path for path, node in placed})
        by_host = {path[-1]: path for path, _ in placed} if self.topology.ends_at_host else {}
        self.hosts = Directory(by_host)
        self._free = allocatable_of(self._table, self.resources)
        self._held = np.zeros_like(self._free) if self.topology.ends_at_host and self.held else None
        self._shared = False
        self._count_usage(rows.tolist())
        self._rebuild_claimed()

    def _count_usage(self, nodes: list[Node]) -> None:
        """Write the usage of all nodes into new arrays: once for all nodes with the same amounts."""
        if not self.used and self._held is None:
            return
        rows_by_amounts: dict[tuple[int, int, int], list[int]] = {}
        for row, node in enumerate(nodes):
            used, gangs = self.used.get(node.name, NOTHING), self._gangs_on(node)
            if used or gangs:
                rows_by_amounts.setdefault((id(node.allocatable), id(used), id(gangs)), []).append(row)
        for rows in rows_by_amounts.values():
            node = nodes[rows[0]]
            self._free[:, rows] = self._free_of(node)[:, None]
            if self._held is not None:
                self._held[:, rows] = self._held_on(node)[:, None]

    def _rebuild_claimed(self) -> None:
        """Where leaves have several nodes, gang usage is stored per leaf."""
        if self.topology.ends_at_host:
            return
        leaves = self._tree.starts[-1]
        self._claimed = np.zeros((len(self.resources), len(leaves)), np.int64)
        for path, amounts in self.held.items():
            low, high = trees.find(self._tree, path)
            if low < high:
                leaf = int(np.searchsorted(leaves, low, side="right")) - 1
                for name, amount in amounts.items():
                    if name in self.resources:
                        self._claimed[self.resources[name], leaf] = min(amount, CLAIMED_MAX)


def _bounded(amount: int) -> int:
    """An amount within the bounds of the array of free amounts."""
    return max(-ROOM_MAX, min(amount, ROOM_MAX))


def _sum(before: Mapping[str, int], amounts: Mapping[str, int], sign: int) -> dict[str, int]:
    """The sum without zeros: names of resources and nodes come and go, and must not pile up."""
    total = dict(before)
    for name, amount in amounts.items():
        left = total.get(name, 0) + sign * amount
        if left:
            total[name] = left
        else:
            total.pop(name, None)
    return total
