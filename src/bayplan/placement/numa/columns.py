"""The zones of all nodes in columns, so that a pod is compared with all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.node import Node
from bayplan.model.numa import ZONES_USUAL, NodeZones, TopologyManagerPolicy, TopologyManagerScope, Zone
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.resources import ALWAYS_OFFERED

UNLISTED = -1  # a zone that does not list the resource; less than any amount
NO_ZONE = 2**62  # sorts behind every number of a zone
FAR = 255
"""The distance of zones that say nothing of each other."""

Distances = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class NumaColumns:
    """One row per node (the last axis). Nodes with fewer zones than others have empty places at the end."""

    resources: Mapping[str, int]
    available: Ints  # resource, zone, node
    numbers: Ints  # zone, node
    offers: Bools  # resource, node: whether the node as a whole has some
    reported: Bools
    fresh: Bools  # what is known of the zones can be relied on
    single: Bools  # must lie in a single zone
    whole: Bools  # the pod as a whole, not each container
    zones_max: Ints
    layout: Ints  # which of the layouts the distances of its zones follow
    layouts: tuple[Distances, ...]
    ordered: bool = True  # every node lists its zones by number

    @property
    def rows(self) -> int:
        return len(self.reported)

    @property
    def places(self) -> int:
        """How many zones the node with most of them has, and at least one."""
        return len(self.numbers)

    def room(self, resource: str) -> Ints | None:
        """What is left of a resource, zone by node; None if no zone of any node lists it."""
        at = self.resources.get(resource)
        return None if at is None else self.available[at]

    def offered(self, resource: str) -> Bools:
        """The nodes that have some of a resource, in zones or not."""
        at = self.resources.get(resource)
        if resource in ALWAYS_OFFERED:
            return np.ones(self.rows, dtype=bool)
        return np.zeros(self.rows, dtype=bool) if at is None else self.offers[at]


def zone_columns(
    nodes: Sequence[Node], reports: Mapping[str, NodeZones], stale: Collection[str] = ()
) -> NumaColumns:
    """The columns of these nodes, in their order; `stale` are names of nodes whose zones nobody knows."""
    known = [reports[node.name] for node in nodes if node.name in reports]
    columns = _empty(len(nodes), _names(nodes, known), max((len(one.zones) for one in known), default=0))
    layouts: dict[Distances, int] = {(): 0}
    for row, node in enumerate(nodes):
        _fill(columns, row, node, reports.get(node.name), node.name not in stale, layouts)
    return replace(columns, layouts=tuple(layouts), ordered=_ordered(columns.numbers))


def changed(columns: NumaColumns, row: int, node: Node, report: NodeZones | None, fresh: bool) -> NumaColumns:
    """The same with one node as it is now. The columns given stay as they were."""
    return changed_rows(columns, [(row, node, report, fresh)])


def changed_rows(
    columns: NumaColumns, now: Sequence[tuple[int, Node, NodeZones | None, bool]]
) -> NumaColumns:
    """The same with some nodes as they are now: row, node, report, and whether it can be relied on."""
    found = [report for _, _, report, _ in now if report is not None]
    names = dict(columns.resources)
    for name in _names([node for _, node, _, _ in now], found):
        names.setdefault(name, len(names))
    places = max((columns.places, *(len(report.zones) for report in found)))
    wider = _empty(columns.rows, names, places)
    old = (len(columns.resources), columns.places)
    wider.available[: old[0], : old[1]] = columns.available
    wider.numbers[: old[1]] = columns.numbers
    wider.offers[: old[0]] = columns.offers
    for name in ("reported", "fresh", "single", "whole", "zones_max", "layout"):
        getattr(wider, name)[:] = getattr(columns, name)
    layouts = {layout: at for at, layout in enumerate(columns.layouts)}
    for row, node, report, fresh in now:
        wider.available[:, :, row], wider.numbers[:, row], wider.offers[:, row] = UNLISTED, NO_ZONE, False
        wider.zones_max[row], wider.layout[row] = ZONES_USUAL, 0
        _fill(wider, row, node, report, fresh, layouts)
    return replace(wider, layouts=tuple(layouts), ordered=_ordered(wider.numbers))


def narrowed(columns: NumaColumns, rows: Ints) -> NumaColumns:
    """Some nodes by themselves, in the order given: a copy."""
    return replace(
        columns,
        available=columns.available[:, :, rows],
        numbers=columns.numbers[:, rows],
        offers=columns.offers[:, rows],
        reported=columns.reported[rows],
        fresh=columns.fresh[rows],
        single=columns.single[rows],
        whole=columns.whole[rows],
        zones_max=columns.zones_max[rows],
        layout=columns.layout[rows],
    )


def taken_everywhere(
    columns: NumaColumns, rows: Ints, amounts: Mapping[str, int], copies: Ints | None = None
) -> NumaColumns:
    """The same with less room in every zone of some nodes: nobody knows yet which zone it will be.

    Rows are unique; `copies` is how many pods each of them gets, one if it is not said.
    """
    available = columns.available.copy()
    count = np.ones(len(rows), dtype=np.int64) if copies is None else copies
    for resource, amount in amounts.items():
        at = columns.resources.get(resource)
        if at is not None and amount > 0:
            room = available[at][:, rows]
            available[at][:, rows] = np.where(room < 0, room, np.maximum(room - amount * count, 0))
    return replace(columns, available=available)


def _names(nodes: Iterable[Node], reports: Iterable[NodeZones]) -> dict[str, int]:
    names: dict[str, int] = {}
    for report in reports:
        for zone in report.zones:
            for name in zone.available:
                names.setdefault(name, len(names))
    for node in nodes:
        for name in node.allocatable:
            names.setdefault(name, len(names))
    return names


def _empty(rows: int, names: Mapping[str, int], places: int) -> NumaColumns:
    places = max(places, 1)
    return NumaColumns(
        resources=names,
        available=np.full((len(names), places, rows), UNLISTED, dtype=np.int64),
        numbers=np.full((places, rows), NO_ZONE, dtype=np.int64),
        offers=np.zeros((len(names), rows), dtype=bool),
        reported=np.zeros(rows, dtype=bool),
        fresh=np.ones(rows, dtype=bool),
        single=np.zeros(rows, dtype=bool),
        whole=np.zeros(rows, dtype=bool),
        zones_max=np.full(rows, ZONES_USUAL, dtype=np.int64),
        layout=np.zeros(rows, dtype=np.int64),
        layouts=((),),
    )


def _fill(
    columns: NumaColumns, row: int, node: Node, report: NodeZones | None, fresh: bool,
    layouts: dict[Distances, int],
) -> None:  # fmt: skip
    columns.fresh[row], columns.reported[row] = fresh, report is not None
    for name in node.allocatable:
        columns.offers[columns.resources[name], row] = True
    if report is None:
        columns.single[row] = columns.whole[row] = False
        return
    alignment = report.alignment
    columns.single[row] = alignment.policy is TopologyManagerPolicy.SINGLE_ZONE
    columns.whole[row] = alignment.scope is TopologyManagerScope.POD
    columns.zones_max[row] = alignment.zones_max
    for place, zone in enumerate(report.zones):
        columns.numbers[place, row] = zone.number
        for name, amount in zone.available.items():
            columns.available[columns.resources[name], place, row] = max(amount, 0)
    columns.layout[row] = layouts.setdefault(_distances(report.zones), len(layouts))


def _ordered(numbers: Ints) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _distances(zones: tuple[Zone, ...]) -> Distances:
    return tuple(tuple(zone.distances.get(other.number, FAR) for other in zones) for zone in zones)
