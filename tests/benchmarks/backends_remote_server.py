"""A TLS server for benchmarks that sends prepared nodes and events, in a process of its own."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bayplan.backends.remote.access import Access, InlineOrFile
from tests.support.listening import free_address
from tools.controlplane import certs

ROOT = Path(__file__).resolve().parents[2]
NODE_BYTES = 4590
PIECE = 1 << 16
BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


def full_size_node(number: int) -> dict[str, Any]:
    """A node of the usual size: 16 labels, 6 resources, 5 conditions, managed fields, images."""
    name = f"node-{number:05d}"
    labels = {
        f"topology.example.com/level-{level}": f"domain-{level}-{number >> level}" for level in range(15)
    }
    amounts = {
        "cpu": "64",
        "memory": "527951872Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "1Ti",
    }
    conditions = [
        {"type": kind, "status": "False", "reason": "Kubelet", "message": "kubelet is posting ready status"}
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    ]
    found: dict[str, Any] = {
        "metadata": {
            "name": name,
            "uid": f"0000-{number:08d}",
            "resourceVersion": str(number + 1),
            "labels": {"kubernetes.io/hostname": name, **labels},
            "managedFields": "",
        },
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions},
    }
    lacking = NODE_BYTES - len(msgspec.json.encode(found))
    found["metadata"]["managedFields"] = "x" * max(lacking, 0)
    return found


class Prepared(asyncio.Protocol):
    """Answers lists, streamed lists, watches and binds from memory, as fast as the other side can read."""

    def __init__(self, items: list[bytes], listed: bytes, events: bytes) -> None:
        self._items, self._listed, self._events = items, listed, events
        self._rest, self._paused = b"", False
        self._unsent: deque[memoryview] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].decode().split("\r\n")
            lengths = [int(line[15:]) for line in head if line.lower().startswith("content-length:")]
            after = end + 4 + sum(lengths)
            if len(self._rest) < after:
                return
            self._rest = self._rest[after:]
            self._answer(*head[0].split(" ", 2)[:2])

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def _answer(self, method: str, path: str) -> None:
        asked = dict(part.split("=", 1) for part in path.partition("?")[2].split("&") if "=" in part)
        if method == "POST":
            self._send(b"HTTP/1.1 201 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BOUND), BOUND))
        elif "watch" not in asked:
            body = self._page(int(asked.get("limit", "0")), int(asked.get("continue") or 0))
            self._send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        else:
            self._send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self._send(self._listed if "sendInitialEvents" in asked else b"")
            self._send(self._events if asked.get("labelSelector") == "events" else b"")

    def _page(self, limit: int, start: int) -> bytes:
        end = start + limit if limit else len(self._items)
        token = b',"continue":"%d"' % end if end < len(self._items) else b""
        head = b'{"kind":"NodeList","metadata":{"resourceVersion":"%d"%b},"items":['
        return head % (len(self._items), token) + b",".join(self._items[start:end]) + b"]}"

    def _send(self, text: bytes) -> None:
        self._unsent.extend(memoryview(text)[start : start + PIECE] for start in range(0, len(text), PIECE))
        self._go_on()

    def _go_on(self) -> None:
        while self._unsent and not self._paused:
            self._transport.write(self._unsent.popleft())


def chunked(body: bytes) -> bytes:
    """As a server flushes them: some events at a time."""
    parts = (body[start : start + PIECE] for start in range(0, len(body), PIECE))
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def _mark(version: int, annotations: bytes) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"%b}}}\n' % (version, annotations)


def serve(port: int, folder: Path, nodes: int, events: int) -> None:
    """Run until killed."""
    items = [msgspec.json.encode(full_size_node(number)) for number in range(nodes)]
    lines = []
    for number in range(events):
        changed = full_size_node(number % nodes)
        changed["metadata"]["resourceVersion"] = str(nodes + 2 + number)
        lines.append(b'{"type":"MODIFIED","object":%b}\n' % msgspec.json.encode(changed))
    happened = chunked(b"".join(lines))
    end = _mark(nodes, b',"annotations":{"k8s.io/initial-events-end":"true"}')
    listed = chunked(b"".join(b'{"type":"ADDED","object":%b}\n' % item for item in items) + end)

    async def run() -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Prepared(items, listed, happened), "127.0.0.1", port, ssl=tls
        )
        print("ready", flush=True)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def prepared_server(nodes: int, events: int) -> Iterator[Access]:
    """A process of its own, so that its work is not counted as ours."""
    address = free_address()
    with tempfile.TemporaryDirectory() as name:
        folder, authority = Path(name), certs.make_authority()
        pair = certs.server(authority)
        (folder / "server.crt").write_bytes(pair.certificate)
        (folder / "server.key").write_bytes(pair.key)
        command = [sys.executable, "-m", "tests.benchmarks.backends_remote_server"]
        command += [str(address.port), name, str(nodes), str(events)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                url = f"https://{address.host}:{address.port}"
                yield Access("bench", url, authority=InlineOrFile("ca", data=authority.pem))
            finally:
                process.kill()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
