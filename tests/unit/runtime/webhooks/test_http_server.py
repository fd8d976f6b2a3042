"""A server with clients that misbehave."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from contextlib import closing

import pytest
from aiohttp import web

from bayplan.runtime.webhooks.http_server import Limits, Server
from tests.support.listening import free_address


def test_who_leaves_before_all_is_said_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    reading = threading.Event()

    async def measure(request: web.Request) -> web.Response:
        reading.set()
        return web.Response(text=str(len(await request.read())))

    server = Server("test", [web.post("/", measure)], free_address(), Limits())
    try:
        where = (server.address.host, server.address.port)
        with socket.create_connection(where, timeout=10) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            assert reading.wait(10)
            # reset instead of close
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with closing(http.client.HTTPConnection(*where, timeout=10)) as connection:
            connection.request("POST", "/", b"12345")
            assert connection.getresponse().read() == b"5"
    finally:
        server.stop()
    assert [record.getMessage() for record in caplog.records] == []
