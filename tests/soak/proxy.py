"""A proxy between Bayplan and the API server that delays requests, or answers with an error, when told to."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from tests.support.listening import free_address

PATIENCE = 30.0
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length", "host"}
"""Headers that concern one connection only."""


class FaultProxy:
    """Passes requests on to the API server; `delay` and `status` hold for all requests that come after."""

    def __init__(self, server: str, pki: Path) -> None:
        self.server, self.pki = server, pki
        self.delay = 0.0
        self.status = 0
        self.requests = self.refused = 0
        self.watches = 0  # open now
        self.address = free_address()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _start(self) -> None:
        trust = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        self._client = ClientSession(
            connector=TCPConnector(ssl=trust, limit=0),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
        )
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(self.pki / "server.crt", self.pki / "server.key")
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address.host, self.address.port, ssl_context=own).start()

    async def _stop(self) -> None:
        await self._client.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._runner.cleanup(), 5.0)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if "watch" not in request.query:
            return await self._answer(request)
        self.watches += 1
        try:
            return await self._answer(request)
        finally:
            self.watches -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.status:
            self.refused += 1
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
            return web.json_response(body | {"message": "injected"}, status=self.status)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        body_bytes = await request.read()
        try:
            where = f"{self.server}{request.raw_path}"
            async with self._client.request(
                request.method, where, data=body_bytes or None, headers=headers, allow_redirects=False
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (ClientError, OSError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # as the server's own end would look
            raise asyncio.CancelledError from None  # there is no one left to answer


class Balancer:
    """What a Service does for webhooks: passes each connection on to a replica that is ready."""

    def __init__(self) -> None:
        self.targets: Callable[[], list[str]] = list
        self.address = free_address()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Balancer:
        self._thread.start()
        start = asyncio.start_server(self._pass, self.address.host, self.address.port)
        asyncio.run_coroutine_threadsafe(start, self._loop).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for target in self.targets():
            host, _, port = target.rpartition(":")
            try:
                there, back = await asyncio.open_connection(host, int(port))
            except OSError:
                continue
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
            return
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
