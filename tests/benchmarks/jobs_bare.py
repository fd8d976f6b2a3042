"""The mark to compare with: each pod is patched as it appears, by an HTTP session that decides nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import aiohttp
import msgspec
from msgspec import Struct

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.decoding import LineReader
from bayplan.backends.remote.kubeconfig import load
from bayplan.backends.remote.request import MANAGER, MERGE_PATCH
from tests.benchmarks.bare_connections import Ask, bare_connections, bare_watch

IN_FLIGHT = 64
INDEX = "batch.kubernetes.io/job-completion-index"
Selectors = dict[str, dict[str, str]]
"""The node selector of each pod, by its index."""


class Meta(Struct, gc=False):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]


class Pod(Struct, gc=False):
    metadata: Meta


class Line(Struct, gc=False):
    type: str
    object: Pod


@contextmanager
def bare_loop(kubeconfig: Path, job: str, selectors: Selectors, folder: Path) -> Iterator[Popen[str]]:
    """A process of its own that watches and is connected; it ends when every pod was patched."""
    wishes = folder / f"{job}.json"
    wishes.write_text(json.dumps(selectors))
    command = [sys.executable, "-m", "tests.benchmarks.jobs_bare", str(kubeconfig), job, str(wishes)]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "the bare loop did not start"
            yield process
        finally:
            process.kill()


def main() -> None:
    """Say when ready; at the end, how many seconds of CPU the pods took."""
    kubeconfig, job, wishes = sys.argv[1:]
    selectors: Selectors = json.loads(Path(wishes).read_text())
    asyncio.run(_patch_all(load(Path(kubeconfig)), job, selectors))


async def _patch_all(access: Access, job: str, selectors: Selectors) -> None:
    pods: asyncio.Queue[Meta] = asyncio.Queue()
    path = f"/api/v1/pods?watch=true&labelSelector=batch.kubernetes.io/job-name={job}"
    async with bare_watch(access, path) as stream, bare_connections(access, IN_FLIGHT) as ask:
        print("ready", flush=True)
        before = time.process_time()
        async with asyncio.TaskGroup() as group:  # one that fails ends them all
            workers = [group.create_task(_work(ask, pods, selectors)) for _ in range(IN_FLIGHT)]
            await _hand_out(stream, pods, len(selectors))
            await pods.join()
            print(time.process_time() - before, flush=True)
            for worker in workers:
                worker.cancel()


async def _hand_out(stream: aiohttp.ClientResponse, pods: asyncio.Queue[Meta], count: int) -> None:
    """Every pod once, as soon as the server tells of it."""
    lines, read = LineReader(), msgspec.json.Decoder(Line).decode
    async for chunk in stream.content.iter_any():
        for line in filter(None, lines.feed(chunk)):
            event = read(line)
            if event.type == "ADDED":
                pods.put_nowait(event.object.metadata)
                count -= 1
        if not count:
            return
    raise AssertionError(f"the watch ended before the last {count} pods")


async def _work(ask: Ask, pods: asyncio.Queue[Meta], selectors: Selectors) -> None:
    while True:
        pod = await pods.get()
        spec = {"schedulingGates": [], "nodeSelector": selectors[pod.labels[INDEX]]}
        body = msgspec.json.encode({"metadata": {"uid": pod.uid}, "spec": spec})
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}?fieldManager={MANAGER}"
        answer = await ask("PATCH", path, body, MERGE_PATCH)
        assert answer.status == 200, answer.body
        pods.task_done()


if __name__ == "__main__":
    main()
