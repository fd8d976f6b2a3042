"""Candidate victims on nodes with NUMA zones, as arrays: zone amounts and alignment after their removal.

For pods that are constrained only by resources and zones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.capacity import aligned_counts
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.releases import UNKNOWN_ZONES, NumaRelease
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.overlay.numa_overlay import NumaOverlay
from bayplan.placement.preemption.removals import (
    ALREADY_REMOVED,
    LeavingPods,
    VictimMatrix,
    counts,
    pods_of_units,
    requested_rows,
)

VictimRow = tuple[int, int, int]
"""Unit, row, and the number of the release."""


@dataclass(frozen=True, slots=True, eq=False)
class _Released:
    """What removed pods release in the zones of some rows: amounts, and counts of pods."""

    freed: Ints  # resource, zone, row
    removed: Ints
    releasing: Ints  # of the removed pods, those that release anything
    exceeding: Ints  # of the removed pods, those that release nothing to a zone above its limit

    def on(self, rows: Ints) -> _Released:
        return _Released(
            self.freed[:, :, rows], self.removed[rows], self.releasing[rows], self.exceeding[rows]
        )

    def copy(self) -> _Released:
        return _Released(self.freed.copy(), self.removed.copy(), self.releasing.copy(), self.exceeding.copy())

    def without(self, less: _Released) -> _Released:
        return _Released(
            self.freed - less.freed,
            self.removed - less.removed,
            self.releasing - less.releasing,
            self.exceeding - less.exceeding,
        )


class NumaVictims:
    """The victims of a matrix whose removal changes zones; at first all of them are removed."""

    def __init__(self, victims: VictimMatrix, zones: NumaOverlay, table: Ints) -> None:
        self.victims, self.zones, self.columns, self.table = victims, zones, zones.before, table
        self.unit: Ints = table[:, 0]  # of each pod, ascending
        self.row: Ints = table[:, 1]
        self._expand(table[:, 2], list(zones.snapshot.releases.numbers))
        self.zone_limits = np.zeros(self.columns.available.shape, dtype=np.int64)  # allocatable amounts
        self.zone_limits.reshape(-1, self.columns.rows)[self.cell, self.row[self.pod_of_amount]] = (
            self.amount_limits
        )
        over = self.columns.available.reshape(-1, self.columns.rows)[self.cell, self.row[self.pod_of_amount]]
        self.exceeds = np.zeros(len(table), dtype=bool)
        self.exceeds[self.pod_of_amount[(self.amount == 0) & (over > self.amount_limits)]] = True
        self.now = self._released(slice(0, len(table)), np.arange(self.columns.rows), self.columns.rows)

    def part(self, victims: VictimMatrix, units: Sequence[int]) -> NumaVictims:
        """The victims of some units only, which make up `victims` in this order; others are not removed."""
        at, unit = pods_of_units(self.unit, units, self.victims.size)
        return NumaVictims(victims, self.zones, np.column_stack((unit, self.table[at, 1:])))

    def _expand(self, releases: Ints, kinds: Sequence[NumaRelease]) -> None:
        """Expand every release into amounts: the pod, the cell (resource and zone), the amount."""
        resources, places = self.columns.resources, self.columns.places
        amounts = [amount for release in kinds for amount in release.amounts]
        sizes = np.array([len(release.amounts) for release in kinds], dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        self.releases_any = np.array([release.releases_any for release in kinds], dtype=bool)[releases]
        size = sizes[releases]
        self.pod_of_amount: Ints = np.repeat(np.arange(len(releases)), size)  # ascending
        amount_index = np.repeat(starts[releases] - (np.cumsum(size) - size), size) + np.arange(
            len(self.pod_of_amount)
        )
        cells = [resources[amount.resource] * places + amount.place for amount in amounts]
        self.cell: Ints = np.array(cells, dtype=np.int64)[amount_index]
        self.amount: Ints = np.array([amount.amount for amount in amounts], dtype=np.int64)[amount_index]
        self.amount_limits: Ints = np.array([amount.limit for amount in amounts], dtype=np.int64)[
            amount_index
        ]

    def between(self, start: int, stop: int) -> slice:
        """The pods of some units."""
        first, last = np.searchsorted(self.unit, (start, stop))
        return slice(int(first), int(last))

    def _released(self, pods: slice, place: Ints, size: int) -> _Released:
        """What these pods release in `size` rows. `place` maps rows to positions, others to `size`."""
        position = place[self.row[pods]]
        first, last = np.searchsorted(self.pod_of_amount, (pods.start, pods.stop))
        entries = slice(int(first), int(last))
        freed = np.zeros((len(self.columns.resources) * self.columns.places, size + 1), dtype=np.int64)
        np.add.at(
            freed, (self.cell[entries], place[self.row[self.pod_of_amount[entries]]]), self.amount[entries]
        )
        return _Released(
            freed[:, :size].copy().reshape(-1, self.columns.places, size),
            *(
                np.bincount(some, minlength=size + 1)[:size]
                for some in (position, position[self.releases_any[pods]], position[self.exceeds[pods]])
            ),
        )

    def zones_if(self, start: int, stop: int, rows: Ints) -> NumaColumns:
        """The zones of unique rows if these units stay, too, before any pod is added."""
        released = self.now if len(rows) == self.columns.rows else self.now.on(rows)
        if stop > start:
            place = np.full(self.columns.rows, len(rows), dtype=np.int64)
            place[rows] = np.arange(len(rows))
            released = released.without(self._released(self.between(start, stop), place, len(rows)))
        part = narrowed(self.columns, rows)
        available = part.available + released.freed
        too_much = ((released.freed > 0) & (available > self.zone_limits[:, :, rows])).any(axis=(0, 1))
        implausible = (released.removed > 0) & (
            (released.releasing == 0) | (released.exceeding > 0) | too_much
        )
        return replace(part, available=available, fresh=part.fresh & ~implausible)

    def reprieve(self, start: int, stop: int) -> None:
        """Reprieve the units of these numbers."""
        pods = self.between(start, stop)
        rows, released = self.row[pods], self.now
        first, last = np.searchsorted(self.pod_of_amount, (pods.start, pods.stop))
        entries = slice(int(first), int(last))
        freed = released.freed.reshape(-1, self.columns.rows)
        np.subtract.at(
            freed, (self.cell[entries], self.row[self.pod_of_amount[entries]]), self.amount[entries]
        )
        np.subtract.at(released.removed, rows, 1)
        np.subtract.at(released.releasing, rows[self.releases_any[pods]], 1)
        np.subtract.at(released.exceeding, rows[self.exceeds[pods]], 1)

    def overlay_if(self, start: int, stop: int) -> NodeOverlay:
        """An overlay in which these units stay, too. The caller closes it."""
        filter_input, victims = self.victims.overlay.filter_input, self.victims
        columns = self.zones_if(start, stop, np.arange(self.columns.rows))
        node_snapshot = replace(filter_input.node_snapshot, free=victims.free_if(start, stop), memory={})
        overlay = NodeOverlay(
            replace(
                filter_input, node_snapshot=node_snapshot, zones=replace(self.zones.snapshot, columns=columns)
            )
        )
        overlay.before = victims.overlay.before
        assert overlay.zones is not None
        overlay.zones.copy_added(self.zones)
        return overlay


def numa_victims_of(victims: VictimMatrix, zones: NumaOverlay, units: Sequence[Sequence[Pod]]) -> NumaVictims:
    """The victims of a matrix built of these units whose removal changes zones."""
    rows = (
        list(_victim_rows(victims.overlay, zones, units, victims.terminating))
        if zones.snapshot.policy.simulates_evictions
        else []
    )
    return NumaVictims(victims, zones, np.array(rows, dtype=np.int64).reshape(-1, 3))


def _victim_rows(
    overlay: NodeOverlay, zones: NumaOverlay, units: Sequence[Sequence[Pod]], terminating: LeavingPods
) -> Iterator[VictimRow]:
    """All removed pods and candidate victims, in the order of units; a removed pod counts once."""
    snapshot, filter_input = zones.snapshot, overlay.filter_input
    node_index, number = filter_input.node_snapshot.node_index, snapshot.release_number
    seen: set[PodKey] = set()
    already_removed = [
        (key, row, request) for row, pods in zones.removed_pods.items() for key, request in pods.items()
    ]
    rows = node_index.rows()
    for key in terminating.keys:
        running = filter_input.index.pods.get(key)
        request = None if running is None else numa_request_of(snapshot, running.shape)
        if running is not None and request is not None and running.node < len(rows):
            already_removed.append((key, int(rows[running.node]), request))
    for key, row, request in already_removed:
        if row == ABSENT or key in seen:
            continue
        seen.add(key)
        release = number(overlay.node(row), key, request)
        if release != UNKNOWN_ZONES:
            yield ALREADY_REMOVED, row, release
    rows_by_name = node_index.remember(
        "row by name", lambda: {n.name: row for row, n in enumerate(node_index.table.nodes)}
    )
    requests_by_shape: dict[int, NumaRequest | None] = {}  # by identity of the shape
    for unit, pods in enumerate(units):
        for pod in pods:
            shape, row = pod.spec.signature, rows_by_name.get(pod.node, ABSENT)
            if id(shape) not in requests_by_shape:
                requests_by_shape[id(shape)] = numa_request_of(snapshot, shape)
            request = requests_by_shape[id(shape)]
            if request is None or row == ABSENT or (seen and pod.key in seen):
                continue
            release = number(pod.node, pod.key, request)
            if release != UNKNOWN_ZONES:
                yield unit, row, release


class AlignedCapacity:
    """How many equal pods fit while victims are reprieved one after the other."""

    def __init__(
        self,
        numa_victims: NumaVictims,
        shape: PodSignature,
        request: NumaRequest,
        wanted: int,
        allowed_nodes: Bools | None,
    ) -> None:
        self.numa_victims, self.request, self.wanted = numa_victims, request, wanted
        self.requested = requested_rows(numa_victims.victims.overlay, shape)
        self.good = _usable(numa_victims.victims.overlay, shape, allowed_nodes)
        self.fitting = np.zeros(len(self.good), dtype=np.int64)
        rows = np.flatnonzero(self.good)
        if self.requested and len(rows):
            self.fitting[rows] = self._counts(0, 0, rows)

    def count_if_reprieved(self, start: int, stop: int) -> int:
        """The number of pods that fit if these units stay, too."""
        rows = self._rows(start, stop)
        elsewhere = int(self.fitting.sum() - self.fitting[rows].sum())
        if elsewhere >= self.wanted or not len(rows):
            return min(self.wanted, elsewhere)
        return min(self.wanted, elsewhere + int(self._counts(start, stop, rows).sum()))

    def reprieve(self, start: int, stop: int) -> None:
        """Reprieve these units. The NUMA victims are updated separately."""
        rows = self._rows(start, stop)
        if len(rows):
            self.fitting[rows] = self._counts(start, stop, rows)

    def _rows(self, start: int, stop: int) -> Ints:
        victims = self.numa_victims.victims
        touched = np.zeros(len(self.good), dtype=bool)
        touched[victims.row[victims.between(start, stop)]] = True
        return np.flatnonzero(touched & self.good)

    def _counts(self, start: int, stop: int, rows: Ints) -> Ints:
        numa_victims, zones = self.numa_victims, self.numa_victims.zones
        assert self.requested is not None
        fitting = counts(numa_victims.victims.free_if(start, stop, rows), self.requested)
        part = numa_victims.zones_if(start, stop, rows)
        columns = zones.columns_within(part, self.request, rows, np.zeros(len(rows), dtype=np.int64))
        copies = aligned_counts(columns, self.request, zones.snapshot.rules, self.wanted)
        return np.minimum(np.minimum(fitting, copies), self.wanted)


def _usable(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None) -> Bools:
    """The nodes that reject such a pod for nothing but resources or zones."""
    result = overlay.run_filters(shape)
    good = result.fits.copy()
    for (reason, _), nodes in result.rejections.items():
        if reason in (FilterReason.INSUFFICIENT, FilterReason.UNALIGNED):
            good |= nodes
    return good if allowed_nodes is None else good & allowed_nodes
