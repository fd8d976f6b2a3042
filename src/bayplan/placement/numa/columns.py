"""The NUMA zones of all nodes as columns, so that a pod is compared with all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.node import Node
from bayplan.model.numa import DEFAULT_ZONES_MAX, NodeZones, TopologyManagerPolicy, TopologyManagerScope, Zone
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.resources import ALWAYS_OFFERED

UNLISTED = -1  # the zone does not list the resource; less than any amount
NO_ZONE = 2**62  # sorts after every zone number
FAR = 255
"""The distance between zones for which the report has none."""

Distances = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class NumaColumns:
    """One row per node (the last axis). Nodes with fewer zones than others have empty places at the end."""

    resources: Mapping[str, int]
    available: Ints  # resource, zone, node
    numbers: Ints  # zone, node
    offers: Bools  # resource, node: whether the node has the resource
    reported: Bools
    fresh: Bools  # the view of the zones is reliable
    single: Bools  # single-numa-node policy
    whole: Bools  # pod scope, not container scope
    zones_max: Ints
    layout: Ints  # index into layouts
    layouts: tuple[Distances, ...]
    ordered: bool = True  # every node lists its zones by number

    @property
    def rows(self) -> int:
        return len(self.reported)

    @property
    def places(self) -> int:
        """The largest number of zones of any node, at least one."""
        return len(self.numbers)

    def room(self, resource: str) -> Ints | None:
        """The available amount of a resource, zone by node; None if no zone lists it."""
        at = self.resources.get(resource)
        return None if at is None else self.available[at]

    def offered(self, resource: str) -> Bools:
        """The nodes that have a resource, in zones or not."""
        at = self.resources.get(resource)
        if resource in ALWAYS_OFFERED:
            return np.ones(self.rows, dtype=bool)
        return np.zeros(self.rows, dtype=bool) if at is None else self.offers[at]


def zone_columns(
    nodes: Sequence[Node], reports: Mapping[str, NodeZones], stale: Collection[str] = ()
) -> NumaColumns:
    """The columns of these nodes, in their order; `stale` are names of nodes without a reliable view."""
    node_reports = [reports[node.name] for node in nodes if node.name in reports]
    columns = _empty(
        len(nodes),
        _names(nodes, node_reports),
        max((len(report.zones) for report in node_reports), default=0),
    )
    layouts: dict[Distances, int] = {(): 0}
    for row, node in enumerate(nodes):
        _fill(columns, row, node, reports.get(node.name), node.name not in stale, layouts)
    return replace(columns, layouts=tuple(layouts), ordered=_ordered(columns.numbers))


def changed(columns: NumaColumns, row: int, node: Node, report: NodeZones | None, fresh: bool) -> NumaColumns:
    """The columns with one node updated; the given columns do not change."""
    return changed_rows(columns, [(row, node, report, fresh)])


def changed_rows(
    columns: NumaColumns, updates: Sequence[tuple[int, Node, NodeZones | None, bool]]
) -> NumaColumns:
    """The columns with some nodes updated: row, node, report, and whether the report is reliable."""
    reports = [report for _, _, report, _ in updates if report is not None]
    names = dict(columns.resources)
    for name in _names([node for _, node, _, _ in updates], reports):
        names.setdefault(name, len(names))
    places = max((columns.places, *(len(report.zones) for report in reports)))
    wider = _empty(columns.rows, names, places)
    shape = (len(columns.resources), columns.places)
    wider.available[: shape[0], : shape[1]] = columns.available
    wider.numbers[: shape[1]] = columns.numbers
    wider.offers[: shape[0]] = columns.offers
    for name in ("reported", "fresh", "single", "whole", "zones_max", "layout"):
        getattr(wider, name)[:] = getattr(columns, name)
    layouts = {layout: number for number, layout in enumerate(columns.layouts)}
    for row, node, report, fresh in updates:
        wider.available[:, :, row], wider.numbers[:, row], wider.offers[:, row] = UNLISTED, NO_ZONE, False
        wider.zones_max[row], wider.layout[row] = DEFAULT_ZONES_MAX, 0
        _fill(wider, row, node, report, fresh, layouts)
    return replace(wider, layouts=tuple(layouts), ordered=_ordered(wider.numbers))


def narrowed(columns: NumaColumns, rows: Ints) -> NumaColumns:
    """A copy of some rows, in the given order."""
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


def subtracted_everywhere(
    columns: NumaColumns, rows: Ints, amounts: Mapping[str, int], copies: Ints | None = None
) -> NumaColumns:
    """The columns with amounts subtracted from every zone of some nodes, since the zone is not known yet.

    Rows are unique; `copies` is the number of pods for each of them, by default one.
    """
    available = columns.available.copy()
    count = np.ones(len(rows), dtype=np.int64) if copies is None else copies
    for resource, amount in amounts.items():
        resource_row = columns.resources.get(resource)
        if resource_row is not None and amount > 0:
            free = available[resource_row][:, rows]
            available[resource_row][:, rows] = np.where(free < 0, free, np.maximum(free - amount * count, 0))
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
        zones_max=np.full(rows, DEFAULT_ZONES_MAX, dtype=np.int64),
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
