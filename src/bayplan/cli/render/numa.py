"""The zones inside a node for a terminal: what each has left, and which pods are meant for it."""

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
    TopologyManagerPolicy.BEST_EFFORT: "aligns {} if it can",
    TopologyManagerPolicy.RESTRICTED: "aligns {} with as few zones as possible",
    TopologyManagerPolicy.SINGLE_ZONE: "insists on one zone for {}",
}
Guests = Mapping[int, Mapping[str, int]]
"""By zone, how many pods of what."""


def zone_lines(report: NodeZones, guests: Guests | None = None) -> Iterator[str]:
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
        pods = (guests or {}).get(zone.number, {})
        meant = ", ".join(f"{count} × {name}" for name, count in pods.items())
        yield f"  zone {zone.number}: {', '.join(left) or 'nothing'} free{f'  ← {meant}' if meant else ''}"


def guests_of(
    gang: Gang, pods: Mapping[str, Mapping[int, int]], columns: NumaColumns, rules: ZoneRules
) -> dict[int, dict[int, dict[str, int]]]:
    """By row and zone, how many containers (or pods, where they are aligned whole) of each pod set."""
    found: dict[int, dict[int, dict[str, int]]] = {}
    sets = {pod_set.name: pod_set for pod_set in gang.root.pod_sets()}
    rows = sorted({row for counts in pods.values() for row in counts})
    for row in rows[:NODES_MAX]:
        room, zones = narrowed(columns, np.array([row])), found.setdefault(row, {})
        for name, counts in pods.items():
            for _ in range(counts.get(row, 0)):
                room = _seat(zones, sets[name], room, rules)
    return found


def _seat(
    zones: dict[int, dict[str, int]], pod_set: PodSet, room: NumaColumns, rules: ZoneRules
) -> NumaColumns:
    if pod_set.zones is None:
        return room
    for container, number in assumed_zones(room, 0, pod_set.zones, rules):
        here = zones.setdefault(number, {})
        title = f"{pod_set.name}/{container}" if container else pod_set.name
        here[title] = here.get(title, 0) + 1
    return aligned_use(room, pod_set, np.zeros(1, np.int64), np.ones(1, np.int64), rules)


def as_found(
    reports: Mapping[str, NodeZones], names: Sequence[str], columns: NumaColumns
) -> dict[str, NodeZones]:
    """The reports with what the columns say is left; names are those of the rows."""
    found = {}
    for row, name in enumerate(names):
        report = reports.get(name)
        if report is not None:
            left = columns.available[:, :, row].tolist()
            zones = (
                replace(zone, available={what: left[columns.resources[what]][at] for what in zone.available})
                for at, zone in enumerate(report.zones)
            )
            found[name] = replace(report, zones=tuple(zones))
    return found


def drawn(nodes: Sequence[str], reports: Mapping[str, NodeZones], guests: Mapping[str, Guests]) -> list[str]:
    """Some nodes; those that tell nothing are counted."""
    told = [name for name in nodes if name in reports]
    lines = [line for name in told[:NODES_MAX] for line in zone_lines(reports[name], guests.get(name))]
    lines += _rest(len(told) - NODES_MAX, "more with zones")
    return lines + list(_rest(len(nodes) - len(told), "without a report of their zones"))


def _rest(number: int, what: str) -> Iterable[str]:
    if number > 0:
        yield f"{counted(number, 'node')} {what}"
