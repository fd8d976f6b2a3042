"""Assigns pods to rows once the domain of each is chosen."""

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
    """Search steps that are left."""

    left: int


@dataclass(frozen=True, slots=True, eq=False)
class PackingJob:
    """The pods of a leaf of the constraint tree, and their area."""

    constraint: ConstraintNode
    area: Area
    preference: ConstraintNode | None = None  # a narrower preferred locality that was not satisfied


@dataclass(frozen=True, slots=True, eq=False)
class PodLot:
    """Pods of one kind for one area."""

    kind: int
    area: Area
    pods: Sequence[Pod]
    turn: Turn


Turn = tuple[int, AffinityPull | None]
"""An order within an area, and the preferred locality: lots of one turn are distributed together."""


def pack(
    capacity: TopologyCapacity, jobs: Sequence[PackingJob], steps: StepBudget, profile: Profile
) -> list[tuple[Pod, int]] | None:
    """A row for every pod, subtracted from the capacity; None if they do not fit or the steps ran out.

    Narrow areas come first: pods of wide areas fit around them. For identical pods this always succeeds;
    otherwise pods are tried one by one.
    """
    lots = _lots(capacity, jobs)
    assigned: list[tuple[Pod, int]] = []
    taken: list[tuple[int, Ints, Ints]] = []
    for group in _lot_groups(lots):
        kind, level = group[0].kind, group[0].area[0]
        if not _has_room(capacity, group):
            for undone, rows, pods in reversed(taken):
                capacity.take(undone, rows, -pods)
            steps.left -= len(lots)  # it took more than one step
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
    """Order lots: narrow areas, then the kinds that fit fewest, then preferences, then by topology."""
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
    """The turn of every preference (by identity) and area. Equal preferences in different areas share a turn;
    several in one area have one each, as have those with different bound pods."""
    turns: dict[tuple[int, Area], Turn] = {}
    numbers: dict[object, int] = {}
    seen: dict[tuple[Area, AffinityPull], int] = {}
    for job in jobs:
        if job.preference is None or (id(job.preference), job.area) in turns:
            continue
        affinity = AffinityPull(job.preference.level, tuple(job.preference.bound_rows))
        before = seen.get((job.area, affinity), 0)
        seen[job.area, affinity] = before + 1
        number = numbers.setdefault((affinity, before), len(numbers))
        turns[id(job.preference), job.area] = number, affinity
    return turns


def _lot_groups(lots: Sequence[PodLot]) -> list[list[PodLot]]:
    """Group consecutive lots of one kind, level and turn."""
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
    """The domains of a group of lots, ascending, and the pods for each."""
    domains = np.array([lot.area[1] for lot in group], np.int64)
    counts = np.array([len(lot.pods) for lot in group], np.int64)
    unique, where = np.unique(domains, return_inverse=True)
    return unique, np.bincount(where, weights=counts).astype(np.int64)


def _has_room(capacity: TopologyCapacity, group: Sequence[PodLot]) -> bool:
    domains, counts = _wanted(group)
    room = capacity.summed(capacity.caps[group[0].kind], group[0].area[0])
    return bool((room[domains] >= counts).all())


# ── one by one ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class _Trial:
    """A pod that is tried on one row after the other."""

    lot: int
    rows: list[int]  # not tried yet, the last first
    row: int = -1


def _one_by_one(
    capacity: TopologyCapacity, lots: Sequence[PodLot], steps: StepBudget
) -> list[tuple[Pod, int]] | None:
    """Try every pod on every row that fits, until all have one. Identical pods of an area go in row order."""
    queue = [(number, pod) for number, lot in enumerate(lots) for pod in lot.pods]
    trials: list[_Trial] = []
    while len(trials) < len(queue):
        number = queue[len(trials)][0]
        before = trials[-1] if trials and trials[-1].lot == number else None
        trials.append(_Trial(number, _rows_for(capacity, lots[number], 0 if before is None else before.row)))
        while trials and not _moves_on(capacity, lots, trials[-1]):
            trials.pop()
        steps.left -= 1
        if not trials or steps.left < 0:
            for trial in trials:
                capacity.take(lots[trial.lot].kind, np.array([trial.row]), -1)
            return None
    return [(pod, trial.row) for (_, pod), trial in zip(queue, trials, strict=True)]


def _rows_for(capacity: TopologyCapacity, lot: PodLot, start: int) -> list[int]:
    low, high = capacity.span(lot.area)
    low = max(low, start)
    rows = np.flatnonzero(capacity.caps[lot.kind, low:high]) + low
    descending: list[int] = rows[::-1].tolist()
    return descending


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
