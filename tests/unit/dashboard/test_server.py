"""The server of the dashboard over HTTP: what it sends, what it refuses, and how streams go on and end."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bayplan.dashboard.headers import assets
from bayplan.dashboard.host_map import GangKey
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.questions import BadQuestion
from bayplan.dashboard.server import Bounds, DashboardServer
from bayplan.runtime.webhooks.http_server import Address
from tests.support.dashboard_snapshots import gang_entry, host_map, rack_layout, snapshot_of
from tests.support.listening import free_address

SITE = rack_layout(2, 4)


class Answers:
    """Answers as a source would give them."""

    def explain(self, key: GangKey) -> dict[str, Any] | None:
        return {"name": key.name, "explanation": [], "members": []} if key.name == "train" else None

    def plan(self, manifests: str, may_see: Callable[[str], bool]) -> dict[str, Any]:
        if "kind" not in manifests:
            raise BadQuestion("line 1: is no object")
        return {"gangs": [], "exitStatus": 0, "answers": [], "skipped": []}


@pytest.fixture
def hub() -> SnapshotHub:
    hub = SnapshotHub()
    hub.publish(snapshot_of(host_map(SITE, {0: 1}), gang_entry(1, "a", "train")))
    return hub


@pytest.fixture
def server(hub: SnapshotHub) -> Iterator[DashboardServer]:
    server = DashboardServer(
        hub, Answers(), free_address(), bounds=Bounds(streams=3, pace_seconds=0.0, write_seconds=0.5)
    )
    yield server
    server.stop()


def ask(
    server: DashboardServer, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    client.request(method, path, body, named)
    answer = client.getresponse()
    found = answer.status, answer.headers, answer.read()
    client.close()
    return found


def test_every_answer_has_the_headers_that_keep_other_sites_out(server: DashboardServer) -> None:
    for path in ("/", "/api/v1/state", "/api/v1/nothing", f"/assets/{assets().digest}/app.js"):
        _, headers, _ = ask(server, path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "require-trusted-types-for 'script'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(server, "/api/v1/state")[1]["Cache-Control"] == "no-store"
    assert "immutable" in ask(server, f"/assets/{assets().digest}/app.js")[1]["Cache-Control"]


def test_a_request_by_another_name_is_refused_as_dns_rebinding_would_make_it(server: DashboardServer) -> None:
    assert ask(server, "/api/v1/state", Host="evil.example:80")[0] == 421
    assert ask(server, "/api/v1/state", Host="localhost:80")[0] == 200


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}])
def test_a_request_of_another_sites_page_is_refused(server: DashboardServer, headers: dict[str, str]) -> None:
    assert ask(server, "/api/v1/state", **headers)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/v1/state", "/api/v1/gangs/a/Job/train", "/api/v1/stream"])
def test_only_get_and_head_are_answered(server: DashboardServer, method: str, path: str) -> None:
    assert ask(server, path, method)[0] == 405
    assert ask(server, "/api/v1/state", "HEAD")[2] == b""


def test_manifests_are_tried_only_in_a_form_that_another_site_cannot_send(server: DashboardServer) -> None:
    assert ask(server, "/api/v1/try", "POST", "kind: Job", Content_Type="text/plain")[0] == 415
    assert ask(server, "/api/v1/try", "POST", "kind: Job", Content_Type="application/yaml")[0] == 200
    status, _, body = ask(server, "/api/v1/try", "POST", "[]", Content_Type="application/json")
    assert (status, json.loads(body)) == (422, {"message": "line 1: is no object"})
    assert ask(server, "/api/v1/try", "POST", "x" * (1 << 21), Content_Type="application/yaml")[0] == 413


def test_without_credentials_it_listens_on_loopback_only(hub: SnapshotHub) -> None:
    with pytest.raises(ValueError, match="loopback only"):
        DashboardServer(hub, Answers(), Address("0.0.0.0", 0))


def test_the_map_of_a_version_is_kept_for_a_while(server: DashboardServer, hub: SnapshotHub) -> None:
    status, headers, body = ask(server, "/api/v1/maps/0?version=1")
    assert (status, headers["Bayplan-Version"], len(body)) == (200, "1", 10 * len(SITE.hosts))
    assert ask(server, "/api/v1/maps/0?version=99")[0] == 410
    assert ask(server, "/api/v1/maps/5")[0] == 410
    assert ask(server, "/api/v1/maps/0?version=x")[0] == 400


def test_one_gang_is_explained_and_an_unknown_one_is_not_found(server: DashboardServer) -> None:
    assert ask(server, "/api/v1/gangs/a/Job/train")[0] == 200
    assert ask(server, "/api/v1/gangs/a/Job/other")[0] == 404


def test_files_outside_of_the_pages_are_not_served(server: DashboardServer) -> None:
    for name in ("../__init__.py", "vendor/manifest.json", "%2e%2e/server.py", "index.html"):
        assert ask(server, f"/assets/{assets().digest}/{name}")[0] == 404


class Stream:
    """An open stream, read event by event."""

    def __init__(self, server: DashboardServer, since: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.address.port), timeout=10)
        header = f"Last-Event-ID: {since}\r\n" if since else ""
        self.socket.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        self.file = self.socket.makefile("rb")

    def event(self) -> tuple[str, str, Any]:
        """Name, id and data of the next event."""
        found: dict[str, str] = {}
        for line in self.file:
            text = line.decode().strip()
            name, _, value = text.partition(": ")
            found[name] = value
            if not text and "data" in found:
                return found["event"], found["id"], json.loads(found["data"])
        raise EOFError

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def test_a_stream_goes_on_where_its_client_was(server: DashboardServer, hub: SnapshotHub) -> None:
    cursor = ask(server, "/api/v1/state")[1]["Bayplan-Cursor"]
    hub.publish(snapshot_of(host_map(SITE, {0: 1, 4: 1}), gang_entry(1, "a", "train")))
    stream = Stream(server, cursor)
    name, cursor, change = stream.event()
    stream.close()
    assert (name, change["maps"][0]["hosts"]) == ("change", [4])
    hub.publish(snapshot_of(host_map(SITE, {}), gang_entry(1, "a", "train")))
    stream = Stream(server, cursor)
    name, _, change = stream.event()
    stream.close()
    assert (name, change["maps"][0]["hosts"]) == ("change", [0, 4])


def test_after_a_restart_a_client_reads_everything_again_and_misses_nothing(
    server: DashboardServer, hub: SnapshotHub
) -> None:
    cursor = ask(server, "/api/v1/state")[1]["Bayplan-Cursor"]
    server.stop()
    again = SnapshotHub()
    again.publish(snapshot_of(host_map(SITE, {7: 1}), gang_entry(1, "a", "train")))
    other = DashboardServer(again, Answers(), server.address)
    try:
        stream = Stream(other, cursor)  # version 1 of the other server is not this one's
        assert stream.event()[0] == "reset"
        stream.close()
    finally:
        other.stop()


def test_streams_are_bounded(server: DashboardServer) -> None:
    streams = [Stream(server) for _ in range(3)]
    for stream in streams:
        stream.event()
    assert ask(server, "/api/v1/stream")[0] == 429
    for stream in streams:
        stream.close()


def test_a_client_that_does_not_read_is_cut_off(hub: SnapshotHub) -> None:
    wide = rack_layout(50, 200)
    server = DashboardServer(
        hub, Answers(), free_address(), bounds=Bounds(pace_seconds=0.0, write_seconds=0.2)
    )
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", server.address.port))
    slow.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        hub.publish(snapshot_of(host_map(wide, {})))
        for number in range(2000):
            hub.publish(snapshot_of(host_map(wide, dict.fromkeys(range(10_000), number + 1))))
            if server.cut_off:
                break
        assert server.cut_off == 1
    finally:
        slow.close()
        server.stop()
