"""An HTTP server in its own thread, with limits on request size, duration and connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

LOOPBACK = "127.0.0.1"
STOP_SECONDS = 5.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients of a server."""

    body_bytes: int = 16 * 1024
    seconds: float = 5.0  # for a request, from its last header to the last byte of the response
    idle_seconds: float = 30.0  # for a connection, until its next request
    connections: int = 512  # at the same time; further ones are closed at once


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str = LOOPBACK
    port: int = 0  # 0: any free port

    @staticmethod
    def parse(text: str) -> Address:
        """Parse host:port, [host]:port or :port; without a host it is loopback."""
        host, separator, port = text.rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f'an address is written host:port; "{text}" is not')
        return Address(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server:
    """Serves routes until it is stopped. It listens once the constructor returns."""

    def __init__(
        self,
        name: str,
        routes: list[web.RouteDef],
        address: Address,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = _listen(address)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(routes, limits, tls), name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Finish the requests in progress, then close; safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self, routes: list[web.RouteDef], limits: Limits, tls: ssl.SSLContext | None) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(routes, limits, tls))
        finally:
            self._started.set()  # after a failed start the constructor must not wait

    async def _serve(self, routes: list[web.RouteDef], limits: Limits, tls: ssl.SSLContext | None) -> None:
        app = web.Application(middlewares=[_within(limits.seconds)], client_max_size=limits.body_bytes)
        app.add_routes(routes)
        runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=min(1.0, limits.seconds),
            shutdown_timeout=STOP_SECONDS,
        )
        await runner.setup()
        assert runner.server is not None
        listener = await self._loop.create_server(
            _counted(runner.server, limits),
            sock=self._socket,
            ssl=tls,
            ssl_handshake_timeout=limits.seconds if tls else None,
        )
        self._started.set()
        await self._stop.wait()
        listener.close()
        open_ones = [handler.transport for handler in runner.server.connections]
        await runner.cleanup()
        for transport in open_ones:
            if transport is not None:
                with suppress(AttributeError):  # Python 3.11.2, if aiohttp has closed the transport twice
                    transport.abort()  # do not wait for TLS clients that do not close
        await asyncio.sleep(0.01)  # until they have noticed


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=128)


class _Closed(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _counted(server: web.Server, limits: Limits) -> Callable[[], asyncio.BaseProtocol]:
    """A protocol factory that counts connections; idle connections are closed."""

    def connect() -> asyncio.BaseProtocol:
        return _Closed() if len(server.connections) >= limits.connections else server()

    return connect


class Busy(Exception):
    """The budget is exhausted."""


class RequestBudget:
    """Limits concurrent requests and their total bytes. For one event loop."""

    def __init__(self, bytes_max: int, requests_max: int, wait_seconds: float) -> None:
        self._bytes_max, self._requests_max, self._wait = bytes_max, requests_max, wait_seconds
        self._bytes, self._requests = 0, 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait a while for the budget, and hold it for the block. Raises Busy if it stays exhausted."""
        assert size <= self._bytes_max
        try:
            async with asyncio.timeout(self._wait), self._freed:
                await self._freed.wait_for(lambda: self._fits(size))
                self._bytes, self._requests = self._bytes + size, self._requests + 1
        except TimeoutError:
            raise Busy from None
        try:
            yield
        finally:
            self._bytes, self._requests = self._bytes - size, self._requests - 1
            async with self._freed:
                self._freed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._bytes + size <= self._bytes_max and self._requests < self._requests_max


def _within(seconds: float) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            async with asyncio.timeout(seconds):
                response = await handler(request)
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if response is not None:  # the client does not accept the response
                if request.transport is not None:
                    request.transport.abort()
                return response
            response = web.Response(status=408, text=f"not done within {seconds:g} s\n")
            response.force_close()
        except ConnectionError:  # the client disconnected
            response = response or web.Response(status=400)
            response.force_close()
        return response

    return answer
