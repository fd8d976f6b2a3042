"""Packs identical pods so that racks stay whole: on one host, else in one rack, else in as few as possible.

Pods that fit one host go to hosts in use already, in the racks that are most broken: those with the fewest
unused hosts, then the least free. So later gangs find whole racks. Larger gangs go to the tightest rack that
holds them, else to the tightest domain above, where the largest racks are filled first.
"""

from __future__ import annotations

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot, paths
from bayplan.placement.cluster.resource_fit import leading
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.fill import fill, order

SUM_MAX = 2**44  # of a resource on one node; larger amounts are capped so that no sum overflows


def rows_in_racks(
    node_snapshot: NodeSnapshot, shape: PodSignature, rows: Ints, counts: Ints, wanted: int
) -> Ints:
    """A row for each of the pods wanted; `counts` pods fit each of `rows`, together enough.

    The rows come in the order that decides between equals.
    """
    domains = paths(node_snapshot.node_index, node_snapshot.levels)
    free, unused = _free(node_snapshot, shape)
    racks = domains[-1]
    broken = _sums(racks, unused)[racks[rows]], _sums(racks, free)[racks[rows]]  # by row, of its rack
    holds = counts >= wanted
    if holds.any():
        at = _first(holds, unused[rows], *broken, free[rows])
        return np.repeat(rows[at], wanted)
    inside = np.ones(len(rows), dtype=bool)
    for level in reversed(domains):
        totals = _sums(level[rows], counts)[level[rows]]
        if (totals >= wanted).any():
            inside = level[rows] == level[rows[_first(totals >= wanted, totals, *broken)]]
            break
    rows, counts = rows[inside], counts[inside]
    by_rack = order(-_sums(racks[rows], counts)[racks[rows]], broken[0][inside], broken[1][inside])
    position = _in_turn(racks[rows], counts, by_rack, wanted)
    chosen = order(position, free[rows])
    return rows[chosen].repeat(counts[chosen])[:wanted]


def _free(node_snapshot: NodeSnapshot, shape: PodSignature) -> tuple[Ints, Ints]:
    """By node, how much is free of the pod's leading resource, and 1 where nothing of it is in use."""
    at = node_snapshot.resources.get(leading(name for name, amount in shape.amounts if amount > 0))
    if at is None:
        nothing = np.zeros(len(node_snapshot.node_index), dtype=np.int64)
        return nothing, nothing
    free = node_snapshot.free[at]
    unused = (free >= node_snapshot.allocatable[at]) & (free > 0)
    return free.clip(-SUM_MAX, SUM_MAX), unused.astype(np.int64)


def _sums(domain: Ints, amounts: Ints) -> Ints:
    """Amounts by node summed by domain."""
    return np.bincount(domain, weights=amounts).astype(np.int64)


def _first(able: Bools, *keys: Ints) -> int:
    """The position of the first in the order of several keys, among those that are able."""
    left = np.flatnonzero(able)
    for key in keys:
        value = key[left]
        left = left[value == value.min()]
    return int(left[0])


def _in_turn(racks: Ints, counts: Ints, by_rack: Ints, wanted: int) -> Ints:
    """By row, the turn of its rack; racks that are not used come last."""
    turns = racks[by_rack]
    domains = turns[np.sort(np.unique(turns, return_index=True)[1])]
    alone = np.zeros(len(domains), dtype=np.int64)
    shared = fill(domains, alone, _sums(racks, counts), np.array([wanted]), True, None)
    turn = np.full(int(racks.max()) + 1, len(domains), dtype=np.int64)
    turn[shared.domains] = np.arange(len(shared.domains))
    return turn[racks]
