"""What-if overlay of NUMA zones by topology for admission: pending pods take the zones kubelets would choose.

A report has the total usage of running pods and rarely the zone of each. When pods are removed, a zone is
assumed to gain only the amount that is certain, wherever the pods ran.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayplan.model.numa import NumaRequest, ZoneRules
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.capacity import aligned_counts, with_copies, with_pods_in_turns
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.evictions import ContainerZones
from bayplan.placement.numa.fingerprint import Name
from bayplan.placement.numa.resources import is_exclusive, is_indifferent, long_running_containers

EMPTY = "empty"
Key = tuple[int, int]
"""Identity of pods: the ids of an assignment and of its requests; their owner keeps both alive."""


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Equal pods of one gang on one node: how many the report does not count yet, and the running ones."""

    request: NumaRequest
    pending: int
    running: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class NumaStock:
    """The zones under one topology, rows as in its tree, and the gangs that have pods there."""

    reported: NumaColumns  # less the usage of pods without gang that reports do not count yet
    whole: Callable[[], NumaColumns]  # the same zones without any pod
    names: Sequence[str]  # of nodes, by row
    pods_by_row: Mapping[int, Mapping[Key, PendingPods]]  # by row, in order of arrival
    container_zones: Callable[[str], ContainerZones | None]  # by node, the zones of containers, if reported
    memory: dict[object, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PodMove:
    """Pods added to rows, or removed from them if `times` is negative."""

    times: int
    key: Key
    request: NumaRequest
    rows: Ints
    pods: Ints


class TopologyNumaOverlay:
    """Zones by topology, with the pods added and removed during one decision."""

    def __init__(self, stocks: Mapping[str, NumaStock], rules: ZoneRules) -> None:
        self.stocks, self.rules = stocks, rules

    def after(self, topology: str, moves: Iterable[PodMove]) -> NumaColumns | None:
        """The zones after these moves; None if no node under the topology reports zones."""
        stock = self.stocks.get(topology)
        if stock is None:
            return None
        moves = [move for move in moves if not is_indifferent(move.request, self.rules) and len(move.rows)]
        with_pending = self._with_pending_pods(stock)
        if not moves:
            return with_pending
        removed = {move.key for move in moves if move.times < 0}
        rows = np.unique(np.concatenate([move.rows for move in moves]))
        part = self._without(stock, rows, removed) if removed else narrowed(with_pending, rows)
        for move in moves:
            if move.times > 0:
                at = np.searchsorted(rows, move.rows)
                part = with_copies(part, at, move.pods * move.times, move.request, self.rules)
        return _with_rows(with_pending, rows, part)

    def empty(self, topology: str) -> NumaColumns | None:
        """The zones as they would be without any placed gang."""
        stock = self.stocks.get(topology)
        if stock is None:
            return None
        if EMPTY not in stock.memory:
            rows = _occupied(stock, lambda _: True)
            stock.memory[EMPTY] = _with_rows(stock.reported, rows, self._without(stock, rows, None))
        columns: NumaColumns = stock.memory[EMPTY]
        return columns

    def fits(self, columns: NumaColumns, request: NumaRequest, rows: Ints, pods: Ints) -> bool:
        """Whether the zones of each row fit its number of pods."""
        if is_indifferent(request, self.rules) or not len(rows):
            return True
        counts = aligned_counts(narrowed(columns, rows), request, self.rules, int(pods.max()))
        return bool((counts >= pods).all())

    def _with_pending_pods(self, stock: NumaStock) -> NumaColumns:
        """The zones with all pending pods, computed once for a stock and its rules."""
        if self.rules not in stock.memory:
            rows = _occupied(stock, lambda pods: pods.pending > 0)
            stock.memory[self.rules] = _with_rows(stock.reported, rows, self._without(stock, rows, ()))
        with_pending: NumaColumns = stock.memory[self.rules]
        return with_pending

    def _without(self, stock: NumaStock, rows: Ints, removed: Collection[Key] | None) -> NumaColumns:
        """Some rows without these gangs (None: without any gang), and with the pending pods of the others."""
        part = narrowed(stock.reported, rows)
        remaining: list[list[PendingPods]] = []
        removed_pods: dict[int, list[PendingPods]] = {}
        for at, row in enumerate(rows.tolist()):
            remaining.append([])
            for key, pods in stock.pods_by_row.get(row, {}).items():
                if removed is None or key in removed:
                    removed_pods.setdefault(at, []).append(pods)
                else:
                    remaining[-1].append(pods)
        if any(pods.running for entries in removed_pods.values() for pods in entries):
            _release(
                part,
                narrowed(stock.whole(), rows),
                removed_pods,
                [stock.container_zones(stock.names[row]) for row in rows.tolist()],
            )
        pending = [
            [
                (pods.request, pods.pending)
                for pods in row_pods
                if pods.pending and not is_indifferent(pods.request, self.rules)
            ]
            for row_pods in remaining
        ]
        return with_pods_in_turns(part, pending, self.rules)


def _occupied(stock: NumaStock, counts: Callable[[PendingPods], bool]) -> Ints:
    """The rows of nodes with pods for which `counts` holds."""
    rows = [row for row, entries in stock.pods_by_row.items() if any(map(counts, entries.values()))]
    return np.array(sorted(rows), dtype=np.int64)


def _with_rows(columns: NumaColumns, rows: Ints, part: NumaColumns) -> NumaColumns:
    if not len(rows):
        return columns
    available = columns.available.copy()
    available[:, :, rows] = part.available
    return replace(columns, available=available)


def _release(
    part: NumaColumns,
    whole: NumaColumns,
    removed_pods: Mapping[int, Sequence[PendingPods]],
    container_zones: Sequence[ContainerZones | None],
) -> None:
    """Add to the zones of the part the exclusive resources of removed pods, as far as they are certain."""
    before = part.available.copy()
    total: dict[str, Ints] = {}
    for at, entries in removed_pods.items():
        for pods in entries:
            for resource, amount, zone in _exclusive_usage(pods, container_zones[at], part.resources):
                released = total.setdefault(resource, np.zeros(part.rows, dtype=np.int64))
                if zone is None:
                    released[at] += amount
                else:
                    part.available[part.resources[resource], part.numbers[:, at] == zone, at] += amount
    for resource, released in total.items():
        before_release, available, capacity = (
            before[part.resources[resource]],
            part.available[part.resources[resource]],
            whole.room(resource),
        )
        listed = before_release >= 0
        limit = before_release if capacity is None else np.maximum(capacity, before_release)
        used = np.where(listed, np.maximum(limit - available, 0), 0)
        available += np.clip(released - (used.sum(axis=0) - used), 0, used)  # the rest may be in other zones
        available[:] = np.where(listed, np.minimum(available, limit), before_release)


def _exclusive_usage(
    pods: PendingPods, container_zones: ContainerZones | None, listed: Collection[str]
) -> Iterable[tuple[str, int, int | None]]:
    """The exclusive resources of running pods: resource, amount, and the zone if known."""
    for name in pods.running:
        for container in long_running_containers(pods.request):
            zone = None if container_zones is None else container_zones.get((*name, container.name))
            for resource, amount in container.requests:
                if resource in listed and is_exclusive(pods.request.qos, resource, amount, listed):
                    yield resource, amount, zone
