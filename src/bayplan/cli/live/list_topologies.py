"""Topologies as tables and JSON records: free capacity, devices by class, the largest gang that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bayplan.cli.inputs.class_devices import ClassDevices, devices_by_class
from bayplan.cli.live.state import Live
from bayplan.cli.render.tables import percent, table
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import Forbidden, NotServed
from bayplan.dialects.kube.devices.objects import DeviceObjects
from bayplan.dialects.kube.devices.wire import CLAIMS, CLASSES, SLICES
from bayplan.explanation.text import (
    amount_text,
    amounts_json,
    counted,
    importance,
    short_levels,
    short_resources,
    unit,
)
from bayplan.model.summary import LevelSummary
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.state.reports.queries import (
    CPU,
    Largest,
    commonest_shape,
    largest_by_level,
    main_resource,
    total,
)
from bayplan.state.reports.summaries import levels

LEVEL, LABEL, DOMAINS, LARGEST, BROKEN = "LEVEL", "LABEL", "DOMAINS", "LARGEST GANG", "FRAGMENTED"
CLASS, FREE = "CLASS", "FREE"


def topology_tables(live: Live, *, wide: bool, devices: Sequence[ClassDevices] = ()) -> list[str]:
    """One table for each topology, from its widest level down, and one of its devices by class."""
    shape = commonest_shape(live.state)
    lines: list[str] = []
    for name, supply in sorted(live.state.usage.supplies().items()):
        lines += [""] if lines else []
        lines += [f"{name}: {_hosts(supply)}"]
        lines += [f"  {line}" for line in _table(live, name, supply, shape, wide=wide)]
        lines += [f"  {line}" for line in ("", *device_table(devices, supply))] if devices else []
    if shape:
        lines += ["", f"pods with the most common requests: {shape_text(shape)}"]
    return lines


def topology_records(live: Live, devices: Sequence[ClassDevices] = ()) -> list[dict[str, Any]]:
    """One JSON record for each topology."""
    shape = commonest_shape(live.state)
    return [
        {
            "name": name,
            "nodes": supply.tree.rows,
            "usableNodes": int(supply.active.sum()),
            "podRequests": amounts_json(shape),
            "levels": [
                _record(supply, level, largest)
                for level, largest in zip(
                    levels(live.state, name), largest_by_level(supply, shape), strict=True
                )
            ],
            **({"devices": device_records(devices, supply)} if devices else {}),
        }
        for name, supply in sorted(live.state.usage.supplies().items())
    ]


def shape_text(shape: Mapping[str, int]) -> str:
    """`8 gpu, 4 cpu`."""
    short = short_resources(shape)
    return ", ".join(f"{amount_text(r, shape[r])} {short[r]}" for r in sorted(shape, key=importance))


def _table(
    live: Live, topology: str, supply: CapacitySnapshot, shape: Mapping[str, int], *, wide: bool
) -> list[str]:
    names, main = short_levels(supply.tree.levels), main_resource(supply)
    resources = list(dict.fromkeys((main, CPU)))
    short = short_resources(resources)
    free = [f"{short[resource].upper()} FREE" for resource in resources]
    heads = [LEVEL, *([LABEL] if wide else []), DOMAINS, *free, LARGEST, BROKEN]
    rows: list[list[object]] = []
    for level, largest in zip(levels(live.state, topology), largest_by_level(supply, shape), strict=True):
        rooms = {room.resource: room for room in level.capacities}
        amounts = [
            f"{amount_text(r, rooms[r].free)} of {amount_text(r, total(supply, r))}" if r in rooms else ""
            for r in resources
        ]
        pods = "" if largest.pods is None else f", {counted(largest.pods, 'pod')}"
        broken = percent(rooms[main].fragmentation) if main in rooms else ""
        row = [names[level.level], *([level.level] if wide else []), level.domains, *amounts]
        rows.append([*row, f"{counted(largest.hosts, 'whole host')}{pods}", broken])
    return table(heads, rows, (DOMAINS, *free, LARGEST, BROKEN))


def _hosts(supply: CapacitySnapshot) -> str:
    rows, usable = supply.tree.rows, int(supply.active.sum())
    return f"{rows} nodes" if rows == usable else f"{rows} nodes, {usable} of them usable"


def _record(supply: CapacitySnapshot, level: LevelSummary, largest: Largest) -> dict[str, Any]:
    return {
        "level": level.level,
        "domains": level.domains,
        "largestHosts": largest.hosts,
        "largestPods": largest.pods,
        "resources": [
            {
                "resource": room.resource,
                "unit": unit(room.resource),
                "free": room.free,
                "total": total(supply, room.resource),
                "largest": room.largest,
                "fragmentation": round(room.fragmentation, 4),
            }
            for room in level.capacities
        ],
    }


# ── devices by class ─────────────────────────────────────────────────────────────────────────────────


def live_devices(live: Live) -> list[ClassDevices]:
    """All classes; none where the cluster has none, or the user may not list devices."""
    objects = DeviceObjects()
    for kind in (CLASSES, SLICES, CLAIMS):
        for event in _seen(live, kind):
            for _ in objects.changes(event):
                pass
    return devices_by_class(objects, objects.claims.values())


def _seen(live: Live, kind: Kind) -> list[Any]:
    try:
        return live.seen(kind)
    except (NotServed, Forbidden):
        return []


def most_by_level(one: ClassDevices, supply: CapacitySnapshot) -> dict[str, int]:
    """By level: the most free devices in one of its domains."""
    rows = [one.free.get(node.name, 0) for node in supply.tree.nodes.tolist()]
    return {
        level: max((sum(rows[first:last]) for first, last in _ranges(supply, at)), default=0)
        for at, level in enumerate(supply.tree.levels)
    }


def _ranges(supply: CapacitySnapshot, level: int) -> Iterator[tuple[int, int]]:
    starts = [*supply.tree.starts[level].tolist(), supply.tree.rows]
    yield from pairwise(starts)


def device_table(classes: Sequence[ClassDevices], supply: CapacitySnapshot) -> list[str]:
    """One row for each class."""
    names = short_levels(supply.tree.levels)
    heads = [f"MOST IN ONE {names[level].upper()}" for level in supply.tree.levels]
    rows: list[list[object]] = [
        [one.name, f"{_sum(one.free)} of {_sum(one.total)}", *most_by_level(one, supply).values()]
        for one in classes
    ]
    return table([CLASS, FREE, *heads], rows, (FREE, *heads))


def device_records(classes: Sequence[ClassDevices], supply: CapacitySnapshot) -> list[dict[str, Any]]:
    """One JSON record for each class."""
    return [
        {
            "class": one.name,
            "free": _sum(one.free),
            "total": _sum(one.total),
            "largest": most_by_level(one, supply),
        }
        for one in classes
    ]


def _sum(by_node: Mapping[str, int]) -> int:
    return sum(by_node.values())
