"""Whether each node can align a pod with its zones, and if not, what exactly stands in the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.model.numa import (
    AlignmentTarget,
    ContainerRequest,
    ContainerType,
    FitRule,
    NumaRequest,
    TopologyManagerScope,
    Unaligned,
    ZoneRules,
    ZoneShortage,
)
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.columns import NO_ZONE, NumaColumns
from bayplan.placement.numa.resources import is_compared, is_indifferent, portions, stays
from bayplan.placement.numa.workspace import NumaWorkspace, candidates, laid_out, lowest, take

FITS, STALE = -1, -2
USUAL = ZoneRules()
CAUSES = {
    ContainerType.INIT: AlignmentTarget.INIT_CONTAINER,
    ContainerType.SIDECAR: AlignmentTarget.SIDECAR,
    ContainerType.APP: AlignmentTarget.CONTAINER,
}


@dataclass(frozen=True, slots=True, eq=False)
class NumaFit:
    """By node: FITS, STALE, or which of the containers (the first is 0) finds no zone."""

    stopped: Ints

    @property
    def good(self) -> Bools:
        """The nodes that can align the pod, or do not care."""
        return np.equal(self.stopped, FITS)


def aligned(columns: NumaColumns, wants: NumaRequest, rules: ZoneRules = USUAL) -> NumaFit:
    """Which nodes can align the pod. Nodes without a report, and those that take it anyway, can."""
    stopped = np.full(columns.rows, FITS, dtype=np.int64)
    if is_indifferent(wants, rules):
        return NumaFit(stopped)
    for scope, rows in asking(columns, rules):
        stopped[rows] = _first_stopped(columns, rows, wants, scope, rules)
    stopped[~columns.fresh] = STALE
    return NumaFit(stopped)


def asking(columns: NumaColumns, rules: ZoneRules) -> list[tuple[TopologyManagerScope, Ints]]:
    """The rows of the nodes that must align, by what they align."""
    strict = columns.reported & columns.single & columns.fresh
    if rules.fit is FitRule.PLAIN:
        groups = [(TopologyManagerScope.CONTAINER, strict)]
    else:
        groups = [
            (TopologyManagerScope.CONTAINER, strict & ~columns.whole),
            (TopologyManagerScope.POD, strict & columns.whole),
        ]
    return [(scope, np.flatnonzero(nodes)) for scope, nodes in groups if nodes.any()]


def settle(
    desk: NumaWorkspace, containers: tuple[ContainerRequest, ...], rules: ZoneRules, *, again: bool = False
) -> Ints:
    """Let containers take their zones one after the other; by node, the first that finds none, or FITS.

    If more copies are to follow, whatever runs on counts, even for a rule that compares containers alone.
    """
    stopped = np.full(len(desk.rows), FITS, dtype=np.int64)
    for index, container in enumerate(containers):
        good = candidates(desk, container.requests)
        found = good.any(axis=0)
        stopped[~found & (stopped == FITS)] = index
        last = index == len(containers) - 1 and not again  # nobody comes after it
        if (stays(container, rules) and not last) or (again and container.role is ContainerType.APP):
            take(desk, container.requests, lowest(desk, good), found & (stopped == FITS))
    return stopped


def _first_stopped(
    columns: NumaColumns, rows: Ints, wants: NumaRequest, scope: TopologyManagerScope, rules: ZoneRules
) -> Ints:
    containers = portions(wants, scope, rules)
    desk = laid_out(columns, rows, containers, wants.service, rules.fit)
    return settle(desk, containers, rules)


def assumed_zones(
    columns: NumaColumns, row: int, wants: NumaRequest, rules: ZoneRules = USUAL
) -> tuple[tuple[str, int], ...]:
    """The zone that each container would get on a node, by its name; nothing where the node does not align.

    A pod that is aligned as a whole goes by the empty name.
    """
    if is_indifferent(wants, rules):
        return ()
    for scope, rows in asking(columns, rules):
        if row not in rows:
            continue
        containers = portions(wants, scope, rules)
        desk = laid_out(columns, np.asarray([row]), containers, wants.service, rules.fit)
        found = []
        for container in containers:
            good = candidates(desk, container.requests)
            place = lowest(desk, good)
            if not good.any():
                return ()
            if any(amount and _lists(desk, name, int(place[0])) for name, amount in container.requests):
                found.append((container.name, int(desk.numbers[place[0], 0])))
            if stays(container, rules):
                take(desk, container.requests, place, np.ones(1, dtype=bool))
        return tuple(found)
    return ()


def _lists(desk: NumaWorkspace, resource: str, place: int) -> bool:
    room = desk.rooms.get(resource)
    return room is not None and bool(room[place, 0] >= 0)


def why_unaligned(
    columns: NumaColumns, row: int, node: str, wants: NumaRequest, rules: ZoneRules = USUAL
) -> Unaligned | None:
    """What stands in the way on one node; None if nothing does."""
    if is_indifferent(wants, rules):
        return None
    if not columns.fresh[row]:
        return Unaligned(node, AlignmentTarget.STALE)
    for scope, rows in asking(columns, rules):
        if row not in rows:
            continue
        containers = portions(wants, scope, rules)
        desk = laid_out(columns, np.asarray([row]), containers, wants.service, rules.fit)
        stopped = int(settle(desk, containers, rules)[0])
        if stopped == FITS:
            return None
        cause = AlignmentTarget.POD if scope is TopologyManagerScope.POD else CAUSES[containers[stopped].role]
        return _told(desk, node, cause, containers[stopped])
    return None


def _told(desk: NumaWorkspace, node: str, cause: AlignmentTarget, container: ContainerRequest) -> Unaligned:
    """The desk is left as it was when the container found no zone, for those after it took nothing."""
    asked = tuple((name, amount) for name, amount in container.requests if amount > 0)
    missing = ""
    if desk.rule is FitRule.STRICT:
        missing = next((name for name, _ in asked if desk.offers[name] is not None), "")
    shortages = []
    for place in np.argsort(desk.numbers[:, 0], kind="stable"):
        number = int(desk.numbers[place, 0])
        if number != NO_ZONE and not missing:
            shortages.append(_shortage(desk, int(place), number, asked))
    found = tuple(shortage for shortage in shortages if shortage is not None)
    return Unaligned(node, cause, container.name, asked, found, missing)


def _shortage(
    desk: NumaWorkspace, place: int, number: int, asked: tuple[tuple[str, int], ...]
) -> ZoneShortage | None:
    for resource, amount in asked:
        if candidates(desk, ((resource, amount),))[place, 0]:
            continue
        room = desk.rooms.get(resource)
        left = None if room is None or room[place, 0] < 0 else int(room[place, 0])
        if left is not None and not is_compared(resource, desk.service, desk.rule):
            left = None
        return ZoneShortage(number, resource, left)
    return None
