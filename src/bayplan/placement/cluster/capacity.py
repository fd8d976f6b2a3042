"""How many pods of given requests fit on each leaf domain of a capacity snapshot."""

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
"""Lower bound of a node's free amount when nodes are summed, so that no sum overflows."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedUsage:
    """Usage per leaf of the pod sets of the same gang that were placed before; leaves ascending, unique."""

    leaves: Ints
    amounts: Ints  # resource by leaf, rows as in the snapshot

    @staticmethod
    def nothing(snapshot: CapacitySnapshot) -> AssumedUsage:
        return AssumedUsage(np.zeros(0, np.int64), np.zeros((len(snapshot.resources), 0), np.int64))

    def plus(
        self, snapshot: CapacitySnapshot, leaves: Ints, pods: Ints, requests: Mapping[str, int]
    ) -> AssumedUsage:
        """This usage plus that of `pods` more pods on each of the leaves."""
        added = np.zeros((len(snapshot.resources), len(leaves)), np.int64)
        for name, amount in with_slot(requests).items():
            if name in snapshot.resources:
                added[snapshot.resources[name]] = pods * amount
        all_leaves, position = np.unique(np.concatenate((self.leaves, leaves)), return_inverse=True)
        total = np.zeros((len(snapshot.resources), len(all_leaves)), np.int64)
        for row, amounts in enumerate(np.concatenate((self.amounts, added), axis=1)):
            np.add.at(total[row], position, amounts)
        return AssumedUsage(all_leaves, total)


def with_slot(requests: Mapping[str, int]) -> dict[str, int]:
    """A pod's requests plus the pod slot it occupies."""
    return {**requests, PODS: requests.get(PODS, 0) + 1}


def free_per_leaf(snapshot: CapacitySnapshot, mask: Bools, resource: str) -> Ints:
    """The free amount of a resource on each leaf, before this gang."""
    row = snapshot.resources.get(resource)
    if row is None:
        return np.zeros(snapshot.leaves, np.int64)
    if snapshot.claimed is None:
        free: Ints = snapshot.free[row]
        return free
    allowed_free = np.where(mask, np.maximum(snapshot.free[row], OVERUSED_MAX), 0)
    left: Ints = (
        np.add.reduceat(allowed_free, snapshot.tree.starts[snapshot.tree.lowest]) - snapshot.claimed[row]
    )
    return left


def free_after_usage(snapshot: CapacitySnapshot, mask: Bools, resource: str, assumed: AssumedUsage) -> Ints:
    """The free amount of a resource on each leaf after the assumed usage of earlier pod sets."""
    left = free_per_leaf(snapshot, mask, resource)
    row = snapshot.resources.get(resource)
    if row is not None and len(assumed.leaves):
        left = left.copy()
        left[assumed.leaves] -= assumed.amounts[row]
    return left


def pods_per_leaf(
    snapshot: CapacitySnapshot, mask: Bools, pod: Mapping[str, int], reserved: Mapping[str, int],
    assumed: AssumedUsage, limit: int = COUNT_MAX,
) -> Ints:  # fmt: skip
    """How many pods fit on each leaf, at most `limit`.

    `reserved` is kept free on each leaf first. Only leaves with assumed usage are counted again for a gang.
    """
    if len(pod) >= STACKED_MIN and snapshot.claimed is None and not len(assumed.leaves):
        return _pods_per_leaf_stacked(snapshot, mask, pod, reserved, limit)
    free = {name: free_per_leaf(snapshot, mask, name) for name in pod}
    bounds = {
        name: min(limit, _upper_bound(snapshot, free[name], name, amount))
        for name, amount in pod.items()
        if amount
    }
    if not len(assumed.leaves):
        return fits(free, pod, reserved, bounds)
    counts = pods_per_leaf(snapshot, mask, pod, reserved, AssumedUsage.nothing(snapshot), limit).copy()
    left = {}
    for name in pod:
        row = snapshot.resources.get(name)
        left[name] = free[name][assumed.leaves] - (0 if row is None else assumed.amounts[row])
    counts[assumed.leaves] = fits(left, pod, reserved, bounds)
    return counts


def fits(
    free: Mapping[str, Ints], pod: Mapping[str, int], reserved: Mapping[str, int], bounds: Mapping[str, int]
) -> Ints:
    """The number of whole pods: the minimum over resources of free // amount, never negative.

    `reserved` is kept free first. No leaf holds more than the smallest of the `bounds`; where that is
    small, pods are counted by comparison instead of division.
    """
    size, bound = len(next(iter(free.values()))), min(bounds.values())
    if bound <= 0:
        return np.zeros(size, np.int64)
    if bound <= COMPARISONS_MAX:
        small_counts = np.full(size, bound, np.uint8)
        for name in bounds:
            np.minimum(
                small_counts,
                _counts_by_comparison(free[name], pod[name], reserved.get(name, 0), bound),
                out=small_counts,
            )
        return small_counts.astype(np.int64)
    counts = np.full(size, bound, np.int64)
    for name in bounds:
        left = free[name] - reserved[name] if reserved.get(name) else free[name]
        np.minimum(counts, copies(left, pod[name]), out=counts)
    return counts


def _pods_per_leaf_stacked(
    snapshot: CapacitySnapshot, mask: Bools, pod: Mapping[str, int], reserved: Mapping[str, int], limit: int
) -> Ints:
    """`pods_per_leaf` for many resources: only on allowed nodes, with one division for equal amounts."""
    counts: Ints = np.zeros(snapshot.leaves, np.int64)
    requested = {name: amount for name, amount in pod.items() if amount}
    if any(name not in snapshot.resources for name in requested):
        return counts
    names = sorted(requested, key=requested.__getitem__)
    firsts = [i for i, name in enumerate(names) if not i or requested[name] != requested[names[i - 1]]]
    rows = np.flatnonzero(mask)
    left = snapshot.free.take(rows, axis=1).take([snapshot.resources[name] for name in names], axis=0)
    if reserved:
        left -= np.array([[reserved.get(name, 0)] for name in names])
    fewest = np.minimum.reduceat(left, firsts, axis=0) // np.array([[requested[names[i]]] for i in firsts])
    counts[rows] = fewest.min(axis=0).clip(0, limit)
    return counts


def _upper_bound(snapshot: CapacitySnapshot, free: Ints, name: str, amount: int) -> int:
    """An upper bound of the pods that fit on any leaf."""
    if not len(free):
        return 0
    largest = int(free.max()) if snapshot.claimed is not None else snapshot.largest.get(name, 0)
    return largest // amount


def _counts_by_comparison(free: Ints, amount: int, reserved: int, bound: int) -> NDArray[np.uint8]:
    counts = (free >= amount + reserved).view(np.uint8)
    for copy in range(2, bound + 1):
        counts = counts + (free >= amount * copy + reserved)
    return counts


def copies(free: Ints, amount: int) -> Ints:
    """free // amount, never negative."""
    counts = free // amount if amount > 1 else free
    return np.maximum(counts, 0)
