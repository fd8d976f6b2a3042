"""Running pods as rows and their labels as columns, so that a selector is evaluated for all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node_rules import Requirement
from bayplan.model.pod_spec import Labels, PodSignature, Selector
from bayplan.placement.cluster.node_table import ABSENT, Codes, Vocabulary
from bayplan.placement.cluster.topology_tree import Bools, Ints

NO_LABELS: Labels = ()
VALUES_PER_POD, VALUES_KEPT = 4, 4096
COLUMNS_MAX = 32  # columns of label keys; pods may select by an unbounded number of them
ROWS_PER_POD, ROWS_KEPT = 4, 64  # rows beyond which the columns are built anew
_NAMESPACE = ""  # the key of the namespace column: no label has an empty key


class PodColumns:
    """One row per pod; rows of removed pods are reused."""

    def __init__(self) -> None:
        self.nodes: NDArray[np.int32] = np.full(64, ABSENT, dtype=np.int32)
        self.leaving: Bools = np.zeros(64, dtype=bool)
        self.labels: list[Labels] = []  # shared with the signatures
        self.columns: dict[str, Codes] = {_NAMESPACE: np.full(64, ABSENT, dtype=np.int32)}
        self.vocabularies: dict[str, Vocabulary] = {_NAMESPACE: Vocabulary()}
        self.free: list[int] = []

    def add(self, node: int, shape: PodSignature, *, leaving: bool) -> int:
        """Add a pod and return its row."""
        labels = dict(shape.labels)
        if self.free:
            row = self.free.pop()
            self.labels[row] = shape.labels
        else:
            row = len(self.labels)
            self.labels.append(shape.labels)
            if row == len(self.nodes):
                self._grow()
        self.nodes[row] = node
        self.leaving[row] = leaving
        for key, column in self.columns.items():
            value = shape.namespace if key == _NAMESPACE else labels.get(key)
            column[row] = self.vocabularies[key].code(value)
        self._drop_large_columns()
        return row

    def add_many(self, nodes: Sequence[int], shape: PodSignature, *, leaving: bool) -> list[int]:
        """Add pods of equal signature and return their rows."""
        reused = min(len(nodes), len(self.free))
        rows = [self.free.pop() for _ in range(reused)]
        rows += range(len(self.labels), len(self.labels) + len(nodes) - reused)
        labels = dict(shape.labels)
        for row in rows[:reused]:
            self.labels[row] = shape.labels
        self.labels += [shape.labels] * (len(nodes) - reused)
        while len(self.labels) > len(self.nodes):
            self._grow()
        self.nodes[rows] = nodes
        self.leaving[rows] = leaving
        for key, column in self.columns.items():
            column[rows] = self.vocabularies[key].code(
                shape.namespace if key == _NAMESPACE else labels.get(key)
            )
        self._drop_large_columns()
        return rows

    def _drop_large_columns(self) -> None:
        """Drop columns with far more values than pods, such as job names; they are rebuilt when needed."""
        limit = VALUES_PER_POD * len(self.labels) + VALUES_KEPT
        for key in [
            key
            for key, vocabulary in self.vocabularies.items()
            if len(vocabulary.codes) > limit and key != _NAMESPACE
        ]:
            del self.vocabularies[key], self.columns[key]

    @property
    def is_sparse(self) -> bool:
        """Whether most rows belong to no pod, so that building the columns anew is worth it."""
        rows = len(self.labels)
        return rows > ROWS_KEPT and rows > ROWS_PER_POD * (rows - len(self.free))

    def remove(self, row: int) -> None:
        """Remove the pod of a row."""
        self.nodes[row] = ABSENT
        self.labels[row] = NO_LABELS
        self.free.append(row)

    def count(
        self, pairs: tuple[tuple[frozenset[str] | None, Selector], ...], slots: int, *, leaving: bool
    ) -> Ints:
        """How many pods match all pairs of namespaces and selector, by node id."""
        rows = len(self.labels)
        good = self.nodes[:rows] != ABSENT
        if not leaving:
            good &= ~self.leaving[:rows]
        for namespaces, selector in pairs:
            if selector.requirements is None:
                return np.zeros(slots, dtype=np.int64)
            if namespaces is not None:
                good &= self._one_of(_NAMESPACE, namespaces)
            for requirement in selector.requirements:
                good &= self._meets(requirement)
        return np.bincount(self.nodes[:rows][good], minlength=slots).astype(np.int64)

    def _meets(self, requirement: Requirement) -> Bools:
        match requirement.operator:
            case "In":
                return self._one_of(requirement.key, frozenset(requirement.values))
            case "NotIn":
                return ~self._one_of(requirement.key, frozenset(requirement.values))
            case "Exists":
                return np.not_equal(self._column(requirement.key), ABSENT)
            case "DoesNotExist":
                return np.equal(self._column(requirement.key), ABSENT)
            case _:
                return np.zeros(len(self.labels), dtype=bool)

    def _one_of(self, key: str, values: frozenset[str]) -> Bools:
        column, codes = self._column(key), self.vocabularies[key].codes
        wanted = [codes[value] for value in values if value in codes]
        return np.equal(column, wanted[0]) if len(wanted) == 1 else np.isin(column, wanted)

    def _column(self, key: str) -> Codes:
        column = self.columns.get(key)
        if column is None:
            self._make_room()
            code = self.vocabularies.setdefault(key, Vocabulary()).code
            column = np.full(len(self.nodes), ABSENT, dtype=np.int32)
            column[: len(self.labels)] = [code(dict(labels).get(key)) for labels in self.labels]
            self.columns[key] = column
        return column[: len(self.labels)]

    def _make_room(self) -> None:
        """Drop the oldest columns of labels; the first one is that of namespaces."""
        while len(self.columns) > COLUMNS_MAX:
            oldest = next(key for key in self.columns if key != _NAMESPACE)
            del self.columns[oldest], self.vocabularies[oldest]

    def _grow(self) -> None:
        more = len(self.nodes)
        self.nodes = np.concatenate((self.nodes, np.full(more, ABSENT, dtype=np.int32)))
        self.leaving = np.concatenate((self.leaving, np.zeros(more, dtype=bool)))
        for key, column in self.columns.items():
            self.columns[key] = np.concatenate((column, np.full(more, ABSENT, dtype=np.int32)))
