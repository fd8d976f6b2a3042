"""Free addresses on loopback for servers under test, below the ports that the system hands out by itself."""

from __future__ import annotations

import secrets
import socket

from bayplan.runtime.webhooks.http_server import Address

PORTS = range(20000, 32000)


def free_address() -> Address:
    """An address that nobody listens on at the moment."""
    for _ in range(1000):
        port = secrets.choice(PORTS)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return Address("127.0.0.1", port)
    raise AssertionError("no free port")
