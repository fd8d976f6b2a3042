"""Reaching the server: deadlines, proxies, single requests, and one sentence for each way to fail."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from bayplan.backends.remote import backend as backend_module
from bayplan.backends.remote.access import Access, InlineOrFile
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.backends.remote.client import Client
from bayplan.backends.remote.proxies import proxy_for
from bayplan.dialects.errors import ApiError, Misconfigured, Unauthorised, Unreachable
from tests.support.listening import free_address
from tests.support.remote_server import (
    HASTY,
    LONG,
    THINGS,
    Server,
    added,
    answered,
    page,
    quiet,
    refused,
    serving,
    stream,
    thing,
    watching,
)


def kubeconfig(path: Path, server: str) -> Path:
    content = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    (path / "config").write_text(json.dumps(content))
    return path / "config"


class Versions(Server):
    """A server that answers every request the same way."""

    def __init__(self, answerer: object) -> None:
        super().__init__()
        self.answerer = answerer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.answerer(request)  # type: ignore[operator,no-any-return]


# ── connecting ─────────────────────────────────────────────────────────────────────────────────────


def test_connecting_says_what_answered(server: Server, tmp_path: Path) -> None:
    log: list[str] = []
    backend = connect(kubeconfig(tmp_path, server.url), log=log.append)
    backend.close()
    assert log == [f"{server.url} is Kubernetes v1.35.4"]
    assert server.asked[0].headers["Authorization"] == "Bearer secret"
    assert server.asked[0].headers["User-Agent"] == "bayplan"


def test_a_wrong_context_is_told_before_anything_is_asked(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match="context 'prod' was asked for but is not there; choose one of: main"
    ):
        connect(kubeconfig(tmp_path, server.url), "prod")
    assert server.asked == []


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    address = free_address()
    with pytest.raises(
        Unreachable, match=r"\(context main\): no connection to http://127.*check that the server"
    ):
        connect(kubeconfig(tmp_path, f"http://{address.host}:{address.port}"))


@pytest.mark.parametrize(
    ("answerer", "trouble", "words"),
    [
        (refused(401), Unauthorised, r"\(context main\): .* does not accept the credentials"),
        (refused(503, "starting"), Unreachable, r"cannot answer now \(503\): starting"),
        (answered({"hello": "world"}), Misconfigured, "is no Kubernetes API server"),
        (answered("<html>", 404), Misconfigured, r"is no Kubernetes API server \(404\)"),
    ],
)
def test_what_answers_but_cannot_be_used_is_told(
    tmp_path: Path, answerer: object, trouble: type[ApiError], words: str
) -> None:
    with serving(Versions(answerer)) as server, pytest.raises(trouble, match=words):
        connect(kubeconfig(tmp_path, server.url))


def test_a_server_may_keep_its_version_to_itself(tmp_path: Path) -> None:
    with serving(Versions(refused(403))) as server:
        connect(kubeconfig(tmp_path, server.url)).close()


# ── single requests ────────────────────────────────────────────────────────────────────────────────


def test_one_thing_can_be_asked_from_another_thread(server: Server) -> None:
    backend = RemoteBackend(Access("test", server.url))
    try:
        status, body = backend.request("PUT", "/api/v1/namespaces/ns/pods/p", b'{"a": 1}', LONG)
        assert (status, json.loads(body)) == (200, {"a": 1})
        assert server.asked[0].headers["Content-Type"] == "application/json"
        assert backend.request("GET", "/version", b"", LONG)[0] == 200
    finally:
        backend.close()


def test_a_single_request_ends_within_its_seconds(server: Server) -> None:
    server.lists = [quiet]
    backend = RemoteBackend(Access("test", server.url))
    try:
        with pytest.raises(Unreachable, match="did not answer GET /api/v1/pods within"):
            backend.request("GET", "/api/v1/pods?limit=1", b"", 1.0)
    finally:
        backend.close()


def test_a_single_request_ends_although_the_connections_thread_is_stuck(server: Server) -> None:
    backend = RemoteBackend(Access("test", server.url))
    released = threading.Event()
    try:
        backend._loop.call_soon_threadsafe(released.wait)
        with pytest.raises(Unreachable, match=r"did not answer GET /api/v1/pods within 0\.1 s"):
            backend.request("GET", "/api/v1/pods?limit=1", b"", 0.1)
    finally:
        released.set()
        backend.close()


def test_a_server_may_live_below_a_path(server: Server) -> None:
    backend = RemoteBackend(Access("test", f"{server.url}/clusters/c1"))
    try:
        backend.request("GET", "/api/v1/pods?limit=1&fieldSelector=a%3Db%2Fc", b"", LONG)
    finally:
        backend.close()
    assert server.asked[0].path == "/clusters/c1/api/v1/pods"
    assert server.asked[0].query == {"limit": "1", "fieldSelector": "a=b/c"}


def test_nothing_is_asked_compressed_and_nothing_elsewhere(server: Server) -> None:
    server.lists = [answered({}, 302, {"Location": f"{server.url}/elsewhere"})]
    backend = RemoteBackend(Access("test", server.url))
    try:
        assert backend.request("GET", "/here", b"", LONG)[0] == 302
    finally:
        backend.close()
    assert [asked.path for asked in server.asked] == ["/here"]
    assert "Accept-Encoding" not in server.asked[0].headers


def test_waiting_for_a_busy_server_takes_as_long_as_it_says(server: Server) -> None:
    server.lists = [
        refused(429, headers={"Retry-After": "7"}),
        refused(503, headers={"Retry-After": "soon"}),
        page([]),
    ]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def story() -> int:
        client = Client(Access("test", server.url), lambda _: None, LONG, sleep=sleep)
        try:
            return (await client.request("GET", "/x")).status
        finally:
            await client.close()

    assert asyncio.run(story()) == 200
    assert slept == [7.0, 1.0]


# ── slow and far away ──────────────────────────────────────────────────────────────────────────────


def test_a_list_that_takes_too_long_is_asked_for_again(server: Server) -> None:
    server.lists = [quiet, page([thing("a", 1)])]
    with watching(server, THINGS, patience=replace(HASTY, list_seconds=0.1)) as seen:
        seen.synced()
        assert any("did not answer GET /apis/bay.test/v1/things within" in line for line in seen.log)


def test_a_server_that_comes_up_later_is_found() -> None:
    address = free_address()
    server = Server()
    server.url = f"http://{address.host}:{address.port}"
    server.lists = [page([thing("a", 1)])]
    with watching(server, THINGS) as seen:
        seen.until(lambda: len(seen.log) >= 3)
        assert all("no connection to" in line and "next try in" in line for line in seen.log)
        with serving(server, address=address):
            seen.synced()
            seen.until(lambda: any("watch" in asked.query for asked in server.asked))


def test_reading_pauses_while_events_are_not_consumed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "EVENTS_HELD_MAX", 10)
    things = [thing(f"t{number}", number) for number in range(1, 41)]
    pages = [page(things[start : start + 8], 40, "more" if start < 32 else "") for start in range(0, 40, 8)]
    server.lists = pages
    with watching(server, THINGS) as seen:
        while server.count(watch=False) < 2:
            threading.Event().wait(0.01)
        threading.Event().wait(0.1)
        assert server.count(watch=False) == 2
        seen.synced()
        assert len(seen.events) == 41


def test_a_bug_in_a_reflector_is_not_swallowed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.watches = [stream(added(thing("a", 2)))]
    monkeypatch.setattr("bayplan.backends.remote.watch_cache.WatchCache.seen", lambda *_: 1 / 0)
    with watching(server, THINGS) as seen, pytest.raises(ZeroDivisionError):
        seen.until(lambda: False)


# ── proxies ────────────────────────────────────────────────────────────────────────────────────────


def test_requests_go_through_the_proxy_of_the_kubeconfig(server: Server) -> None:
    backend = RemoteBackend(Access("test", "http://api.invalid", proxy=server.url))
    try:
        assert backend.server_version() == "v1.35.4"
    finally:
        backend.close()
    assert server.asked[0].headers["Host"] == "api.invalid"


def test_credentials_that_travel_in_the_clear_are_told() -> None:
    log: list[str] = []
    token = InlineOrFile("token", data=b"secret")
    for server in ("http://127.0.0.1:1", "https://api.invalid", "http://api.invalid"):
        RemoteBackend(Access("test", server, token=token), log=log.append).close()
    assert log == ["test: http://api.invalid is not https; the credentials can be read in transit"]


def test_a_proxy_that_is_not_there_is_told() -> None:
    address = free_address()
    proxy = f"http://{address.host}:{address.port}"
    backend = RemoteBackend(Access("test", "http://api.invalid", proxy=proxy))
    try:
        with pytest.raises(Unreachable, match=r"the proxy http://127.* leads nowhere .*check proxy-url"):
            backend.server_version()
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api.test:6443", {}, ""),
        ("https://api.test:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.test:6443", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://api.test:6443", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http://api.test", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other, api.test"}, ""),
        ("https://api.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".test"}, ""),
        ("https://apitest", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "test"}, "http://p:1"),
        ("https://api.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
        ("https://10.96.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.96.0.0/12"}, ""),
        ("https://10.1.0.1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.96.0.0/12,"}, "http://p:1"),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
    ],
)
def test_the_environment_names_a_proxy(server: str, environment: dict[str, str], proxy: str) -> None:
    assert proxy_for(server, environment) == proxy
