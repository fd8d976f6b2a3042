"""NUMA zones that are promised to pods which are not bound yet: other pods have to leave room for them.

A kubelet gives a pod the lowest zone that has room, whether it is promised or not. So a pod may use a node
only if the promised pods still find their zones when they start after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.numa import NumaRequest, ZoneRules
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.capacity import fit_in_turns
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.resources import CPU, MEMORY, is_indifferent, whole_pod

Pods = Sequence[tuple[NumaRequest, int]]
PODS_MAX = 4096
"""More pods of a kind than this are not tried on one node."""


class ZoneClaims:
    """The promised pods of each row, by request, in the order in which they were promised."""

    def __init__(self, by_row: Mapping[int, Pods] | None = None) -> None:
        self.by_row: dict[int, Counter[NumaRequest]] = {}
        for row, pods in (by_row or {}).items():
            for request, count in pods:
                self.add(row, request, count)

    def add(self, row: int, request: NumaRequest, more: int = 1) -> None:
        """Promise zones of a row to so many more pods, or to fewer."""
        requests = self.by_row.setdefault(row, Counter())
        requests[request] += more
        if requests[request] <= 0:
            del requests[request]
        if not requests:
            del self.by_row[row]

    def closed(self, part: NumaColumns, rows: Ints, request: NumaRequest, rules: ZoneRules) -> Ints:
        """The positions in a part, of these rows, where too little would be left beside such a pod."""
        at = self._positions(rows)
        if not len(at):
            return at
        fits = self._fits(narrowed(part, at), rows[at], [(request, 1)] * len(at), rules)
        return at[~fits]

    def limited(self, counts: Ints, columns: NumaColumns, request: NumaRequest, rules: ZoneRules) -> Ints:
        """How many such pods each row can have beside the promised ones, at most as counted.

        The number is found by doubling, then bisection: it may be large, and fewer pods leave no less.
        """
        at = self._positions(np.arange(len(counts)))
        at = at[counts[at] > 1]
        if not len(at):
            return counts
        fitting = np.ones(len(at), dtype=np.int64)
        most = np.minimum(counts[at], PODS_MAX)
        too_many = most + 1
        while len(open_ := np.flatnonzero(too_many - fitting > 1)):
            middle = (fitting[open_] + too_many[open_]) // 2
            tried = np.minimum(2 * fitting[open_], middle)
            rows = at[open_]
            pods = [(request, int(count)) for count in tried]
            fits = self._fits(narrowed(columns, rows), rows, pods, rules)
            fitting[open_[fits]] = tried[fits]
            too_many[open_[~fits]] = tried[~fits]
        counts = counts.copy()
        limited = fitting < most
        counts[at[limited]] = fitting[limited]
        return counts

    def _positions(self, rows: Ints) -> Ints:
        if not self.by_row:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.isin(rows, np.fromiter(self.by_row, np.int64)))

    def _fits(self, part: NumaColumns, rows: Ints, first: Pods, rules: ZoneRules) -> Bools:
        """By position: whether these pods fit first, and then the promised ones."""
        promised = [
            [pair for pair in self.by_row[row].items() if not is_indifferent(pair[0], rules)]
            for row in rows.tolist()
        ]
        return _fit_in_some_order(part, [[pod] for pod in first], promised, rules)


def lost_nodes(columns: NumaColumns, claims: Mapping[int, Pods], rules: ZoneRules) -> Collection[int]:
    """The rows whose zones cannot hold all pods that they are promised to."""
    if not claims:
        return ()
    rows = np.array(sorted(claims), dtype=np.int64)
    promised = [list(_joined(claims[row]).items()) for row in rows.tolist()]
    fits = _fit_in_some_order(narrowed(columns, rows), [[] for _ in promised], promised, rules)
    found: list[int] = rows[~fits].tolist()
    return found


def closed_rows(columns: NumaColumns, at: Ints) -> NumaColumns:
    """The columns without room in these rows."""
    if not len(at):
        return columns
    available = columns.available.copy()
    available[:, :, at] = np.minimum(available[:, :, at], 0)
    return replace(columns, available=available)


def _fit_in_some_order(
    part: NumaColumns, first: Sequence[Pods], promised: Sequence[Pods], rules: ZoneRules
) -> Bools:
    """By position: whether pods fit in the order of their promises, or those with most devices first."""
    fits = fit_in_turns(part, [[*one, *pods] for one, pods in zip(first, promised, strict=True)], rules)
    again = np.flatnonzero(~fits)
    if len(again):
        by_size = [[*first[at], *sorted(promised[at], key=_size, reverse=True)] for at in again.tolist()]
        fits[again] = fit_in_turns(narrowed(part, again), by_size, rules)
    return fits


def _joined(pods: Iterable[tuple[NumaRequest, int]]) -> Counter[NumaRequest]:
    total: Counter[NumaRequest] = Counter()
    for request, count in pods:
        total[request] += count
    return total


def _size(pods: tuple[NumaRequest, int]) -> tuple[int, int]:
    """Devices of a pod, then CPUs."""
    amounts = dict(whole_pod(pods[0], sidecars_stay=True))
    cpu = amounts.pop(CPU, 0)
    amounts.pop(MEMORY, None)
    return sum(amounts.values()), cpu
