"""Changes of pods, written into etcd beside the API server: more events than it could write itself.

Lists and watches are the real ones. On two cores the API server makes about 350 changes per second; etcd
takes thousands, and the API server sends each as an event to all who watch.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.request
from collections.abc import Sequence

from bayplan.backends.remote.kubeconfig import load
from tests.benchmarks.gang_load import NAMESPACE, PODS, ask_all
from tools.controlplane.cluster import Cluster

PODS_CHANGED = 2000
CONNECTIONS = 8
BLANK = "00000000"
"""The value of an annotation, which is replaced by another one of the same length."""


Stored = tuple[bytes, bytes]
"""The key of an object in etcd, and its value."""


def changeable(cluster: Cluster, names: Sequence[str]) -> list[Stored]:
    """Some of these pods, with an annotation that can be changed."""
    names = names[:PODS_CHANGED]
    blank = {"metadata": {"annotations": {"bench": BLANK}}}
    ask_all(load(cluster.kubeconfig, None), [("PATCH", f"{PODS}/{name}", blank) for name in names])
    keys = [f"/registry/pods/{NAMESPACE}/{name}".encode() for name in names]
    return [(key, _stored(cluster.ports["etcd"], key)) for key in keys]


def change(cluster: Cluster, pods: Sequence[Stored], rate: int, seconds: float) -> float:
    """Change the annotation of pods in turn, so many a second; how many a second it were."""
    count, began = int(rate * seconds), time.monotonic()
    asyncio.run(_put_all(cluster.ports["etcd"], pods, count, rate))
    return count / (time.monotonic() - began)


def _stored(port: int, key: bytes) -> bytes:
    """An object as the API server has written it."""
    body = json.dumps({"key": base64.b64encode(key).decode()}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/v3/kv/range", body, timeout=30) as answer:
        (found,) = json.loads(answer.read())["kvs"]
    value = base64.b64decode(found["value"])
    assert value.count(BLANK.encode()) == 1, key
    return value


async def _put_all(port: int, stored: Sequence[Stored], count: int, rate: int) -> None:
    numbers, start = iter(range(count)), asyncio.get_running_loop().time()

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            await asyncio.sleep(start + number / rate - asyncio.get_running_loop().time())
            key, value = stored[number % len(stored)]
            writer.write(_request(key, value.replace(BLANK.encode(), b"%08d" % number)))
            await _answered(reader)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work())


def _request(key: bytes, value: bytes) -> bytes:
    put = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    body = json.dumps(put).encode()
    return b"POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def _answered(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], head
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(lengths[0].partition(b":")[2]))
