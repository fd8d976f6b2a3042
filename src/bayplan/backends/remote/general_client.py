"""What the client of an API server asks of a general HTTP client: streams, and requests through a proxy.

Apart from the one there is, so that a command that needs neither does not import it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from bayplan.backends.remote.pool import NoConnection, RawResponse

Headers = Iterable[tuple[str, str]]


class NoProxy(NoConnection):
    """The request was not sent: the proxy cannot be reached."""


class OpenStream(NamedTuple):
    """A response that is read as it arrives."""

    status: int
    body: bytes  # of a status other than 200
    chunks: AsyncIterator[bytes]  # they end when the server ends, the connection breaks, or none arrives
    connection: AbstractAsyncContextManager[object]  # closed at the end


class GeneralClient(Protocol):
    """Raises what the pool raises, and NoProxy."""

    async def ask(
        self, method: str, path: str, headers: Headers, body: bytes, tls: ssl.SSLContext | None,
        seconds: float, connect_seconds: float,
    ) -> RawResponse:  # fmt: skip
        """Send once and read the response, within so many seconds."""
        ...

    async def open(
        self, path: str, headers: Headers, tls: ssl.SSLContext | None, silence: float, connect_seconds: float
    ) -> OpenStream:
        """Open a stream that ends after so many seconds without data."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
