"""Which nodes a pod accepts, answered for all nodes at once from label and taint columns."""

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
REMEMBERED_MAX = 4096  # answers to rules, and labels that rules ask for: pods may ask without end
SPARE = 64  # sets of taints, and values of a label, that may be out of use beside as many as there are nodes


@dataclass(slots=True, eq=False)
class Vocabulary:
    """Numbers for the values of one label key. Only grows, so older columns stay readable.

    Once it holds far more values than there are nodes, the table that follows begins another one.
    """

    codes: dict[str, int] = field(default_factory=dict)

    def code(self, value: str | None) -> int:
        return ABSENT if value is None else self.codes.setdefault(value, len(self.codes))


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Nodes in row order. Columns are made for a label key when a rule first asks for it."""

    nodes: Objects
    taints: Codes  # index into taint_sets
    taint_sets: list[tuple[Taint, ...]]
    words: dict[str, Vocabulary]
    columns: dict[str, Codes] = field(default_factory=dict)
    masks: dict[NodeRules, Bools] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # by host label, made when first asked for

    def column(self, key: str) -> Codes:
        """The label's value code of every node."""
        found = self.columns.get(key)
        if found is None:
            if len(self.columns) >= REMEMBERED_MAX:
                self.columns.clear()
            words = self.words.get(key) or Vocabulary()
            found = np.fromiter(
                (words.code(node.labels.get(key)) for node in self.nodes), np.int32, len(self.nodes)
            )
            self.columns[key] = found
            if words.codes:  # pods may ask for any number of labels that no node has
                self.words[key] = words
        return found

    def codes(self, key: str) -> Mapping[str, int]:
        """The number of each value of a label, in the order of numbers."""
        words = self.words.get(key)
        return {} if words is None else words.codes

    def code(self, key: str, node: Node) -> int:
        """The number of a node's value of a label."""
        value = node.labels.get(key)
        return ABSENT if value is None else self.words.setdefault(key, Vocabulary()).code(value)


def host_row(table: NodeTable, host: str) -> int | None:
    """The row of a host; the first if several nodes go by its name."""
    if not table.rows and len(table.nodes):
        for row in range(len(table.nodes) - 1, -1, -1):
            node = table.nodes[row]
            table.rows[node.labels.get(HOSTNAME, node.name)] = row
    return table.rows.get(host)


def table_of(nodes: Objects) -> NodeTable:
    """Columns for nodes that are already in row order."""
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


def _tidied(table: NodeTable) -> NodeTable:
    """Without what no node has any more, once it is much: some taints tell the time, and names never end."""
    table, most = _without_old_words(table), 2 * len(table.taints) + SPARE
    if len(table.taint_sets) <= most:
        return table
    used, codes = np.unique(table.taints, return_inverse=True)
    sets = [table.taint_sets[code] for code in used]
    return replace(table, taints=codes.astype(np.int32), taint_sets=sets, masks={}, rows={})


def _without_old_words(table: NodeTable) -> NodeTable:
    """Columns whose words are far more than the nodes are made anew when they are asked for."""
    most = 2 * len(table.taints) + SPARE
    words = {
        key: known for key, known in table.words.items() if key in table.columns and len(known.codes) <= most
    }
    if len(words) == len(table.words):
        return table
    columns = {key: codes for key, codes in table.columns.items() if key in words or key not in table.words}
    return replace(table, words=words, columns=columns, masks={}, rows={})


def inserted(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table for nodes with one more row."""
    table, node = _tidied(table), nodes[row]
    columns = {key: spliced(codes, row, table.code(key, node)) for key, codes in table.columns.items()}
    taints = spliced(table.taints, row, _code_of_set(table, node.taints))
    return NodeTable(nodes, taints, table.taint_sets, table.words, columns)


def removed(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table for nodes with one row less."""
    columns = {key: np.delete(codes, row) for key, codes in table.columns.items()}
    return NodeTable(nodes, np.delete(table.taints, row), table.taint_sets, table.words, columns)


def changed(table: NodeTable, nodes: Objects, row: int) -> NodeTable:
    """The table for nodes with another one at that row; only the columns that differ are copied."""
    table, node = _tidied(table), nodes[row]
    taints, code = table.taints, _code_of_set(table, node.taints)
    if taints[row] != code:
        taints = taints.copy()
        taints[row] = code
    columns = {}
    for key, codes in table.columns.items():
        word = table.code(key, node)
        if codes[row] != word:
            codes = codes.copy()
            codes[row] = word
        columns[key] = codes
    return NodeTable(nodes, taints, table.taint_sets, table.words, columns)


def mask(table: NodeTable, rules: NodeRules) -> Bools:
    """True for every node that the rules accept. Equal rules share one answer."""
    key = replace(rules, preferred=())
    found = table.masks.get(key)
    if found is None:
        found = tolerated(table, rules.tolerations) & selected(table, rules) & attracted(table, rules)
        if len(table.masks) >= REMEMBERED_MAX:
            table.masks.clear()
        table.masks[key] = found
    return found


def tolerated(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Bools:
    """Nodes without a repelling taint that goes unanswered."""
    good = [first_repelling(taints, tolerations) is None for taints in table.taint_sets]
    return np.asarray(good, dtype=bool)[table.taints]


def first_repelling(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first taint that keeps the pod away."""
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


def selected(table: NodeTable, rules: NodeRules) -> Bools:
    """Nodes that carry every label of the selector."""
    return labelled(table, dict(rules.selector))


def attracted(table: NodeTable, rules: NodeRules) -> Bools:
    """Nodes that satisfy the required affinity."""
    if rules.affinity is None:
        return np.ones(len(table.nodes), dtype=bool)
    good = np.zeros(len(table.nodes), dtype=bool)
    for term in rules.affinity:
        good |= _term(table, term)
    return good


def scores(table: NodeTable, rules: NodeRules) -> Ints:
    """The summed weight of the preferred terms that each node satisfies."""
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
    words = table.codes(requirement.key)
    match requirement.operator:
        case "In" | "NotIn":
            wanted = [words[value] for value in requirement.values if value in words]
            inside = np.isin(column, wanted) if len(wanted) != 1 else column == wanted[0]
            return ~inside if requirement.operator == "NotIn" else inside
        case "Exists":
            return np.not_equal(column, ABSENT)
        case "DoesNotExist":
            return np.equal(column, ABSENT)
        case "Gt" | "Lt":
            good = np.zeros(len(words) + 1, dtype=bool)  # the last entry answers for ABSENT
            for value, code in words.items():
                good[code] = _beyond(value, requirement)
            return good[column]
        case _:
            return np.zeros(len(column), dtype=bool)


def _beyond(value: str, requirement: Requirement) -> bool:
    have, bound = integer(value), integer(requirement.values[0]) if requirement.values else None
    if have is None or bound is None:
        return False
    return have > bound if requirement.operator == "Gt" else have < bound
