"""Counts per node that change one by one and are read all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from bayplan.model.pod_spec import Selector
from bayplan.placement.cluster.topology_tree import Ints

T = TypeVar("T")
GROWTH = 64


class NodeIds:
    """A number for every node name in use, so that counts stay right when rows move.

    Names come without end, so the number of a name that is out of use is given to another. That happens only
    in `tidy`: while a decision is made, a pod may leave a node for trial and has to find its number again.
    """

    __slots__ = ("idle", "names", "numbers", "spare", "users")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []  # by number; of a spare one the name it had last
        self.spare: list[int] = []
        self.idle: set[int] = set()  # numbers that something stopped using since the last tidying
        self.users: list[Callable[[str], bool]] = []  # each says whether it uses the number of a name

    def number(self, node: str) -> int:
        """The number of a node name. Nothing is counted at a number that is given for the first time."""
        found = self.numbers.get(node)
        if found is None:
            found = self.spare.pop() if self.spare else len(self.names)
            self.names[found : found + 1] = [node]
            self.numbers[node] = found
        return found

    def drop(self, node: str) -> None:
        """One of those that used the number of a name, if it has one, does so no more."""
        number = self.numbers.get(node)
        if number is not None:
            self.idle.add(number)

    def tidy(self) -> None:
        """Take back the numbers of names that are out of use. Whatever was counted there is zero again."""
        while self.idle:
            number = self.idle.pop()
            name = self.names[number]
            if not any(uses(name) for uses in self.users):
                del self.numbers[name]
                self.spare.append(number)

    def __len__(self) -> int:
        """All numbers that were ever given are below it: as many as names were in use at a time."""
        return len(self.names)


class NodeCounter:
    """A count per slot: few entries as long as nobody asks, an array once somebody did."""

    __slots__ = ("array", "few")

    def __init__(self, few: dict[int, int] | None = None) -> None:
        self.few: dict[int, int] = {} if few is None else few
        self.array: Ints | None = None

    def __bool__(self) -> bool:
        return bool(self.few)

    def add(self, slot: int, amount: int = 1) -> None:
        """Count more (or less) at one slot."""
        total = self.few.get(slot, 0) + amount
        if total:
            self.few[slot] = total
        else:
            self.few.pop(slot, None)
        if self.array is not None:
            if slot >= len(self.array):
                self.array = _longer(self.array, slot + 1)
            self.array[slot] = total

    def add_all(self, counts: Mapping[int, int], sign: int = 1) -> None:
        """Count more (or less) at many slots."""
        for slot, amount in counts.items():
            self.add(slot, sign * amount)

    def dense(self, size: int) -> Ints:
        """All counts, at least `size` of them. Not to be written to, nor kept."""
        if self.array is None:
            self.array = np.zeros(size, dtype=np.int64)
            if self.few:
                at = np.fromiter(self.few.keys(), np.int64, len(self.few))
                self.array[at] = np.fromiter(self.few.values(), np.int64, len(self.few))
        elif len(self.array) < size:
            self.array = _longer(self.array, size)
        return self.array


def _longer(array: Ints, size: int) -> Ints:
    longer = np.zeros(size + GROWTH, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def anchors(selector: Selector) -> tuple[tuple[str, str], ...] | None:
    """Labels of which whatever is selected carries one; None if there are no such labels."""
    for requirement in selector.requirements or ():
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in requirement.values)
    return None


@dataclass(slots=True, eq=False)
class ByLabel(Generic[T]):
    """Things with a selector, found again by the labels of what they may select."""

    anchored: dict[tuple[str, str], dict[T, None]] = field(default_factory=dict)
    loose: dict[T, None] = field(default_factory=dict)

    def put(self, thing: T, selector: Selector) -> None:
        if selector.requirements is None:
            return
        places = anchors(selector)
        if places is None:
            self.loose[thing] = None
        for place in places or ():
            self.anchored.setdefault(place, {})[thing] = None

    def drop(self, thing: T, selector: Selector) -> None:
        self.loose.pop(thing, None)
        for place in anchors(selector) or ():
            things = self.anchored.get(place, {})
            things.pop(thing, None)
            if not things:
                self.anchored.pop(place, None)

    def near(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Everything whose selector may accept these labels, each once."""
        yield from self.loose
        for pair in labels.items():
            yield from self.anchored.get(pair, ())
