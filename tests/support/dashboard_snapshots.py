"""Snapshots of the dashboard made by hand: hosts in racks, gangs on them, no cluster behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayplan.dashboard.host_map import READY, SCHEDULABLE, GangKey, HostMap, Layout, Level
from bayplan.dashboard.snapshot import DashboardSnapshot, GangEntry

GPU = "nvidia.com/gpu"


def rack_layout(racks: int, hosts: int, blocks: int = 1) -> Layout:
    names = tuple(f"b{b}-r{r}-h{h}" for b in range(blocks) for r in range(racks) for h in range(hosts))
    rack_names = tuple(f"r{r}" for _ in range(blocks) for r in range(racks))
    levels = (
        Level(
            "example.com/block",
            tuple(f"b{b}" for b in range(blocks)),
            tuple(range(0, len(names), racks * hosts)),
        ),
        Level("example.com/rack", rack_names, tuple(range(0, len(names), hosts))),
    )
    return Layout("site", names, levels)


def host_map(layout: Layout, gangs: Mapping[int, int], total: int = 8, down: tuple[int, ...] = ()) -> HostMap:
    """`gangs` has the gang of each host that is in use; such a host has nothing free."""
    count = len(layout.hosts)
    layers: dict[str, Any] = {
        "gang": np.zeros(count, "<u4"),
        "free": np.full(count, total, "<u2"),
        "total": np.full(count, total, "<u2"),
        "flags": np.full(count, READY | SCHEDULABLE, np.uint8),
        "zones": np.zeros(count, np.uint8),
    }
    for host, number in gangs.items():
        layers["gang"][host], layers["free"][host] = number, 0
    for host in down:
        layers["flags"][host] = SCHEDULABLE
    return HostMap(layout, GPU, layers, {})


def gang_entry(
    number: int, namespace: str, name: str, message: str = "", *, pending: bool = False
) -> GangEntry:
    state = "pending" if pending else "running"
    record = {"kind": "Job", "namespace": namespace, "name": name, "state": state, "message": message}
    return GangEntry(number, GangKey(namespace, "Job", name), record, pending)


def snapshot_of(shown: HostMap, *entries: GangEntry, now: float = 1.0) -> DashboardSnapshot:
    return DashboardSnapshot(now, (shown,), {entry.id: entry for entry in entries})
