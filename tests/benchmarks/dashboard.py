"""`make bench-dashboard`: pages at 100,000 hosts, memory, streams, what they cost the loop, a node that dies.

The picture is measured in Chromium with software rendering: it needs no GPU. Everything runs on one machine,
so pages, streams and server share its cores; steps of the loop are measured in CPU time of its thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import numpy as np

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.cli.running.dashboard_process import DashboardProcess
from bayplan.dashboard.host_map import LAYERS, GangKey, HostMap, Layout, Level
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.server import DashboardServer
from bayplan.dashboard.snapshot import DashboardSnapshot, GangEntry
from bayplan.dashboard.views import ALL
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.runtime.core.clock import SystemClock
from tests.support.listening import free_address

HOSTS, RACKS, RACK_HOSTS = 100_000, 32, 32
GANGS = 10_000
CHANGED = 1_000  # hosts in a second
STREAMS = 50
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""Users: each may have 20 streams."""
FIRST_S, PAYLOAD_BYTES, FRAME_MS, CORE, LOOP, DIES_S = 2.0, 1_000_000, 16.0, 0.10, 0.05, 2.0
MEMORY, EVENTS = 0.05, 10_000
LOOP_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, and what it may be at most."""

    title: str
    value: float
    limit: float
    unit: str

    def __str__(self) -> str:
        fits = "within" if self.value <= self.limit else "ABOVE"
        return f"{self.title:52} {self.value:12,.2f} {self.unit:6} {fits} {self.limit:,g}"


class NoAnswers:
    """Nothing is asked of it."""

    def explain(self, key: GangKey) -> None:
        return None

    def plan(self, manifests: str, may_see: Any) -> dict[str, Any]:
        return {}


class World:
    """Hosts and gangs that change at a steady rate."""

    def __init__(self, hosts: int, gangs: int) -> None:
        racks, rows = range(0, hosts, RACK_HOSTS), range(0, hosts, RACK_HOSTS * RACKS)
        levels = (
            Level("block", tuple(f"b{n:03d}" for n in range(len(rows))), tuple(rows)),
            Level("rack", tuple(f"r{n:05d}" for n in range(len(racks))), tuple(racks)),
        )
        self.layout = Layout("dc", tuple(f"host-{n:06d}" for n in range(hosts)), levels)
        self.random = np.random.default_rng(7)
        self.layers = {name: np.zeros(hosts, kind) for name, kind in LAYERS.items()}
        self.layers["total"][:] = 8
        self.layers["flags"][:] = 3
        self.layers["gang"][:] = self.random.integers(0, gangs + 1, hosts)
        self.gangs = {}
        for n in range(1, gangs + 1):
            key = GangKey("team", "Job", f"gang-{n}")
            record = {"namespace": "team", "kind": "Job", "name": key.name, "state": "running", "pods": 10}
            self.gangs[n] = GangEntry(n, key, record)
        self.now = 0.0

    def snapshot(self) -> DashboardSnapshot:
        self.now += 1.0
        frozen = {name: layer.copy() for name, layer in self.layers.items()}
        return DashboardSnapshot(self.now, (HostMap(self.layout, "gpu", frozen, {}),), self.gangs)

    def change(self, count: int) -> None:
        hosts = self.random.integers(0, len(self.layout.hosts), count)
        self.layers["free"][hosts] = self.random.integers(0, 9, count)
        self.layers["gang"][hosts] = self.random.integers(0, len(self.gangs) + 1, count)


@contextmanager
def changing(hub: SnapshotHub, world: World) -> Iterator[None]:
    """A thousand hosts change every second, in four parts."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.25):
            world.change(CHANGED // 4)
            hub.publish(world.snapshot())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def pages(seconds: float, hosts: int) -> Iterator[Figure]:
    """The size of what a page reads, its first picture, and its frames while hosts change."""
    from playwright.sync_api import sync_playwright

    world, hub = World(hosts, GANGS), SnapshotHub()
    hub.publish(world.snapshot())
    state, layers = hub.state(ALL)[1], hub.layers(1, 0, ALL)
    assert layers is not None
    read = len(gzip.compress(state, 6)) + len(gzip.compress(layers, 6))
    yield Figure("read by a page at first, compressed", read, PAYLOAD_BYTES, "bytes")
    server = DashboardServer(hub, NoAnswers(), free_address())
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        began = time.perf_counter()
        page.goto(server.url)
        while not page.evaluate("() => globalThis.bayplanPicture?.frames.length"):
            time.sleep(0.02)
        yield Figure("first picture", time.perf_counter() - began, FIRST_S, "s")
        with changing(hub, world):
            page.wait_for_timeout(1000)
            page.evaluate("() => { bayplanPicture.frames.length = 0; }")
            before = page.evaluate("() => performance.memory?.usedJSHeapSize || 0")
            page.wait_for_timeout(1000 * seconds)
            frames = sorted(page.evaluate("() => bayplanPicture.frames"))
            after = page.evaluate("() => performance.memory?.usedJSHeapSize || 0")
        print(
            f"  {len(frames)} frames in {seconds:.0f} s; heap {before / 2**20:.0f} → {after / 2**20:.0f} MiB"
        )
        yield Figure(
            "script time of a frame, p95", frames[int(0.95 * len(frames))] if frames else 1e9, FRAME_MS, "ms"
        )
        browser.close()
    server.stop()


def memory(events: int, hosts: int) -> Iterator[Figure]:
    """Whether server and page keep more after many events than after the first tenth of them."""
    from playwright.sync_api import sync_playwright

    world, hub = World(hosts, GANGS), SnapshotHub()
    hub.publish(world.snapshot())
    server = DashboardServer(hub, NoAnswers(), free_address())
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"],
        )
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.goto(server.url)
        page.wait_for_function("() => globalThis.bayplanPicture?.frames.length")
        used = []
        for count in (events // 10, events - events // 10):
            for _ in range(count):
                world.change(100)
                hub.publish(world.snapshot())
                time.sleep(0.002)
            page.wait_for_function(f"() => bayplanCluster.version >= {hub.version}", timeout=60_000)
            gc.collect()
            heap = page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize; }")
            used.append((heap, _resident()))
            page_heap, kept = heap / 2**20, used[-1][1]
            print(f"  version {hub.version:,}: heap of the page {page_heap:.1f} MiB, server {kept:.0f} MiB")
        browser.close()
    server.stop()
    yield Figure("page memory after all events, change", used[1][0] / used[0][0] - 1.0, MEMORY, "parts")
    yield Figure("server memory after all events, change", used[1][1] / used[0][1] - 1.0, MEMORY, "parts")


def _resident() -> float:
    """The memory of this process in MiB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def follow(url: str, count: int, seconds: float) -> int:
    """Read so many streams; returns how many bytes came."""
    read = 0

    async def one(session: aiohttp.ClientSession) -> None:
        nonlocal read
        async with session.get(f"{url}api/v1/stream") as answer:
            async for chunk in answer.content.iter_any():
                read += len(chunk)

    async with AsyncExitStack() as opened:
        sessions = []
        for address in ADDRESSES:
            connector = aiohttp.TCPConnector(limit=0, local_addr=(address, 0))
            forever = aiohttp.ClientTimeout(None)
            sessions.append(
                await opened.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=forever))
            )
        tasks = [asyncio.create_task(one(sessions[n % len(sessions)])) for n in range(count)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), "every stream was open to the end"
    return read


def reader(url: str, count: int, seconds: float) -> subprocess.Popen[bytes]:
    """Streams in a process of their own, which prints how many bytes came."""
    called = f"print(asyncio.run(follow({url!r}, {count}, {seconds})))"
    text = f"import asyncio; from tests.benchmarks.dashboard import follow; {called}"
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)


def streams(seconds: float, hosts: int) -> Iterator[Figure]:
    """The CPU time of the server with all streams, above the one without any."""
    world, hub = World(hosts, GANGS), SnapshotHub()
    hub.publish(world.snapshot())
    used = []
    server = DashboardServer(hub, NoAnswers(), free_address())
    with changing(hub, world):
        for count in (0, STREAMS):
            reading = reader(server.url, count, seconds)
            time.sleep(2.0)
            began = time.process_time(), time.perf_counter()
            time.sleep(max(1.0, seconds - 4.0))
            spent, passed = time.process_time() - began[0], time.perf_counter() - began[1]
            used.append(spent / passed)
            out, _ = reading.communicate()
            print(f"  {count} streams: {100 * used[-1]:.1f} % of a core, {int(out):,} bytes read")
    server.stop()
    yield Figure(f"{STREAMS} streams, of one core", used[1] - used[0], CORE, "cores")


def loop(seconds: float) -> Iterator[Figure]:
    """Steps of a loop while nodes change, without a dashboard and with all streams; then a node dies."""
    with TemporaryDirectory() as folder:
        cluster = LocalCluster(ClusterShape(10, 10, 10, 8), SystemClock())
        cluster.start(Path(folder) / "kubeconfig")
        times: list[float] = []
        step = cluster.loop.step

        def measured(now: float) -> float:
            began = time.thread_time()
            due = step(now)
            times.append(time.thread_time() - began)
            return due

        cluster.loop.step = measured  # type: ignore[method-assign]
        try:
            yield from _loop(cluster, Path(folder) / "kubeconfig", times, seconds)
        finally:
            cluster.stop()


def _loop(cluster: LocalCluster, kubeconfig: Path, times: list[float], seconds: float) -> Iterator[Figure]:
    """Phases alternate, and the steps of each kind are counted together: one phase has too few slow steps."""
    numbers = itertools.count()

    def steps() -> list[float]:
        times.clear()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            _cordon(cluster, next(numbers))
            time.sleep(0.02)
        return list(times)

    time.sleep(5.0)
    alone: list[list[float]] = []
    observed: list[list[float]] = []
    dies = float("inf")
    for number in range(LOOP_ROUNDS):
        alone.append(steps())
        with _dashboard(kubeconfig, seconds) as url:
            observed.append(steps())
            dies = asyncio.run(_dies(cluster, url, f"b10-r10-h{10 - number:02d}"))
    texts = [", ".join(f"{1000 * _p99(one):.2f}" for one in some) for some in (alone, observed)]
    print(f"  p99 of a step in ms of CPU time: {texts[0]} alone, {texts[1]} with streams")
    change = _p99(list(itertools.chain(*observed))) / _p99(list(itertools.chain(*alone))) - 1.0
    yield Figure("the loop's step p99 with streams, change", change, LOOP, "parts")
    yield Figure("a node that dies is sent to pages", dies, DIES_S, "s")


@contextmanager
def _dashboard(kubeconfig: Path, seconds: float) -> Iterator[str]:
    """The address of a dashboard in a process of its own, with all streams open."""
    options = ("--kubeconfig", str(kubeconfig))
    process = DashboardProcess(free_address(), options, is_quiet=True, is_lazy=True)
    try:
        attached = reader(process.url, STREAMS, seconds + 20.0)
        while not _answers(process.url):
            time.sleep(0.5)
        yield process.url
        print(f"  {int(attached.communicate()[0]):,} bytes read by {STREAMS} streams")
        assert attached.returncode == 0
    finally:
        process.stop()


def _p99(steps: list[float]) -> float:
    return statistics.quantiles(steps, n=100)[98]


def _answers(url: str) -> bool:
    """Whether the dashboard has read the cluster."""
    try:
        with urllib.request.urlopen(f"{url}api/v1/state", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _cordon(cluster: LocalCluster, number: int) -> None:
    name = f"b{number % 10 + 1:02d}-r{number // 10 % 10 + 1:02d}-h{number // 100 % 10 + 1:02d}"
    with cluster.lock:
        cluster.store.patch(NODES, "", name, {"spec": {"unschedulable": number // 1000 % 2 == 0}})


async def _dies(cluster: LocalCluster, url: str, name: str) -> float:
    """From the write of the condition until the stream of a page has the host with other flags."""
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}api/v1/state") as answer:
            cursor = answer.headers["Bayplan-Cursor"]
            host = (await answer.json())["maps"][0]["hosts"].index(name)
        async with session.get(f"{url}api/v1/stream", params={"since": cursor}) as stream:
            began = time.perf_counter()
            with cluster.lock:
                status = {"status": {"conditions": [condition]}}
                cluster.store.patch(NODES, "", name, status, subresource="status")
            async for line in stream.content:
                if line.startswith(b"data: ") and _is_dead(line[6:], host):
                    return time.perf_counter() - began
    return float("inf")


def _is_dead(data: bytes, host: int) -> bool:
    found = (json.loads(data).get("maps") or [None])[0]
    return bool(found) and host in found["hosts"] and not found["flags"][found["hosts"].index(host)] & 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--events", type=int, default=EVENTS, help="for the measurement of memory")
    parser.add_argument("--only", choices=("pages", "memory", "streams", "loop"))
    chosen = parser.parse_args()
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "pages": lambda: pages(chosen.seconds, chosen.hosts),
        "memory": lambda: memory(chosen.events, chosen.hosts),
        "streams": lambda: streams(chosen.seconds, chosen.hosts),
        "loop": lambda: loop(chosen.seconds),
    }
    figures = []
    for name, part in parts.items():
        if chosen.only in (None, name):
            for figure in part():
                print(figure, flush=True)
                figures.append(figure)
    sys.exit(any(one.value > one.limit for one in figures))


if __name__ == "__main__":
    main()
