"""The general HTTP client: watches, and every request that goes through a proxy.

It takes long to import: commands that only list a cluster do without it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.general_client import Headers, NoProxy, OpenStream
from bayplan.backends.remote.pool import CLOSING_ROUNDS, NoConnection, RawResponse

CONNECTIONS_MAX = 256
READ_BUFFER = 1 << 20


class Session:
    """Made and used inside the loop that runs it. Its errors are those of the pool."""

    def __init__(self, access: Access, proxy: str) -> None:
        self._address = urlsplit(access.server)[:3]
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._fixed: dict[str, Any] = {"allow_redirects": False}
        if proxy:
            self._fixed["proxy"] = proxy
        if access.server_name:
            self._fixed["server_hostname"] = access.server_name
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, socket_factory=self._socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def close(self) -> None:
        """Close every connection, also those that still wait for the server to close."""
        await self._session.close()
        for connection in [*self._sockets]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(CLOSING_ROUNDS):
            if all(connection.fileno() < 0 for connection in [*self._sockets]):
                break
            await asyncio.sleep(0.001)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, sort, protocol, _, _ = address
        made = socket.socket(family, sort, protocol)
        self._sockets.add(made)
        return made

    async def ask(
        self, method: str, path: str, headers: Headers, body: bytes, tls: ssl.SSLContext | None,
        seconds: float, connect_seconds: float,
    ) -> RawResponse:  # fmt: skip
        """Send once and read the response, within so many seconds."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(connect_seconds, seconds))
        with _as_in_the_pool():
            async with await self._send(method, path, headers, body, tls, timeout) as response:
                text = await response.read()
                return RawResponse(response.status, text, response.headers.get("Retry-After"))

    async def open(
        self, path: str, headers: Headers, tls: ssl.SSLContext | None, silence: float, connect_seconds: float
    ) -> OpenStream:
        """Open a stream that ends after so many seconds without data."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=silence)
        with _as_in_the_pool():
            response = await self._send("GET", path, headers, b"", tls, timeout)
            body = b"" if response.status == 200 else await response.read()
        return OpenStream(response.status, body, _chunks(response), response)

    async def _send(
        self, method: str, path: str, headers: Headers, body: bytes, tls: ssl.SSLContext | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        path, _, query = path.partition("?")
        scheme, authority, prefix = self._address
        url = URL.build(
            scheme=scheme, authority=authority, path=prefix + path, query_string=query, encoded=True
        )
        return await self._session.request(
            method,
            url,
            data=body or None,
            headers=headers,
            timeout=timeout,
            ssl=tls if tls is not None else True,
            **self._fixed,
        )


@contextmanager
def _as_in_the_pool() -> Iterator[None]:
    """Raise the errors that the pool raises."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as problem:
        raise problem.certificate_error from None
    except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as problem:
        raise NoProxy(_why(problem)) from None
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
        raise NoConnection(_why(problem)) from None
    except TimeoutError:
        raise
    except aiohttp.ClientError as problem:
        raise ConnectionError(_why(problem)) from None


def _why(problem: BaseException) -> str:
    system = getattr(problem, "os_error", None) or problem
    return str(getattr(system, "strerror", "") or system or type(problem).__name__).strip()


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError):
        return  # cut off or silent: for the caller both are the end
