"""Topologies as tables, and as records for machines: room, and the largest gang that fits, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.cli.live_state import Live
from bayplan.cli.tables import percent, table
from bayplan.cli.words import amount_text, counted, importance, short_levels, short_resources
from bayplan.placement.supply import Supply
from bayplan.state.queries import LevelRoom, commonest_shape, room_by_level

LEVEL, LABEL, DOMAINS, LARGEST, BROKEN = "LEVEL", "LABEL", "DOMAINS", "LARGEST GANG", "FRAGMENTED"


def topology_tables(live: Live, *, wide: bool) -> list[str]:
    """One table for each topology, from its widest level down."""
    shape = commonest_shape(live.state)
    lines: list[str] = []
    for name, supply in sorted(live.state.holdings.supplies().items()):
        rooms = room_by_level(supply, shape)
        lines += [""] if lines else []
        lines += [f"{name}: {_hosts(supply)}"]
        lines += [f"  {line}" for line in _table(supply, rooms, wide=wide)]
    if shape:
        lines += ["", f"pods: of the commonest shape, {shape_text(shape)}"]
    return lines


def topology_records(live: Live) -> list[dict[str, Any]]:
    """All topologies."""
    shape = commonest_shape(live.state)
    return [
        {
            "name": name,
            "nodes": supply.tree.rows,
            "usableNodes": int(supply.active.sum()),
            "shape": dict(shape),
            "levels": [_record(one) for one in room_by_level(supply, shape)],
        }
        for name, supply in sorted(live.state.holdings.supplies().items())
    ]


def shape_text(shape: Mapping[str, int]) -> str:
    """`8 gpu, 4 cpu`."""
    short = short_resources(shape)
    return ", ".join(f"{amount_text(r, shape[r])} {short[r]}" for r in sorted(shape, key=importance))


def _table(supply: Supply, rooms: list[LevelRoom], *, wide: bool) -> list[str]:
    names = short_levels(supply.tree.levels)
    resources = sorted(rooms[0].free, key=importance)
    short = short_resources(resources)
    free = [f"{short[resource].upper()} FREE" for resource in resources]
    heads = [LEVEL, *([LABEL] if wide else []), DOMAINS, *free, LARGEST, BROKEN]
    rows: list[list[object]] = []
    for one in rooms:
        amounts = [f"{amount_text(r, one.free[r])} of {amount_text(r, one.total[r])}" for r in resources]
        pods = "" if one.pods is None else f", {counted(one.pods, 'pod')}"
        largest = f"{counted(one.hosts, 'whole host')}{pods}"
        label = [one.level] if wide else []
        rows.append(
            [names[one.level], *label, one.domains, *amounts, largest, percent(float(one.fragmentation))]
        )
    return table(heads, rows, (DOMAINS, *free, LARGEST, BROKEN))


def _hosts(supply: Supply) -> str:
    rows, usable = supply.tree.rows, int(supply.active.sum())
    return f"{rows} nodes" if rows == usable else f"{rows} nodes, {usable} of them usable"


def _record(one: LevelRoom) -> dict[str, Any]:
    return {
        "level": one.level,
        "domains": one.domains,
        "free": dict(one.free),
        "total": dict(one.total),
        "largestHosts": one.hosts,
        "largestPods": one.pods,
        "fragmentation": round(float(one.fragmentation), 4),
    }
