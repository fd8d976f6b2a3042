"""The last snapshots by version, what changed between them, and who waits for the next one.

A client that has a version gets what changed since; one that is too far behind reads everything again. A
version is known only to the server that made it: its name begins with the epoch of that server, so that
after a restart no client mistakes an old version for a new one.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.dashboard.host_map import LAYERS, HostMap
from bayplan.dashboard.snapshot import DashboardSnapshot, Totals, difference
from bayplan.dashboard.views import UserView, entries_for, gang_layer, more_for, queues_for
from bayplan.explanation.text import short_levels

KEPT = 32
"""Snapshots that a client may still ask for, or be behind."""
CACHED_MAX = 64
CACHED_BYTES = 32 * 1024 * 1024
POINTS_MAX = 2048
POINT_SECONDS = 1.0
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client is: the server's epoch, and the version of the snapshot that the client has."""

    epoch: str
    version: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.version}"

    @staticmethod
    def parse(text: str) -> Cursor | None:
        """The cursor; None if the text is none."""
        epoch, _, version = text.partition("-")
        if len(text) > 64 or not (epoch.isalnum() and version.isascii() and version.isdecimal()):
            return None
        return Cursor(epoch, int(version))


class SnapshotHub:
    """Snapshots come from one thread; everything else is called in the thread of the server."""

    def __init__(self, epoch: str = "") -> None:
        self.epoch = epoch or secrets.token_hex(6)
        self.version = 0
        self._kept: OrderedDict[int, DashboardSnapshot] = OrderedDict()
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.points: deque[Totals] = deque()
        self._spacing = POINT_SECONDS

    # ── from the thread that makes snapshots ───────────────────────────────────────────────────────

    def publish(self, snapshot: DashboardSnapshot) -> bool:
        """Make this the current snapshot; nothing happens if it shows nothing new."""
        with self._lock:
            current = self._kept.get(self.version)
            if (
                current is not None
                and difference(current, snapshot).empty
                and current.notes == snapshot.notes
            ):
                return False
            self.version += 1
            self._kept[self.version] = snapshot
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self._note(snapshot.totals())
        self.wake()
        return True

    def wake(self) -> None:
        """Wake all streams."""
        with self._lock:
            waiting = list(self._waiting)
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def _note(self, point: Totals) -> None:
        """Keep a point of the curves; with many of them, every second one is dropped."""
        if self.points and point.now - self.points[-1].now < self._spacing:
            self.points[-1] = point
            return
        self.points.append(point)
        if len(self.points) > POINTS_MAX:
            self.points = deque(list(self.points)[::2])
            self._spacing *= 2

    # ── from the server ────────────────────────────────────────────────────────────────────────────

    def subscribe(self) -> asyncio.Event:
        """An event that is set at every new snapshot."""
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((asyncio.get_running_loop(), event))
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        with self._lock:
            self._waiting.discard((asyncio.get_running_loop(), event))

    def current(self) -> tuple[int, DashboardSnapshot] | None:
        """The newest version; None before the first."""
        with self._lock:
            snapshot = self._kept.get(self.version)
            return None if snapshot is None else (self.version, snapshot)

    def kept(self, version: int) -> DashboardSnapshot | None:
        with self._lock:
            return self._kept.get(version)

    def state(self, view: UserView) -> tuple[int, bytes]:
        """Everything but the layers of the maps, as JSON."""
        found = self.current()
        assert found is not None, "the server answers this only once there is a snapshot"
        version, snapshot = found
        return version, self._cached(("state", version, view), lambda: _state(self, version, snapshot, view))

    def layers(self, version: int, number: int, view: UserView) -> bytes | None:
        """The layers of one map; None if the version is not kept, or there is no such map."""
        snapshot = self.kept(version)
        if snapshot is None or not 0 <= number < len(snapshot.maps):
            return None
        shown = snapshot.maps[number]
        return self._cached(("map", version, number, view), lambda: packed_layers(snapshot, shown, view))

    def change(self, since: int, view: UserView) -> tuple[int, bytes] | None:
        """What changed since a version, as JSON; None if everything has to be read again."""
        with self._lock:
            before, after, version = self._kept.get(since), self._kept.get(self.version), self.version
        if before is None or after is None:
            return None
        body = self._cached(
            ("change", since, version, view), lambda: _change(version, before, after, view) or b""
        )
        return (version, body) if body else None

    def cached(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        """An answer that belongs to a version, made once."""
        return self._cached(key, make)

    def _cached(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        with self._lock:
            known = self._cache.get(key)
        if known is None:
            known = make()
            with self._lock:
                self._cache[key] = known
                size = sum(map(len, self._cache.values()))
                while len(self._cache) > 1 and (len(self._cache) > CACHED_MAX or size > CACHED_BYTES):
                    size -= len(self._cache.popitem(last=False)[1])
        return known


def _state(hub: SnapshotHub, version: int, snapshot: DashboardSnapshot, view: UserView) -> bytes:
    return _encode({"epoch": hub.epoch, "version": version, **state_fields(snapshot, view)})


def state_fields(snapshot: DashboardSnapshot, view: UserView) -> dict[str, Any]:
    """What a page shows of a snapshot, but for the layers of its maps."""
    shown = snapshot.maps if view.nodes else ()
    return {
        "now": snapshot.now,
        "notes": snapshot.notes,
        "view": {"everything": view.everything, "nodes": view.nodes, "queues": view.queues},
        "layers": LAYERS,
        "maps": [map_json(one, more_for(view, snapshot, one)) for one in shown],
        "gangs": [entry.shown() for entry in entries_for(view, snapshot)],
        "queues": queues_for(view, snapshot.queues),
        "topologies": snapshot.topologies if view.nodes else [],
    }


def map_json(shown: HostMap, more: Any) -> dict[str, Any]:
    """The hosts and domains of a map, without its layers."""
    short = short_levels([level.label for level in shown.layout.levels])
    return {
        "name": shown.layout.name,
        "resource": shown.resource,
        "hosts": shown.layout.hosts,
        "levels": [
            {"label": one.label, "name": short[one.label], "names": one.names, "starts": one.starts}
            for one in shown.layout.levels
        ],
        "more": {str(host): ids for host, ids in more.items()},
    }


def packed_layers(snapshot: DashboardSnapshot, shown: HostMap, view: UserView) -> bytes:
    """The layers of a map as bytes."""
    own = gang_layer(view, snapshot, shown)
    return b"".join((own if name == "gang" else shown.layers[name]).tobytes() for name in LAYERS)


def _change(
    version: int, before: DashboardSnapshot, after: DashboardSnapshot, view: UserView
) -> bytes | None:
    found = difference(before, after)
    if found.reset:
        return None
    changed = {entry.id for entry in found.gangs}
    visible = {entry.id: entry for entry in entries_for(view, after)} if changed or found.order else {}
    body: dict[str, Any] = {
        "version": version,
        "now": after.now,
        "maps": [],
        "gangs": [visible[number].shown() for number in visible if number in changed],
        "gone": [number for number in found.gone if view.sees(before.gangs[number].key.namespace)],
    }
    if found.order is not None:
        body["order"] = list(visible)
    if found.queues:
        body["queues"] = queues_for(view, after.queues)
    if found.topologies and view.nodes:
        body["topologies"] = after.topologies
    if before.notes != after.notes:
        body["notes"] = after.notes
    for shown, hosts in zip(after.maps, found.hosts, strict=True):
        if not view.nodes:
            break
        rows, more = list(hosts), more_for(view, after, shown)
        gangs = gang_layer(view, after, shown)
        layers = {name: (gangs if name == "gang" else shown.layers[name])[rows].tolist() for name in LAYERS}
        several = {str(host): more.get(host, ()) for host in rows if host in more}
        body["maps"].append({"hosts": rows, "more": several, **layers} if rows else None)
    return _encode(body)
