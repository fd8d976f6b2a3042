"""Whether each node can align a pod to its NUMA zones, and if not, which zone lacks what."""

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
from bayplan.placement.numa.resources import aligned_requests, is_compared, is_indifferent, keeps_resources
from bayplan.placement.numa.workspace import NumaWorkspace, candidates, lowest, take, workspace_for

FITS, STALE = -1, -2
USUAL = ZoneRules()
TARGETS = {
    ContainerType.INIT: AlignmentTarget.INIT_CONTAINER,
    ContainerType.SIDECAR: AlignmentTarget.SIDECAR,
    ContainerType.APP: AlignmentTarget.CONTAINER,
}


@dataclass(frozen=True, slots=True, eq=False)
class NumaFit:
    """By node: FITS, STALE, or the index of the first container that fits no zone."""

    stopped: Ints

    @property
    def good(self) -> Bools:
        """The nodes that can align the pod or do not require alignment."""
        return np.equal(self.stopped, FITS)


def aligned(columns: NumaColumns, request: NumaRequest, rules: ZoneRules = USUAL) -> NumaFit:
    """Which nodes can align the pod. Nodes without a report, or without a strict policy, always can."""
    stopped = np.full(columns.rows, FITS, dtype=np.int64)
    if is_indifferent(request, rules):
        return NumaFit(stopped)
    for scope, rows in aligning_rows(columns, rules):
        stopped[rows] = _first_stopped(columns, rows, request, scope, rules)
    stopped[~columns.fresh] = STALE
    return NumaFit(stopped)


def aligning_rows(columns: NumaColumns, rules: ZoneRules) -> list[tuple[TopologyManagerScope, Ints]]:
    """The rows of the nodes that require alignment, by topology manager scope."""
    strict = columns.reported & columns.single & columns.fresh
    if rules.fit is FitRule.PLAIN:
        groups = [(TopologyManagerScope.CONTAINER, strict)]
    else:
        groups = [
            (TopologyManagerScope.CONTAINER, strict & ~columns.whole),
            (TopologyManagerScope.POD, strict & columns.whole),
        ]
    return [(scope, np.flatnonzero(nodes)) for scope, nodes in groups if nodes.any()]


def assign_zones(
    workspace: NumaWorkspace,
    containers: tuple[ContainerRequest, ...],
    rules: ZoneRules,
    *,
    again: bool = False,
) -> Ints:
    """Assign zones to containers in order; by node, the index of the first that fits none, or FITS.

    With `again` more copies of the pod follow: app containers keep their resources, even under a fit rule
    that compares each container by itself.
    """
    stopped = np.full(len(workspace.rows), FITS, dtype=np.int64)
    for index, container in enumerate(containers):
        fitting_zones = candidates(workspace, container.requests)
        has_zone = fitting_zones.any(axis=0)
        stopped[~has_zone & (stopped == FITS)] = index
        last = index == len(containers) - 1 and not again  # nothing is assigned after it
        if (keeps_resources(container, rules) and not last) or (
            again and container.type is ContainerType.APP
        ):
            take(
                workspace, container.requests, lowest(workspace, fitting_zones), has_zone & (stopped == FITS)
            )
    return stopped


def _first_stopped(
    columns: NumaColumns, rows: Ints, request: NumaRequest, scope: TopologyManagerScope, rules: ZoneRules
) -> Ints:
    containers = aligned_requests(request, scope, rules)
    workspace = workspace_for(columns, rows, containers, request.qos, rules.fit)
    return assign_zones(workspace, containers, rules)


def assumed_zones(
    columns: NumaColumns, row: int, request: NumaRequest, rules: ZoneRules = USUAL
) -> tuple[tuple[str, int], ...]:
    """The zone that each container would get on a node, by container name; empty if the node does not align.

    A pod that is aligned as a whole has the empty name.
    """
    if is_indifferent(request, rules):
        return ()
    for scope, rows in aligning_rows(columns, rules):
        if row not in rows:
            continue
        containers = aligned_requests(request, scope, rules)
        workspace = workspace_for(columns, np.asarray([row]), containers, request.qos, rules.fit)
        zones = []
        for container in containers:
            fitting_zones = candidates(workspace, container.requests)
            place = lowest(workspace, fitting_zones)
            if not fitting_zones.any():
                return ()
            if any(amount and _lists(workspace, name, int(place[0])) for name, amount in container.requests):
                zones.append((container.name, int(workspace.numbers[place[0], 0])))
            if keeps_resources(container, rules):
                take(workspace, container.requests, place, np.ones(1, dtype=bool))
        return tuple(zones)
    return ()


def _lists(workspace: NumaWorkspace, resource: str, place: int) -> bool:
    free = workspace.free.get(resource)
    return free is not None and bool(free[place, 0] >= 0)


def why_unaligned(
    columns: NumaColumns, row: int, node: str, request: NumaRequest, rules: ZoneRules = USUAL
) -> Unaligned | None:
    """Why one node cannot align the pod; None if it can."""
    if is_indifferent(request, rules):
        return None
    if not columns.fresh[row]:
        return Unaligned(node, AlignmentTarget.STALE)
    for scope, rows in aligning_rows(columns, rules):
        if row not in rows:
            continue
        containers = aligned_requests(request, scope, rules)
        workspace = workspace_for(columns, np.asarray([row]), containers, request.qos, rules.fit)
        stopped = int(assign_zones(workspace, containers, rules)[0])
        if stopped == FITS:
            return None
        target = (
            AlignmentTarget.POD if scope is TopologyManagerScope.POD else TARGETS[containers[stopped].type]
        )
        return _unaligned_detail(workspace, node, target, containers[stopped])
    return None


def _unaligned_detail(
    workspace: NumaWorkspace, node: str, target: AlignmentTarget, container: ContainerRequest
) -> Unaligned:
    """Describe the failure. The workspace still has the state in which the container fitted no zone."""
    requested = tuple((name, amount) for name, amount in container.requests if amount > 0)
    missing = ""
    if workspace.rule is FitRule.STRICT:
        missing = next((name for name, _ in requested if workspace.offers[name] is not None), "")
    shortages = []
    for place in np.argsort(workspace.numbers[:, 0], kind="stable"):
        number = int(workspace.numbers[place, 0])
        if number != NO_ZONE and not missing:
            shortages.append(_shortage(workspace, int(place), number, requested))
    zone_shortages = tuple(shortage for shortage in shortages if shortage is not None)
    return Unaligned(node, target, container.name, requested, zone_shortages, missing)


def _shortage(
    workspace: NumaWorkspace, place: int, number: int, requested: tuple[tuple[str, int], ...]
) -> ZoneShortage | None:
    for resource, amount in requested:
        if candidates(workspace, ((resource, amount),))[place, 0]:
            continue
        free = workspace.free.get(resource)
        left = None if free is None or free[place, 0] < 0 else int(free[place, 0])
        if left is not None and not is_compared(resource, workspace.service, workspace.rule):
            left = None
        return ZoneShortage(number, resource, left)
    return None
