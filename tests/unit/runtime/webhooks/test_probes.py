"""Health and metrics over HTTP, and the limits of all our servers."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from aiohttp import web

from bayplan.dialects.api import Kind
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.http_server import Address, Limits, Server
from bayplan.runtime.webhooks.probes import Check, leading, serve_health, steps, synced
from tests.support.listening import free_address


def get(server: Server, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, str]:
    with closing(
        http.client.HTTPConnection(server.address.host, server.address.port, timeout=10)
    ) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@contextmanager
def health(
    alive: dict[str, Check], ready: dict[str, Check], metrics: Metrics | None = None
) -> Iterator[Server]:
    server = serve_health(metrics or Metrics(), alive, ready, free_address())
    try:
        yield server
    finally:
        server.stop()


def test_a_healthy_program_says_ok_and_shows_its_metrics() -> None:
    metrics = Metrics()
    metrics.refused("no_room")
    with health({"loop": lambda: ""}, {"synced": lambda: ""}, metrics) as server:
        assert get(server, "/healthz") == (200, "[+] loop\nok\n")
        assert get(server, "/readyz") == (200, "[+] loop\n[+] synced\nok\n")
        status, page = get(server, "/metrics")
        assert status == 200 and 'bayplan_placement_refusals_total{code="no_room"} 1.0' in page
        assert get(server, "/elsewhere")[0] == 404
        assert get(server, "/healthz", "POST", b"x")[0] == 405


def test_what_is_wrong_is_said() -> None:
    def broken() -> str:
        raise RuntimeError("oh")

    with health({"loop": lambda: ""}, {"synced": lambda: "nodes are missing", "x": broken}) as server:
        assert get(server, "/healthz")[0] == 200
        status, text = get(server, "/readyz")
        assert status == 503
        assert "[-] synced: nodes are missing\n" in text and "RuntimeError('oh')" in text


def test_a_check_can_be_left_out() -> None:
    wrong = {"synced": lambda: "", "leader": lambda: "another leads"}
    with health({"loop": lambda: ""}, wrong) as server:
        assert get(server, "/readyz")[0] == 503
        assert get(server, "/readyz?exclude=leader") == (200, "[+] loop\n[+] synced\nok\n")
        assert get(server, "/readyz?exclude=leader&exclude=loop") == (200, "[+] synced\nok\n")
        assert get(server, "/readyz?exclude=synced")[0] == 503


def test_the_checks() -> None:
    clock = VirtualClock(monotonic=100.0)
    check = steps(clock, lambda: 80.0, seconds_max=30.0)
    assert check() == ""
    clock.advance(11)
    assert "31 s" in check()
    kinds = {Kind("", "v1", "Pod", "pods"), Kind("", "v1", "Node", "nodes")}
    assert synced(lambda: kinds)() == "not synced yet: nodes, pods"
    assert synced(lambda: ())() == ""
    assert leading(clock, lambda now: now == 111.0)() == ""
    assert leading(clock, lambda now: False)() != ""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        (":8081", Address("127.0.0.1", 8081)),
        ("0.0.0.0:1", Address("0.0.0.0", 1)),
        ("[::1]:443", Address("::1", 443)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "a:b", ":70000"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        Address.parse(text)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def limited() -> Iterator[Server]:
    async def size(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def endless(_: web.Request) -> web.Response:
        return web.Response(body=bytes(64 * 1024 * 1024))

    routes = [web.post("/size", size), web.get("/slow", slow), web.get("/endless", endless)]
    server = Server("limited", routes, free_address(), Limits(1000, seconds=0.5, idle_seconds=0.5))
    yield server
    server.stop()


def test_a_body_that_is_too_large_is_refused(limited: Server) -> None:
    assert get(limited, "/size", "POST", bytes(1000)) == (200, "1000")
    assert get(limited, "/size", "POST", bytes(1001))[0] == 413


def test_a_request_that_takes_too_long_is_ended(limited: Server) -> None:
    assert get(limited, "/slow") == (408, "not done within 0.5 s\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"",  # connects and says nothing
        b"GET /slow HTTP/1.1\r\nHost: x\r\nX-Never",  # never ends its headers
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\nGET /nowh",  # the same with the second request
        b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",  # never ends its body
        b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n",  # reads the response slowly: see below
    ],
)
def test_a_client_that_dawdles_is_cut_off(limited: Server, sent: bytes) -> None:
    with socket.create_connection((limited.address.host, limited.address.port), timeout=10) as client:
        client.sendall(sent)
        if b"endless" in sent:
            threading.Event().wait(1.0)  # longer than the server waits for us to read
        received = 0
        try:
            while chunk := client.recv(65536):
                received += len(chunk)
        except ConnectionResetError:
            pass
        assert received < 64 * 1024 * 1024


def test_stopping_twice_is_no_trouble_and_frees_the_port(limited: Server) -> None:
    limited.stop()
    limited.stop()
    with pytest.raises(ConnectionRefusedError):
        get(limited, "/size")
