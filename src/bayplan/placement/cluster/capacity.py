"""How many copies of a pod fit on each leaf: the one question placement asks of the supply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import PODS
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints

COUNT_MAX = 2**31 - 1
STACKED_MIN = 8  # from here on one large division is cheaper than many small ones
COMPARISONS_MAX = 3  # up to here counting by comparison is cheaper than dividing

OVERUSED_MAX = -(2**44)
"""A node that lacks more than this counts as lacking this when nodes are summed: no sum wraps around."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedUsage:
    """What earlier pod sets of the same gang are assumed to use, per leaf: leaves ascending, unique."""

    leaves: Ints
    amounts: Ints  # resource by leaf, rows as in the supply

    @staticmethod
    def nothing(supply: CapacitySnapshot) -> AssumedUsage:
        return AssumedUsage(np.zeros(0, np.int64), np.zeros((len(supply.resources), 0), np.int64))

    def plus(
        self, supply: CapacitySnapshot, leaves: Ints, pods: Ints, requests: Mapping[str, int]
    ) -> AssumedUsage:
        """This, and so many more pods of a shape."""
        more = np.zeros((len(supply.resources), len(leaves)), np.int64)
        for name, amount in with_slot(requests).items():
            if name in supply.resources:
                more[supply.resources[name]] = pods * amount
        together, where = np.unique(np.concatenate((self.leaves, leaves)), return_inverse=True)
        total = np.zeros((len(supply.resources), len(together)), np.int64)
        for row, amounts in enumerate(np.concatenate((self.amounts, more), axis=1)):
            np.add.at(total[row], where, amounts)
        return AssumedUsage(together, total)


def with_slot(requests: Mapping[str, int]) -> dict[str, int]:
    """A pod's requests and the one pod slot it takes."""
    return {**requests, PODS: requests.get(PODS, 0) + 1}


def room(supply: CapacitySnapshot, mask: Bools, resource: str) -> Ints:
    """What is left of one resource on each leaf, before this gang."""
    row = supply.resources.get(resource)
    if row is None:
        return np.zeros(supply.leaves, np.int64)
    if supply.claimed is None:
        free: Ints = supply.free[row]
        return free
    inside = np.where(mask, np.maximum(supply.free[row], OVERUSED_MAX), 0)
    held: Ints = np.add.reduceat(inside, supply.tree.starts[supply.tree.lowest]) - supply.claimed[row]
    return held


def room_beside(supply: CapacitySnapshot, mask: Bools, resource: str, taken: AssumedUsage) -> Ints:
    """What is left of one resource on each leaf, with what earlier pod sets took."""
    left = room(supply, mask, resource)
    row = supply.resources.get(resource)
    if row is not None and len(taken.leaves):
        left = left.copy()
        left[taken.leaves] -= taken.amounts[row]
    return left


def pods_per_leaf(
    supply: CapacitySnapshot, mask: Bools, pod: Mapping[str, int], beside: Mapping[str, int], taken: AssumedUsage,
    most: int = COUNT_MAX,
) -> Ints:  # fmt: skip
    """How many pods fit on each leaf. Only leaves that were taken from are counted anew for a gang.

    Nobody cares about more than `most`.
    """
    if len(pod) >= STACKED_MIN and supply.claimed is None and not len(taken.leaves):
        return _stacked(supply, mask, pod, beside, most)
    rooms = {name: room(supply, mask, name) for name in pod}
    tops = {
        name: min(most, _most(supply, rooms[name], name, amount)) for name, amount in pod.items() if amount
    }
    if not len(taken.leaves):
        return fits(rooms, pod, beside, tops)
    counts = pods_per_leaf(supply, mask, pod, beside, AssumedUsage.nothing(supply), most).copy()
    less = {}
    for name in pod:
        row = supply.resources.get(name)
        less[name] = rooms[name][taken.leaves] - (0 if row is None else taken.amounts[row])
    counts[taken.leaves] = fits(less, pod, beside, tops)
    return counts


def fits(
    rooms: Mapping[str, Ints], pod: Mapping[str, int], beside: Mapping[str, int], tops: Mapping[str, int]
) -> Ints:
    """The number of whole pods: min over resources of room // amount, never negative.

    `beside` is kept free first. No leaf holds more than the smallest of the `tops`; where that is
    a few, pods are counted by comparison instead of division.
    """
    size, top = len(next(iter(rooms.values()))), min(tops.values())
    if top <= 0:
        return np.zeros(size, np.int64)
    if top <= COMPARISONS_MAX:
        few = np.full(size, top, np.uint8)
        for name in tops:
            np.minimum(few, _compared(rooms[name], pod[name], beside.get(name, 0), top), out=few)
        return few.astype(np.int64)
    counts = np.full(size, top, np.int64)
    for name in tops:
        left = rooms[name] - beside[name] if beside.get(name) else rooms[name]
        np.minimum(counts, copies(left, pod[name]), out=counts)
    return counts


def _stacked(
    supply: CapacitySnapshot, mask: Bools, pod: Mapping[str, int], beside: Mapping[str, int], most: int
) -> Ints:
    """The same for many resources: on nodes that are allowed at all, and one division for equal amounts."""
    counts: Ints = np.zeros(supply.leaves, np.int64)
    asked = {name: amount for name, amount in pod.items() if amount}
    if any(name not in supply.resources for name in asked):
        return counts
    names = sorted(asked, key=asked.__getitem__)
    firsts = [i for i, name in enumerate(names) if not i or asked[name] != asked[names[i - 1]]]
    where = np.flatnonzero(mask)
    left = supply.free.take(where, axis=1).take([supply.resources[name] for name in names], axis=0)
    if beside:
        left -= np.array([[beside.get(name, 0)] for name in names])
    fewest = np.minimum.reduceat(left, firsts, axis=0) // np.array([[asked[names[i]]] for i in firsts])
    counts[where] = fewest.min(axis=0).clip(0, most)
    return counts


def _most(supply: CapacitySnapshot, room: Ints, name: str, amount: int) -> int:
    """An upper bound of the pods that any leaf holds."""
    if not len(room):
        return 0
    largest = int(room.max()) if supply.claimed is not None else supply.largest.get(name, 0)
    return largest // amount


def _compared(room: Ints, amount: int, beside: int, top: int) -> NDArray[np.uint8]:
    counts = (room >= amount + beside).view(np.uint8)
    for copy in range(2, top + 1):
        counts = counts + (room >= amount * copy + beside)
    return counts


def copies(room: Ints, amount: int) -> Ints:
    """room // amount, never negative."""
    counts = room // amount if amount > 1 else room
    return np.maximum(counts, 0)
