"""Running pods in rows, their labels in columns, so that a selector is answered for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node_rules import Requirement
from bayplan.model.pod_spec import PodSignature, Selector
from bayplan.placement.cluster.node_table import ABSENT, Codes, Vocabulary
from bayplan.placement.cluster.topology_tree import Bools, Ints

NOBODY: Mapping[str, str] = {}
WORDS_PER_POD, WORDS_KEPT = 4, 4096
_SPACE = ""  # no label has an empty key: the column of namespaces goes by it


class PodColumns:
    """One row per pod; rows of pods that are gone are used again."""

    def __init__(self) -> None:
        self.nodes: NDArray[np.int32] = np.full(64, ABSENT, dtype=np.int32)
        self.leaving: Bools = np.zeros(64, dtype=bool)
        self.labels: list[Mapping[str, str]] = []
        self.columns: dict[str, Codes] = {_SPACE: np.full(64, ABSENT, dtype=np.int32)}
        self.words: dict[str, Vocabulary] = {_SPACE: Vocabulary()}
        self.free: list[int] = []

    def add(self, node: int, shape: PodSignature, *, leaving: bool) -> int:
        """Put a pod in; returns its row."""
        labels = dict(shape.labels)
        if self.free:
            row = self.free.pop()
            self.labels[row] = labels
        else:
            row = len(self.labels)
            self.labels.append(labels)
            if row == len(self.nodes):
                self._grow()
        self.nodes[row] = node
        self.leaving[row] = leaving
        for key, column in self.columns.items():
            value = shape.namespace if key == _SPACE else labels.get(key)
            column[row] = self.words[key].code(value)
        self._forget()
        return row

    def add_many(self, nodes: Sequence[int], shape: PodSignature, *, leaving: bool) -> list[int]:
        """Put equal pods in; returns their rows."""
        again = min(len(nodes), len(self.free))
        rows = [self.free.pop() for _ in range(again)]
        rows += range(len(self.labels), len(self.labels) + len(nodes) - again)
        labels = dict(shape.labels)
        for row in rows[:again]:
            self.labels[row] = labels
        self.labels += [labels] * (len(nodes) - again)
        while len(self.labels) > len(self.nodes):
            self._grow()
        self.nodes[rows] = nodes
        self.leaving[rows] = leaving
        for key, column in self.columns.items():
            column[rows] = self.words[key].code(shape.namespace if key == _SPACE else labels.get(key))
        self._forget()
        return rows

    def _forget(self) -> None:
        """Drop columns with far more words than pods, such as names of jobs long gone; made anew if asked."""
        limit = WORDS_PER_POD * len(self.labels) + WORDS_KEPT
        for key in [key for key, words in self.words.items() if len(words.codes) > limit and key != _SPACE]:
            del self.words[key], self.columns[key]

    def remove(self, row: int) -> None:
        """Take a pod out."""
        self.nodes[row] = ABSENT
        self.labels[row] = NOBODY
        self.free.append(row)

    def count(
        self, pairs: tuple[tuple[frozenset[str] | None, Selector], ...], slots: int, *, leaving: bool
    ) -> Ints:
        """How many pods are meant by all pairs of namespaces and selector, by node."""
        rows = len(self.labels)
        good = self.nodes[:rows] != ABSENT
        if not leaving:
            good &= ~self.leaving[:rows]
        for spaces, selector in pairs:
            if selector.requirements is None:
                return np.zeros(slots, dtype=np.int64)
            if spaces is not None:
                good &= self._one_of(_SPACE, spaces)
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
        column, words = self._column(key), self.words[key].codes
        wanted = [words[value] for value in values if value in words]
        return np.equal(column, wanted[0]) if len(wanted) == 1 else np.isin(column, wanted)

    def _column(self, key: str) -> Codes:
        found = self.columns.get(key)
        if found is None:
            word = self.words.setdefault(key, Vocabulary()).code
            found = np.full(len(self.nodes), ABSENT, dtype=np.int32)
            found[: len(self.labels)] = [word(labels.get(key)) for labels in self.labels]
            self.columns[key] = found
        return found[: len(self.labels)]

    def _grow(self) -> None:
        more = len(self.nodes)
        self.nodes = np.concatenate((self.nodes, np.full(more, ABSENT, dtype=np.int32)))
        self.leaving = np.concatenate((self.leaving, np.zeros(more, dtype=bool)))
        for key, column in self.columns.items():
            self.columns[key] = np.concatenate((column, np.full(more, ABSENT, dtype=np.int32)))
