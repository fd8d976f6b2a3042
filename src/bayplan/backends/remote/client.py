"""The HTTP client of one API server: keep-alive, verified TLS, deadlines, renewed credentials, retries."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.credentials import Credentials, RequestCredentials
from bayplan.backends.remote.pool import CLOSING_ROUNDS, NoConnection, Pool
from bayplan.backends.remote.proxies import is_loopback, proxy_for
from bayplan.dialects.errors import ApiError, Misconfigured, Unreachable

AGENT = "bayplan"
CONNECTIONS_MAX = 256
CONNECT_SECONDS = 10.0
READ_BUFFER = 1 << 20
TRIES_MAX = 10
BUSY = (429, 500, 503)  # with Retry-After these say: not done, ask again


class Unsent(Unreachable):
    """There was no connection, so nothing was sent and a retry is safe."""


class ApiResponse(NamedTuple):
    """A response of the server."""

    status: int
    body: bytes
    retry_after: float | None = None


class Client:
    """Made and used inside the loop that runs it."""

    def __init__(
        self,
        access: Access,
        log: Callable[[str], None],
        seconds: float = 30.0,
        credentials: Credentials | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.access, self.seconds, self._sleep = access, seconds, sleep
        self._credentials = credentials or Credentials(access, log)
        self._address = urlsplit(access.server)[:3]
        self._headers: dict[str, CIMultiDict[str]] = {}
        self._headers_of: RequestCredentials | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._fixed: dict[str, Any] = {"allow_redirects": False}
        if proxy := access.proxy or proxy_for(access.server, os.environ):
            self._fixed["proxy"] = proxy
        if access.server_name:
            self._fixed["server_hostname"] = access.server_name
        self._pool = None if "proxy" in self._fixed else Pool(access.server, access.server_name)
        self._heads: dict[str, bytes] = {}
        for warning in _warnings(access):
            log(warning)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, socket_factory=self._socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def close(self) -> None:
        """Close every connection, also those that still wait for the server to close."""
        if self._pool is not None:
            await self._pool.close()
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

    async def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "", seconds: float | None = None
    ) -> ApiResponse:
        """Send a request until there is a final response, or until the time is up.

        A rejected credential is renewed once. A busy server is retried after its Retry-After. A request that
        may have reached the server is never repeated here; the caller knows whether that is safe. Nothing
        is sent once the time is up, even if the process was suspended in between.
        """
        limit = self.seconds if seconds is None else seconds
        clock = asyncio.get_running_loop().time
        end, renewed = clock() + limit, False
        for attempt in range(1, TRIES_MAX + 1):
            presented = await self._credentials.current()
            left = end - clock()
            if left <= 0:  # credentials, a pause or a process put to sleep took all of it
                raise Unsent(f"{self.access.server} could not be asked {method} {path} within {limit:.0f} s")
            answer = await self._ask(method, path, body, content_type, presented, _deadline(left))
            left = end - clock()
            if answer.status == 401 and not renewed:
                renewed = True
                if await self._credentials.renewed(presented) is None:
                    break
            elif answer.status in BUSY and answer.retry_after is not None and answer.retry_after < left:
                if attempt < TRIES_MAX:
                    await self._sleep(answer.retry_after)
            else:
                break
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, silence: float
    ) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open a stream. It ends when the server ends it, the connection breaks, or no data arrives.

        An answer other than 200 has a body and nothing to iterate.
        """
        presented = await self._credentials.current()
        for retry in (True, False):
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
            try:
                response = await self._send("GET", path, b"", "", presented, timeout)
            except Exception as problem:
                raise self._trouble(problem, "GET", path, silence) from None
            async with response:
                if response.status == 200:
                    yield ApiResponse(200, b""), _chunks(response)
                    return
                answer = await self._read(response, path, silence)
            other = await self._credentials.renewed(presented) if answer.status == 401 and retry else None
            if other is None:
                break
            presented = other
        yield answer, _nothing()

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        presented: RequestCredentials,
        timeout: aiohttp.ClientTimeout,
    ) -> ApiResponse:
        try:
            if self._pool is not None and method != "GET":
                head = self._head(self._pool, presented, content_type)
                heard = await self._pool.ask(
                    method, path, head, body, presented.tls, timeout.total or self.seconds, CONNECT_SECONDS
                )
                after = heard.retry_after if heard.status in BUSY else None
                return ApiResponse(heard.status, heard.body, _seconds(after))
            async with await self._send(method, path, body, content_type, presented, timeout) as response:
                text = await response.read()
                after = response.headers.get("Retry-After") if response.status in BUSY else None
                return ApiResponse(response.status, text, _seconds(after))
        except Exception as problem:
            raise self._trouble(problem, method, path, timeout.total) from None

    async def _read(self, response: aiohttp.ClientResponse, path: str, seconds: float) -> ApiResponse:
        try:
            return ApiResponse(response.status, await response.read())
        except Exception as problem:
            raise self._trouble(problem, "GET", path, seconds) from None

    def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        presented: RequestCredentials,
        timeout: aiohttp.ClientTimeout,
    ) -> Awaitable[aiohttp.ClientResponse]:
        path, _, query = path.partition("?")
        scheme, authority, prefix = self._address
        url = URL.build(
            scheme=scheme, authority=authority, path=prefix + path, query_string=query, encoded=True
        )
        tls = presented.tls if presented.tls is not None else True
        return self._session.request(
            method,
            url,
            data=body or None,
            headers=self._prepared(presented, content_type),
            timeout=timeout,
            ssl=tls,
            **self._fixed,
        )

    def _head(self, pool: Pool, presented: RequestCredentials, content_type: str) -> bytes:
        headers = self._prepared(presented, content_type)
        if content_type not in self._heads:
            self._heads[content_type] = pool.head(headers.items())
        return self._heads[content_type]

    def _prepared(self, presented: RequestCredentials, content_type: str) -> CIMultiDict[str]:
        """Headers are made once for each content type and credential."""
        if self._headers_of is not presented:
            self._headers, self._heads, self._headers_of = {}, {}, presented
        found = self._headers.get(content_type)
        if found is None:
            found = CIMultiDict((*presented.headers, ("Accept", "application/json"), ("User-Agent", AGENT)))
            if content_type:
                found.add("Content-Type", content_type)
            self._headers[content_type] = found
        return found

    def _trouble(self, problem: Exception, method: str, path: str, seconds: float | None) -> ApiError:
        """The error for a failed request, with one sentence."""
        access = self.access
        asked = f"{method} {path.partition('?')[0]}"
        match problem:
            case ApiError():
                return problem
            case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
                failed = getattr(problem, "certificate_error", problem)
                reason = getattr(failed, "verify_message", "") or failed
                return Misconfigured(
                    f"{access.origin}: the certificate of {access.server} cannot be trusted ({reason});"
                    " correct certificate-authority or tls-server-name of the cluster"
                )
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                return Unsent(
                    f"{access.origin}: the proxy {self._fixed.get('proxy')} leads nowhere ({_why(problem)});"
                    " check proxy-url, HTTPS_PROXY and NO_PROXY"
                )
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | NoConnection():
                return Unsent(
                    f"{access.origin}: no connection to {access.server} ({_why(problem)}); check that the"
                    " server runs and that the address is right"
                )
            case TimeoutError():
                return Unreachable(f"{access.server} did not answer {asked} within {seconds:.0f} s")
            case aiohttp.ClientError() | OSError():
                return Unreachable(f"{access.server} broke off in the middle of {asked} ({_why(problem)})")
        raise problem


def _warnings(access: Access) -> Iterator[str]:
    """Warnings about insecure settings."""
    if not access.verify:
        yield f"{access.origin}: insecure-skip-tls-verify is set; any host can impersonate {access.server}"
    parts = urlsplit(access.server)
    if parts.scheme == "http" and (access.token or access.plugin) and not is_loopback(parts.hostname or ""):
        yield f"{access.origin}: {access.server} is not https; the credentials can be read in transit"


def _deadline(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; as a date it is not used by Kubernetes and means: soon."""
    if header is None:
        return None
    return float(header) if header.isdecimal() else 1.0


def _why(problem: BaseException) -> str:
    system = getattr(problem, "os_error", None) or problem
    return str(getattr(system, "strerror", "") or system or type(problem).__name__).strip()


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError):
        return  # cut off or silent: for the caller both are the end


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk
