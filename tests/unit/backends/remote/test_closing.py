"""A backend that is closed while requests wait for an answer leaves no task and no connection behind."""

from __future__ import annotations

import gc
import socket
import threading
import time

import pytest

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.dialects.errors import Unreachable


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_requests_without_an_answer_end_when_the_backend_is_closed(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        backend = RemoteBackend(
            Access("a server that says nothing", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")
        )
        found: list[str] = []

        def ask() -> None:
            try:
                backend.request("GET", "/version", b"", 60.0)
            except Unreachable as error:
                found.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        accepted = [silent.accept()[0] for _ in threads]
        time.sleep(0.05)
        backend.close(0)
        for thread in threads:
            thread.join(10)
        for connection in accepted:
            connection.close()
    assert [text.rpartition(": ")[2] for text in found] == [
        "GET /version ended, as the backend was closed"
    ] * 3
    gc.collect()  # what is left behind is reported now
    assert [record.getMessage() for record in caplog.records] == []
