"""The nodes that a pod is held against: columns for all of them, and what a pod's rules say about each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bayplan.model.node import ROOM_MAX
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration
from bayplan.placement.cluster.cache import recall
from bayplan.placement.cluster.counters import NodeIds
from bayplan.placement.cluster.node_table import ABSENT, NodeTable, attracted, selected, tolerated
from bayplan.placement.cluster.topology_tree import Bools, Ints

T = TypeVar("T")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REMEMBERED_MAX = 256


@dataclass(frozen=True, slots=True, eq=False)
class NodeIndex:
    """What is known of nodes as long as no node changes. Answers that depend on nothing else stay here."""

    table: NodeTable
    slots: Ints  # the slot of each row
    known: NodeIds
    cordoned: Bools
    memory: dict[Hashable, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.slots)

    def row(self, name: str) -> int:
        """The row of a node; ABSENT if there is no such node."""
        slot, rows = self.known.numbers.get(name, ABSENT), self.rows()
        return int(rows[slot]) if 0 <= slot < len(rows) else ABSENT

    def rows(self) -> Ints:
        """The row of each slot; ABSENT where there is no such node now."""
        return self.remember("rows", self._rows)

    def _rows(self) -> Ints:
        rows = np.full(len(self.known), ABSENT, dtype=np.int64)
        rows[self.slots] = np.arange(len(self.slots))
        return rows

    def named(self, names: Iterable[str]) -> Bools:
        """The nodes that go by these names."""
        found = [row for row in map(self.row, names) if row != ABSENT]
        good = np.zeros(len(self.slots), dtype=bool)
        good[found] = True
        return good

    def remember(self, question: Hashable, work_out: Callable[[], T]) -> T:
        """An answer worked out once."""
        return recall(self.memory, REMEMBERED_MAX, question, work_out)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSnapshot:
    """Nodes and what is free on them at one moment: resources by first axis, nodes by second."""

    land: NodeIndex
    resources: Mapping[str, int]
    free: Ints
    allocatable: Ints
    memory: dict[Hashable, Any] = field(default_factory=dict)


def land_of(table: NodeTable, slots: NodeIds) -> NodeIndex:
    """Read off the nodes what is asked for again and again."""
    nodes = table.nodes
    return NodeIndex(
        table,
        np.fromiter((slots.number(node.name) for node in nodes), np.int64, len(nodes)),
        slots,
        np.fromiter((not node.schedulable for node in nodes), bool, len(nodes)),
    )


def relaid(land: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The same land with another state of the node in one row; which node that is did not change."""
    cordoned = land.cordoned
    if bool(cordoned[row]) == table.nodes[row].schedulable:
        cordoned = cordoned.copy()
        cordoned[row] = not table.nodes[row].schedulable
    return NodeIndex(table, land.slots, land.known, cordoned)


def land_with(land: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The same land with one more node."""
    node = table.nodes[row]
    slots = np.insert(land.slots, row, land.known.number(node.name))
    return NodeIndex(table, slots, land.known, np.insert(land.cordoned, row, not node.schedulable))


def land_without(land: NodeIndex, table: NodeTable, row: int) -> NodeIndex:
    """The same land with one node less."""
    return NodeIndex(table, np.delete(land.slots, row), land.known, np.delete(land.cordoned, row))


def allocatable_of(table: NodeTable, resources: Mapping[str, int]) -> Ints:
    """What each node has in all: resources by first axis, nodes by second.

    Machines of one model share what they offer, so that it is read once.
    """
    kinds: dict[int, int] = {}
    offers: list[Mapping[str, int]] = []
    which = np.zeros(len(table.nodes), dtype=np.int64)
    for row, node in enumerate(table.nodes):
        offer = node.allocatable
        kind = kinds.setdefault(id(offer), len(offers))
        if kind == len(offers):
            offers.append(offer)
        which[row] = kind
    found = np.zeros((len(resources), len(offers)), dtype=np.int64)
    for kind, offer in enumerate(offers):
        for resource, amount in offer.items():
            at = resources.get(resource)
            if at is not None:
                found[at, kind] = max(-ROOM_MAX, min(amount, ROOM_MAX))
    return found[:, which]


def welcomed(land: NodeIndex, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes that are not cordoned, unless the pod does not mind."""
    if any(toleration.accepts(CORDON) for toleration in tolerations):
        return np.ones(len(land), dtype=bool)
    return ~land.cordoned


def untainted(land: NodeIndex, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes without a repelling taint that goes unanswered."""
    return land.remember(("taints", tolerations), lambda: tolerated(land.table, tolerations))


def chosen(land: NodeIndex, rules: NodeRules) -> Bools:
    """Nodes that selector and required affinity accept."""
    key = ("rules", rules.selector, rules.affinity)
    return land.remember(key, lambda: selected(land.table, rules) & terms_mask(land, rules.affinity))


def terms_mask(land: NodeIndex, terms: tuple[NodeSelectorTerm, ...] | None) -> Bools:
    """Nodes that one of the terms accepts; all if there are no terms at all."""
    if terms is None:
        return np.ones(len(land), dtype=bool)
    good = np.zeros(len(land), dtype=bool)
    for term in terms:
        good |= term_mask(land, term)
    return good


def term_mask(land: NodeIndex, term: NodeSelectorTerm) -> Bools:
    """Nodes that meet all requirements of a term."""
    fields = [requirement for requirement in term.requirements if requirement.field]
    labels = tuple(requirement for requirement in term.requirements if not requirement.field)
    if not term.requirements:
        return np.zeros(len(land), dtype=bool)
    good = np.ones(len(land), dtype=bool)
    if labels:
        good &= attracted(land.table, NodeRules(affinity=(NodeSelectorTerm(labels),)))
    for requirement in fields:
        good &= _named(land, requirement)
    return good


def _named(land: NodeIndex, requirement: Requirement) -> Bools:
    good = land.named(requirement.values)
    return ~good if requirement.operator == "NotIn" else good


def named_rows(rules: NodeRules) -> frozenset[str] | None:
    """The nodes that the affinity names, if each alternative names some; none are left if names clash."""
    if not rules.affinity:
        return None
    every: set[str] = set()
    for term in rules.affinity:
        lists = [set(r.values) for r in term.requirements if r.field and r.operator == "In"]
        if not lists:
            return None
        every |= set.intersection(*lists)
    return frozenset(every)


def preference(land: NodeIndex, rules: NodeRules) -> Ints:
    """The summed weight of the preferred terms that each node satisfies."""
    return land.remember(("preferred", rules.preferred), lambda: _preference(land, rules))


def _preference(land: NodeIndex, rules: NodeRules) -> Ints:
    total = np.zeros(len(land), dtype=np.int64)
    for weight, term in rules.preferred:
        total += weight * term_mask(land, term)
    return total


def aversions(land: NodeIndex, tolerations: tuple[Toleration, ...]) -> Ints:
    """How many taints of each node would rather keep the pod away."""
    return land.remember(("aversions", tolerations), lambda: _aversions(land, tolerations))


def _aversions(land: NodeIndex, tolerations: tuple[Toleration, ...]) -> Ints:
    counts = [
        sum(taint.effect == "PreferNoSchedule" and not _answered(taint, tolerations) for taint in taints)
        for taints in land.table.taint_sets
    ]
    return np.asarray(counts, dtype=np.int64)[land.table.taints]


def _answered(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(toleration.accepts(taint) for toleration in tolerations)


def domains(land: NodeIndex, key: str) -> tuple[Ints, int]:
    """The number of each node's value of a label (ABSENT: no label), and how many numbers there are."""
    column = land.remember(("domain", key), lambda: land.table.column(key).astype(np.int64))
    return column, len(land.table.codes(key))


def by_domain(domain: Ints, size: int, counts: Ints) -> Ints:
    """Counts per node summed over each domain; nodes without the label count nowhere."""
    inside = domain != ABSENT
    total = np.bincount(domain[inside], weights=counts[inside], minlength=size)
    return total.astype(np.int64)
