"""What a pod of a tenant may send to the webhook port: too much at once, or bytes that are no review."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

BODIES = 12
BODY_BYTES = 64 * 1024 * 1024
CHUNK = b"[" * (1024 * 1024)
CLOSED = 0
"""Instead of a status: the server ended the connection."""


def webhook_address(cluster: Cluster) -> str:
    """Where the API server asks."""
    hook = cluster.get("validatingwebhookconfiguration", "bayplan")["webhooks"][0]
    return urlsplit(str(hook["clientConfig"]["url"])).netloc


def flood(address: str) -> list[int]:
    """Large bodies at the same time, out of another process as from another pod; what each is answered."""
    command = [sys.executable, "-m", __name__, address]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(status) for status in told.stdout.split()]


def _flood(address: str) -> list[int]:
    with ThreadPoolExecutor(BODIES) as threads:
        return list(threads.map(lambda _: _large(address), range(BODIES)))


def garbage() -> list[tuple[str, bytes]]:
    """Bodies that cannot be read, and where they are sent."""
    long_version = b'{"apiVersion": "admission.k8s.io/v' + b"9" * 5000 + b'", "kind": "AdmissionReview"}'
    deep = b'{"request": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    bodies = (b'{"request": "\xff\xfe"}', deep, b"[" * 100_000, long_version, b"")
    return [
        (path, body) for path in ("/validate", "/mutate", "/mutate/optional", "/convert") for body in bodies
    ]


def sent(address: str, path: str, body: bytes) -> int:
    """The status of the answer."""
    with closing(_connection(address)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status


def _large(address: str) -> int:
    with closing(_connection(address)) as connection:
        try:
            connection.putrequest("POST", "/convert")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(BODY_BYTES))
            connection.endheaders()
            for _ in range(BODY_BYTES // len(CHUNK)):
                connection.send(CHUNK)
        except OSError:
            pass  # it was answered before all was sent
        try:
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return CLOSED


def _connection(address: str) -> http.client.HTTPSConnection:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(address, context=context, timeout=60)


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(str, _flood(sys.argv[1]))))
