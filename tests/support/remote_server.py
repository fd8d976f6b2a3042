"""A scripted API server on loopback, and a backend that talks to it without ever waiting long."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from msgspec import Struct

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.reflector import WatchTimeouts
from bayplan.dialects.api import Event, Happened, Kind, Write, WriteOutcome
from bayplan.runtime.webhooks.http_server import Address
from tests.support.listening import free_address

Object = dict[str, Any]
Answerer = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONG = 20.0  # seconds; only a test that fails waits so long
HASTY = WatchTimeouts(
    stream_lists=False,
    silence_seconds=LONG,
    list_silence_seconds=LONG,
    first_pause=0.005,
    longest_pause=0.02,
    absent_pause=0.02,
    steady_seconds=0.0,
)


class Meta(Struct, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Thing(Struct, gc=False):
    metadata: Meta
    size: int = 0


THINGS = Kind("bay.test", "v1", "Thing", "things", wire=Thing)
DICTS = Kind("bay.test", "v1", "Thing", "things")


@dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    all_headers: Sequence[tuple[str, str]]
    body: Any


class Server:
    """Answers are taken from the script in order; the last one of a script is given again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.lists: list[Answerer] = [page([])]
        self.watches: list[Answerer] = [quiet]
        self.writes: Answerer = echo
        self.ready: Answerer = answered("ok")
        self.url = ""

    def count(self, watch: bool) -> int:
        return len(self.of(watch))

    def of(self, watch: bool) -> list[Asked]:
        asked = (one for one in self.asked if one.method == "GET" and one.path != "/readyz")
        return [one for one in asked if ("watch" in one.query) == watch]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.read()
        headers = {key.title(): value for key, value in request.headers.items()}
        self.asked.append(
            Asked(
                request.method,
                request.rel_url.raw_path,
                dict(request.query),
                headers,
                list(request.headers.items()),
                json.loads(text) if text else None,
            )
        )
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.35.4"})
        if request.path == "/readyz":
            return await self.ready(request)
        if request.method != "GET":
            return await self.writes(request)
        script = self.watches if "watch" in request.query else self.lists
        return await (script.pop(0) if len(script) > 1 else script[0])(request)


@contextmanager
def serving(
    server: Server, tls: ssl.SSLContext | None = None, address: Address | None = None
) -> Iterator[Server]:
    """Run the server in a thread for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    address = address or free_address()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.05, handler_cancellation=True)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, address.host, address.port, ssl_context=tls).start()

    async def stop() -> None:
        await runner.cleanup()
        await asyncio.sleep(0.01)  # a connection that was accepted meanwhile has its task then
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # a transport closes in the next turn of the loop

    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(LONG)
        server.url = f"{'https' if tls else 'http'}://{address.host}:{address.port}"
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(LONG)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Watcher:
    """A backend, what it reported so far, and ways to wait for more."""

    def __init__(self, backend: RemoteBackend, log: list[str], restarts: list[tuple[str, str]]) -> None:
        self.backend, self.log, self.restarts = backend, log, restarts
        self.events: list[Event] = []
        self.outcomes: list[WriteOutcome] = []

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONG
        while not holds():
            assert time.monotonic() < deadline, f"never came true; {self.told()}, {self.log}"
            self.backend.wait(0.02)
            self.events += self.backend.events()
            self.outcomes += self.backend.outcomes()

    def synced(self, times: int = 1) -> None:
        self.until(lambda: self.told().count("synced") >= times)

    def write(self, *writes: Write) -> list[WriteOutcome]:
        before = len(self.outcomes)
        self.backend.submit(writes)
        self.until(lambda: len(self.outcomes) >= before + len(writes))
        return self.outcomes[before:]

    def told(self) -> list[str]:
        """The events in words: `seen a@3`, `gone a@4`, `synced`."""
        return [_told(event) for event in self.events]


@contextmanager
def watching(
    server: Server,
    *kinds: Kind,
    access: Access | None = None,
    patience: WatchTimeouts = HASTY,
    seconds: float = LONG,
    in_flight_max: int = 64,
) -> Iterator[Watcher]:
    """A backend of the server that watches these kinds."""
    log: list[str] = []
    restarts: list[tuple[str, str]] = []
    backend = RemoteBackend(
        access or Access("test", server.url),
        log=log.append,
        patience=patience,
        seconds=seconds,
        in_flight_max=in_flight_max,
        jitter=lambda: 0.5,
        restarted=lambda kind, why: restarts.append((kind, str(why))),
    )
    try:
        backend.watch(kinds)
        yield Watcher(backend, log, restarts)
    finally:
        backend.close(0)


def _told(event: Event) -> str:
    if event.happened is Happened.SYNCED:
        return "synced"
    meta = event.object["metadata"] if isinstance(event.object, dict) else None
    name = meta["name"] if meta else event.object.metadata.name
    return f"{event.happened} {name}@{event.version}"


# ── what a script is made of ───────────────────────────────────────────────────────────────────────


def thing(name: str, version: int, uid: str = "", size: object = 0) -> Object:
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "size": size, "unwanted": {"much": ["more"]}}


def page(items: Sequence[Object], version: int = 1, token: str = "") -> Answerer:
    """A page of a list."""
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return answered({"kind": "ThingList", "metadata": metadata, "items": list(items)})


def answered(body: object, code: int = 200, headers: Mapping[str, str] | None = None) -> Answerer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=code, headers=headers)

    return answer


def refused(
    code: int, message: str = "no", reason: str = "", headers: Mapping[str, str] | None = None
) -> Answerer:
    return answered(status(code, message, reason), code, headers)


def status(code: int, message: str = "no", reason: str = "") -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "message": message,
        "reason": reason or "Other",
    }


def added(item: Object) -> Object:
    return {"type": "ADDED", "object": item}


def modified(item: Object) -> Object:
    return {"type": "MODIFIED", "object": item}


def deleted(item: Object) -> Object:
    return {"type": "DELETED", "object": item}


def marked(version: int, *, end_of_list: bool = False) -> Object:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end_of_list else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), **annotations}}}


def failed(code: int, message: str = "no") -> Object:
    return {"type": "ERROR", "object": status(code, message)}


def stream(*happened: Object, stay: bool = True, bytes_at_once: int = 0) -> Answerer:
    """A watch that sends these lines, then stays open or is closed without a word."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = b"".join(json.dumps(one).encode() + b"\n" for one in happened)
        step = bytes_at_once or len(text) or 1
        for start in range(0, len(text), step):
            await response.write(text[start : start + step])
        if stay:
            await asyncio.sleep(LONG)
        return response

    return answer


quiet = stream()


async def echo(request: web.Request) -> web.StreamResponse:
    """What was written, as if it had been kept."""
    text = await request.read()
    return web.json_response(
        json.loads(text) if text else {}, status=201 if request.method == "POST" else 200
    )
