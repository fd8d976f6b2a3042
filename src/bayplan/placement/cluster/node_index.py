"""Index of all nodes in columns, and masks of the nodes that a pod's node rules accept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bayplan.model.node import ROOM_MAX
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration
from bayplan.placement.cluster.cache import cached
from bayplan.placement.cluster.counters import NodeIds
from bayplan.placement.cluster.node_table import (
    ABSENT,
    NodeTable,
    matching_affinity,
    matching_selector,
    tolerated,
)
from bayplan.placement.cluster.topology_tree import Bools, Ints

T = TypeVar("T")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REMEMBERED_MAX = 256
REMEMBERED_BYTES_MAX = 128 << 20  # of all cached arrays together, with eight bytes for each node


@dataclass(frozen=True, slots=True, eq=False)
class NodeIndex:
    """Static columns of the nodes, with a cache of values that stay valid until a node changes."""

    table: NodeTable
    slots: Ints  # the node id of each row
    node_ids: NodeIds
    cordoned: Bools
    memory: dict[Hashable, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.slots)

    def row(self, name: str) -> int:
        """The row of a node; ABSENT if it does not exist."""
        slot, rows = self.node_ids.numbers.get(name, ABSENT), self.rows()
        return int(rows[slot]) if 0 <= slot < len(rows) else ABSENT

    def rows(self) -> Ints:
        """The row of each node id; ABSENT where no node has that id now."""
        return self.remember("rows", self._rows)

    def _rows(self) -> Ints:
        rows = np.full(len(self.node_ids), ABSENT, dtype=np.int64)
        rows[self.slots] = np.arange(len(self.slots))
        return rows

    def named(self, names: Iterable[str]) -> Bools:
        """The nodes of these names, as a mask."""
        rows = [row for row in map(self.row, names) if row != ABSENT]
        good = np.zeros(len(self.slots), dtype=bool)
        good[rows] = True
        return good

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of a key, computed if it is missing."""
        limit = min(REMEMBERED_MAX, REMEMBERED_BYTES_MAX // (8 * max(len(self.slots), 1)))
        return cached(self.memory, max(limit, 1), key, compute)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSnapshot:
    """Nodes with their free and allocatable amounts at one moment: resource by node."""

    node_index: NodeIndex
    resources: Mapping[str, int]
    free: Ints
    allocatable: Ints
    memory: dict[Hashable, Any] = field(default_factory=dict)
    levels: tuple[str, ...] = ()  # labels of the domains above hosts that packing keeps whole, top first


def node_index_of(table: NodeTable, slots: NodeIds) -> NodeIndex:
    """Build the index of the nodes of a table."""
    nodes = table.nodes
    return NodeIndex(
        table,
        np.fromiter((slots.number(node.name) for node in nodes), np.int64, len(nodes)),
        slots,
        np.fromiter((not node.schedulable for node in nodes), bool, len(nodes)),
    )


def with_changed_node(node_index: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The index after the node of a row changed; its name stays the same."""
    cordoned = node_index.cordoned
    if bool(cordoned[row]) == table.nodes[row].schedulable:
        cordoned = cordoned.copy()
        cordoned[row] = not table.nodes[row].schedulable
    return NodeIndex(table, node_index.slots, node_index.node_ids, cordoned)


def with_added_node(node_index: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The index with the node of a row added."""
    node = table.nodes[row]
    slots = np.insert(node_index.slots, row, node_index.node_ids.number(node.name))
    return NodeIndex(
        table, slots, node_index.node_ids, np.insert(node_index.cordoned, row, not node.schedulable)
    )


def with_removed_node(node_index: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The index with the node of a row removed."""
    return NodeIndex(
        table, np.delete(node_index.slots, row), node_index.node_ids, np.delete(node_index.cordoned, row)
    )


def allocatable_of(table: NodeTable, resources: Mapping[str, int]) -> Ints:
    """The allocatable amounts: resource by node.

    Nodes of one machine model share their mapping, so that it is read once.
    """
    kinds: dict[int, int] = {}
    offers: list[Mapping[str, int]] = []
    kind_of_row = np.zeros(len(table.nodes), dtype=np.int64)
    for row, node in enumerate(table.nodes):
        offer = node.allocatable
        kind = kinds.setdefault(id(offer), len(offers))
        if kind == len(offers):
            offers.append(offer)
        kind_of_row[row] = kind
    amounts = np.zeros((len(resources), len(offers)), dtype=np.int64)
    for kind, offer in enumerate(offers):
        for resource, amount in offer.items():
            resource_row = resources.get(resource)
            if resource_row is not None:
                amounts[resource_row, kind] = max(-ROOM_MAX, min(amount, ROOM_MAX))
    return amounts[:, kind_of_row]


def schedulable_nodes(node_index: NodeIndex, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes that are not cordoned; all nodes if the pod tolerates the cordon taint."""
    if any(toleration.accepts(CORDON) for toleration in tolerations):
        return np.ones(len(node_index), dtype=bool)
    return ~node_index.cordoned


def tolerated_nodes(node_index: NodeIndex, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    return node_index.remember(("taints", tolerations), lambda: tolerated(node_index.table, tolerations))


def affinity_nodes(node_index: NodeIndex, rules: NodeRules) -> Bools:
    """Nodes that match the node selector and the required node affinity."""
    key = ("rules", rules.selector, rules.affinity)
    return node_index.remember(
        key, lambda: matching_selector(node_index.table, rules) & terms_mask(node_index, rules.affinity)
    )


def terms_mask(node_index: NodeIndex, terms: tuple[NodeSelectorTerm, ...] | None) -> Bools:
    """Nodes that match at least one of the terms; all nodes if `terms` is None."""
    if terms is None:
        return np.ones(len(node_index), dtype=bool)
    good = np.zeros(len(node_index), dtype=bool)
    for term in terms:
        good |= term_mask(node_index, term)
    return good


def term_mask(node_index: NodeIndex, term: NodeSelectorTerm) -> Bools:
    """Nodes that match all requirements of a term."""
    fields = [requirement for requirement in term.requirements if requirement.field]
    labels = tuple(requirement for requirement in term.requirements if not requirement.field)
    if not term.requirements:
        return np.zeros(len(node_index), dtype=bool)
    good = np.ones(len(node_index), dtype=bool)
    if labels:
        good &= matching_affinity(node_index.table, NodeRules(affinity=(NodeSelectorTerm(labels),)))
    for requirement in fields:
        good &= _named(node_index, requirement)
    return good


def _named(node_index: NodeIndex, requirement: Requirement) -> Bools:
    good = node_index.named(requirement.values)
    return ~good if requirement.operator == "NotIn" else good


def named_nodes(rules: NodeRules) -> frozenset[str] | None:
    """Node names that the required affinity selects, if every term selects by name; empty on a conflict."""
    if not rules.affinity:
        return None
    names: set[str] = set()
    for term in rules.affinity:
        name_sets = [set(r.values) for r in term.requirements if r.field and r.operator == "In"]
        if not name_sets:
            return None
        names |= set.intersection(*name_sets)
    return frozenset(names)


def preference(node_index: NodeIndex, rules: NodeRules) -> Ints:
    """The summed weight of the preferred node affinity terms that each node matches."""
    return node_index.remember(("preferred", rules.preferred), lambda: _preference(node_index, rules))


def _preference(node_index: NodeIndex, rules: NodeRules) -> Ints:
    total = np.zeros(len(node_index), dtype=np.int64)
    for weight, term in rules.preferred:
        total += weight * term_mask(node_index, term)
    return total


def soft_taint_counts(node_index: NodeIndex, tolerations: tuple[Toleration, ...]) -> Ints:
    """How many PreferNoSchedule taints of each node the pod does not tolerate."""
    return node_index.remember(
        ("soft_taint_counts", tolerations), lambda: _soft_taint_counts(node_index, tolerations)
    )


def _soft_taint_counts(node_index: NodeIndex, tolerations: tuple[Toleration, ...]) -> Ints:
    counts = [
        sum(taint.effect == "PreferNoSchedule" and not _is_tolerated(taint, tolerations) for taint in taints)
        for taints in node_index.table.taint_sets
    ]
    return np.asarray(counts, dtype=np.int64)[node_index.table.taints]


def _is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(toleration.accepts(taint) for toleration in tolerations)


def domains(node_index: NodeIndex, key: str) -> tuple[Ints, int]:
    """The code of each node's value of a label (ABSENT: no label), and the number of codes."""
    column = node_index.remember(("domain", key), lambda: node_index.table.column(key).astype(np.int64))
    return column, len(node_index.table.codes(key))


def paths(node_index: NodeIndex, levels: tuple[str, ...]) -> tuple[Ints, ...]:
    """By level, the number of each node's domain; names may repeat in different domains above.

    A node without the label of a level is a domain of its own there.
    """
    return node_index.remember(("paths", levels), lambda: _paths(node_index, levels))


def _paths(node_index: NodeIndex, levels: tuple[str, ...]) -> tuple[Ints, ...]:
    found: list[Ints] = []
    above = np.zeros(len(node_index), dtype=np.int64)
    for level in levels:
        value, size = domains(node_index, level)
        lacking = np.flatnonzero(value == ABSENT)
        joined = above * (size + 1) + value
        joined[lacking] = joined.max(initial=0) + 1 + lacking
        above = np.unique(joined, return_inverse=True)[1].astype(np.int64)
        found.append(above)
    return tuple(found)


def sum_by_domain(domain: Ints, size: int, counts: Ints) -> Ints:
    """Counts per node summed by domain; nodes without the label are left out."""
    inside = domain != ABSENT
    total = np.bincount(domain[inside], weights=counts[inside], minlength=size)
    return total.astype(np.int64)
