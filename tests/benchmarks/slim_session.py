"""An HTTP session as lean as the remote backend's own, for whoever only has to be fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.client import CONNECTIONS_MAX, READ_BUFFER
from bayplan.backends.remote.tls import tls_context


@asynccontextmanager
async def slim_session(access: Access) -> AsyncIterator[aiohttp.ClientSession]:
    """A session that says no more than it must."""
    tls = tls_context(access, access.certificate)
    assert tls is not None
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=CONNECTIONS_MAX),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BUFFER,
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield session


async def connect(session: aiohttp.ClientSession, access: Access, connections: int) -> None:
    """So many connections are there before any clock runs."""
    await asyncio.gather(*(_greet(session, access) for _ in range(connections)))


async def _greet(session: aiohttp.ClientSession, access: Access) -> None:
    async with session.get(f"{access.server}/version") as answer:
        await answer.read()
