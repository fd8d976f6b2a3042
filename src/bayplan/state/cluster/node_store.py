"""Nodes in every topology, and how much of each node is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.pod import PodKey
from bayplan.placement.cluster.counters import NodeIds
from bayplan.placement.cluster.images import ImageIndex
from bayplan.state.cluster.ledger import Claim, Ledger, Shift
from bayplan.state.cluster.node_state import FLAT, NodeState, cluster_of
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.cluster.topology_state import TopologyState


class NodeStore:
    """One topology state per topology; every claim counts in each of them."""

    def __init__(self, slots: NodeIds, cluster: ClusterState | None = None) -> None:
        self.cluster = cluster or ClusterState()
        self.by_name: dict[str, Node] = {}
        self.by_hostname: dict[str, str] = {}  # names of nodes whose hostname label is not their name
        self.images = ImageIndex(slots)
        self._overbooked: set[str] = set()
        self._changed: set[str] = set()  # nodes to check for that
        self.flat = NodeState(slots, self.cluster)
        self.topologies: dict[str, TopologyState] = {FLAT.name: self.flat.cluster}
        self.ledger = Ledger()
        self.on_change: Callable[[Node], None] | None = None  # called with nodes that change in any way

    def load(self, fresh: Mapping[str, Node]) -> None:
        """Add new nodes together."""
        self.by_name |= fresh
        self._changed.update(fresh)
        for node in fresh.values():
            self._note_hostname(node)
            self._note_change(node)
        self.flat.load(fresh.values())
        for cluster in self._with_levels():
            cluster.load(fresh.values())

    def prepare(self) -> None:
        """Build the rows of added nodes now."""
        for cluster in self.topologies.values():
            cluster.settle()
        self.flat.node_index()

    def seen(self, node: Node) -> bool:
        """Add or update a node. Returns whether it changed."""
        if self.by_name.get(node.name) == node:
            return False
        self._forget_hostname(self.by_name.get(node.name))
        self._note_change(self.by_name.get(node.name))
        self._note_change(node)
        self.by_name[node.name] = node
        self._note_hostname(node)
        self._changed.add(node.name)
        self.flat.upsert(node)
        for cluster in self._with_levels():
            cluster.upsert(node)
        return True

    def lost(self, name: str) -> bool:
        """Remove a node. Returns whether it existed."""
        node = self.by_name.pop(name, None)
        if node is None:
            return False
        self._forget_hostname(node)
        self._note_change(node)
        self._changed.discard(name)
        self._overbooked.discard(name)
        self.flat.remove(name)
        for cluster in self._with_levels():
            cluster.remove(name)
        self.images.note(name, {})
        return True

    def topology_seen(self, topology: Topology) -> bool:
        """Add or update a topology. Returns whether it is new or has other levels."""
        known, cluster = self.topologies.get(topology.name), cluster_of(topology, self.cluster)
        if topology.name == FLAT.name or (known is not None and known.topology == cluster.topology):
            return False
        for name, amounts in self.ledger.by_node().items():
            cluster.use_node(name, amounts)
        cluster.load(self.by_name.values())
        self.topologies[topology.name] = cluster
        return True

    def topology_lost(self, name: str) -> None:
        """Remove a topology. The flat topology of all nodes does not depend on an object, and stays."""
        if name != FLAT.name:
            self.topologies.pop(name, None)

    def node_of(self, hostname: str) -> str:
        """The name of the node with this hostname."""
        name = self.by_hostname.get(hostname, hostname)
        return name if name in self.by_name else hostname

    def _forget_hostname(self, node: Node | None) -> None:
        if node is not None and self.by_hostname.get(host := node.labels.get(HOSTNAME, "")) == node.name:
            del self.by_hostname[host]

    def _note_hostname(self, node: Node) -> None:
        if (hostname := node.labels.get(HOSTNAME, node.name)) != node.name:
            self.by_hostname[hostname] = node.name

    def _note_change(self, node: Node | None) -> None:
        if self.on_change is not None and node is not None:
            self.on_change(node)

    def overbooked(self) -> set[str]:
        """The nodes on which pods and slots need more than there is."""
        for name in self._changed:
            used = self.flat.cluster.used.get(name, {})
            (self._overbooked.add if self.lacks(name, dict.fromkeys(used, 0)) else self._overbooked.discard)(
                name
            )
        self._changed.clear()
        return self._overbooked

    def lacks(self, name: str, more: Mapping[str, int]) -> bool:
        """Whether a node has less of one of these resources than is used, with so much more."""
        node, used = self.by_name.get(name), self.flat.cluster.used.get(name, {})
        return node is not None and any(
            used.get(resource, 0) + amount > node.allocatable.get(resource, 0)
            for resource, amount in more.items()
        )

    def hold(self, claim: Claim) -> bool:
        """Capacity of a node is in use. Returns whether capacity became free where it was before."""
        return self._shift(self.ledger.hold(claim))

    def release(self, key: PodKey) -> bool:
        """A pod uses no capacity any more. Returns whether it used any."""
        return self._shift(self.ledger.release(key))

    def _with_levels(self) -> list[TopologyState]:
        """All but the flat topology, whose columns follow the changes of nodes as well."""
        return [cluster for name, cluster in self.topologies.items() if name != FLAT.name]

    def _shift(self, shifts: Iterable[Shift]) -> bool:
        freed = False
        for shift in shifts:
            if shift.node in self.by_name:
                self._changed.add(shift.node)
                self._note_change(self.by_name[shift.node])
            for cluster in self.topologies.values():
                cluster.use_node(shift.node, shift.amounts, shift.sign)
            freed |= shift.sign < 0
        return freed
