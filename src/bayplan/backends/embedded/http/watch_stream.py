"""Watches over HTTP: a line for each change, bookmarks, and an error line when the log has expired."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http.handlers import Stream
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.storage.watch_log import Watch

Object = dict[str, Any]

BOOKMARK_SECONDS = 60.0
_SECONDS_DEFAULT = 1800


class Hub:
    """Wakes every streamed watch when the store has changed, once per batch of changes."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: set[asyncio.Event] = set()
        self._announced = False

    def attach(self, store: Store, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Listen to a store; returns a function that ends it."""

        def changed() -> None:  # in whatever thread wrote
            if not self._announced:
                self._announced = True
                with suppress(RuntimeError):  # it is closing, and so are all watches
                    loop.call_soon_threadsafe(self._wake)

        return store.listen(changed)

    def event(self) -> asyncio.Event:
        """Something to wait for; give it back with `leave`."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def leave(self, event: asyncio.Event) -> None:
        """Wake this one no more."""
        self._waiting.discard(event)

    def close(self) -> None:
        """Let every watch end."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._announced = False
        for event in self._waiting:
            event.set()


async def send(
    request: web.Request, stream: Stream, store: Store, lock: threading.RLock, hub: Hub
) -> web.StreamResponse:
    """Stream a watch until its timeout, the disconnect of the client, or the expiry of the log."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if stream.watch is None:
        await response.write(_line("ERROR", stream.failure or {}))
        return response
    event = hub.event()
    try:
        await _lines(response, stream, stream.watch, store, lock, hub, event)
    except (ConnectionResetError, asyncio.CancelledError):
        pass  # the reader went away
    finally:
        hub.leave(event)
        with lock:
            stream.watch.close()
    return response


async def _lines(
    response: web.StreamResponse,
    stream: Stream,
    watch: Watch,
    store: Store,
    lock: threading.RLock,
    hub: Hub,
    event: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    limit = stream.seconds if stream.seconds is not None else _SECONDS_DEFAULT
    ends, bookmark = loop.time() + limit, loop.time() + BOOKMARK_SECONDS
    first, initial_reported = True, not stream.initial
    while not hub.closed:
        event.clear()
        with lock:
            lines, first, failed = _taken(stream, watch, first)
            version = store.version
        if not initial_reported and not failed:
            lines.append(_bookmark(stream, version, initial=True))
            initial_reported = True
        elif stream.bookmarks and loop.time() >= bookmark:
            lines.append(_bookmark(stream, version, initial=False))
            bookmark = loop.time() + BOOKMARK_SECONDS
        if lines:
            await response.write(b"".join(lines))
        if failed or watch.closed or loop.time() >= ends:
            return
        left = min(ends, bookmark) - loop.time()
        try:
            await asyncio.wait_for(event.wait(), max(left, 0.0))
        except TimeoutError:
            continue


def _taken(stream: Stream, watch: Watch, first: bool) -> tuple[list[bytes], bool, bool]:
    """Lines to send, whether the next is still the first, and whether the watch has failed."""
    try:
        changes = watch.take()
    except StatusError as refusal:
        return [_line("ERROR", refusal.body)], first, True
    lines = []
    for type_, item in changes:
        lines.append(_line(type_, stream.show(item, first)))
        first = False
    return lines, first, False


def _bookmark(stream: Stream, version: int, initial: bool) -> bytes:
    metadata: Object = {"resourceVersion": str(version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    kind = {"kind": stream.resource.kind, "apiVersion": stream.resource.api_version}
    return _line("BOOKMARK", {**kind, "metadata": metadata})


def _line(type_: str, item: Object) -> bytes:
    return msgspec.json.encode({"type": type_, "object": item}) + b"\n"
