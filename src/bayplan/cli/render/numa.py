"""The NUMA zones of nodes as text: what each has free, and which pods are assigned to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.explanation.text import amount_text, counted, importance, short_resources
from bayplan.model.gang import Gang, PodSet
from bayplan.model.numa import NodeZones, TopologyManagerPolicy, TopologyManagerScope, ZoneRules
from bayplan.placement.domains.node_caps import aligned_use
from bayplan.placement.numa.alignment import assumed_zones
from bayplan.placement.numa.columns import NumaColumns, narrowed

NODES_MAX = 8  # drawn one by one
POLICIES = {
    TopologyManagerPolicy.NONE: "does not align",
    TopologyManagerPolicy.BEST_EFFORT: "aligns {} if possible",
    TopologyManagerPolicy.RESTRICTED: "aligns {} with as few zones as possible",
    TopologyManagerPolicy.SINGLE_ZONE: "requires one zone for {}",
}
PodsByZone = Mapping[int, Mapping[str, int]]
"""Zone number → pod set or container → number of pods."""


def zone_lines(report: NodeZones, pods_by_zone: PodsByZone | None = None) -> Iterator[str]:
    """A node with its zones, one line each."""
    what = "the pod" if report.alignment.scope is TopologyManagerScope.POD else "each container"
    yield f"{report.node}: {POLICIES[report.alignment.policy].format(what)}"
    names = short_resources(sorted(report.resources, key=importance))
    for zone in sorted(report.zones, key=lambda zone: zone.number):
        left = [
            f"{amount_text(name, zone.available[name])} {short}"
            for name, short in names.items()
            if name in zone.available
        ]
        pods = (pods_by_zone or {}).get(zone.number, {})
        assigned = ", ".join(f"{count} × {name}" for name, count in pods.items())
        marks = f"  ← {assigned}" if assigned else ""
        yield f"  zone {zone.number}: {', '.join(left) or 'nothing'} free{marks}"


def zone_pods(
    gang: Gang, pods: Mapping[str, Mapping[int, int]], columns: NumaColumns, rules: ZoneRules
) -> dict[int, dict[int, dict[str, int]]]:
    """By row and zone, how many containers (or pods, where the scope is the pod) of each pod set."""
    by_row: dict[int, dict[int, dict[str, int]]] = {}
    sets = {pod_set.name: pod_set for pod_set in gang.root.pod_sets()}
    rows = sorted({row for counts in pods.values() for row in counts})
    for row in rows[:NODES_MAX]:
        room, zones = narrowed(columns, np.array([row])), by_row.setdefault(row, {})
        for name, counts in pods.items():
            for _ in range(counts.get(row, 0)):
                room = _assign(zones, sets[name], room, rules)
    return by_row


def _assign(
    zones: dict[int, dict[str, int]], pod_set: PodSet, room: NumaColumns, rules: ZoneRules
) -> NumaColumns:
    if pod_set.zones is None:
        return room
    for container, number in assumed_zones(room, 0, pod_set.zones, rules):
        here = zones.setdefault(number, {})
        title = f"{pod_set.name}/{container}" if container else pod_set.name
        here[title] = here.get(title, 0) + 1
    return aligned_use(room, pod_set, np.zeros(1, np.int64), np.ones(1, np.int64), rules)


def current_zones(
    reports: Mapping[str, NodeZones], names: Sequence[str], columns: NumaColumns
) -> dict[str, NodeZones]:
    """The reports with the free amounts of the columns; `names` are the nodes of the rows."""
    updated = {}
    for row, name in enumerate(names):
        report = reports.get(name)
        if report is not None:
            left = columns.available[:, :, row].tolist()
            zones = (
                replace(zone, available={what: left[columns.resources[what]][at] for what in zone.available})
                for at, zone in enumerate(report.zones)
            )
            updated[name] = replace(report, zones=tuple(zones))
    return updated


def drawn(
    nodes: Sequence[str], reports: Mapping[str, NodeZones], pods_by_zone: Mapping[str, PodsByZone]
) -> list[str]:
    """The zones of nodes; nodes without a report are counted."""
    reported = [name for name in nodes if name in reports]
    lines = [
        line for name in reported[:NODES_MAX] for line in zone_lines(reports[name], pods_by_zone.get(name))
    ]
    lines += _rest(len(reported) - NODES_MAX, "more with NUMA zones")
    return lines + list(_rest(len(nodes) - len(reported), "without a NUMA report"))


def _rest(number: int, what: str) -> Iterable[str]:
    if number > 0:
        yield f"{counted(number, 'node')} {what}"
