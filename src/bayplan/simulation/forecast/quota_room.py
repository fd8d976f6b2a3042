"""Unused quota while a queue is run forward: the quota tree of admission as arrays, all queues at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UNLIMITED = 2**60
NO_PARENT = -1


@dataclass(frozen=True, slots=True, eq=False)
class QuotaLimits:
    """The nodes of a quota tree, parents before children; cells are flavors and resources."""

    parents: tuple[int, ...]
    subtree: Ints  # node x cell: its own quota and what its children lend
    unlent: Ints  # node x cell: the quota that it never lends
    borrowing: Ints  # node x cell: the most that it may borrow, or UNLIMITED
    usage: Ints  # node x cell, now

    def __post_init__(self) -> None:
        assert all(parent < node for node, parent in enumerate(self.parents)), self.parents


_NONE: Ints = np.zeros((0, 0), np.int64)
NO_QUOTA = QuotaLimits((), _NONE, _NONE, _NONE, _NONE)


class QuotaRoom:
    """Usage at one moment of one forward run, and what each node has left."""

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self.usage = limits.usage.copy()
        self._depths = _by_depth(limits.parents)
        self._most = limits.subtree + limits.borrowing
        self._left: Ints = np.zeros_like(self.usage)
        self._is_counted = False

    def copy(self) -> QuotaRoom:
        """An independent copy."""
        found = QuotaRoom.__new__(QuotaRoom)
        found.limits, found._depths, found._most = self.limits, self._depths, self._most
        found.usage, found._left, found._is_counted = self.usage.copy(), self._left.copy(), self._is_counted
        return found

    @property
    def left(self) -> Ints:
        """What each node has left of each cell, with what it may borrow; may be negative."""
        if not self._is_counted:
            self._count()
        return self._left

    def use(self, node: int, amounts: Ints, sign: int = 1) -> None:
        """Usage of a queue is added (1) or removed (-1); what it does not lend does not count above."""
        if not amounts.any():
            return
        unlent, usage, moving = self.limits.unlent, self.usage, amounts
        while node != NO_PARENT:
            before = np.maximum(0, usage[node] - unlent[node])
            usage[node] += sign * moving
            moving = sign * (np.maximum(0, usage[node] - unlent[node]) - before)
            node = self.limits.parents[node]
        self._is_counted = False

    def _count(self) -> None:
        limits, usage, left = self.limits, self.usage, self._left
        self._is_counted = True
        for nodes, parents in self._depths:
            used = usage[nodes]
            if parents is None:
                left[nodes] = limits.subtree[nodes] - used
                continue
            unlent = limits.unlent[nodes]
            most_used = np.maximum(unlent, used)
            left[nodes] = most_used - used + np.minimum(left[parents], self._most[nodes] - most_used)


def _by_depth(parents: Sequence[int]) -> list[tuple[Ints, Ints | None]]:
    """The nodes of each depth, and their parents."""
    depth = [0] * len(parents)
    for node, parent in enumerate(parents):
        depth[node] = 0 if parent == NO_PARENT else depth[parent] + 1
    found: list[tuple[Ints, Ints | None]] = []
    for level in range(max(depth, default=-1) + 1):
        nodes = np.array([node for node, at in enumerate(depth) if at == level], np.int64)
        above = np.array([parents[node] for node in nodes], np.int64) if level else None
        found.append((nodes, above))
    return found
