"""A pool of keep-alive connections for single requests, one request at a time on each.

Writes are most of the cost of a scheduler itself. A general client spends several times as long on one as the
connection and the parser need, and as long on its import as a command may take for its lists.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Iterable
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

PORTS = {"http": 80, "https": 443}
CLOSING_ROUNDS = 1000
NEXT_ADDRESS_SECONDS = 0.25  # until the next address of a host is tried as well


class NoConnection(ConnectionError):
    """The request was not sent: there was no connection."""


class RawResponse(NamedTuple):
    """A response."""

    status: int
    body: bytes
    retry_after: str | None


class Pool:
    """Made and used inside the loop that runs it. How many connections there are is up to its callers."""

    def __init__(self, server: str, server_name: str = "") -> None:
        parts = urlsplit(server)
        self.host = parts.hostname or ""
        self.port = parts.port or PORTS[parts.scheme]
        self._server_name = server_name or self.host
        self._authority, self._prefix = parts.netloc.rpartition("@")[2], parts.path
        self._secure = parts.scheme == "https"
        # asyncio leaks the socket of an attempt that is cancelled while several addresses race: a literal
        # address has no second one to race with.
        self._next_address_seconds = None if _is_literal(self.host) else NEXT_ADDRESS_SECONDS
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None

    def head(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Headers as they are sent, but for the length of what follows."""
        given = (("Host", self._authority), *headers)
        return "".join(f"{name}: {value}\r\n" for name, value in given).encode("latin-1")

    async def ask(
        self, method: str, path: str, head: bytes, body: bytes, tls: ssl.SSLContext | None, seconds: float,
        connect_seconds: float,
    ) -> RawResponse:  # fmt: skip
        """Send once. NoConnection: it was not sent; TimeoutError and ConnectionError: it may have been.

        A GET is sent again if an idle connection breaks: the server may have closed it at that moment.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        line = f"{method} {self._prefix}{path} HTTP/1.1\r\n".encode("ascii")
        question = b"".join((line, head, b"Content-Length: %d\r\n\r\n" % len(body), body))
        idle = self._idle(tls)
        if idle is not None:
            try:
                return await self._once(idle, question, end - clock())
            except ConnectionError:
                if method != "GET":
                    raise
        fresh = await self._connected(tls, min(end - clock(), connect_seconds))
        return await self._once(fresh, question, end - clock())

    async def _once(self, connection: Connection, question: bytes, seconds: float) -> RawResponse:
        try:
            heard = await connection.ask(question, seconds)
        except BaseException:
            connection.drop()
            raise
        if connection.reusable:
            self._free.append(connection)
        else:
            connection.drop()
        return heard

    async def close(self) -> None:
        """Close every connection."""
        self._free.clear()
        for connection in [*self._open]:
            connection.drop()
        for _ in range(CLOSING_ROUNDS):
            if not self._open:
                break
            await asyncio.sleep(0.001)

    def _idle(self, tls: ssl.SSLContext | None) -> Connection | None:
        """An open connection with the current credentials."""
        if tls is not self._tls:
            for old in self._free:
                old.drop()
            self._free, self._tls = [], tls
        while self._free:
            connection = self._free.pop()
            if connection.reusable:
                return connection
        return None

    async def _connected(self, tls: ssl.SSLContext | None, seconds: float) -> Connection:
        context = (tls or ssl.create_default_context()) if self._secure else None
        name = self._server_name if context is not None else None
        try:
            async with asyncio.timeout(seconds):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._open), self.host, self.port, ssl=context, server_hostname=name,
                    happy_eyeballs_delay=self._next_address_seconds,
                )  # fmt: skip
        except ssl.SSLCertVerificationError:
            raise
        except TimeoutError:
            raise NoConnection("timed out") from None
        except OSError as problem:
            raise NoConnection(str(problem.strerror or problem)) from problem
        return made


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Connection(asyncio.Protocol):
    """One request at a time. The methods whose names begin with `on` are called by the parser."""

    def __init__(self, known: set[Connection]) -> None:
        self._known = known
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[RawResponse] | None = None
        self._body: list[bytes] = []
        self._retry_after: str | None = None
        self._keeps = True
        self._has_length = self._ends_with_connection = False

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return self._keeps and self._transport is not None and not self._transport.is_closing()

    def ask(self, question: bytes, seconds: float) -> asyncio.Future[RawResponse]:
        """Send a request; the response arrives within so many seconds."""
        loop = asyncio.get_running_loop()
        assert self._answer is None and self._transport is not None
        self._answer = answer = loop.create_future()
        timer = loop.call_later(seconds, self._fail, TimeoutError())
        answer.add_done_callback(lambda _: timer.cancel())
        self._body, self._retry_after = [], None
        self._has_length = self._ends_with_connection = False
        self._transport.write(question)
        return answer

    def drop(self) -> None:
        """Close the connection and ignore further data."""
        self._keeps = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._known.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeps = False
        self._known.discard(self)
        self._fail(ConnectionError(str(exc) if exc else "the server closed the connection"))

    def eof_received(self) -> None:
        if self._ends_with_connection:
            self.on_message_complete()

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # unsolicited: it is not the answer to the next request
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as wrong:
            self._fail(ConnectionError(f"the response is not HTTP: {wrong}"))
            self.drop()

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._has_length = True

    def on_headers_complete(self) -> None:
        self._ends_with_connection = not self._has_length

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # only a sign that more is to come
            self._body = []
            return
        self._keeps = self._keeps and self._parser.should_keep_alive()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(RawResponse(status, b"".join(self._body), self._retry_after))

    def _fail(self, problem: Exception) -> None:
        answer, self._answer = self._answer, None
        self._keeps = False
        if answer is not None and not answer.done():
            answer.set_exception(problem)
