"""Clients that send much, at the same time, slowly or nothing: memory stays bounded, others are served."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from aiohttp import web

from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.admission_review import Convert, Late, Object, Registry, convert
from bayplan.runtime.webhooks.certificates import renewed, server_context
from bayplan.runtime.webhooks.http_server import Address, Limits, Server
from bayplan.runtime.webhooks.server import (
    ADMISSION_BYTES,
    ADMISSION_BYTES_TOTAL,
    CONVERSION_BYTES,
    CONVERSION_BYTES_TOTAL,
    SMALL_CONVERSION_BYTES,
    serve_webhooks,
)
from tests.support.listening import free_address
from tests.support.webhook_reviews import conversion, review, thing

MEBIBYTE = 1024 * 1024
PROGRAM = """
import sys
import threading
from tests.unit.runtime.webhooks.test_request_budget import serve
from bayplan.runtime.webhooks.http_server import Address
server = serve(Address("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.read()
server.stop()
"""


def serve(address: Address, change: Convert = lambda obj, version: obj) -> Server:
    certificates = renewed(None, ["127.0.0.1"], SystemClock().wall()).served
    registry = Registry(conversion={("x.dev", "Thing"): change})
    return serve_webhooks(registry, server_context(certificates), SystemClock(), Metrics(), address)


@pytest.fixture
def process() -> Iterator[tuple[Address, int]]:
    """A server in its own process, to measure its memory: its address and its pid."""
    address = free_address()
    command = [sys.executable, "-c", PROGRAM, str(address.port)]
    root = Path(__file__).parents[4]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as started:
        assert started.stdout is not None and started.stdout.readline() == b"ready\n"
        yield address, started.pid
        started.communicate(b"")


def connect(address: Address, stack: ExitStack) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = stack.enter_context(socket.create_connection((address.host, address.port), timeout=30))
    return stack.enter_context(context.wrap_socket(plain))


def head(path: str, length: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def most_memory(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def answer(client: ssl.SSLSocket) -> bytes:
    with suppress(ConnectionError, ssl.SSLError, TimeoutError):
        return client.recv(300)
    return b""


def test_twelve_large_bodies_at_once_grow_the_server_by_no_more_than_its_budget(
    process: tuple[Address, int],
) -> None:
    address, pid = process
    before = most_memory(pid)
    piece = b" " * MEBIBYTE
    with ExitStack() as stack:
        clients = [connect(address, stack) for _ in range(12)]
        for client in clients:
            client.sendall(head("/convert", CONVERSION_BYTES))
        for client in clients:
            with suppress(ConnectionError, ssl.SSLError, TimeoutError):
                for _ in range(CONVERSION_BYTES // MEBIBYTE - 1):
                    client.sendall(piece)
        refused = [answer(client) for client in clients[2:]]
    assert most_memory(pid) - before < 2 * CONVERSION_BYTES_TOTAL
    assert any(b"429" in one and b"Retry-After: 1" in one for one in refused)


def test_while_one_budget_is_used_up_reviews_of_the_other_are_answered() -> None:
    server = serve(free_address())
    try:
        with ExitStack() as stack:
            for _ in range(ADMISSION_BYTES_TOTAL // ADMISSION_BYTES):
                connect(server.address, stack).sendall(head("/mutate", ADMISSION_BYTES) + b"{")
            over = connect(server.address, stack)
            over.sendall(head("/validate", ADMISSION_BYTES) + b"{")
            assert answer(over).startswith(b"HTTP/1.1 429")
            other = connect(server.address, stack)
            other.sendall(head("/convert", 2) + b"{}")
            assert answer(other).startswith(b"HTTP/1.1 400")
        with ExitStack() as stack:  # the clients that held the budget have disconnected
            later = connect(server.address, stack)
            later.sendall(head("/mutate", ADMISSION_BYTES) + b" " * ADMISSION_BYTES)
            assert answer(later).startswith(b"HTTP/1.1 400")
    finally:
        server.stop()


def test_a_body_that_is_too_large_is_refused_before_it_is_read(process: tuple[Address, int]) -> None:
    address, _ = process
    with ExitStack() as stack:
        client = connect(address, stack)
        client.sendall(head("/mutate", ADMISSION_BYTES + 1))
        assert answer(client).startswith(b"HTTP/1.1 413")


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


@pytest.fixture
def impatient() -> Iterator[Server]:
    limits = Limits(seconds=0.5, idle_seconds=0.5, connections=3)
    server = Server("test", [web.post("/", echo)], free_address(), limits)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (b"POST / HT", b""),
        (b"POST / HTTP/1.1\r\nHost: x\r\n", b""),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n1", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1POST /", b"HTTP/1.1 200"),
    ],
)
def test_a_client_that_does_not_finish_loses_its_connection(
    impatient: Server, sent: bytes, answered: bytes
) -> None:
    where = (impatient.address.host, impatient.address.port)
    with socket.create_connection(where, timeout=20) as client:
        client.sendall(sent)
        heard = b""
        with suppress(ConnectionError):
            while piece := client.recv(1000):
                heard += piece
    assert heard[: len(answered)] == answered and bool(heard) == bool(answered)


def test_a_connection_too_many_is_closed_and_another_served_when_one_has_left(impatient: Server) -> None:
    where = (impatient.address.host, impatient.address.port)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
    with ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(where, timeout=20))
            client.sendall(request)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        over = stack.enter_context(socket.create_connection(where, timeout=20))
        with suppress(ConnectionError):
            over.sendall(request)
            assert over.recv(1000) == b""
    for _ in range(100):  # until the server has noticed the disconnects
        with socket.create_connection(where, timeout=20) as client, suppress(ConnectionError):
            client.sendall(request)
            if client.recv(1000).startswith(b"HTTP/1.1 200"):
                return
    raise AssertionError("no client is served any more")


def test_only_small_conversions_are_made_in_the_thread_that_talks_to_clients() -> None:
    threads = []

    def noted(obj: Object, version: str) -> Object:
        threads.append(threading.current_thread().name)
        return {**obj, "apiVersion": version}

    server = serve(free_address(), noted)
    try:
        with ExitStack() as stack:
            for size in (0, SMALL_CONVERSION_BYTES):
                client, asked = connect(server.address, stack), conversion(thing(text="x" * size))
                client.sendall(head("/convert", len(asked)) + asked)
                assert answer(client).startswith(b"HTTP/1.1 200")
    finally:
        server.stop()
    assert threads == ["webhooks", "conversions_0"]


def test_a_conversion_that_takes_long_does_not_hold_up_reviews_of_writes() -> None:
    converting, done = threading.Event(), threading.Event()

    def slow(obj: Object, version: str) -> Object:
        converting.set()
        assert done.wait(30)
        return {**obj, "apiVersion": version}

    server = serve(free_address(), slow)
    try:
        with ExitStack() as stack:
            first, second = connect(server.address, stack), connect(server.address, stack)
            asked = conversion(thing(), thing(text="x" * SMALL_CONVERSION_BYTES))
            first.sendall(head("/convert", len(asked)) + asked)
            assert converting.wait(30)
            written = review()
            second.sendall(head("/validate", len(written)) + written)
            assert answer(second).startswith(b"HTTP/1.1 200")
            done.set()
            assert b"Success" in answer(first)
    finally:
        done.set()
        server.stop()


def test_a_conversion_ends_when_its_answer_would_come_too_late() -> None:
    times = iter((False, True))
    made = Registry(conversion={("x.dev", "Thing"): lambda obj, version: {**obj, "apiVersion": version}})
    with pytest.raises(Late):
        convert(conversion(thing(), thing(), thing()), made, late=lambda: next(times))
