"""What the dashboard shows of one moment: frozen, and independent of the state that it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayplan.dashboard.host_map import LAYERS, GangKey, HostMap

Record = Mapping[str, Any]
"""A JSON object as `-o json` of a command prints it."""
FLEETING = ("age",)
"""Fields that change with time alone; a record that differs only in them has not changed."""


@dataclass(frozen=True, slots=True, eq=False)
class GangEntry:
    """One gang: its id on the maps, and its record in `bayplan list gangs -o json`."""

    id: int
    key: GangKey
    record: Record
    pending: bool = False

    def shown(self) -> dict[str, Any]:
        return {"id": self.id, "pending": self.pending, "gang": self.record}

    def same(self, other: GangEntry | None) -> bool:
        if other is None or self.pending != other.pending:
            return False
        return self.record == other.record or _lasting(self.record) == _lasting(other.record)


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """One point of the curves over time."""

    now: float
    total: int  # of the resource that the map shows
    used: int
    fragmentation: float  # of the widest level below the whole cluster
    pending: int  # gangs


@dataclass(frozen=True, slots=True, eq=False)
class DashboardSnapshot:
    """Hosts, gangs and queues at one moment."""

    now: float
    maps: tuple[HostMap, ...] = ()
    gangs: Mapping[int, GangEntry] = field(default_factory=dict)  # in the order of `bayplan list gangs`
    queues: Record = field(default_factory=dict)  # as `bayplan list queues -o json`
    topologies: tuple[Record, ...] = ()  # as `bayplan list topologies -o json`
    notes: tuple[str, ...] = ()  # what could not be read, in sentences

    def totals(self) -> Totals:
        """The point of this moment on the curves."""
        pending = sum(entry.pending for entry in self.gangs.values())
        if not self.maps:
            return Totals(self.now, 0, 0, 0.0, pending)
        shown = self.maps[0]
        total, free = int(shown.layers["total"].sum()), int(shown.layers["free"].sum())
        return Totals(self.now, total, total - free, fragmentation(shown), pending)


def fragmentation(shown: HostMap) -> float:
    """The part of all free capacity that is not in the widest domain with the most of it."""
    free = shown.layers["free"].astype(np.int64)
    if not len(free) or not free.sum():
        return 0.0
    levels = [level for level in shown.layout.levels if len(level.starts) > 1]
    best = np.add.reduceat(free, levels[0].starts).max() if levels else free.max()
    return round(1.0 - float(best) / float(free.sum()), 4)


def room(shown: HostMap, size: int) -> dict[str, int]:
    """How many gangs of this many devices fit now, each within one domain: by level, host and cluster.

    A gang larger than a host consists of pods that each fill a host; a smaller one is a single pod.
    """
    assert size > 0
    usable = (shown.layers["flags"] & 3) == 3
    free = np.where(usable, shown.layers["free"], 0).astype(np.int64)
    each = int(min(size, max(1, shown.layers["total"].max(initial=0))))
    pods = -(-size // each)
    copies = free // each
    found = {"cluster": int(copies.sum()) // pods}
    for level in shown.layout.levels:
        sums = np.add.reduceat(copies, level.starts) if len(copies) else copies
        found[level.label] = int((sums // pods).sum())
    found["host"] = int((copies // pods).sum())
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """What changed between two snapshots; `reset` if hosts moved, so that maps have to be read again."""

    reset: bool
    hosts: tuple[tuple[int, ...], ...] = ()  # by map: the indexes of changed hosts
    gangs: tuple[GangEntry, ...] = ()
    gone: tuple[int, ...] = ()
    order: tuple[int, ...] | None = None  # of all gangs, if it changed
    queues: bool = False
    topologies: bool = False

    @property
    def empty(self) -> bool:
        found = (any(self.hosts), self.gangs, self.gone, self.order, self.queues, self.topologies)
        return not self.reset and not any(found)


def difference(before: DashboardSnapshot, after: DashboardSnapshot) -> Difference:
    """What changed from one snapshot to a later one."""
    layouts = [one.layout for one in before.maps], [one.layout for one in after.maps]
    if len(layouts[0]) != len(layouts[1]) or any(a is not b for a, b in zip(*layouts, strict=True)):
        return Difference(reset=True)
    gone = tuple(number for number in before.gangs if number not in after.gangs)
    changed = tuple(one for number, one in after.gangs.items() if not one.same(before.gangs.get(number)))
    kept = [number for number in before.gangs if number in after.gangs]
    moved = kept != [number for number in after.gangs if number in before.gangs]
    fresh = any(number not in before.gangs for number in after.gangs)
    return Difference(
        reset=False,
        hosts=tuple(tuple(_changed_hosts(a, b)) for a, b in zip(before.maps, after.maps, strict=True)),
        gangs=changed,
        gone=gone,
        order=tuple(after.gangs) if moved or fresh else None,
        queues=before.queues != after.queues,
        topologies=before.topologies != after.topologies,
    )


def _changed_hosts(before: HostMap, after: HostMap) -> Iterator[int]:
    differs = np.zeros(len(after.layout.hosts), bool)
    for name in LAYERS:
        differs |= before.layers[name] != after.layers[name]
    for index in before.more.keys() | after.more.keys():
        differs[index] |= before.more.get(index) != after.more.get(index)
    return iter(np.flatnonzero(differs).tolist())


def _lasting(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in FLEETING}
