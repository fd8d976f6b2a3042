"""Working copy of zone amounts from which containers are subtracted in order, on many nodes at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bayplan.model.numa import Amounts, ContainerRequest, FitRule, QosClass
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.columns import NO_ZONE, NumaColumns
from bayplan.placement.numa.resources import is_compared, is_host_wide


@dataclass(frozen=True, slots=True, eq=False)
class NumaWorkspace:
    """A working copy of the resources that some containers request, on some nodes. Only `take` changes it."""

    rows: Ints  # of the nodes in the columns
    free: dict[str, Ints]  # zone by node; no entry where no zone of any node lists the resource
    offers: dict[str, Bools | None]  # the nodes that have the resource; None: all of them
    numbers: Ints
    ordered: bool
    service: QosClass
    rule: FitRule

    def narrowed(self, keep: Bools) -> NumaWorkspace:
        """The workspace with only some of the nodes."""
        return NumaWorkspace(
            self.rows[keep],
            {name: free[:, keep] for name, free in self.free.items()},
            {name: None if nodes is None else nodes[keep] for name, nodes in self.offers.items()},
            self.numbers[:, keep],
            self.ordered,
            self.service,
            self.rule,
        )


def workspace_for(
    columns: NumaColumns, rows: Ints, containers: Iterable[ContainerRequest], service: QosClass, rule: FitRule
) -> NumaWorkspace:
    """A workspace with all resources that these containers request."""
    rooms: dict[str, Ints] = {}
    offers: dict[str, Bools | None] = {}
    all_rows = len(rows) == columns.rows
    for resource in {name: None for container in containers for name, _ in container.requests}:
        free = columns.room(resource)
        if free is not None:
            rooms[resource] = free.copy() if all_rows else free[:, rows]
        offered = columns.offered(resource)[rows]
        offers[resource] = None if offered.all() else offered
    numbers = columns.numbers if all_rows else columns.numbers[:, rows]
    return NumaWorkspace(rows, rooms, offers, numbers, columns.ordered, service, rule)


def candidates(workspace: NumaWorkspace, requests: Amounts) -> Bools:
    """Zone by node: whether the zone fits all requests. A resource that no zone lists may be node-wide."""
    good = np.ones(workspace.numbers.shape, dtype=bool)
    for resource, amount in requests:
        if amount > 0:
            good &= _fits_zone(workspace, resource, amount)
    if workspace.rule is FitRule.PLAIN:
        good &= workspace.numbers != NO_ZONE
        return good
    for resource, amount in requests:
        offered = workspace.offers[resource]
        if amount > 0 and offered is not None:
            good &= offered
    return good


def _fits_zone(workspace: NumaWorkspace, resource: str, amount: int) -> Bools:
    free = workspace.free.get(resource)
    host_wide = workspace.rule is FitRule.STRICT and is_host_wide(resource)
    if free is None:
        return np.full(workspace.numbers.shape, host_wide)
    fits = free >= (amount if is_compared(resource, workspace.service, workspace.rule) else 0)
    if host_wide:
        listed = (free >= 0).any(axis=0)
        if not listed.all():
            fits |= ~listed
    return fits


def lowest(workspace: NumaWorkspace, good: Bools) -> Ints:
    """By node, the candidate zone with the lowest number: the one the kubelet would choose."""
    if workspace.ordered:
        first: Ints = good.argmax(axis=0)
        return first
    least: Ints = np.where(good, workspace.numbers, NO_ZONE).argmin(axis=0)
    return least


def take(workspace: NumaWorkspace, requests: Amounts, places: Ints, nodes: Bools) -> None:
    """Subtract a container's compared requests from one zone of each of these nodes."""
    columns = np.flatnonzero(nodes)
    zones = places[columns]
    for resource, amount in requests:
        free = workspace.free.get(resource)
        if amount > 0 and free is not None and is_compared(resource, workspace.service, workspace.rule):
            before = free[zones, columns]
            after = np.where(before >= 0, before - amount, 0)
            assert not len(after) or after.min() >= 0, f"{amount} of {resource} taken where there is less"
            free[zones, columns] = np.where(before >= 0, after, before)
