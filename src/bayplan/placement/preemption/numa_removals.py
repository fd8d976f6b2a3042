"""Pods that could go from nodes with zones, as arrays: what zones would hold, and how many pods they align.

For pods to which nothing matters but room and zones.
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
from bayplan.placement.numa.releases import SILENT, NumaRelease
from bayplan.placement.numa.snapshot import minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.overlay.numa_overlay import NumaOverlay
from bayplan.placement.preemption.removals import (
    BEFORE,
    LeavingPods,
    VictimMatrix,
    asked_rows,
    counts,
    picked,
)

Leaver = tuple[int, int, int]
"""Unit, row, and the number of the gift."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loss:
    """What the zones of some rows would have got from those who leave: amounts, and counts of pods."""

    freed: Ints  # resource, zone, row
    leave: Ints
    give: Ints  # of those who leave, the ones that give anything back
    spoil: Ints  # of those who leave, the ones that give nothing to a zone that has too much already

    def on(self, rows: Ints) -> _Loss:
        return _Loss(self.freed[:, :, rows], self.leave[rows], self.give[rows], self.spoil[rows])

    def copy(self) -> _Loss:
        return _Loss(self.freed.copy(), self.leave.copy(), self.give.copy(), self.spoil.copy())

    def without(self, less: _Loss) -> _Loss:
        return _Loss(
            self.freed - less.freed, self.leave - less.leave, self.give - less.give, self.spoil - less.spoil
        )


class NumaVictims:
    """Those of a crowd whose going means something to zones; at first all of them are gone."""

    def __init__(self, crowd: VictimMatrix, zones: NumaOverlay, table: Ints) -> None:
        self.crowd, self.zones, self.columns, self.table = crowd, zones, zones.before, table
        self.unit: Ints = table[:, 0]  # of each pod, ascending
        self.row: Ints = table[:, 1]
        self._unwrap(table[:, 2], list(zones.ground.gifts.numbers))
        self.most = np.zeros(self.columns.available.shape, dtype=np.int64)  # that zones can have
        self.most.reshape(-1, self.columns.rows)[self.cell, self.row[self.giver]] = self.share_most
        over = self.columns.available.reshape(-1, self.columns.rows)[self.cell, self.row[self.giver]]
        self.spoils = np.zeros(len(table), dtype=bool)
        self.spoils[self.giver[(self.amount == 0) & (over > self.share_most)]] = True
        self.now = self._loss(slice(0, len(table)), np.arange(self.columns.rows), self.columns.rows)

    def part(self, crowd: VictimMatrix, units: Sequence[int]) -> NumaVictims:
        """Those of some units only, which are this crowd in this order; the others are not gone at all."""
        at, unit = picked(self.unit, units, self.crowd.size)
        return NumaVictims(crowd, self.zones, np.column_stack((unit, self.table[at, 1:])))

    def _unwrap(self, gifts: Ints, kinds: Sequence[NumaRelease]) -> None:
        """Every share of every gift: whose it is, the cell (resource and zone) it goes to, how much."""
        resources, places = self.columns.resources, self.columns.places
        shares = [share for gift in kinds for share in gift.shares]
        sizes = np.array([len(gift.shares) for gift in kinds], dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        self.gives = np.array([gift.something for gift in kinds], dtype=bool)[gifts]
        size = sizes[gifts]
        self.giver: Ints = np.repeat(np.arange(len(gifts)), size)  # ascending
        which = np.repeat(starts[gifts] - (np.cumsum(size) - size), size) + np.arange(len(self.giver))
        cells = [resources[share.resource] * places + share.place for share in shares]
        self.cell: Ints = np.array(cells, dtype=np.int64)[which]
        self.amount: Ints = np.array([share.amount for share in shares], dtype=np.int64)[which]
        self.share_most: Ints = np.array([share.most for share in shares], dtype=np.int64)[which]

    def between(self, start: int, stop: int) -> slice:
        """The pods of some units."""
        first, last = np.searchsorted(self.unit, (start, stop))
        return slice(int(first), int(last))

    def _loss(self, pods: slice, place: Ints, size: int) -> _Loss:
        """What these pods give back to `size` rows; by row, its place among these, or `size` for others."""
        at = place[self.row[pods]]
        first, last = np.searchsorted(self.giver, (pods.start, pods.stop))
        given = slice(int(first), int(last))
        freed = np.zeros((len(self.columns.resources) * self.columns.places, size + 1), dtype=np.int64)
        np.add.at(freed, (self.cell[given], place[self.row[self.giver[given]]]), self.amount[given])
        return _Loss(
            freed[:, :size].copy().reshape(-1, self.columns.places, size),
            *(
                np.bincount(some, minlength=size + 1)[:size]
                for some in (at, at[self.gives[pods]], at[self.spoils[pods]])
            ),
        )

    def zones_if(self, start: int, stop: int, rows: Ints) -> NumaColumns:
        """The zones of some rows if units stay, too, before anybody is seated; rows are given once."""
        now = self.now if len(rows) == self.columns.rows else self.now.on(rows)
        if stop > start:
            place = np.full(self.columns.rows, len(rows), dtype=np.int64)
            place[rows] = np.arange(len(rows))
            now = now.without(self._loss(self.between(start, stop), place, len(rows)))
        part = narrowed(self.columns, rows)
        room = part.available + now.freed
        too_much = ((now.freed > 0) & (room > self.most[:, :, rows])).any(axis=(0, 1))
        odd = (now.leave > 0) & ((now.give == 0) | (now.spoil > 0) | too_much)
        return replace(part, available=room, fresh=part.fresh & ~odd)

    def stay(self, start: int, stop: int) -> None:
        """Units of these numbers are not gone after all."""
        pods = self.between(start, stop)
        rows, now = self.row[pods], self.now
        first, last = np.searchsorted(self.giver, (pods.start, pods.stop))
        given = slice(int(first), int(last))
        freed = now.freed.reshape(-1, self.columns.rows)
        np.subtract.at(freed, (self.cell[given], self.row[self.giver[given]]), self.amount[given])
        np.subtract.at(now.leave, rows, 1)
        np.subtract.at(now.give, rows[self.gives[pods]], 1)
        np.subtract.at(now.spoil, rows[self.spoils[pods]], 1)

    def floor_if(self, start: int, stop: int) -> NodeOverlay:
        """A floor as it is if these units stay, too; close it."""
        scene, crowd = self.crowd.floor.scene, self.crowd
        columns = self.zones_if(start, stop, np.arange(self.columns.rows))
        ground = replace(scene.ground, free=crowd.free_if(start, stop), memory={})
        found = NodeOverlay(replace(scene, ground=ground, zones=replace(self.zones.ground, columns=columns)))
        found.before = crowd.floor.before
        assert found.zones is not None
        found.zones.take_in(self.zones)
        return found


def leavers(crowd: VictimMatrix, zones: NumaOverlay, units: Sequence[Sequence[Pod]]) -> NumaVictims:
    """Those of a crowd that is made of these units."""
    found = list(_leavers(crowd.floor, zones, units, crowd.gone)) if zones.ground.care.thinks_ahead else []
    return NumaVictims(crowd, zones, np.array(found, dtype=np.int64).reshape(-1, 3))


def _leavers(
    floor: NodeOverlay, zones: NumaOverlay, units: Sequence[Sequence[Pod]], gone: LeavingPods
) -> Iterator[Leaver]:
    """Everybody who is gone, or might go, in the order of units. A pod that is gone already counts once."""
    ground, scene = zones.ground, floor.scene
    land, number = scene.ground.land, ground.gift_number
    seen: set[PodKey] = set()
    before = [(key, row, wants) for row, pods in zones.left.items() for key, wants in pods.items()]
    rows = land.rows()
    for key in gone.keys:
        running = scene.index.pods.get(key)
        wants = None if running is None else minds(ground, running.shape)
        if running is not None and wants is not None and running.node < len(rows):
            before.append((key, int(rows[running.node]), wants))
    for key, row, wants in before:
        if row == ABSENT or key in seen:
            continue
        seen.add(key)
        gift = number(floor.node(row), key, wants)
        if gift != SILENT:
            yield BEFORE, row, gift
    by_name = land.remember("row by name", lambda: {n.name: row for row, n in enumerate(land.table.nodes)})
    asks: dict[int, NumaRequest | None] = {}  # by identity of the shape
    for unit, pods in enumerate(units):
        for pod in pods:
            shape, row = pod.wants.shape, by_name.get(pod.node, ABSENT)
            if id(shape) not in asks:
                asks[id(shape)] = minds(ground, shape)
            wants = asks[id(shape)]
            if wants is None or row == ABSENT or (seen and pod.key in seen):
                continue
            gift = number(pod.node, pod.key, wants)
            if gift != SILENT:
                yield unit, row, gift


class AlignedCapacity:
    """How many of some equal pods have a place, with more and more of those who were gone staying."""

    def __init__(
        self, leavers: NumaVictims, shape: PodSignature, wants: NumaRequest, wanted: int, within: Bools | None
    ) -> None:
        self.leavers, self.wants, self.wanted = leavers, wants, wanted
        self.asked = asked_rows(leavers.crowd.floor, shape)
        self.good = _usable(leavers.crowd.floor, shape, within)
        self.room = np.zeros(len(self.good), dtype=np.int64)
        rows = np.flatnonzero(self.good)
        if self.asked and len(rows):
            self.room[rows] = self._counts(0, 0, rows)

    def if_stay(self, start: int, stop: int) -> int:
        """The count if these units stay, too."""
        rows = self._rows(start, stop)
        elsewhere = int(self.room.sum() - self.room[rows].sum())
        if elsewhere >= self.wanted or not len(rows):
            return min(self.wanted, elsewhere)
        return min(self.wanted, elsewhere + int(self._counts(start, stop, rows).sum()))

    def stay(self, start: int, stop: int) -> None:
        """They do; the leavers have not heard of it yet."""
        rows = self._rows(start, stop)
        if len(rows):
            self.room[rows] = self._counts(start, stop, rows)

    def _rows(self, start: int, stop: int) -> Ints:
        crowd = self.leavers.crowd
        touched = np.zeros(len(self.good), dtype=bool)
        touched[crowd.row[crowd.between(start, stop)]] = True
        return np.flatnonzero(touched & self.good)

    def _counts(self, start: int, stop: int, rows: Ints) -> Ints:
        leavers, zones = self.leavers, self.leavers.zones
        assert self.asked is not None
        found = counts(leavers.crowd.free_if(start, stop, rows), self.asked)
        part = leavers.zones_if(start, stop, rows)
        columns = zones.found_in(part, self.wants, rows, np.zeros(len(rows), dtype=np.int64))
        copies = aligned_counts(columns, self.wants, zones.ground.rules, self.wanted)
        return np.minimum(np.minimum(found, copies), self.wanted)


def _usable(floor: NodeOverlay, shape: PodSignature, within: Bools | None) -> Bools:
    """The nodes that refuse such a pod for want of room or of zones at most."""
    verdict = floor.judge(shape)
    good = verdict.fits.copy()
    for (cause, _), where in verdict.refusals.items():
        if cause in (FilterReason.LACKING, FilterReason.UNALIGNED):
            good |= where
    return good if within is None else good & within
