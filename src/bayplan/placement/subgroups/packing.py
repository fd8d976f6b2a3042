"""Pods on rows, once it is settled which domain they belong in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.model.pod import Pod
from bayplan.model.profile import Profile
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.subgroups.capacity import AffinityPull, Area, TopologyCapacity
from bayplan.placement.subgroups.constraint_tree import ConstraintNode


@dataclass(slots=True)
class StepBudget:
    """How much may still be tried."""

    left: int


@dataclass(frozen=True, slots=True, eq=False)
class PackingJob:
    """The pods of a leaf, and the area that they belong in."""

    knot: ConstraintNode
    area: Area
    wish: ConstraintNode | None = None  # which would rather have them nearer to each other


@dataclass(frozen=True, slots=True, eq=False)
class PodLot:
    """Pods of one kind that belong in one area."""

    kind: int
    area: Area
    pods: Sequence[Pod]
    turn: Turn


Turn = tuple[int, AffinityPull | None]
"""Whose turn it is in an area, and what draws them: those of one turn are dealt with together."""


def pack(
    terrain: TopologyCapacity, jobs: Sequence[PackingJob], steps: StepBudget, profile: Profile
) -> list[tuple[Pod, int]] | None:
    """A row for every pod, taken on the terrain; None if there is none, or the steps ran out.

    Narrow areas come first: who may be anywhere in a wide one fits around the others. Pods that are all
    alike always find their rows that way; others are tried one by one if they do not.
    """
    lots = _lots(terrain, jobs)
    seats: list[tuple[Pod, int]] = []
    taken: list[tuple[int, Ints, Ints]] = []
    for batch in _batches(lots):
        kind, level = batch[0].kind, batch[0].area[0]
        if not _has_room(terrain, batch):
            for undone, rows, pods in reversed(taken):
                terrain.take(undone, rows, -pods)
            steps.left -= len(lots)  # this was more than one step
            return _one_by_one(terrain, lots, steps)
        domains, counts = _wanted(batch)
        pull = batch[0].turn[1]
        strategy = profile.unconstrained if level < 0 else profile.required
        if pull is not None:
            strategy = profile.preferred
        rows, pods = terrain.spread(kind, level, domains, counts, strategy, pull)
        terrain.take(kind, rows, pods)
        taken.append((kind, rows, pods))
        everyone = [pod for lot in batch for pod in lot.pods]
        seats += zip(everyone, np.repeat(rows, pods).tolist(), strict=True)
    return seats


def _lots(terrain: TopologyCapacity, jobs: Sequence[PackingJob]) -> list[PodLot]:
    """Narrow areas first, then the kinds that fewest rows have room for, those with a wish, by topology."""
    lots: list[PodLot] = []
    turns = _turns(jobs)
    for job in jobs:
        kinds: dict[int, list[Pod]] = {}
        for pod, kind in zip(job.knot.pods, job.knot.kinds, strict=True):
            kinds.setdefault(kind, []).append(pod)
        turn = NOBODY if job.wish is None else turns[id(job.wish), job.area]
        lots += (PodLot(kind, job.area, pods, turn) for kind, pods in kinds.items())
    room = terrain.caps.sum(axis=1).tolist()
    lots.sort(key=lambda lot: (-lot.area[0], room[lot.kind], lot.kind, lot.turn[0], lot.area[1]))
    return lots


NOBODY: Turn = (2**31, None)


def _turns(jobs: Sequence[PackingJob]) -> dict[tuple[int, Area], Turn]:
    """For every wish, by identity, and area. Wishes in different areas have the same turn if they are alike;
    of several in one area each has its own, as have those whose mates say where to go."""
    found: dict[tuple[int, Area], Turn] = {}
    numbers: dict[object, int] = {}
    waiting: dict[tuple[Area, AffinityPull], int] = {}
    for job in jobs:
        if job.wish is None or (id(job.wish), job.area) in found:
            continue
        pull = AffinityPull(job.wish.level, tuple(job.wish.standing))
        before = waiting.get((job.area, pull), 0)
        waiting[job.area, pull] = before + 1
        number = numbers.setdefault((pull, before), len(numbers))
        found[id(job.wish), job.area] = number, pull
    return found


def _batches(lots: Sequence[PodLot]) -> list[list[PodLot]]:
    """Lots of one kind, level and turn together."""
    batches: list[list[PodLot]] = []
    for lot in lots:
        last = batches[-1][0] if batches else None
        sort = lot.kind, lot.area[0], lot.turn[0]
        if last is not None and (last.kind, last.area[0], last.turn[0]) == sort:
            batches[-1].append(lot)
        else:
            batches.append([lot])
    return batches


def _wanted(batch: Sequence[PodLot]) -> tuple[Ints, Ints]:
    """The domains of a batch, ascending, and the pods for each."""
    domains = np.array([lot.area[1] for lot in batch], np.int64)
    counts = np.array([len(lot.pods) for lot in batch], np.int64)
    found, where = np.unique(domains, return_inverse=True)
    return found, np.bincount(where, weights=counts).astype(np.int64)


def _has_room(terrain: TopologyCapacity, batch: Sequence[PodLot]) -> bool:
    domains, counts = _wanted(batch)
    room = terrain.summed(terrain.caps[batch[0].kind], batch[0].area[0])
    return bool((room[domains] >= counts).all())


# ── one by one ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class _Seat:
    """A pod that is being tried on one row after the other."""

    lot: int
    rows: list[int]  # still to be tried, the last first
    row: int = -1


def _one_by_one(
    terrain: TopologyCapacity, lots: Sequence[PodLot], steps: StepBudget
) -> list[tuple[Pod, int]] | None:
    """Every pod on every row it fits, until all sit. Equal pods of one area sit in the order of rows."""
    queue = [(number, pod) for number, lot in enumerate(lots) for pod in lot.pods]
    seats: list[_Seat] = []
    while len(seats) < len(queue):
        number = queue[len(seats)][0]
        before = seats[-1] if seats and seats[-1].lot == number else None
        seats.append(_Seat(number, _rows_for(terrain, lots[number], 0 if before is None else before.row)))
        while seats and not _moves_on(terrain, lots, seats[-1]):
            seats.pop()
        steps.left -= 1
        if not seats or steps.left < 0:
            for seat in seats:
                terrain.take(lots[seat.lot].kind, np.array([seat.row]), -1)
            return None
    return [(pod, seat.row) for (_, pod), seat in zip(queue, seats, strict=True)]


def _rows_for(terrain: TopologyCapacity, lot: PodLot, start: int) -> list[int]:
    low, high = terrain.span(lot.area)
    low = max(low, start)
    rows = np.flatnonzero(terrain.caps[lot.kind, low:high]) + low
    found: list[int] = rows[::-1].tolist()
    return found


def _moves_on(terrain: TopologyCapacity, lots: Sequence[PodLot], seat: _Seat) -> bool:
    kind = lots[seat.lot].kind
    if seat.row >= 0:
        terrain.take(kind, np.array([seat.row]), -1)
        seat.row = -1
    if not seat.rows:
        return False
    seat.row = seat.rows.pop()
    terrain.take(kind, np.array([seat.row]))
    return True
