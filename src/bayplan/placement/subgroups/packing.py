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

    constraint: ConstraintNode
    area: Area
    preference: ConstraintNode | None = None  # which would rather have them nearer to each other


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
    capacity: TopologyCapacity, jobs: Sequence[PackingJob], steps: StepBudget, profile: Profile
) -> list[tuple[Pod, int]] | None:
    """A row for every pod, taken on the terrain; None if there is none, or the steps ran out.

    Narrow areas come first: who may be anywhere in a wide one fits around the others. Pods that are all
    alike always find their rows that way; others are tried one by one if they do not.
    """
    lots = _lots(capacity, jobs)
    assigned: list[tuple[Pod, int]] = []
    taken: list[tuple[int, Ints, Ints]] = []
    for group in _lot_groups(lots):
        kind, level = group[0].kind, group[0].area[0]
        if not _has_room(capacity, group):
            for undone, rows, pods in reversed(taken):
                capacity.take(undone, rows, -pods)
            steps.left -= len(lots)  # this was more than one step
            return _one_by_one(capacity, lots, steps)
        domains, counts = _wanted(group)
        affinity = group[0].turn[1]
        strategy = profile.unconstrained if level < 0 else profile.required
        if affinity is not None:
            strategy = profile.preferred
        rows, pods = capacity.spread(kind, level, domains, counts, strategy, affinity)
        capacity.take(kind, rows, pods)
        taken.append((kind, rows, pods))
        pods_of_group = [pod for lot in group for pod in lot.pods]
        assigned += zip(pods_of_group, np.repeat(rows, pods).tolist(), strict=True)
    return assigned


def _lots(capacity: TopologyCapacity, jobs: Sequence[PackingJob]) -> list[PodLot]:
    """Narrow areas first, then the kinds that fewest rows have room for, those with a wish, by topology."""
    lots: list[PodLot] = []
    turns = _turns(jobs)
    for job in jobs:
        kinds: dict[int, list[Pod]] = {}
        for pod, kind in zip(job.constraint.pods, job.constraint.kinds, strict=True):
            kinds.setdefault(kind, []).append(pod)
        turn = NO_TURN if job.preference is None else turns[id(job.preference), job.area]
        lots += (PodLot(kind, job.area, pods, turn) for kind, pods in kinds.items())
    room = capacity.caps.sum(axis=1).tolist()
    lots.sort(key=lambda lot: (-lot.area[0], room[lot.kind], lot.kind, lot.turn[0], lot.area[1]))
    return lots


NO_TURN: Turn = (2**31, None)


def _turns(jobs: Sequence[PackingJob]) -> dict[tuple[int, Area], Turn]:
    """For every wish, by identity, and area. Wishes in different areas have the same turn if they are alike;
    of several in one area each has its own, as have those whose mates say where to go."""
    found: dict[tuple[int, Area], Turn] = {}
    numbers: dict[object, int] = {}
    pending: dict[tuple[Area, AffinityPull], int] = {}
    for job in jobs:
        if job.preference is None or (id(job.preference), job.area) in found:
            continue
        affinity = AffinityPull(job.preference.level, tuple(job.preference.bound_rows))
        before = pending.get((job.area, affinity), 0)
        pending[job.area, affinity] = before + 1
        number = numbers.setdefault((affinity, before), len(numbers))
        found[id(job.preference), job.area] = number, affinity
    return found


def _lot_groups(lots: Sequence[PodLot]) -> list[list[PodLot]]:
    """Lots of one kind, level and turn together."""
    groups: list[list[PodLot]] = []
    for lot in lots:
        last = groups[-1][0] if groups else None
        sort = lot.kind, lot.area[0], lot.turn[0]
        if last is not None and (last.kind, last.area[0], last.turn[0]) == sort:
            groups[-1].append(lot)
        else:
            groups.append([lot])
    return groups


def _wanted(group: Sequence[PodLot]) -> tuple[Ints, Ints]:
    """The domains of a batch, ascending, and the pods for each."""
    domains = np.array([lot.area[1] for lot in group], np.int64)
    counts = np.array([len(lot.pods) for lot in group], np.int64)
    found, where = np.unique(domains, return_inverse=True)
    return found, np.bincount(where, weights=counts).astype(np.int64)


def _has_room(capacity: TopologyCapacity, group: Sequence[PodLot]) -> bool:
    domains, counts = _wanted(group)
    room = capacity.summed(capacity.caps[group[0].kind], group[0].area[0])
    return bool((room[domains] >= counts).all())


# ── one by one ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class _Trial:
    """A pod that is being tried on one row after the other."""

    lot: int
    rows: list[int]  # still to be tried, the last first
    row: int = -1


def _one_by_one(
    capacity: TopologyCapacity, lots: Sequence[PodLot], steps: StepBudget
) -> list[tuple[Pod, int]] | None:
    """Every pod on every row it fits, until all sit. Equal pods of one area sit in the order of rows."""
    queue = [(number, pod) for number, lot in enumerate(lots) for pod in lot.pods]
    assigned: list[_Trial] = []
    while len(assigned) < len(queue):
        number = queue[len(assigned)][0]
        before = assigned[-1] if assigned and assigned[-1].lot == number else None
        assigned.append(
            _Trial(number, _rows_for(capacity, lots[number], 0 if before is None else before.row))
        )
        while assigned and not _moves_on(capacity, lots, assigned[-1]):
            assigned.pop()
        steps.left -= 1
        if not assigned or steps.left < 0:
            for trial in assigned:
                capacity.take(lots[trial.lot].kind, np.array([trial.row]), -1)
            return None
    return [(pod, trial.row) for (_, pod), trial in zip(queue, assigned, strict=True)]


def _rows_for(capacity: TopologyCapacity, lot: PodLot, start: int) -> list[int]:
    low, high = capacity.span(lot.area)
    low = max(low, start)
    rows = np.flatnonzero(capacity.caps[lot.kind, low:high]) + low
    found: list[int] = rows[::-1].tolist()
    return found


def _moves_on(capacity: TopologyCapacity, lots: Sequence[PodLot], trial: _Trial) -> bool:
    kind = lots[trial.lot].kind
    if trial.row >= 0:
        capacity.take(kind, np.array([trial.row]), -1)
        trial.row = -1
    if not trial.rows:
        return False
    trial.row = trial.rows.pop()
    capacity.take(kind, np.array([trial.row]))
    return True
