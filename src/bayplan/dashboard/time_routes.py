"""The paths of the API that answer from the journal: curves, decisions, the state at an entry, histories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from aiohttp import web

from bayplan.dashboard.host_map import GangKey
from bayplan.dashboard.hub import SnapshotHub, packed_layers, state_fields
from bayplan.dashboard.messages import json_answer, no_gang, number_of
from bayplan.dashboard.snapshot import DashboardSnapshot
from bayplan.dashboard.timeline import Timeline
from bayplan.dashboard.views import UserView, hider

DECISIONS_MAX = 200
_encode = msgspec.json.Encoder().encode
NO_JOURNAL = "there is no journal; start the dashboard with --journal FOLDER, the one of `bayplan run`"


class TimeRoutes:
    """Answers from a timeline. Without one, every path but the overview is 404."""

    def __init__(
        self,
        timeline: Timeline | None,
        hub: SnapshotHub,
        view: Callable[[web.Request], Awaitable[UserView]],
        asked: Callable[[int], AbstractAsyncContextManager[None]],
    ) -> None:
        self._timeline, self._hub, self._view, self._asked = timeline, hub, view, asked

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/time", self._overview),
            web.get("/api/v1/time/decisions", self._decisions),
            web.get("/api/v1/time/{sequence:\\d+}", self._at),
            web.get("/api/v1/time/{sequence:\\d+}/maps/{number:\\d+}", self._map),
            web.get("/api/v1/history/{namespace}/{kind}/{name:.+}", self._history),
        ]

    async def _overview(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        if self._timeline is None:
            return json_answer(_encode({"first": 0, "last": 0, "points": [], "note": NO_JOURNAL}))
        found = self._timeline.overview()
        points = [(n, p.now, p.total, p.used, p.fragmentation, p.pending) for n, p in found.points]
        body = {
            "first": found.first,
            "last": found.last,
            "points": points if view.nodes else [],
            "note": found.note or ("" if found.is_read else "the journal is being read"),
        }
        return json_answer(_encode(body))

    async def _decisions(self, request: web.Request) -> web.Response:
        view, timeline = await self._view(request), self._known()
        after = number_of(request, "after", -1)
        before = number_of(request, "before", 2**62)
        limit = min(number_of(request, "limit", 50), DECISIONS_MAX)
        found = timeline.decisions(after, before, limit)
        return json_answer(_encode(self._hidden(view, [one.shown(view) for one in found])))

    async def _at(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        sequence, snapshot = await self._snapshot(request)
        (decision, *_) = [*self._known().decisions(sequence - 1, sequence + 1, 1), None]
        lines = [] if decision is None else decision.shown(view)["lines"]
        fields = state_fields(snapshot, view) | {"sequence": sequence, "lines": self._hidden(view, lines)}
        return json_answer(_encode(fields))

    async def _map(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        if not view.nodes:
            raise web.HTTPForbidden(text="you may not list nodes, so there is no map")
        _, snapshot = await self._snapshot(request)
        number = int(request.match_info["number"])
        if number >= len(snapshot.maps):
            raise web.HTTPNotFound(text=f"there is no map {number}")
        body = packed_layers(snapshot, snapshot.maps[number], view)
        response = web.Response(body=body, content_type="application/octet-stream")
        response.enable_compression()
        return response

    async def _history(self, request: web.Request) -> web.Response:
        view, timeline = await self._view(request), self._known()
        key = GangKey(*(request.match_info[part] for part in ("namespace", "kind", "name")))
        if not view.sees(key.namespace):
            raise web.HTTPNotFound(text=no_gang(key))
        lines = [line.shown(view) for line in timeline.history(key)]
        return json_answer(_encode(self._hidden(view, lines)))

    async def _snapshot(self, request: web.Request) -> tuple[int, DashboardSnapshot]:
        timeline, text = self._known(), request.match_info["sequence"]
        sequence = int(text) if len(text) <= 15 else 0
        async with self._asked(1):
            found = await asyncio.to_thread(timeline.at, sequence)
        if found is None:
            known = timeline.overview()
            raise web.HTTPNotFound(
                text=f"the journal has the entries {known.first} to {known.last}, not {text}"
            )
        return sequence, found

    def _known(self) -> Timeline:
        if self._timeline is None:
            raise web.HTTPNotFound(text=NO_JOURNAL)
        return self._timeline

    def _hidden(self, view: UserView, value: Any) -> Any:
        """Without names of gangs and pods in namespaces that the view does not include."""
        if view.everything:
            return value
        current = self._hub.current()
        snapshot = DashboardSnapshot(0.0) if current is None else current[1]
        return hider(view, snapshot, self._known().namespaces())(value)
