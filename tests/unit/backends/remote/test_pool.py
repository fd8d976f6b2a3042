"""The connections that writes go over: kept, given up, and honest about what may have been sent."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

import pytest

from bayplan.backends.remote.pool import NoConnection, Pool, RawResponse

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


async def question(reader: asyncio.StreamReader) -> bytes:
    """All of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


class Site:
    """A server with scripted responses, and a pool that sends it requests."""

    def __init__(self, speak: Speak) -> None:
        self.speak, self.heard, self.connections = speak, list[bytes](), 0

    async def __aenter__(self) -> Site:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.pool = Pool(f"http://127.0.0.1:{port}/under")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heard.append(await question(reader))
                await self.speak(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def ask(self, body: bytes = b"{}", seconds: float = 5.0, method: str = "POST") -> RawResponse:
        head = self.pool.head((("Content-Type", "application/json"),))
        return await self.pool.ask(method, "/pods?x=1", head, body, None, seconds, 5.0)


def says(*parts: bytes) -> Speak:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return speak


def test_one_connection_serves_one_after_the_other_and_several_at_once() -> None:
    async def play() -> None:
        async with Site(says(OK)) as site:
            for _ in range(3):
                assert await site.ask() == RawResponse(200, b"hi", None)
            assert site.connections == 1
            await asyncio.gather(*(site.ask() for _ in range(4)))
            assert site.connections == 4
            first = site.heard[0]
            assert first.startswith(b"POST /under/pods?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
            assert first.endswith(b"Content-Length: 2\r\n\r\n{}")

    asyncio.run(play())


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        ((b"HTTP/1.1 429 Wait\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n",), RawResponse(429, b"", "3")),
        (
            (b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"),
            RawResponse(201, b"abc", None),
        ),
        ((b"HTTP/1.1 103 Soon\r\n\r\n", OK), RawResponse(200, b"hi", None)),
        (tuple(OK[at : at + 1] for at in range(len(OK))), RawResponse(200, b"hi", None)),
    ],
)
def test_answers_of_every_form(parts: tuple[bytes, ...], want: RawResponse) -> None:
    async def play() -> None:
        async with Site(says(*parts)) as site:
            assert await site.ask() == want
            assert await site.ask() == want, "the connection is as good as before"
            assert site.connections == 1

    asyncio.run(play())


def test_a_connection_that_the_server_ends_is_not_asked_again() -> None:
    async def play() -> None:
        async with Site(says(OK.replace(b"\r\nC", b"\r\nConnection: close\r\nC"))) as site:
            await site.ask()
            await site.ask()
            assert site.connections == 2

    asyncio.run(play())


def test_data_without_a_request_is_no_response() -> None:
    async def play() -> None:
        async with Site(says(OK, b"", OK)) as site:
            await site.ask()
            await asyncio.sleep(0.05)
            assert await site.ask() == RawResponse(200, b"hi", None)
            assert site.connections == 2

    asyncio.run(play())


async def hangs_up(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    raise ConnectionError


def test_a_get_is_sent_again_if_the_server_closes_the_idle_connection() -> None:
    async def play() -> None:
        async with Site(says(OK)) as site:
            await site.ask()
            site.speak = hangs_up
            asked = asyncio.create_task(site.ask(b"", method="GET"))
            while len(site.heard) < 2:
                await asyncio.sleep(0)
            site.speak = says(OK)
            assert await asked == RawResponse(200, b"hi", None)
            assert site.connections == 2

    asyncio.run(play())


@pytest.mark.parametrize(("method", "idle"), [("POST", True), ("GET", False)])
def test_a_write_is_not_sent_again_and_a_get_not_twice(method: str, idle: bool) -> None:
    async def play() -> None:
        async with Site(says(OK)) as site:
            if idle:
                await site.ask()
            site.speak = hangs_up
            with pytest.raises(ConnectionError):
                await site.ask(method=method)
            assert len(site.heard) == 1 + idle

    asyncio.run(play())


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhi")
        await writer.drain()
        raise ConnectionError

    async def play() -> None:
        async with Site(speak) as site:
            assert await site.ask() == RawResponse(200, b"hi", None)
            assert await site.ask() == RawResponse(200, b"hi", None)
            assert site.connections == 2

    asyncio.run(play())


@pytest.mark.parametrize("said", [b"SSH-2.0-any\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_request_with_half_a_response_or_none_may_have_been_received(said: bytes) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        raise ConnectionError

    async def play() -> None:
        async with Site(speak) as site:
            with pytest.raises(ConnectionError) as problem:
                await site.ask()
            assert not isinstance(problem.value, NoConnection)

    asyncio.run(play())


def test_silence_ends_with_the_time_and_the_connection_with_it() -> None:
    async def play() -> None:
        async with Site(says(b"")) as site:
            with pytest.raises(TimeoutError):
                await site.ask(seconds=0.05)
            site.speak = says(OK)
            assert (await site.ask()).status == 200
            assert site.connections == 2, "a late answer must not be taken for the next one"

    asyncio.run(play())


def test_a_cancelled_request_closes_its_connection() -> None:
    async def play() -> None:
        async with Site(says(b"")) as site:
            asked = asyncio.create_task(site.ask())
            while not site.heard:
                await asyncio.sleep(0.001)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            site.speak = says(OK)
            assert (await site.ask()).status == 200
            assert site.connections == 2

    asyncio.run(play())


def test_without_a_listening_server_nothing_was_sent() -> None:
    async def play() -> None:
        async with Site(says(OK)) as site:
            site.server.close()
            await site.server.wait_closed()
            with pytest.raises(NoConnection):
                await site.ask()

    asyncio.run(play())


@pytest.mark.parametrize("rounds", range(12))
def test_a_request_that_is_cancelled_while_it_connects_leaves_no_socket(rounds: int) -> None:
    async def cancelled() -> None:
        async with Site(says(OK)) as site:
            asked = asyncio.create_task(site.ask())
            for _ in range(rounds):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # garbage of other tests in this process is not what is looked for
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(cancelled())
        gc.collect()  # what is left behind is reported now
    assert [str(warning.message) for warning in found] == []
