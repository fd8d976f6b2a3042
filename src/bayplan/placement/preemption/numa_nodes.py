"""Pods that could go from nodes with zones, as arrays: who of them can stay, on all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.numa import NumaRequest, QosClass
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.numa.evictions import freed
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.snapshot import NumaSnapshot, few
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import asked_rows

NOTHING = NumaRequest(QosClass.BEST_EFFORT, ())
Units = Sequence[Sequence[Pod]]
"""Pods of one node that go or stay together."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ballot:
    """What leaving means: by turn and row, what a unit takes of the node, and what it frees in zones."""

    takes: Ints  # turn, resource, row
    frees: Ints  # turn, resource of zones, place, row
    there: Bools  # turn, row


def who_goes(
    floor: NodeOverlay,
    shape: PodSignature,
    wants: NumaRequest,
    rows: Sequence[int],
    units: Sequence[Units],
) -> list[list[int] | None]:
    """By row, which of its units have to go for a pod to fit; None if even all would not do.

    Units are given by row in the order in which they are asked back: whoever can stay does. Pods that were
    seated while the decision is made are taken for what they take in zones now.
    """
    zones, asked = floor.scene.zones, asked_rows(floor, shape)
    if zones is None or asked is None or not rows:
        return [None] * len(rows)
    at = np.array(rows, dtype=np.int64)
    ground = few(zones, wants, at)
    ballot, knows, top = _ballot(floor, zones, ground.columns, asked, rows, units)
    need = np.array([amount for _, amount in asked], dtype=np.int64)[:, None]
    free = floor.scene.ground.free[[row for row, _ in asked]][:, at] + ballot.takes.sum(axis=0)
    room = ground.columns.available + ballot.frees.sum(axis=0)
    leaving = ballot.there.sum(axis=0)

    def fits(free: Ints, room: Ints, leaving: Ints) -> Bools:
        """Upstream's rule: whoever leaves must free something, and no zone may have more than it can have."""
        gained = room - ground.columns.available
        odd = (gained == 0).all(axis=(0, 1)) | ((gained > 0) & (room > top)).any(axis=(0, 1))
        thinkable = ~knows | (leaving == 0) | ~odd
        good = aligned(replace(ground.columns, available=room), wants, ground.rules).good
        found: Bools = (free >= need).all(axis=0) & good & thinkable
        return found

    able = fits(free, room, leaving)
    goes = np.zeros_like(ballot.there)
    for turn in range(len(ballot.there)):
        there = ballot.there[turn] & able
        if not there.any():
            continue
        less_free, less_room = free - ballot.takes[turn], room - ballot.frees[turn]
        stays = there & fits(less_free, less_room, leaving - there)
        goes[turn] = there & ~stays
        free, room = np.where(stays, less_free, free), np.where(stays, less_room, room)
        leaving = leaving - stays
    return [np.flatnonzero(goes[:, n]).tolist() if able[n] else None for n in range(len(rows))]


def _ballot(
    floor: NodeOverlay, zones: NumaSnapshot, columns: NumaColumns, asked: Sequence[tuple[int, int]],
    rows: Sequence[int], units: Sequence[Units],
) -> tuple[_Ballot, Bools, Ints]:  # fmt: skip
    """The ballot, the rows whose zones can be thought through, and the most that their zones can have."""
    turns = max(map(len, units), default=0)
    names = {at: name for name, at in floor.scene.ground.resources.items()}
    order = {names[row]: at for at, (row, _) in enumerate(asked)}
    takes = np.zeros((turns, len(asked), len(rows)), dtype=np.int64)
    frees = np.zeros((turns, *columns.available.shape), dtype=np.int64)
    there = np.zeros((turns, len(rows)), dtype=bool)
    knows = np.zeros(len(rows), dtype=bool)
    top = np.zeros_like(columns.available)
    for n, row in enumerate(rows):
        name = floor.node(row)
        report = zones.believed.get(name) if zones.care.thinks_ahead else None
        seats = zones.seats(name) if report is not None else None
        knows[n] = seats is not None
        places = {zone.number: at for at, zone in enumerate(report.zones)} if report is not None else {}
        for place, zone in enumerate(report.zones if report is not None else ()):
            for resource, amount in zone.allocatable.items():
                if resource in columns.resources:
                    top[columns.resources[resource], place, n] = amount
        for turn, pods in enumerate(units[n]):
            there[turn, n] = True
            for pod in pods:
                for resource, amount in pod.wants.shape.amounts:
                    if resource in order:
                        takes[turn, order[resource], n] += amount
            if report is None or seats is None:
                continue
            victims = [_running(pod) for pod in pods]
            for number, amounts in freed(report, victims, seats).items():
                for resource, amount in amounts.items():
                    at = columns.resources.get(resource)
                    if at is not None and number in places and columns.available[at, places[number], n] >= 0:
                        frees[turn, at, places[number], n] += amount
    return _Ballot(takes, frees, there), knows, top


def _running(pod: Pod) -> RunningPod:
    return RunningPod((pod.key.namespace, pod.key.name), pod.wants.shape.zones or NOTHING)
