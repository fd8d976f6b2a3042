"""Label and taint columns of the nodes, and masks of the nodes that a pod's node rules accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import HOSTNAME, Node
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration, integer
from bayplan.placement.cluster.topology_tree import Bools, Ints, Objects, spliced

Codes = NDArray[np.int32]
ABSENT = -1
REPELLING = ("NoSchedule", "NoExecute")
COLUMNS_MAX = 256  # label columns; each follows every change of a node, and pods may name any labels
MASKS_MAX = 4096
MASK_BYTES_MAX = 64 << 20  # of all masks together
SPARE = 64  # unused taint sets and label values that are kept beyond twice the number of nodes


@dataclass(slots=True, eq=False)
class Vocabulary:
    """Integer codes of the values of one label key. It only grows, so that older columns stay valid.

    Once it holds far more values than there are nodes, the next table starts a new one.
    """

    codes: dict[str, int] = field(default_factory=dict)

    def code(self, value: str | None) -> int:
        return ABSENT if value is None else self.codes.setdefault(value, len(self.codes))


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Nodes in row order. The column of a label key is built when a rule first needs it."""

    nodes: Objects
    taints: Codes  # index into taint_sets
    taint_sets: list[tuple[Taint, ...]]
    vocabularies: dict[str, Vocabulary]
    columns: dict[str, Codes] = field(default_factory=dict)
    masks: dict[NodeRules, Bools] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # by host label, built on first use

    def column(self, key: str) -> Codes:
        """The value code of a label for every node."""
        column = self.columns.get(key)
        if column is None:
            if len(self.columns) >= COLUMNS_MAX:
                del self.columns[next(iter(self.columns))]
            vocabulary = self.vocabularies.get(key) or Vocabulary()
            column = np.fromiter(
                (vocabulary.code(node.labels.get(key)) for node in self.nodes), np.int32, len(self.nodes)
            )
            self.columns[key] = column
            if vocabulary.codes:  # pods may name any number of labels that no node has
                self.vocabularies[key] = vocabulary
        return column

    def codes(self, key: str) -> Mapping[str, int]:
        """The code of each value of a label, in the order of codes."""
        vocabulary = self.vocabularies.get(key)
        return {} if vocabulary is None else vocabulary.codes

    def code(self, key: str, node: Node) -> int:
        """The code of a node's value of a label."""
        value = node.labels.get(key)
        return ABSENT if value is None else self.vocabularies.setdefault(key, Vocabulary()).code(value)


def host_row(table: NodeTable, host: str) -> int | None:
    """The row of a host label value; the first if several nodes have it."""
    if not table.rows and len(table.nodes):
        for row in range(len(table.nodes) - 1, -1, -1):
            table.rows[_host(table.nodes[row])] = row
    return table.rows.get(host)


def _host(node: Node) -> str:
    return node.labels.get(HOSTNAME, node.name)


def table_of(nodes: Objects) -> NodeTable:
    """The table of nodes that are already in row order."""
    sets: list[tuple[Taint, ...]] = [()]
    known: dict[tuple[Taint, ...], int] = {(): 0}
    taints = np.zeros(len(nodes), dtype=np.int32)
    for row, node in enumerate(nodes):
        if node.taints:
            taints[row] = _taint_code(node.taints, sets, known)
    return NodeTable(nodes, taints, sets, {})


def _taint_code(
    taints: tuple[Taint, ...], sets: list[tuple[Taint, ...]], known: dict[tuple[Taint, ...], int]
) -> int:
    if taints not in known:
        known[taints] = len(sets)
        sets.append(taints)
    return known[taints]


def _code_of_set(table: NodeTable, taints: tuple[Taint, ...]) -> int:
    if taints not in table.taint_sets:
        table.taint_sets.append(taints)
    return table.taint_sets.index(taints)


def _compacted(table: NodeTable) -> NodeTable:
    """The table without unused taint sets and label values, once there are many of them.

    Some taints contain timestamps, and names of nodes are unbounded.
    """
    table, limit = _without_large_vocabularies(table), 2 * len(table.taints) + SPARE
    if len(table.taint_sets) <= limit:
        return table
    used, codes = np.unique(table.taints, return_inverse=True)
    sets = [table.taint_sets[code] for code in used]
    return replace(table, taints=codes.astype(np.int32), taint_sets=sets, masks={}, rows={})


def _without_large_vocabularies(table: NodeTable) -> NodeTable:
    """Drop columns with far more values than nodes; they are rebuilt when a rule needs them."""
    limit = 2 * len(table.taints) + SPARE
    vocabularies = {
        key: vocabulary
        for key, vocabulary in table.vocabularies.items()
        if key in table.columns and len(vocabulary.codes) <= limit
    }
    if len(vocabularies) == len(table.vocabularies):
        return table
    columns = {
        key: codes
        for key, codes in table.columns.items()
        if key in vocabularies or key not in table.vocabularies
    }
    return replace(table, vocabularies=vocabularies, columns=columns, masks={}, rows={})


def inserted(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table with a row added."""
    table, node = _compacted(table), nodes[row]
    columns = {key: spliced(codes, row, table.code(key, node)) for key, codes in table.columns.items()}
    taints = spliced(table.taints, row, _code_of_set(table, node.taints))
    return NodeTable(nodes, taints, table.taint_sets, table.vocabularies, columns)


def removed(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table with a row removed."""
    table = _compacted(table)
    columns = {key: np.delete(codes, row) for key, codes in table.columns.items()}
    return NodeTable(nodes, np.delete(table.taints, row), table.taint_sets, table.vocabularies, columns)


def changed(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table with the node of a row replaced; only columns that differ are copied."""
    table, node = _compacted(table), nodes[row]
    taints, code = table.taints, _code_of_set(table, node.taints)
    if taints[row] != code:
        taints = taints.copy()
        taints[row] = code
    columns = {}
    for key, codes in table.columns.items():
        value_code = table.code(key, node)
        if codes[row] != value_code:
            codes = codes.copy()
            codes[row] = value_code
        columns[key] = codes
    rows = table.rows if _host(table.nodes[row]) == _host(node) else {}
    return NodeTable(nodes, taints, table.taint_sets, table.vocabularies, columns, rows=rows)


def mask(table: NodeTable, rules: NodeRules) -> Bools:
    """Mask of the nodes that the rules accept, cached by rules."""
    key = replace(rules, preferred=())
    nodes = table.masks.get(key)
    if nodes is None:
        nodes = (
            tolerated(table, rules.tolerations)
            & matching_selector(table, rules)
            & matching_affinity(table, rules)
        )
        if len(table.masks) >= min(MASKS_MAX, MASK_BYTES_MAX // max(len(nodes), 1)):
            table.masks.clear()
        table.masks[key] = nodes
    return nodes


def tolerated(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes without a NoSchedule or NoExecute taint that is not tolerated."""
    good = [first_repelling(taints, tolerations) is None for taints in table.taint_sets]
    if all(good):
        return np.ones(len(table.nodes), dtype=bool)
    return np.asarray(good, dtype=bool)[table.taints]


def first_repelling(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that is not tolerated."""
    for taint in taints:
        if taint.effect in REPELLING and not any(t.accepts(taint) for t in tolerations):
            return taint
    return None


def labelled(table: NodeTable, labels: Mapping[str, str]) -> Bools:
    """Nodes that carry all these labels."""
    good = np.ones(len(table.nodes), dtype=bool)
    for key, value in labels.items():
        column = table.column(key)
        good &= column == table.codes(key).get(value, ABSENT - 1)
    return good


def matching_selector(table: NodeTable, rules: NodeRules) -> Bools:
    """Nodes that carry every label of the selector."""
    return labelled(table, dict(rules.selector))


def matching_affinity(table: NodeTable, rules: NodeRules) -> Bools:
    """Nodes that match the required node affinity."""
    if rules.affinity is None:
        return np.ones(len(table.nodes), dtype=bool)
    good = np.zeros(len(table.nodes), dtype=bool)
    for term in rules.affinity:
        good |= _term(table, term)
    return good


def scores(table: NodeTable, rules: NodeRules) -> Ints:
    """The summed weight of the preferred node affinity terms that each node matches."""
    total = np.zeros(len(table.nodes), dtype=np.int64)
    for weight, term in rules.preferred:
        total += weight * _term(table, term)
    return total


def _term(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    good = np.full(len(table.nodes), bool(term.requirements))
    for requirement in term.requirements:
        good &= _meets(table, requirement)
    return good


def _meets(table: NodeTable, requirement: Requirement) -> Bools:
    if requirement.field:
        named = np.asarray([node.name in requirement.values for node in table.nodes], dtype=bool)
        return ~named if requirement.operator == "NotIn" else named
    column = table.column(requirement.key)
    codes = table.codes(requirement.key)
    match requirement.operator:
        case "In" | "NotIn":
            wanted = [codes[value] for value in requirement.values if value in codes]
            inside = np.isin(column, wanted) if len(wanted) != 1 else column == wanted[0]
            return ~inside if requirement.operator == "NotIn" else inside
        case "Exists":
            return np.not_equal(column, ABSENT)
        case "DoesNotExist":
            return np.equal(column, ABSENT)
        case "Gt" | "Lt":
            good = np.zeros(len(codes) + 1, dtype=bool)  # the last entry is for ABSENT
            for value, code in codes.items():
                good[code] = _compare_integers(value, requirement)
            return good[column]
        case _:
            return np.zeros(len(column), dtype=bool)


def _compare_integers(value: str, requirement: Requirement) -> bool:
    have, bound = integer(value), integer(requirement.values[0]) if requirement.values else None
    if have is None or bound is None:
        return False
    return have > bound if requirement.operator == "Gt" else have < bound
