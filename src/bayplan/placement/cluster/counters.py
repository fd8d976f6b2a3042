"""Counters per node that are updated incrementally and read as arrays, and stable ids of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from bayplan.model.pod_spec import Selector
from bayplan.placement.cluster.topology_tree import Ints

T = TypeVar("T")
GROWTH = 64
SIZE_RATIO, SIZE_MIN = 4, 256  # an array that is larger than this many times what is needed is made anew
SPARSE_RATIO = 16  # with fewer counts than one in so many entries, the array is not kept


class NodeIds:
    """Stable numeric ids of node names, so that counters stay valid when rows move.

    Node names are unbounded, so the id of an unused name is reused, the lowest first, and ids at the end that
    no name has are given up. Ids are freed only in `tidy`: during a scheduling cycle a pod may be removed
    from a node for a what-if and must find the same id again.
    """

    __slots__ = ("idle", "names", "numbers", "spare", "users")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str | None] = []  # by id; None: no name has it
        self.spare: list[int] = []  # a heap of ids that no name has
        self.idle: set[int] = set()  # ids that a user dropped since the last `tidy`
        self.users: list[Callable[[str], bool]] = []  # each returns whether it still uses a name

    def number(self, node: str) -> int:
        """The id of a node name. All counters of a newly assigned id are zero."""
        number = self.numbers.get(node)
        if number is None:
            number = heappop(self.spare) if self.spare else len(self.names)
            self.names[number : number + 1] = [node]
            self.numbers[node] = number
        return number

    def drop(self, node: str) -> None:
        """Note that one user of a name stopped using it."""
        number = self.numbers.get(node)
        if number is not None:
            self.idle.add(number)

    def tidy(self) -> None:
        """Free the ids of unused names. Their counters are zero by then."""
        while self.idle:
            number = self.idle.pop()
            name = self.names[number] if number < len(self.names) else None
            if name is not None and not any(uses(name) for uses in self.users):
                del self.numbers[name]
                self.names[number] = None
                heappush(self.spare, number)
        if self.names and self.names[-1] is None:
            self._trim()

    def _trim(self) -> None:
        while self.names and self.names[-1] is None:
            self.names.pop()
        self.spare = [number for number in self.spare if number < len(self.names)]
        heapify(self.spare)

    def __len__(self) -> int:
        """More than the largest id in use."""
        return len(self.names)


class NodeCounter:
    """A count per node id: sparse until it is read as an array, then both."""

    __slots__ = ("array", "sparse")

    def __init__(self, sparse: dict[int, int] | None = None) -> None:
        self.sparse: dict[int, int] = {} if sparse is None else sparse
        self.array: Ints | None = None

    def __bool__(self) -> bool:
        return bool(self.sparse)

    def add(self, slot: int, amount: int = 1) -> None:
        """Add to the count of one node id."""
        total = self.sparse.get(slot, 0) + amount
        if total:
            self.sparse[slot] = total
        else:
            self.sparse.pop(slot, None)
        if self.array is not None:
            if slot >= len(self.array):
                self.array = _extended(self.array, slot + 1)
            self.array[slot] = total

    def add_all(self, counts: Mapping[int, int], sign: int = 1) -> None:
        """Add to the counts of many node ids."""
        for slot, amount in counts.items():
            self.add(slot, sign * amount)

    def dense(self, size: int) -> Ints:
        """All counts as an array of at least `size` entries. The caller must not change or keep it.

        The array is kept only where many nodes count: there may be thousands of counters with a few nodes.
        """
        if self.array is not None and len(self.array) <= SIZE_RATIO * size + SIZE_MIN:
            if len(self.array) < size:
                self.array = _extended(self.array, size)
            return self.array
        array = np.zeros(size, dtype=np.int64)
        if self.sparse:
            slots = np.fromiter(self.sparse.keys(), np.int64, len(self.sparse))
            array[slots] = np.fromiter(self.sparse.values(), np.int64, len(self.sparse))
        self.array = array if SPARSE_RATIO * len(self.sparse) >= size else None
        return array


def _extended(array: Ints, size: int) -> Ints:
    extended = np.zeros(size + GROWTH, dtype=array.dtype)
    extended[: len(array)] = array
    return extended


def anchors(selector: Selector) -> tuple[tuple[str, str], ...] | None:
    """Labels of which every selected object has one; None if the selector has no such labels."""
    for requirement in selector.requirements or ():
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return None


@dataclass(slots=True, eq=False)
class ByLabel(Generic[T]):
    """Items with a selector, indexed by the labels of the objects they may select."""

    by_label: dict[tuple[str, str], dict[T, None]] = field(default_factory=dict)
    unanchored: dict[T, None] = field(default_factory=dict)

    def put(self, item: T, selector: Selector) -> None:
        if selector.requirements is None:
            return
        labels = anchors(selector)
        if labels is None:
            self.unanchored[item] = None
        for label in labels or ():
            self.by_label.setdefault(label, {})[item] = None

    def drop(self, item: T, selector: Selector) -> None:
        self.unanchored.pop(item, None)
        for label in anchors(selector) or ():
            items = self.by_label.get(label, {})
            items.pop(item, None)
            if not items:
                self.by_label.pop(label, None)

    def candidates_for(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose selector may accept these labels, each once."""
        yield from self.unanchored
        for pair in labels.items():
            yield from self.by_label.get(pair, ())
