"""Room in zones that containers take one after the other, on many nodes at once."""

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
    """A working copy of what some containers ask for, on some nodes. Only `take` writes to it."""

    rows: Ints  # of the nodes, in the columns
    rooms: dict[str, Ints]  # zone by node; no entry where no zone of any node lists the resource
    offers: dict[str, Bools | None]  # the nodes that have some; None: all of them
    numbers: Ints
    ordered: bool
    service: QosClass
    rule: FitRule

    def narrowed(self, keep: Bools) -> NumaWorkspace:
        """The same with fewer nodes."""
        return NumaWorkspace(
            self.rows[keep],
            {name: room[:, keep] for name, room in self.rooms.items()},
            {name: None if nodes is None else nodes[keep] for name, nodes in self.offers.items()},
            self.numbers[:, keep],
            self.ordered,
            self.service,
            self.rule,
        )


def laid_out(
    columns: NumaColumns, rows: Ints, containers: Iterable[ContainerRequest], service: QosClass, rule: FitRule
) -> NumaWorkspace:
    """A desk with all that these containers name."""
    rooms: dict[str, Ints] = {}
    offers: dict[str, Bools | None] = {}
    everyone = len(rows) == columns.rows
    for resource in {name: None for container in containers for name, _ in container.requests}:
        room = columns.room(resource)
        if room is not None:
            rooms[resource] = room.copy() if everyone else room[:, rows]
        offered = columns.offered(resource)[rows]
        offers[resource] = None if offered.all() else offered
    numbers = columns.numbers if everyone else columns.numbers[:, rows]
    return NumaWorkspace(rows, rooms, offers, numbers, columns.ordered, service, rule)


def candidates(desk: NumaWorkspace, requests: Amounts) -> Bools:
    """Zone by node: whether the zone has room for all of it. What no zone lists may be the whole node's."""
    good = np.ones(desk.numbers.shape, dtype=bool)
    for resource, amount in requests:
        if amount > 0:
            good &= _has_room(desk, resource, amount)
    if desk.rule is FitRule.PLAIN:
        good &= desk.numbers != NO_ZONE
        return good
    for resource, amount in requests:
        offered = desk.offers[resource]
        if amount > 0 and offered is not None:
            good &= offered
    return good


def _has_room(desk: NumaWorkspace, resource: str, amount: int) -> Bools:
    room = desk.rooms.get(resource)
    host_wide = desk.rule is FitRule.STRICT and is_host_wide(resource)
    if room is None:
        return np.full(desk.numbers.shape, host_wide)
    fits = room >= (amount if is_compared(resource, desk.service, desk.rule) else 0)
    if host_wide:
        listed = (room >= 0).any(axis=0)
        if not listed.all():
            fits |= ~listed
    return fits


def lowest(desk: NumaWorkspace, good: Bools) -> Ints:
    """The place of the candidate with the lowest number, by node: the one a node would take."""
    if desk.ordered:
        first: Ints = good.argmax(axis=0)
        return first
    least: Ints = np.where(good, desk.numbers, NO_ZONE).argmin(axis=0)
    return least


def take(desk: NumaWorkspace, requests: Amounts, places: Ints, nodes: Bools) -> None:
    """Take a container's share out of one zone of each of these nodes: of what is compared at all."""
    at = np.flatnonzero(nodes)
    zones = places[at]
    for resource, amount in requests:
        room = desk.rooms.get(resource)
        if amount > 0 and room is not None and is_compared(resource, desk.service, desk.rule):
            left = room[zones, at]
            after = np.where(left >= 0, left - amount, 0)
            assert not len(after) or after.min() >= 0, f"{amount} of {resource} taken where there is less"
            room[zones, at] = np.where(left >= 0, after, left)
