"""The HTTP client of one API server: keep-alive, verified TLS, deadlines, renewed credentials, retries."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.credentials import Credentials, RequestCredentials
from bayplan.backends.remote.general_client import GeneralClient, NoProxy
from bayplan.backends.remote.pool import NoConnection, Pool
from bayplan.backends.remote.proxies import is_loopback, proxy_for
from bayplan.dialects.errors import ApiError, Misconfigured, Unreachable

AGENT = "bayplan"
CONNECT_SECONDS = 10.0
TRIES_MAX = 10
READY_PATH, READY_SECONDS = "/readyz", 5.0
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
        self._headers: dict[str, tuple[tuple[str, str], ...]] = {}
        self._headers_of: RequestCredentials | None = None
        self._proxy = access.proxy or proxy_for(access.server, os.environ)
        self._pool = None if self._proxy else Pool(access.server, access.server_name)
        self._general: GeneralClient | None = None
        self._heads: dict[str, bytes] = {}
        for warning in _warnings(access):
            log(warning)

    async def close(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            await self._pool.close()
        if self._general is not None:
            await self._general.close()

    def _general_client(self) -> GeneralClient:
        """Imported when it is needed: that takes longer than the lists of a command."""
        if self._general is None:
            from bayplan.backends.remote.session import Session  # noqa: PLC0415

            self._general = Session(self.access, self._proxy)
        return self._general

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
                raise Unsent(f"{self.access.server} could not be asked {method} {path} within {limit:.3g} s")
            answer = await self._ask(method, path, body, content_type, presented, left)
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

    async def is_ready(self) -> bool:
        """Whether the server has read what it needs to decide who may do what; also if it does not tell."""
        try:
            answer = await self.request("GET", READY_PATH, seconds=READY_SECONDS)
        except ApiError:
            return False
        return answer.status not in (401, 403) and answer.status < 500

    @asynccontextmanager
    async def stream(
        self, path: str, silence: float
    ) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open a stream. It ends when the server ends it, the connection breaks, or no data arrives.

        An answer other than 200 has a body and nothing to iterate.
        """
        presented = await self._credentials.current()
        for retry in (True, False):
            headers = self._prepared(presented, "")
            try:
                opened = await self._general_client().open(
                    path, headers, presented.tls, silence, CONNECT_SECONDS
                )
            except Exception as problem:
                raise self._trouble(problem, "GET", path, silence) from None
            answer = ApiResponse(opened.status, opened.body)
            async with opened.connection:
                if answer.status == 200:
                    yield answer, opened.chunks
                    return
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
        seconds: float,
    ) -> ApiResponse:
        try:
            if self._pool is not None:
                head = self._head(self._pool, presented, content_type)
                heard = await self._pool.ask(
                    method, path, head, body, presented.tls, seconds, CONNECT_SECONDS
                )
            else:
                headers = self._prepared(presented, content_type)
                heard = await self._general_client().ask(
                    method, path, headers, body, presented.tls, seconds, CONNECT_SECONDS
                )
        except Exception as problem:
            raise self._trouble(problem, method, path, seconds) from None
        after = heard.retry_after if heard.status in BUSY else None
        return ApiResponse(heard.status, heard.body, _seconds(after))

    def _head(self, pool: Pool, presented: RequestCredentials, content_type: str) -> bytes:
        headers = self._prepared(presented, content_type)
        if content_type not in self._heads:
            self._heads[content_type] = pool.head(headers)
        return self._heads[content_type]

    def _prepared(self, presented: RequestCredentials, content_type: str) -> tuple[tuple[str, str], ...]:
        """Headers are made once for each content type and credential."""
        if self._headers_of is not presented:
            self._headers, self._heads, self._headers_of = {}, {}, presented
        found = self._headers.get(content_type)
        if found is None:
            found = (*presented.headers, ("Accept", "application/json"), ("User-Agent", AGENT))
            if content_type:
                found = (*found, ("Content-Type", content_type))
            self._headers[content_type] = found
        return found

    def _trouble(self, problem: Exception, method: str, path: str, seconds: float) -> ApiError:
        """The error for a failed request, with one sentence."""
        access = self.access
        asked = f"{method} {path.partition('?')[0]}"
        match problem:
            case ApiError():
                return problem
            case ssl.CertificateError():
                reason = getattr(problem, "verify_message", "") or problem
                return Misconfigured(
                    f"{access.origin}: the certificate of {access.server} cannot be trusted ({reason});"
                    " correct certificate-authority or tls-server-name of the cluster"
                )
            case NoProxy():
                return Unsent(
                    f"{access.origin}: the proxy {self._proxy} leads nowhere ({_why(problem)});"
                    " check proxy-url, HTTPS_PROXY and NO_PROXY"
                )
            case NoConnection():
                return Unsent(
                    f"{access.origin}: no connection to {access.server} ({_why(problem)}); check that the"
                    " server runs and that the address is right"
                )
            case TimeoutError():
                return no_answer(access, method, path, seconds)
            case OSError():
                return Unreachable(f"{access.server} broke off in the middle of {asked} ({_why(problem)})")
        raise problem


def no_answer(access: Access, method: str, path: str, seconds: float) -> Unreachable:
    """The error for a request that got no response in time; names its path without the query."""
    return Unreachable(
        f"{access.server} did not answer {method} {path.partition('?')[0]} within {seconds:.3g} s"
    )


def _warnings(access: Access) -> Iterator[str]:
    """Warnings about insecure settings."""
    if not access.verify:
        yield f"{access.origin}: insecure-skip-tls-verify is set; any host can impersonate {access.server}"
    parts = urlsplit(access.server)
    if parts.scheme == "http" and (access.token or access.plugin) and not is_loopback(parts.hostname or ""):
        yield f"{access.origin}: {access.server} is not https; the credentials can be read in transit"


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; as a date it is not used by Kubernetes and means: soon."""
    if header is None:
        return None
    return float(header) if header.isdecimal() else 1.0


def _why(problem: OSError) -> str:
    return str(problem.strerror or problem or type(problem).__name__).strip()


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk
