"""Pods that could go, as arrays: what nodes would have without some of them, and who of them can stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.pod import PodKey
from bayplan.model.unfit import Cause
from bayplan.model.wants import Shape
from bayplan.placement.fit_filters import Scene
from bayplan.placement.floor import Floor
from bayplan.placement.nodes import ABSENT
from bayplan.placement.seating_counts import is_free
from bayplan.placement.tree import Bools, Ints


def minds_nobody(scene: Scene, shape: Shape) -> bool:
    """Whether nothing but room matters to such pods: no other pod, whoever it is, helps or hinders them."""
    if not is_free(shape):
        return False
    return not any(stance.must and stance.weight < 0 for stance, _ in scene.index.stances_towards(shape))


class Crowd:
    """Running pods in units that go or stay together, by number. At first all of them are gone."""

    def __init__(self, floor: Floor, units: Sequence[Iterable[PodKey]], gone: Iterable[PodKey] = ()) -> None:
        self.floor, self.size = floor, len(units)
        index, ground = floor.scene.index, floor.scene.ground
        rows = ground.land.remember("rows", ground.land._rows)
        numbers: dict[Shape, int] = {}
        unit, slots, shapes = [], [], []
        for number, keys in enumerate((*units, gone)):
            for key in keys:
                running = index.pods.get(key)
                if running is not None and running.node < len(rows):
                    unit.append(number)
                    slots.append(running.node)
                    shapes.append(numbers.setdefault(running.shape, len(numbers)))
        row = rows[np.asarray(slots, dtype=np.int64)] if slots else np.zeros(0, np.int64)
        known = row != ABSENT
        self.unit: Ints = np.asarray(unit, dtype=np.int64)[known]  # of each pod, ascending
        self.row: Ints = row[known]
        self.shape: Ints = np.asarray(shapes, dtype=np.int64)[known]
        self.amounts = _amounts(floor, numbers)  # by resource and shape
        self.stays = np.zeros(self.size + 1, dtype=bool)
        self.free: Ints = ground.free + self._taken(np.ones(len(self.unit), dtype=bool))

    def _taken(self, pods: Bools) -> Ints:
        """What these pods take; same axes as the free amounts."""
        total = np.zeros_like(self.floor.scene.ground.free)
        row, shape = self.row[pods], self.shape[pods]
        for at, amounts in enumerate(self.amounts):
            if amounts.any():
                np.add.at(total[at], row, amounts[shape])
        return total

    def _between(self, start: int, stop: int) -> Bools:
        return (self.unit >= start) & (self.unit < stop)

    def stay(self, start: int, stop: int) -> None:
        """Units of these numbers are not gone after all."""
        self.free = self.free - self._taken(self._between(start, stop))
        self.stays[start:stop] = True

    def go(self, start: int) -> None:
        """Nobody from this number on stays."""
        late = (self.unit >= start) & self.stays[self.unit]
        self.free = self.free + self._taken(late)
        self.stays[start:] = False

    def floor_if(self, start: int = 0, stop: int = 0) -> Floor:
        """A floor with the room there is if these units stay, too. For pods that mind nobody; close it."""
        scene = self.floor.scene
        free = self.free - self._taken(self._between(start, stop)) if stop > start else self.free
        found = Floor(replace(scene, ground=replace(scene.ground, free=free, memory={})))
        found.before = self.floor.before
        return found

    def leaving(self) -> list[int]:
        """The units that are gone."""
        return np.flatnonzero(~self.stays[: self.size]).tolist()

    def on(self, rows: Iterable[int]) -> list[int]:
        """The units that have pods in these rows, in order."""
        found = np.unique(self.unit[np.isin(self.row, list(rows))]).tolist()
        return [unit for unit in found if unit < self.size]


def _amounts(floor: Floor, numbers: dict[Shape, int]) -> Ints:
    resources = floor.scene.ground.resources
    found = np.zeros((len(resources), len(numbers)), np.int64)
    for shape, number in numbers.items():
        for resource, amount in shape.amounts:
            at = resources.get(resource)
            if at is not None:
                found[at, number] = amount
    return found


def usable(floor: Floor, shape: Shape, within: Bools | None = None) -> Bools:
    """The nodes that refuse such a pod for want of room at most."""
    verdict = floor.judge(shape)
    good = verdict.fits.copy()
    for (cause, _), where in verdict.refusals.items():
        if cause is Cause.LACKING:
            good |= where
    return good if within is None else good & within


def asked_rows(floor: Floor, shape: Shape) -> list[tuple[int, int]] | None:
    """What a pod takes, by row of its resource; None if no node has one of them."""
    resources = floor.scene.ground.resources
    wanted = [(name, amount) for name, amount in shape.amounts if amount > 0]
    if any(name not in resources for name, _ in wanted):
        return None
    return [(resources[name], amount) for name, amount in wanted]


def counts(free: Ints, asked: Sequence[tuple[int, int]]) -> Ints:
    """How many equal pods fit each node."""
    found = np.full(free.shape[1], 2**31 - 1, dtype=np.int64)
    for at, amount in asked:
        np.minimum(found, free[at] // amount, out=found)
    return np.maximum(found, 0)


def let_stay(crowd: Crowd, shape: Shape, wanted: int, within: Bools | None) -> int:
    """How many of `wanted` equal pods, which mind nobody, get seats; the units that can stay then do.

    Units are asked in their order whether they can stay: the first are the last to go.
    """
    floor = crowd.floor
    asked = asked_rows(floor, shape)
    if not asked:
        return 0
    good = usable(floor, shape, within)
    room = np.where(good, counts(crowd.free, asked), 0)
    total = int(room.sum())
    seats = min(wanted, total)
    inside = good[crowd.row] & (crowd.unit < crowd.size)
    pods = zip(*(column[inside].tolist() for column in (crowd.unit, crowd.row, crowd.shape)), strict=True)
    where: dict[int, list[tuple[int, int]]] = {}
    for unit, row, shape_number in pods:
        where.setdefault(unit, []).append((row, shape_number))
    go = _who_goes(
        [crowd.free[at].tolist() for at, _ in asked],
        [amount for _, amount in asked],
        list(zip(*(crowd.amounts[at].tolist() for at, _ in asked), strict=True)),
        room.tolist(),
        where,
        total - seats,
    )
    crowd.stays[: crowd.size] = True
    crowd.stays[go] = False
    crowd.free = crowd.free - crowd._taken(crowd.stays[crowd.unit])
    return seats


def _who_goes(
    left: list[list[int]], sizes: list[int], takes: list[tuple[int, ...]], room: list[int],
    where: dict[int, list[tuple[int, int]]], slack: int,
) -> list[int]:  # fmt: skip
    """Plain numbers, since it goes pod by pod: `slack` is how many seats may be lost to those who stay."""
    resources = range(len(sizes))
    go: list[int] = []
    for unit, pods in where.items():
        lost = 0
        before = []
        for row, number in pods:
            taken = takes[number]
            for at in resources:
                left[at][row] -= taken[at]
            fit = max(0, min([left[at][row] // sizes[at] for at in resources]))
            before.append((row, room[row]))
            lost += room[row] - fit
            room[row] = fit
        if lost <= slack:
            slack -= lost
            continue
        go.append(unit)
        for row, fit in reversed(before):
            room[row] = fit
        for row, number in pods:
            for at in resources:
                left[at][row] += takes[number][at]
    return go


@dataclass(slots=True, eq=False)
class Columns:
    """What is free on nodes beyond what one pod asks for, as plain numbers, to be looked at node by node."""

    rows: list[int]  # the nodes that refuse the pod for want of room at most
    asked: list[tuple[int, int]]
    names: list[str]
    left: list[list[int]]  # by resource asked for, then node
    known: dict[Shape, tuple[int, ...]]

    def refresh(self, floor: Floor, going: Iterable[PodKey]) -> None:
        """Read the floor again, as if those on the way out were gone."""
        crowd = Crowd(floor, (), going)
        self.left = [(crowd.free[at] - amount).tolist() for at, amount in self.asked]

    def room(self, row: int) -> list[int]:
        """By resource: what would be left on a node, below zero if it is too little."""
        return [column[row] for column in self.left]

    def taken(self, shapes: Iterable[Shape]) -> list[int]:
        """What pods of these shapes take together, by the resources asked for."""
        total = [0] * len(self.names)
        for shape in shapes:
            one = self.known.get(shape)
            if one is None:
                amounts = dict(shape.amounts)
                one = self.known[shape] = tuple(amounts.get(name, 0) for name in self.names)
            total = [have + more for have, more in zip(total, one, strict=True)]
        return total


def columns(floor: Floor, shape: Shape, within: Bools | None) -> Columns:
    """For a pod that minds nobody."""
    asked = asked_rows(floor, shape)
    if asked is None:
        return Columns([], [], [], [], {})
    rows = np.flatnonzero(usable(floor, shape, within)).tolist()
    names = [name for name, amount in shape.amounts if amount > 0]
    return Columns(rows, asked, names, [], {})


def curable_rows(floor: Floor, shape: Shape, within: Bools | None) -> list[int]:
    """The nodes that a pod might fit if others left."""
    curable = floor.judge(shape).curable
    found: list[int] = np.flatnonzero(curable if within is None else curable & within).tolist()
    return found


def emptiest_first(now: Floor, emptied: Floor, shapes: Sequence[Shape]) -> list[Bools]:
    """More and more nodes, twice as many each time, beginning with those where the least has to end."""
    most = np.zeros(len(now), dtype=np.int64)
    have = np.zeros(len(now), dtype=np.int64)
    for shape in dict.fromkeys(shapes):
        asked = asked_rows(now, shape)
        if asked:
            most += counts(emptied.scene.ground.free, asked)
            have += counts(now.scene.ground.free, asked)
    order = np.lexsort((np.arange(len(now)), -most, most - have, most == 0))
    masks = []
    size = 1
    while True:
        mask = np.zeros(len(now), dtype=bool)
        mask[order[: min(size, len(order))]] = True
        masks.append(mask)
        if size >= len(order):
            return masks
        size *= 2
