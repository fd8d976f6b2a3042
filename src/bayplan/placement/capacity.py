"""How many copies of a pod fit on each leaf: the one question placement asks of the supply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bayplan.model.node import PODS
from bayplan.placement.supply import Supply
from bayplan.placement.tree import Bools, Ints

COMPARISONS_MAX = 3  # up to here counting by comparison is cheaper than dividing


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What earlier pod sets of the same gang are assumed to use, per leaf: leaves ascending, unique."""

    leaves: Ints
    amounts: Ints  # resource by leaf, rows as in the supply

    @staticmethod
    def nothing(supply: Supply) -> Taken:
        return Taken(np.zeros(0, np.int64), np.zeros((len(supply.resources), 0), np.int64))

    def plus(self, supply: Supply, leaves: Ints, pods: Ints, requests: Mapping[str, int]) -> Taken:
        """This, and so many more pods of a shape."""
        more = np.zeros((len(supply.resources), len(leaves)), np.int64)
        for name, amount in with_slot(requests).items():
            if name in supply.resources:
                more[supply.resources[name]] = pods * amount
        together, where = np.unique(np.concatenate((self.leaves, leaves)), return_inverse=True)
        total = np.zeros((len(supply.resources), len(together)), np.int64)
        for row, amounts in enumerate(np.concatenate((self.amounts, more), axis=1)):
            np.add.at(total[row], where, amounts)
        return Taken(together, total)


def with_slot(requests: Mapping[str, int]) -> dict[str, int]:
    """A pod's requests and the one pod slot it takes."""
    return {**requests, PODS: requests.get(PODS, 0) + 1}


def room(supply: Supply, mask: Bools, resource: str, taken: Taken) -> Ints:
    """What is left of one resource on each leaf."""
    row = supply.resources.get(resource)
    if row is None:
        return np.zeros(supply.leaves, np.int64)
    if supply.claimed is None:
        free: Ints = supply.free[row]
    else:
        inside = np.where(mask, supply.free[row], 0)
        free = np.add.reduceat(inside, supply.tree.starts[supply.tree.lowest]) - supply.claimed[row]
    if len(taken.leaves):
        free = free.copy()
        free[taken.leaves] -= taken.amounts[row]
    return free


def fits(rooms: Mapping[str, Ints], requests: Mapping[str, int], leaves: int) -> Ints:
    """The number of whole pods per leaf: min over resources of room // amount, never negative.

    Scarce resources go first; what remains possible then bounds how far the next one must be
    counted, and a bound of a few is counted by comparison instead of division.
    """
    if not leaves:
        return np.zeros(0, np.int64)
    asked = [(int(rooms[name].max()) // amount, name, amount) for name, amount in requests.items() if amount]
    counts: Ints | None = None
    for most, name, amount in sorted(asked):
        top = most if counts is None else min(most, int(counts.max()))
        if top <= 0:
            return np.zeros(leaves, np.int64)
        here = copies(rooms[name], amount, top)
        counts = here if counts is None else np.minimum(counts, here, out=counts)
    assert counts is not None, "every pod asks at least for its slot"
    return counts


def copies(room: Ints, amount: int, top: int) -> Ints:
    """room // amount clipped to 0..; exact up to `top`, which is all that the caller can use."""
    if amount == 1:
        return np.maximum(room, 0)
    if top <= COMPARISONS_MAX:
        counts = (room >= amount).astype(np.int64)
        for copy in range(2, top + 1):
            counts += room >= amount * copy
        return counts
    counts = room // amount
    return np.maximum(counts, 0, out=counts)
