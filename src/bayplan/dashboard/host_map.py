"""The hosts of every topology in its order, and what is on each of them, as typed arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.model.assignment import Path
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import Pod
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.reports.queries import CPU, main_resource
from bayplan.state.scheduling.state import SchedulingState

LAYERS = {"gang": "<u4", "free": "<u2", "total": "<u2", "flags": "u1", "zones": "u1"}
"""Name and type of every layer, in the order of the bytes: all hosts of one layer, then the next layer."""
READY, SCHEDULABLE, RESERVED, SHARED, OTHER_PODS = 1, 2, 4, 8, 16
"""Bits of the layer `flags`."""
NO_GANG, HIDDEN_GANG = 0, 2**32 - 1
"""Values of the layer `gang`; any other is the id of a gang. HIDDEN_GANG: of a namespace one may not see."""
AMOUNT_MAX = 2**16 - 1

Array = NDArray[Any]


class GangKey(NamedTuple):
    """A gang as `bayplan list gangs` names it."""

    namespace: str
    kind: str
    name: str


GangOf = Callable[[Pod], GangKey | None]
"""The gang that a pod is shown in; None: the pod belongs to no gang."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The domains of one level, in order: their names, and the first host of each."""

    label: str
    names: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The hosts of a topology and its domains. The same object until a host or a domain changes."""

    name: str
    hosts: tuple[str, ...]
    levels: tuple[Level, ...]

    def range_of(self, domain: Path) -> tuple[int, int]:
        """The hosts of a domain; an empty range if there is no such domain."""
        low, high = 0, len(self.hosts)
        for level, value in zip(self.levels, domain, strict=False):
            inside = [n for n, start in enumerate(level.starts) if low <= start < high]
            found = next((n for n in inside if level.names[n] == value), None)
            if found is None:
                return low, low
            low = level.starts[found]
            high = level.starts[found + 1] if found + 1 < len(level.starts) else len(self.hosts)
        return low, high


@dataclass(frozen=True, slots=True, eq=False)
class HostMap:
    """What is on every host of one topology. Arrays are never written to."""

    layout: Layout
    resource: str  # what `free` and `total` count: the device the cluster is measured by, or whole CPUs
    layers: Mapping[str, Array]
    more: Mapping[int, tuple[int, ...]]  # host → all its gangs, where there are several

    def packed(self) -> bytes:
        """All layers, one after the other."""
        return b"".join(self.layers[name].tobytes() for name in LAYERS)


class GangIds:
    """Numbers of gangs: the same as long as the server runs, for all maps. May be used by several threads."""

    def __init__(self) -> None:
        self._ids: dict[GangKey, int] = {}
        self._last = NO_GANG
        self._lock = threading.Lock()

    def of(self, key: GangKey) -> int:
        """The id of a gang."""
        with self._lock:
            known = self._ids.get(key)
            if known is None:
                self._last += 1
                known = self._ids[key] = self._last
            return known

    def forget(self, keep: Iterable[GangKey]) -> None:
        """Forget the ids of gangs that are gone, once there are many; an id is never given again."""
        known = set(keep)
        with self._lock:
            if len(self._ids) > 4 * len(known) + 10_000:
                self._ids = {key: number for key, number in self._ids.items() if key in known}


class MapMaker:
    """Draws the maps of a scheduler's state. Layouts are kept from one map to the next."""

    def __init__(self, ids: GangIds | None = None) -> None:
        self.ids = GangIds() if ids is None else ids
        self._layouts: dict[str, tuple[object, Layout]] = {}

    def id_of(self, key: GangKey) -> int:
        """The id of a gang: the same as long as the server runs."""
        return self.ids.of(key)

    def maps(
        self, state: SchedulingState, gang_of: GangOf, reserved: Mapping[str, tuple[Path, ...]] | None = None
    ) -> tuple[HostMap, ...]:
        """One map for each topology; nodes outside of all topologies have a flat one."""
        clusters = state.store.nodes.topologies
        held = _gangs_by_node(state, gang_of)
        named = {name: clusters[name].snapshot() for name in sorted(clusters) if name != FLAT.name}
        placed = sum(len(supply.tree.nodes) for supply in named.values())
        if not named or placed < len(state.store.nodes.by_name):
            named[FLAT.name] = clusters[FLAT.name].snapshot()
        resource = main_resource(clusters[FLAT.name].snapshot())
        self._layouts = {name: kept for name, kept in self._layouts.items() if name in named}
        return tuple(
            self._map(state, name, supply, resource, held, (reserved or {}).get(name, ()))
            for name, supply in named.items()
        )

    def _map(
        self, state: SchedulingState, name: str, supply: Any, resource: str,
        held: Mapping[str, Mapping[GangKey | None, int]], reserved: tuple[Path, ...],
    ) -> HostMap:  # fmt: skip
        layout, rows = self._layout(name, supply), supply.tree.rows
        unit = 1000 if resource == CPU else 1
        totals = np.fromiter((n.allocatable.get(resource, 0) for n in supply.tree.nodes), np.int64, rows)
        row = supply.resources.get(resource)
        free = np.zeros(rows, np.int64) if row is None else supply.free[row]
        flags = np.fromiter(
            (READY * n.ready + SCHEDULABLE * n.schedulable for n in supply.tree.nodes), np.uint8, rows
        )
        for domain in reserved:
            low, high = layout.range_of(domain)
            flags[low:high] |= RESERVED
        gangs, more = np.zeros(rows, np.uint32), dict[int, tuple[int, ...]]()
        for index, host in enumerate(layout.hosts):
            found = held.get(host)
            if not found:
                continue
            ranked = sorted((key for key in found if key is not None), key=lambda key: (-found[key], key))
            if ranked:
                gangs[index] = self.id_of(ranked[0])
            if len(ranked) > 1:
                more[index] = tuple(self.id_of(key) for key in ranked)
                flags[index] |= SHARED
            if None in found:
                flags[index] |= OTHER_PODS
        amounts = (np.clip(array // unit, 0, AMOUNT_MAX).astype("<u2") for array in (free, totals))
        layers = {"gang": gangs.astype("<u4"), "free": next(amounts), "total": next(amounts)}
        layers |= {"flags": flags, "zones": _zones(state, layout.hosts)}
        return HostMap(layout, resource, layers, more)

    def _layout(self, name: str, supply: Any) -> Layout:
        tree = supply.tree
        kept = self._layouts.get(name)
        if kept is not None and kept[0] is tree:
            return kept[1]
        levels = []
        for number, label in enumerate(tree.levels):
            if number == tree.lowest and label == HOSTNAME:
                continue  # the hosts themselves
            starts = tuple(map(int, tree.starts[number]))
            names = tuple(tree.nodes[start].labels[label] for start in starts)
            levels.append(Level(label, names, starts))
        layout = Layout(name, tuple(node.name for node in tree.nodes), tuple(levels))
        if kept is not None and _same(kept[1], layout):
            layout = kept[1]  # only labels, taints or amounts changed
        self._layouts[name] = tree, layout
        return layout


def occupants(state: SchedulingState, gang_of: GangOf) -> Iterator[tuple[str, GangKey | None, Pod | None]]:
    """Every pod that uses capacity, with its node and gang; open slots of admitted gangs, without a pod."""
    store = state.store
    for pod in store.placed.values():
        if not pod.finished:
            yield pod.node, gang_of(pod), pod
    for ref, slots in store.claims.gangs.items():
        key = GangKey(ref.namespace, ref.kind, ref.name)
        for slot, claim in slots.items():
            for _ in range(max(0, claim.count - len(store.claims.takers.get(slot, ())))):
                yield store.nodes.node_of(slot.host), key, None


def _gangs_by_node(state: SchedulingState, gang_of: GangOf) -> dict[str, dict[GangKey | None, int]]:
    found: dict[str, dict[GangKey | None, int]] = {}
    for node, key, _ in occupants(state, gang_of):
        counts = found.setdefault(node, {})
        counts[key] = counts.get(key, 0) + 1
    return found


def _zones(state: SchedulingState, hosts: tuple[str, ...]) -> Array:
    """The zones of each host in the upper four bits; in the lower four those in which devices are free."""
    found = np.zeros(len(hosts), np.uint8)
    reports = state.store.numa.reports
    if not reports:
        return found
    for index, host in enumerate(hosts):
        report = reports.get(host)
        if report is not None:
            free = sum(any(zone.available.values()) for zone in report.zones)
            found[index] = min(len(report.zones), 15) << 4 | min(free, 15)
    return found


def _same(one: Layout, other: Layout) -> bool:
    return one.hosts == other.hosts and [(a.label, a.names, a.starts) for a in one.levels] == [
        (b.label, b.names, b.starts) for b in other.levels
    ]
