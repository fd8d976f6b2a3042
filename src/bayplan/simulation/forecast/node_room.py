"""Free capacity of nodes while a queue is run forward: how many pods of each shape fit, kept up to date.

Shapes are few and nodes are many. A start or an end changes few nodes: only their counts are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
ANYWHERE = -1
PLENTY = 2**40


@dataclass(frozen=True, slots=True)
class Measure:
    """What a gang asks of nodes: pods of one shape, within one domain of a level or anywhere."""

    shape: int  # a row of `NodeCapacity.requests`
    level: int = ANYWHERE  # an entry of `NodeCapacity.domains`


@dataclass(frozen=True, slots=True, eq=False)
class NodeCapacity:
    """Nodes in the order in which they are filled, and the shapes of pods."""

    free: Ints  # node x resource, without the pods that are never expected to end
    requests: Ints  # shape x resource
    allowed: Bools  # shape x node
    domains: tuple[Ints, ...] = ()  # by level: the domain of each node
    measures: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        assert self.allowed.shape == (len(self.requests), len(self.free)), self.allowed.shape


@dataclass(frozen=True, slots=True, eq=False)
class NodeShare:
    """What one gang uses of nodes: amounts by row; rows are unique."""

    rows: Ints
    amounts: Ints  # row x resource


NO_NODES = NodeShare(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))


class NodeRoom:
    """The free capacity at one moment of one forward run."""

    def __init__(self, capacity: NodeCapacity) -> None:
        self.capacity = capacity
        self.free = capacity.free.copy()
        self._layout = _Layout(capacity)
        self.closed = np.zeros(len(self.free), bool)  # nodes that are kept for one gang
        self.counts: Ints = self._counted(np.arange(len(self.free)))  # shape x node
        self._totals: Ints = self.counts.sum(axis=1)  # by shape
        self._sums = [self._summed(level) for level in range(len(capacity.domains))]
        self.available: Ints = np.full(len(capacity.measures) + 1, PLENTY, np.int64)
        """By measure: the most pods that fit; the last entry is for gangs that need no nodes."""
        self._measure()

    def copy(self) -> NodeRoom:
        """An independent copy."""
        found = NodeRoom.__new__(NodeRoom)
        found.capacity, found._layout = self.capacity, self._layout
        found.free, found.counts, found.closed = self.free.copy(), self.counts.copy(), self.closed.copy()
        found._totals, found._sums = self._totals.copy(), [sums.copy() for sums in self._sums]
        found.available = self.available.copy()
        return found

    def use(self, share: NodeShare, sign: int = 1) -> None:
        """Pods start on nodes (1) or end there (-1)."""
        if len(share.rows):
            self.free[share.rows] -= sign * share.amounts
            self._recount(share.rows)

    def close(self, rows: Ints, closed: bool) -> None:
        """Keep nodes for one gang, or open them to all again."""
        self.closed[rows] = closed
        self._recount(rows)

    def find(self, measure: int, pods: int) -> NodeShare | None:
        """Nodes for so many pods, in the smallest domain that has them; the first nodes of it."""
        asked = self.capacity.measures[measure]
        if self.available[measure] < pods:
            return None
        counts = self.counts[asked.shape]
        if asked.level != ANYWHERE:
            sums = self._sums[asked.level][self._layout.lines[measure]]
            domain = int(np.argmin(np.where(sums >= pods, sums, PLENTY)))
            counts = np.where(self.capacity.domains[asked.level] == domain, counts, 0)
        return first_fit(counts, pods, self.capacity.requests[asked.shape])

    def _recount(self, rows: Ints) -> None:
        fresh = self._counted(rows)
        change = fresh - self.counts[:, rows]
        self.counts[:, rows] = fresh
        self._totals += change.sum(axis=1)
        for level, shapes in enumerate(self._layout.shapes):
            if len(shapes):
                np.add.at(self._sums[level].T, self.capacity.domains[level][rows], change[shapes].T)
        self._measure()

    def _measure(self) -> None:
        layout = self._layout
        self.available[layout.anywhere] = self._totals[layout.anywhere_shapes]
        for sums, chosen, lines in zip(self._sums, layout.within, layout.within_lines, strict=True):
            if len(chosen):
                self.available[chosen] = sums.max(axis=1)[lines]

    def _counted(self, rows: Ints) -> Ints:
        """How many pods of each shape fit on each of these nodes."""
        fits = self.free[rows][None] // self._layout.divisors  # shape x row x resource
        fits += self._layout.unasked
        counts: Ints = fits.min(axis=2, initial=PLENTY)
        counts *= self.capacity.allowed[:, rows] & ~self.closed[rows]
        return np.maximum(counts, 0, out=counts)

    def _summed(self, level: int) -> Ints:
        """The counts of each domain, for the shapes that are asked for within one."""
        domains, shapes = self.capacity.domains[level], self._layout.shapes[level]
        sums: Ints = np.zeros((len(shapes), int(domains.max(initial=0)) + 1), np.int64)
        np.add.at(sums.T, domains, self.counts[shapes].T)
        return sums


class _Layout:
    """Where each measure finds its count; the same for all rooms of one capacity."""

    def __init__(self, capacity: NodeCapacity) -> None:
        unasked = capacity.requests == 0
        self.divisors: Ints = np.where(unasked, 1, capacity.requests)[:, None]
        self.unasked: Ints = np.where(unasked, PLENTY, 0)[:, None]
        numbered = list(enumerate(capacity.measures))
        self.anywhere = [at for at, one in numbered if one.level == ANYWHERE]
        self.anywhere_shapes = [capacity.measures[at].shape for at in self.anywhere]
        self.within = [
            [at for at, one in numbered if one.level == level] for level in range(len(capacity.domains))
        ]
        self.shapes = [sorted({capacity.measures[at].shape for at in chosen}) for chosen in self.within]
        self.lines: dict[int, int] = {}  # measure -> line of its level's sums
        for chosen, shapes in zip(self.within, self.shapes, strict=True):
            self.lines |= {at: shapes.index(capacity.measures[at].shape) for at in chosen}
        self.within_lines = [[self.lines[at] for at in chosen] for chosen in self.within]


def first_fit(counts: Ints, pods: int, request: Ints) -> NodeShare:
    """The first nodes that hold so many pods; there must be enough of them."""
    rows = np.flatnonzero(counts)
    reached = np.cumsum(counts[rows])
    last = int(np.searchsorted(reached, pods))
    rows = rows[: last + 1]
    placed = counts[rows].copy()
    placed[-1] -= reached[last] - pods
    return NodeShare(rows, placed[:, None] * request)


def merged(shares: Sequence[NodeShare]) -> NodeShare:
    """Several shares as one."""
    kept = [share for share in shares if len(share.rows)]
    if len(kept) <= 1:
        return kept[0] if kept else NO_NODES
    rows, position = np.unique(np.concatenate([share.rows for share in kept]), return_inverse=True)
    amounts = np.zeros((len(rows), kept[0].amounts.shape[1]), np.int64)
    np.add.at(amounts, position, np.concatenate([share.amounts for share in kept]))
    return NodeShare(rows, amounts)
