"""Pods that could go, as arrays: what nodes would have without some of them, and who of them can stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.snapshot import minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import is_free

BEFORE = -1  # the unit of those who are gone in any case


def minds_nobody(scene: FilterInput, shape: PodSignature) -> bool:
    """Whether nothing but room matters to such pods: no other pod, whoever it is, helps or hinders them."""
    if not is_free(shape) or minds(scene.zones, shape) is not None:
        return False
    return not any(stance.must and stance.weight < 0 for stance, _ in scene.index.stances_towards(shape))


class LeavingPods:
    """Pods that are on their way out in any case, and what they leave behind."""

    def __init__(self, floor: NodeOverlay, keys: Iterable[PodKey] = ()) -> None:
        self.floor = floor
        self.keys: set[PodKey] = set()
        self.gain: Ints = np.zeros_like(floor.scene.ground.free)  # same axes
        self.add(keys)

    def add(self, keys: Iterable[PodKey]) -> None:
        """More go. Whoever is gone already leaves nothing behind."""
        ground, pods = self.floor.scene.ground, self.floor.scene.index.pods
        rows = ground.land.rows()
        for key in keys:
            running = pods.get(key)
            if running is None or key in self.keys:
                continue
            self.keys.add(key)
            row = int(rows[running.node]) if running.node < len(rows) else ABSENT
            for resource, amount in running.shape.amounts if row != ABSENT else ():
                at = ground.resources.get(resource)
                if at is not None:
                    self.gain[at, row] += amount

    def in_all(self) -> dict[str, int]:
        """What is free on all nodes together without them, by resource."""
        ground = self.floor.scene.ground
        free = np.maximum(ground.free + self.gain, 0).sum(axis=1).tolist()
        return {resource: free[at] for resource, at in ground.resources.items()}

    def makes_room(self, shape: PodSignature, within: Bools | None) -> int:
        """How many pods of a shape that minds nobody would have a place then."""
        asked = asked_rows(self.floor, shape)
        if not asked:
            return 0
        free = self.floor.scene.ground.free + self.gain
        return int(counts(free, asked)[usable(self.floor, shape, within)].sum())


class VictimMatrix:
    """Running pods in units that go or stay together, by number. At first all of them are gone."""

    def __init__(self, floor: NodeOverlay, units: Sequence[Sequence[Pod]], gone: LeavingPods) -> None:
        self.floor, self.gone, self.size = floor, gone, len(units)
        land = floor.scene.ground.land
        rows = land.remember("row by name", lambda: {n.name: row for row, n in enumerate(land.table.nodes)})
        numbers: dict[int, int] = {}  # by identity: many pods share a shape, and comparing shapes takes long
        shapes: list[PodSignature] = []
        found: list[tuple[int, int, int]] = []
        for unit, pods in enumerate(units):
            for pod in pods:
                shape = pod.wants.shape
                number = numbers.get(id(shape))
                if number is None:
                    number = numbers[id(shape)] = len(shapes)
                    shapes.append(shape)
                found.append((unit, rows.get(pod.node, ABSENT), number))
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        table = table[table[:, 1] != ABSENT]
        self.unit: Ints = table[:, 0]  # of each pod, ascending
        self.row: Ints = table[:, 1]
        self.shape: Ints = table[:, 2]
        self.amounts = _amounts(floor, shapes)  # by resource and shape
        self._all_go()

    def _all_go(self) -> None:
        self.stays = np.zeros(self.size, dtype=bool)
        self.free: Ints = self.floor.scene.ground.free + self.gone.gain + self._taken(slice(None))

    def part(self, units: Sequence[int]) -> VictimMatrix:
        """Some of the units only, in this order, all gone; the others are where they are."""
        found = copy(self)
        at, found.unit = picked(self.unit, units, self.size)
        found.row, found.shape, found.size = self.row[at], self.shape[at], len(units)
        found._all_go()
        return found

    def free_if(self, start: int, stop: int, rows: Ints | None = None) -> Ints:
        """What is free, perhaps only on some rows, if these units stay, too."""
        if rows is None:
            return self.free - self._taken(self.between(start, stop)) if stop > start else self.free
        free: Ints = self.free[:, rows]
        if stop > start:
            pods = self.between(start, stop)
            place = np.full(self.free.shape[1], len(rows), dtype=np.int64)
            place[rows] = np.arange(len(rows))
            at, shape = place[self.row[pods]], self.shape[pods]
            for column, amounts in zip(free, self.amounts, strict=True):
                if amounts.any():
                    taken = np.zeros(len(rows) + 1, dtype=np.int64)
                    np.add.at(taken, at, amounts[shape])
                    column -= taken[:-1]
        return free

    def _taken(self, pods: Bools | slice) -> Ints:
        """What these pods take; same axes as the free amounts."""
        total = np.zeros_like(self.floor.scene.ground.free)
        row, shape = self.row[pods], self.shape[pods]
        for at, amounts in enumerate(self.amounts):
            if amounts.any():
                np.add.at(total[at], row, amounts[shape])
        return total

    def between(self, start: int, stop: int) -> slice:
        """The pods of these units."""
        first, last = np.searchsorted(self.unit, (start, stop))
        return slice(int(first), int(last))

    def stay(self, start: int, stop: int) -> None:
        """Units of these numbers are not gone after all."""
        self.free = self.free - self._taken(self.between(start, stop))
        self.stays[start:stop] = True

    def leave(self, units: Iterable[int]) -> None:
        """These units, which were to stay, go."""
        gone = np.zeros_like(self.stays)
        gone[list(units)] = True
        self.free = self.free + self._taken(gone[self.unit])
        self.stays &= ~gone

    def stay_beside(self, floor: NodeOverlay, start: int, seats: Iterable[int]) -> None:
        """From this number on, whoever has room on a floor where the gang has its seats stays, one by one.

        Away from the seats nobody is in the way, even where there is less than pods have.
        """
        taken = frozenset(seats)
        free = [column.tolist() for column in floor.scene.ground.free]
        takes = self.amounts.T.tolist()
        late = self.between(start, self.size)
        where: dict[int, list[tuple[int, int]]] = {}
        for unit, row, number in zip(
            *(column[late].tolist() for column in (self.unit, self.row, self.shape)), strict=True
        ):
            where.setdefault(unit, []).append((row, number))
        for unit in range(start, self.size):
            pods = where.get(unit, ())
            for row, number in pods:
                for column, amount in zip(free, takes[number], strict=True):
                    column[row] -= amount
            if all(column[row] >= 0 for row, _ in pods if row in taken for column in free):
                self.stay(unit, unit + 1)
                continue
            for row, number in pods:
                for column, amount in zip(free, takes[number], strict=True):
                    column[row] += amount

    def floor_if(self, start: int = 0, stop: int = 0) -> NodeOverlay:
        """A floor with the room there is if these units stay, too. For pods that mind nobody; close it."""
        scene = self.floor.scene
        free = self.free_if(start, stop)
        found = NodeOverlay(replace(scene, ground=replace(scene.ground, free=free, memory={})))
        found.before = self.floor.before
        return found

    def leaving(self) -> list[int]:
        """The units that are gone."""
        return np.flatnonzero(~self.stays).tolist()

    def on(self, nodes: Bools) -> list[int]:
        """The units that have pods on these nodes, in order."""
        found: list[int] = np.unique(self.unit[nodes[self.row]]).tolist()
        return found

    def on_rows(self, rows: Iterable[int]) -> list[int]:
        """The same, with the nodes given one by one."""
        nodes = np.zeros(len(self.floor), dtype=bool)
        nodes[list(rows)] = True
        return self.on(nodes)


def picked(unit: Ints, units: Sequence[int], size: int) -> tuple[Ints, Ints]:
    """Of pods whose units are given, those of some units, in the order of these, and the units' new numbers.

    Those who are gone in any case are always among them.
    """
    number = np.full(size + 1, BEFORE - 1, dtype=np.int64)
    number[list(units)] = np.arange(len(units))
    number[BEFORE] = BEFORE
    new = number[unit]
    at = np.flatnonzero(new >= BEFORE)
    at = at[np.argsort(new[at], kind="stable")]
    return at, new[at]


def _amounts(floor: NodeOverlay, shapes: Sequence[PodSignature]) -> Ints:
    resources = floor.scene.ground.resources
    found = np.zeros((len(resources), len(shapes)), np.int64)
    for number, shape in enumerate(shapes):
        for resource, amount in shape.amounts:
            at = resources.get(resource)
            if at is not None:
                found[at, number] = amount
    return found


def usable(floor: NodeOverlay, shape: PodSignature, within: Bools | None = None) -> Bools:
    """The nodes that refuse such a pod for want of room at most."""
    verdict = floor.judge(shape)
    good = verdict.fits.copy()
    for (cause, _), where in verdict.refusals.items():
        if cause is FilterReason.LACKING:
            good |= where
    return good if within is None else good & within


def asked_rows(floor: NodeOverlay, shape: PodSignature) -> list[tuple[int, int]] | None:
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


def let_stay(crowd: VictimMatrix, shape: PodSignature, wanted: int, within: Bools | None) -> int:
    """How many of `wanted` equal pods, which mind nobody, get seats; the units that can stay then do.

    Units are asked in their order whether they can stay: the first are the last to go.
    """
    floor = crowd.floor
    asked = asked_rows(floor, shape)
    if not asked:
        return 0
    good = usable(floor, shape, within)
    seats = min(wanted, int(counts(crowd.free, asked)[good].sum()))
    first = _first_to_go(crowd, asked, good, seats)
    crowd.stay(0, first)
    room = np.where(good, counts(crowd.free, asked), 0)
    late = crowd.between(first, crowd.size)
    inside = good[crowd.row[late]]
    columns = (column[late][inside].tolist() for column in (crowd.unit, crowd.row, crowd.shape))
    where: dict[int, list[tuple[int, int]]] = {}
    for unit, row, number in zip(*columns, strict=True):
        where.setdefault(unit, []).append((row, number))
    go = _who_goes(
        [crowd.free[at].tolist() for at, _ in asked],
        [amount for _, amount in asked],
        list(zip(*(crowd.amounts[at].tolist() for at, _ in asked), strict=True)),
        room.tolist(),
        where,
        int(room.sum()) - seats,
    )
    crowd.stay(first, crowd.size)
    crowd.leave(go)
    return seats


def _first_to_go(crowd: VictimMatrix, asked: Sequence[tuple[int, int]], good: Bools, seats: int) -> int:
    """The first unit that cannot stay if all before it do."""
    low, high = 0, crowd.size + 1  # all before low can stay, not all before high
    while high - low > 1:
        middle = (low + high) // 2
        free = crowd.free - crowd._taken(crowd.between(0, middle))
        if int(counts(free, asked)[good].sum()) >= seats:
            low = middle
        else:
            high = middle
    return low


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


def emptiest_first(free: Ints, emptied: NodeOverlay, shapes: Sequence[PodSignature]) -> list[Bools]:
    """More and more nodes, twice as many each time, beginning with those where the least has to end.

    `free` is what is free now.
    """
    nodes = len(emptied)
    most = np.zeros(nodes, dtype=np.int64)
    have = np.zeros(nodes, dtype=np.int64)
    for shape in dict.fromkeys(shapes):
        asked = asked_rows(emptied, shape)
        if asked:
            most += counts(emptied.scene.ground.free, asked)
            have += counts(free, asked)
    order = np.lexsort((np.arange(nodes), -most, most - have, most == 0))
    masks = []
    size = 1
    while True:
        mask = np.zeros(len(order), dtype=bool)
        mask[order[: min(size, len(order))]] = True
        masks.append(mask)
        if size >= len(order):
            return masks
        size *= 2
