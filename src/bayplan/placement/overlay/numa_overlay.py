"""What-if overlay of NUMA zones that follows the steps of a node overlay and can be undone.

Pods of equal request on one node get the zones that the kubelet would choose, in any order. For pods of
different requests the order is unknown: each is subtracted from every zone, unless it is assumed that pods
start in the order in which they were added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.numa import NodeZones, NumaRequest
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.alignment import assumed_zones
from bayplan.placement.numa.capacity import aligned_counts, with_copies, with_pods_in_turns
from bayplan.placement.numa.columns import NumaColumns, narrowed, subtracted_everywhere
from bayplan.placement.numa.evictions import ContainerZones, zones_after_eviction
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.resources import whole_pod
from bayplan.placement.numa.snapshot import NumaSnapshot, numa_request_of
from bayplan.placement.overlay.zone_claims import ZoneClaims, closed_rows

VIEWS_MAX = 4
AT_FIRST, ONE = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)


class NumaOverlay:
    """Overlay of zone amounts, recomputed from the pods added and removed per node, so that undo is exact."""

    def __init__(self, snapshot: NumaSnapshot, nodes: Sequence[str]) -> None:
        self.nodes = nodes
        self.before = snapshot.columns
        columns = replace(self.before, available=self.before.available.copy(), fresh=self.before.fresh.copy())
        self.snapshot = replace(snapshot, columns=columns)
        self.claims = ZoneClaims(_rows_of(snapshot.claims, nodes))
        self.claimed: set[PodKey] = set()  # pending pods of the overlay to which zones are promised
        self.beside_claims: dict[NumaRequest, NumaColumns] = {}  # cache until the next step
        self.views: dict[NumaRequest, NumaColumns] = {}  # columns as pods of equal request see them
        self.added: set[PodKey] = set()  # pods added by the overlay
        self.requests_by_row: dict[int, Counter[NumaRequest]] = {}  # their requests by row
        self.in_order = False  # pods start in the order in which they were added
        self.removed_pods: dict[
            int, dict[PodKey, NumaRequest]
        ] = {}  # running pods removed by the overlay, by row
        self.container_zones: dict[str, ContainerZones | None] = {}  # cache by node
        # cache of the amounts of rows without some of their pods
        self.released_rows: dict[tuple[int, frozenset[PodKey]], Ints | None] = {}

    def seen_snapshot(self) -> NumaSnapshot:
        """The snapshot as pods see it. It refers to this overlay, and is not kept here: no cycle."""
        return replace(self.snapshot, columns_seen_by=self.columns_seen_by, limited=self.limited)

    def step(
        self, shape: PodSignature, keys: Sequence[PodKey], rows: Ints, *, added: bool, claimed: bool = False
    ) -> None:
        """Pods were added to rows or removed from them; the inverse call undoes it.

        `claimed`: they are pending, and zones of these rows are promised to them.
        """
        request = numa_request_of(self.snapshot, shape)
        if request is None:
            return
        self.beside_claims.clear()
        if claimed:
            for key, row in zip(keys, rows.tolist(), strict=True):
                (self.claimed.add if added else self.claimed.discard)(key)
                if row != ABSENT:
                    self.claims.add(row, request, 1 if added else -1)
            return
        for key, row in zip(keys, rows.tolist(), strict=True):
            if row == ABSENT:
                continue
            if added:
                self._pod_added(key, row, request)
            else:
                self._pod_removed(key, row, request)
        self._recompute(np.unique(rows[rows != ABSENT]))

    def assumed_zones(
        self, assigned: Iterable[tuple[PodKey, PodSignature, int]]
    ) -> dict[PodKey, tuple[tuple[str, int], ...]]:
        """The zones that pods get if all added pods of their node have equal requests; unknown otherwise."""
        zones_by_pod = {}
        columns_by_row: dict[int, NumaColumns] = {}
        for key, shape, row in assigned:
            request = numa_request_of(self.snapshot, shape)
            if request is None or len(self.requests_by_row.get(row, ())) != 1:
                continue
            if row not in columns_by_row:
                columns_by_row[row] = narrowed(self.before, np.array([row]))
            zones = assumed_zones(columns_by_row[row], 0, request, self.snapshot.rules)
            if zones:
                zones_by_pod[key] = zones
                columns_by_row[row] = with_copies(
                    columns_by_row[row], AT_FIRST, ONE, request, self.snapshot.rules
                )
        return zones_by_pod

    def _pod_added(self, key: PodKey, row: int, request: NumaRequest) -> None:
        removed = self.removed_pods.get(row, {})
        if key in removed:
            del removed[key]
            return
        self.added.add(key)
        self.requests_by_row.setdefault(row, Counter())[request] += 1

    def _pod_removed(self, key: PodKey, row: int, request: NumaRequest) -> None:
        if key not in self.added:
            self.removed_pods.setdefault(row, {})[key] = request
            return
        self.added.discard(key)
        requests = self.requests_by_row[row]
        requests[request] -= 1
        if not requests[request]:
            del requests[request]

    def copy_added(self, others: NumaOverlay) -> None:
        """Copy the added pods of another overlay."""
        self.added, self.claimed = set(others.added), set(others.claimed)
        self.claims = ZoneClaims({row: list(pods.items()) for row, pods in others.claims.by_row.items()})
        self.requests_by_row = {
            row: Counter(requests) for row, requests in others.requests_by_row.items() if requests
        }
        self._recompute(np.array(sorted(self.requests_by_row), dtype=np.int64))

    def _recompute(self, rows: Ints) -> None:
        """Recompute these rows, starting from the amounts before the first step."""
        if not len(rows):
            return
        part = self._without_removed(narrowed(self.before, rows), rows)
        if self.in_order:
            row_requests: list[Mapping[NumaRequest, int]] = [
                self.requests_by_row.get(row, {}) for row in rows.tolist()
            ]
            _write_rows(self.snapshot.columns, rows, self._assign_in_order(part, row_requests))
            return
        by_request: dict[NumaRequest, list[tuple[int, int]]] = {}
        single_request: dict[NumaRequest, list[tuple[int, int]]] = {}
        for at, row in enumerate(rows.tolist()):
            requests: Mapping[NumaRequest, int] = self.requests_by_row.get(row, {})
            for request, count in requests.items():
                by_request.setdefault(request, []).append((at, count))
                if len(requests) == 1:
                    single_request.setdefault(request, []).append((at, count))
        pessimistic = part
        for request, entries in by_request.items():
            at, counts = np.array(entries, dtype=np.int64).T
            pessimistic = _subtract_everywhere(pessimistic, at, counts, request)
        _write_rows(self.snapshot.columns, rows, pessimistic)
        for request, view in self.views.items():
            equal_counts = np.array(single_request.get(request, ()), dtype=np.int64).reshape(-1, 2)
            _write_rows(view, rows, pessimistic)
            if len(equal_counts):
                _write_rows(
                    view,
                    rows[equal_counts[:, 0]],
                    self._with_equal_pods(part, pessimistic, request, equal_counts),
                )

    def set_in_order(self, in_order: bool) -> None:
        """Set whether pods are assumed to start in the order in which they were added."""
        self.in_order = in_order
        self.views.clear()
        self.beside_claims.clear()
        self._recompute(np.array(sorted(self.requests_by_row), dtype=np.int64))

    def _assign_in_order(self, part: NumaColumns, by_row: Sequence[Mapping[NumaRequest, int]]) -> NumaColumns:
        return with_pods_in_turns(part, [list(requests.items()) for requests in by_row], self.snapshot.rules)

    def columns_seen_by(self, request: NumaRequest) -> NumaColumns:
        """The columns as a pod with this request sees them, without rows whose zones are promised."""
        if not self.claims.by_row:
            return self._columns_seen_by(request)
        if request not in self.beside_claims:
            columns = self._columns_seen_by(request)
            closed = self.claims.closed(columns, np.arange(columns.rows), request, self.snapshot.rules)
            self.beside_claims[request] = closed_rows(columns, closed)
        return self.beside_claims[request]

    def limited(self, request: NumaRequest, counts: Ints) -> Ints:
        """How many such pods the rows can have beside the promised ones."""
        columns = self._columns_seen_by(request)
        return self.claims.limited(counts, columns, request, self.snapshot.rules)

    def _columns_seen_by(self, request: NumaRequest) -> NumaColumns:
        """The columns as a pod with this request sees them: the zones of equal pods are known."""
        if self.in_order:
            return self.snapshot.columns
        if request in self.views:
            return self.views[request]
        rows = [
            row
            for row, requests in self.requests_by_row.items()
            if len(requests) == 1 and request in requests
        ]
        columns = self.snapshot.columns
        if not rows:
            return columns
        while len(self.views) >= VIEWS_MAX:
            del self.views[next(iter(self.views))]
        view = replace(columns, available=columns.available.copy(), fresh=columns.fresh.copy())
        at = np.array(sorted(rows), dtype=np.int64)
        counts = np.array([self.requests_by_row[row][request] for row in at.tolist()], dtype=np.int64)
        equal_counts = np.stack((np.arange(len(at)), counts), axis=1)
        part = self._without_removed(narrowed(self.before, at), at)
        _write_rows(view, at, self._with_equal_pods(part, narrowed(columns, at), request, equal_counts))
        self.views[request] = view
        return view

    def columns_after(self, request: NumaRequest, rows: Ints, more: Ints) -> NumaColumns:
        """Rows as such a pod sees them after `more` equal pods on each; a row may occur several times."""
        part = self._without_removed(narrowed(self.before, rows), rows)
        return self.columns_within(part, request, rows, more)

    def columns_within(self, part: NumaColumns, request: NumaRequest, rows: Ints, more: Ints) -> NumaColumns:
        """The same, with `part` as the rows before any pod was added."""
        columns = self._columns_within(part, request, rows, more)
        return closed_rows(columns, self.claims.closed(columns, rows, request, self.snapshot.rules))

    def _columns_within(self, part: NumaColumns, request: NumaRequest, rows: Ints, more: Ints) -> NumaColumns:
        if self.in_order:
            requests = [Counter(self.requests_by_row.get(row, ())) for row in rows.tolist()]
            for row_requests, count in zip(requests, more.tolist(), strict=True):
                row_requests.update({request: count} if count else {})
            return self._assign_in_order(part, requests)
        equal_counts, pessimistic = more.copy(), part
        mixed: list[int] = []
        by_request: dict[NumaRequest, list[tuple[int, int]]] = {}
        has_added = (
            np.isin(rows, np.fromiter(self.requests_by_row, np.int64)) if self.requests_by_row else rows < 0
        )
        for at in np.flatnonzero(has_added).tolist():
            row_requests = self.requests_by_row[int(rows[at])]
            equal_counts[at] += row_requests.get(request, 0)
            if len(row_requests) > (request in row_requests):
                mixed.append(at)
            for other, count in row_requests.items():
                if other != request:
                    by_request.setdefault(other, []).append((at, count))
        occupied = np.flatnonzero(equal_counts)
        pessimistic = (
            _subtract_everywhere(pessimistic, occupied, equal_counts[occupied], request)
            if len(occupied)
            else pessimistic
        )
        for other, entries in by_request.items():
            at_rows, counts = np.array(entries, dtype=np.int64).T
            pessimistic = _subtract_everywhere(pessimistic, at_rows, counts, other)
        equal_counts[mixed] = 0
        unmixed = np.flatnonzero(equal_counts)
        if len(unmixed):
            filled = self._with_equal_pods(
                part, pessimistic, request, np.stack((unmixed, equal_counts[unmixed]), axis=1)
            )
            _write_rows(pessimistic, unmixed, filled)
        return pessimistic

    def _with_equal_pods(
        self, part: NumaColumns, pessimistic: NumaColumns, request: NumaRequest, equal_counts: Ints
    ) -> NumaColumns:
        """Rows of a part with equal pods in their zones; the pessimistic amounts where they do not fit."""
        rules, (at, counts) = self.snapshot.rules, equal_counts.T
        subset = narrowed(part, at)
        fits = aligned_counts(subset, request, rules, int(counts.max())) >= counts
        filled = with_copies(subset, np.flatnonzero(fits), counts[fits], request, rules)
        filled.available[:, :, ~fits] = pessimistic.available[:, :, at[~fits]]
        return filled

    def _without_removed(self, part: NumaColumns, rows: Ints) -> NumaColumns:
        """The rows after removed pods released their exclusive resources, as far as their zones are known."""
        if not self.removed_pods or not self.snapshot.policy.simulates_evictions:
            return part
        for at, row in enumerate(rows.tolist()):
            removed = self.removed_pods.get(row)
            if not removed:
                continue
            key = (row, frozenset(removed))
            if key not in self.released_rows:
                self.released_rows[key] = self._amounts_without(row, removed)
            amounts = self.released_rows[key]
            if amounts is None:
                part.fresh[at] = False  # the amounts after the removal are unknown
            else:
                part.available[:, :, at] = amounts
        return part

    def _amounts_without(self, row: int, removed: Mapping[PodKey, NumaRequest]) -> Ints | None:
        """The zone amounts of a row without some pods; None if they are unknown."""
        name, available = self.nodes[row], self.before.available[:, :, row]
        report = self.snapshot.reports.get(name)
        if report is None:
            return available
        if name not in self.container_zones:
            self.container_zones[name] = self.snapshot.container_zones(name)
        victims = [RunningPod((key.namespace, key.name), request) for key, request in removed.items()]
        zones = zones_after_eviction(report, victims, self.container_zones[name], self.snapshot.policy)
        if not isinstance(zones, NodeZones):
            return None
        available = available.copy()
        for place, zone in enumerate(zones.zones):
            for resource, amount in zone.available.items():
                available[self.before.resources[resource], place] = max(amount, 0)
        return available


def _rows_of(
    claims: Mapping[str, Sequence[tuple[NumaRequest, int]]], nodes: Sequence[str]
) -> dict[int, Sequence[tuple[NumaRequest, int]]]:
    return {row: claims[name] for row, name in enumerate(nodes) if name in claims} if claims else {}


def _write_rows(columns: NumaColumns, rows: Ints, part: NumaColumns) -> None:
    columns.available[:, :, rows], columns.fresh[rows] = part.available, part.fresh


def _subtract_everywhere(part: NumaColumns, at: Ints, counts: Ints, request: NumaRequest) -> NumaColumns:
    return subtracted_everywhere(part, at, dict(whole_pod(request, sidecars_stay=True)), counts)
