"""The server of the dashboard: pages, the API under /api/v1, and one stream of changes for each page.

It only answers. Every request is bounded in size and time, streams in number for each user and in all, and a
client that does not read what it is sent is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from bayplan.dashboard.access import TokenAccess
from bayplan.dashboard.headers import HEADERS, LOOPBACK, assets, check_request
from bayplan.dashboard.host_map import GangKey
from bayplan.dashboard.hub import Cursor, SnapshotHub
from bayplan.dashboard.messages import (
    json_answer,
    no_gang,
    number_of,
    problem_answer,
    sizes_of,
    token_of,
    user_of,
)
from bayplan.dashboard.questions import BadQuestion, Questions
from bayplan.dashboard.snapshot import DashboardSnapshot, room
from bayplan.dashboard.time_routes import TimeRoutes
from bayplan.dashboard.timeline import Timeline
from bayplan.dashboard.views import ALL, UserView, entries_for, explanation_for, queues_for
from bayplan.runtime.webhooks.access_reviews import PathPermission
from bayplan.runtime.webhooks.http_server import Address, Busy, RequestBudget

BODY_MAX = 1024 * 1024
ASKED_AT_ONCE = 4  # explanations and plans under way
ASK_SECONDS = 30.0
REQUEST_SECONDS = 60.0
CONNECTIONS_MAX = 512
BUFFER_BYTES = 256 * 1024  # unsent bytes of a stream, before the server waits for the client
MANIFESTS = ("application/yaml", "application/json")
_encode = msgspec.json.Encoder().encode
_REFUSALS = {
    PathPermission.UNKNOWN: "give a bearer token that the cluster knows",
    PathPermission.FORBIDDEN: "the owner of this token may not get /bayplan/dashboard; bind a ClusterRole",
    PathPermission.UNDECIDED: "the cluster did not answer what you may see; try again",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for streams."""

    streams: int = 200
    streams_per_user: int = 20
    write_seconds: float = 10.0  # a client that accepts nothing for so long is cut off
    beat_seconds: float = 15.0  # a line is sent at least so often
    review_seconds: float = 60.0  # permissions of an open stream are reviewed again
    pace_seconds: float = 0.2  # at most so often a stream gets changes


class DashboardServer:
    """Serves until it is stopped. It listens once the constructor returns."""

    def __init__(  # noqa: PLR0913 - what it is wired to
        self,
        hub: SnapshotHub,
        questions: Questions,
        address: Address,
        *,
        access: TokenAccess | None = None,
        timeline: Timeline | None = None,
        names: tuple[str, ...] = (),
        listening: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
    ) -> None:
        if access is None and address.host not in LOOPBACK:
            raise ValueError(
                f"without credentials the dashboard listens on loopback only, not {address.host}"
            )
        self.hub, self.questions, self.access, self.bounds = hub, questions, access, bounds
        self._hosts = frozenset((*LOOPBACK, *(name.lower() for name in names)))
        self._any_name = access is not None and not names
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = listening or socket.create_server((address.host, address.port), family=family)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self.streams: Counter[str] = Counter()  # by user
        self.cut_off = 0
        self._asking: RequestBudget | None = None
        self._time = TimeRoutes(timeline, hub, self._view, self._asked)
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(tls,), name="dashboard", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def stop(self) -> None:
        """End all streams and close; safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self, tls: ssl.SSLContext | None) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(tls))
        finally:
            self._started.set()

    async def _serve(self, tls: ssl.SSLContext | None) -> None:
        self._asking = RequestBudget(ASKED_AT_ONCE * BODY_MAX, ASKED_AT_ONCE, 5.0)
        app = web.Application(middlewares=[self._guard()], client_max_size=BODY_MAX)
        app.add_routes(self.routes())
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=30.0, shutdown_timeout=1.0)
        await runner.setup()
        server = runner.server
        assert server is not None

        def connect() -> asyncio.BaseProtocol:
            return _Closed() if len(server.connections) >= CONNECTIONS_MAX else server()

        listener = await self._loop.create_server(connect, sock=self._socket, ssl=tls)
        self._started.set()
        await self._stop.wait()
        listener.close()
        self.hub.wake()
        await runner.cleanup()

    def routes(self) -> list[web.RouteDef]:
        """Everything that is answered."""
        return [
            web.get("/", self._page),
            web.get("/assets/{digest}/{name:.+}", self._asset),
            web.get("/api/v1/state", self._state),
            web.get("/api/v1/maps/{number:\\d+}", self._map),
            web.get("/api/v1/stream", self._stream),
            web.get("/api/v1/gangs", self._gangs),
            web.get("/api/v1/gangs/{namespace}/{kind}/{name:.+}", self._gang),
            web.get("/api/v1/queues", self._queues),
            web.get("/api/v1/topologies", self._topologies),
            web.get("/api/v1/room", self._room),
            web.post("/api/v1/try", self._try),
            *self._time.routes(),
        ]

    # ── what every request goes through ────────────────────────────────────────────────────────────

    def _guard(self) -> Middleware:
        @web.middleware
        async def guarded(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            try:
                if not self._any_name:
                    check_request(request, self._hosts)
                if request.path == "/api/v1/stream":
                    return await handler(request)
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await handler(request)
            except TimeoutError:
                response = problem_answer(503, "this took too long; try again")
            except web.HTTPException as refused:
                response = problem_answer(refused.status, (refused.text or refused.reason).strip())
                response.headers.update(
                    {k: v for k, v in refused.headers.items() if k in ("Allow", "WWW-Authenticate")}
                )
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return guarded

    async def _view(self, request: web.Request) -> UserView:
        """What the sender of a request may see; raises 401, 403 or 503."""
        if self.access is None:
            return ALL
        token = token_of(request)
        found = self.access.cached(token)
        if found is None:
            async with self._asked(1):
                found = await asyncio.to_thread(self.access.view, token)
        if isinstance(found, UserView):
            return found
        if found is PathPermission.UNKNOWN:
            raise web.HTTPUnauthorized(text=_REFUSALS[found], headers={"WWW-Authenticate": "Bearer"})
        refusal = web.HTTPForbidden if found is PathPermission.FORBIDDEN else web.HTTPServiceUnavailable
        raise refusal(text=_REFUSALS[found])

    @contextlib.asynccontextmanager
    async def _asked(self, size: int) -> Any:
        assert self._asking is not None
        try:
            async with self._asking.hold(size), asyncio.timeout(ASK_SECONDS):
                yield
        except Busy:
            raise web.HTTPTooManyRequests(text="too many questions at once; try again") from None

    def _now(self) -> tuple[int, DashboardSnapshot]:
        found = self.hub.current()
        if found is None:
            raise web.HTTPServiceUnavailable(text="the cluster has not been read yet; try again in a moment")
        return found

    # ── answers ────────────────────────────────────────────────────────────────────────────────────

    async def _page(self, request: web.Request) -> web.Response:
        kept = {"Cache-Control": "no-cache"}
        return web.Response(body=assets().page, content_type="text/html", charset="utf-8", headers=kept)

    async def _asset(self, request: web.Request) -> web.Response:
        return assets().answer(request)

    async def _state(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        self._now()
        version, body = self.hub.state(view)
        response = json_answer(body)
        response.headers["Bayplan-Cursor"] = str(Cursor(self.hub.epoch, version))
        return response

    async def _map(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        if not view.nodes:
            raise web.HTTPForbidden(text="you may not list nodes, so there is no map")
        wanted = number_of(request, "version", self._now()[0])
        body = self.hub.layers(wanted, int(request.match_info["number"]), view)
        if body is None:
            raise web.HTTPGone(text="this version is not kept any more; read /api/v1/state again")
        response = web.Response(body=body, content_type="application/octet-stream")
        response.headers["Bayplan-Version"] = str(wanted)
        response.enable_compression()
        return response

    async def _gangs(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        version, snapshot = self._now()
        return json_answer(
            self.hub.cached(
                ("gangs", version, view),
                lambda: _encode([entry.record for entry in entries_for(view, snapshot)]),
            )
        )

    async def _gang(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        _, snapshot = self._now()
        key = GangKey(*(request.match_info[part] for part in ("namespace", "kind", "name")))
        if not view.sees(key.namespace):
            raise web.HTTPNotFound(text=no_gang(key))
        async with self._asked(1):
            found = await asyncio.to_thread(self.questions.explain, key)
        if found is None:
            raise web.HTTPNotFound(text=no_gang(key))
        return json_answer(_encode(explanation_for(view, snapshot, found)))

    async def _queues(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        return json_answer(_encode(queues_for(view, self._now()[1].queues)))

    async def _topologies(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        if not view.nodes:
            raise web.HTTPForbidden(text="you may not list nodes, so there are no topologies")
        return json_answer(_encode(self._now()[1].topologies))

    async def _room(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        if not view.nodes:
            raise web.HTTPForbidden(text="you may not list nodes, so there is nothing to count")
        version, snapshot = self._now()
        sizes = sizes_of(request.query.get("sizes", ""))
        maps = [
            {
                "topology": shown.layout.name,
                "resource": shown.resource,
                "sizes": [{"size": size, "fits": room(shown, size)} for size in sizes],
            }
            for shown in snapshot.maps
        ]
        points = [(p.now, p.total, p.used, p.fragmentation, p.pending) for p in list(self.hub.points)]
        return json_answer(_encode({"version": version, "maps": maps, "points": points}))

    async def _try(self, request: web.Request) -> web.Response:
        """Simulate a submission. A POST because manifests do not fit into an address; nothing is written."""
        view = await self._view(request)
        _, snapshot = self._now()
        if request.content_type not in MANIFESTS:  # a form of another site cannot send these
            raise web.HTTPUnsupportedMediaType(text=f"send manifests as {' or '.join(MANIFESTS)}")
        text = (await request.read()).decode("utf-8", errors="replace")
        try:
            async with self._asked(min(len(text) + 1, BODY_MAX)):
                found = await asyncio.to_thread(self.questions.plan, text, view.sees)
        except BadQuestion as problem:
            raise web.HTTPUnprocessableEntity(text=str(problem)) from None
        return json_answer(_encode(explanation_for(view, snapshot, found)))

    # ── the stream ─────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        view, user = await self._view(request), user_of(request)
        if self.streams.total() >= self.bounds.streams or self.streams[user] >= self.bounds.streams_per_user:
            raise web.HTTPTooManyRequests(text="too many open streams; close another page of the dashboard")
        since = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        cursor = Cursor.parse(since) or Cursor("", 0)
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        self.streams[user] += 1
        woken = self.hub.subscribe()
        try:
            await response.prepare(request)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=BUFFER_BYTES)
            await self._follow(request, response, cursor, view, woken)
        except (TimeoutError, ConnectionError):
            self.cut_off += 1
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.hub.unsubscribe(woken)
            self.streams[user] -= 1
        return response

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, cursor: Cursor, view: UserView,
        woken: asyncio.Event,
    ) -> None:  # fmt: skip
        """Send what is new since the cursor, again and again."""
        reviewed = self._loop.time()
        await self._send(response, b": bayplan\n\n")
        while not self._stop.is_set():
            woken.clear()
            found, cursor = self._news(cursor, view)
            for text in found:
                await self._send(response, text)
            if found:
                await asyncio.sleep(self.bounds.pace_seconds)
                continue
            try:
                async with asyncio.timeout(self.bounds.beat_seconds):
                    await woken.wait()
            except TimeoutError:
                await self._send(response, b": still here\n\n")
            if self.access is not None and self._loop.time() - reviewed >= self.bounds.review_seconds:
                reviewed = self._loop.time()
                now = await asyncio.to_thread(self.access.view, token_of(request))
                if now != view:  # other permissions: the page reads everything again, if it still may
                    await self._send(response, b"event: denied\ndata: {}\n\n")
                    return

    def _news(self, cursor: Cursor, view: UserView) -> tuple[list[bytes], Cursor]:
        """The events after a cursor, and the cursor after them."""
        found: list[bytes] = []
        current = self.hub.current()
        if current is not None and (cursor.epoch != self.hub.epoch or cursor.version != current[0]):
            change = self.hub.change(cursor.version, view) if cursor.epoch == self.hub.epoch else None
            version = current[0] if change is None else change[0]
            cursor = Cursor(self.hub.epoch, version)
            if change is None:
                found.append(_event("reset", cursor, _encode({"version": version})))
            else:
                found.append(_event("change", cursor, change[1]))
        return found, cursor

    async def _send(self, response: web.StreamResponse, text: bytes) -> None:
        async with asyncio.timeout(self.bounds.write_seconds):
            await response.write(text)


class _Closed(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _event(name: str, cursor: Cursor, body: bytes) -> bytes:
    return f"id: {cursor}\nevent: {name}\ndata: ".encode() + body + b"\n\n"
