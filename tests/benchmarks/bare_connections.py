"""Connections as lean as the remote backend's own, for whoever decides nothing and only has to be fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.client import CONNECT_SECONDS
from bayplan.backends.remote.pool import Pool, RawResponse
from bayplan.backends.remote.session import READ_BUFFER
from bayplan.backends.remote.tls import tls_context

SECONDS = 120.0
JSON = "application/json"

Ask = Callable[[str, str, bytes, str], Awaitable[RawResponse]]
"""Method, path, body and content type."""


@asynccontextmanager
async def bare_connections(access: Access, connections: int) -> AsyncIterator[Ask]:
    """So many connections, which are there before any clock runs."""
    pool, tls = Pool(access.server, access.server_name), tls_context(access, access.certificate)
    heads: dict[str, bytes] = {}

    def ask(method: str, path: str, body: bytes = b"", kind: str = JSON) -> Awaitable[RawResponse]:
        if kind not in heads:
            heads[kind] = pool.head((("Accept", JSON), ("Content-Type", kind), *_authorization(access)))
        return pool.ask(method, path, heads[kind], body, tls, SECONDS, CONNECT_SECONDS)

    try:
        await asyncio.gather(*(ask("GET", "/version") for _ in range(connections)))
        yield ask
    finally:
        await pool.close()


@asynccontextmanager
async def bare_watch(access: Access, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """What the server tells, as it comes."""
    tls = tls_context(access, access.certificate)
    assert tls is not None
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session,
        session.get(access.server + path, headers=_authorization(access)) as stream,
    ):
        assert stream.status == 200, await stream.text()
        yield stream


def _authorization(access: Access) -> tuple[tuple[str, str], ...]:
    token = access.token.read().decode().strip() if access.token else ""
    return (("Authorization", f"Bearer {token}"),) if token else ()
