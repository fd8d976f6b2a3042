"""`python -m tests.benchmarks.backends_remote`: the cost of lists, watches and binds."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
from msgspec import Struct

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.backends.remote.reflector import WatchTimeouts
from bayplan.backends.remote.tls import tls_context
from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write
from tests.benchmarks.backends_remote_server import prepared_server

LIST_CPU_MAX, WATCH_RATE_MIN, BIND_MS_MAX, BIND_SHARE_MIN = 0.5, 20_000, 0.5, 0.9
IN_FLIGHT = 64
NAMESPACE = f"bayplan-bench-{os.getpid()}"


# ── what is read ───────────────────────────────────────────────────────────────────────────────────


class Meta(Struct, gc=False, rename="camel"):
    name: str
    uid: str
    resource_version: str
    labels: dict[str, str] = {}


class Taint(Struct, gc=False):
    key: str
    effect: str
    value: str = ""


class Spec(Struct, gc=False):
    taints: list[Taint] = []
    unschedulable: bool = False


class Condition(Struct, gc=False):
    type: str
    status: str


class Status(Struct, gc=False):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class Node(Struct, gc=False):
    metadata: Meta
    spec: Spec
    status: Status


NODES = Kind("", "v1", "Node", "nodes", namespaced=False, wire=Node)
PODS = Kind("", "v1", "Pod", "pods")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)


# ── measurements ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the clock and of our processor, for so many of something."""

    count: int
    wall: float
    cpu: float


def spent(count: int, act: Callable[[], None]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Spent(count, time.perf_counter() - wall, time.process_time() - cpu)


def until(backend: RemoteBackend, enough: Callable[[Event], bool]) -> int:
    """Take events as the loop would, until one is enough; how many there were."""
    count = 0
    while True:
        backend.wait(5)
        for event in backend.events():
            count += 1
            if enough(event):
                return count


def measure_list(access: Access, kind: Kind, nodes: int, *, streams: bool) -> Spent:
    """Everything from the first byte asked for to the last event taken, connection and thread included."""

    def act() -> None:
        backend = RemoteBackend(access, patience=WatchTimeouts(stream_lists=streams))
        backend.watch([kind])
        assert until(backend, lambda event: event.happened is Happened.SYNCED) == nodes + 1
        backend.close(0)

    return spent(nodes, act)


def measure_watch(access: Access, nodes: int, events: int) -> Spent:
    """Events of a watch, from the moment that the list is complete."""
    last = str(nodes + 1 + events)
    kind = replace(NODES, label_selector="events")
    backend = RemoteBackend(access, patience=WatchTimeouts(stream_lists=False))
    backend.watch([kind])
    until(backend, lambda event: event.happened is Happened.SYNCED)
    try:
        return spent(events, lambda: void(until(backend, lambda event: event.version == last)))
    finally:
        backend.close(0)


def void(_: object) -> None:
    """Drop a value."""


def measure_binds(backend: RemoteBackend, names: list[str]) -> Spent:
    """Binds through the backend, each with its outcome taken."""
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "bench-nowhere"}}
    writes = [Write(Verb.CREATE, PODS, NAMESPACE, name, target, "binding") for name in names]

    return spent(len(names), lambda: write(backend, writes))


def measure_bare(access: Access, names: list[str]) -> Spent:
    """The same binds by an aiohttp session and nothing else: the mark to compare with."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "bench-nowhere"}
    waiting = iter(names)

    async def greet(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{access.server}/version") as answer:
            await answer.read()

    async def worker(session: aiohttp.ClientSession) -> None:
        for name in waiting:
            metadata = {"name": name, "namespace": NAMESPACE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
            url = f"{access.server}/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"
            async with session.post(url, data=json.dumps(binding).encode()) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()

    async def run() -> Spent:
        tls = tls_context(access, access.certificate)
        assert tls is not None
        connector = aiohttp.TCPConnector(ssl=tls, limit=IN_FLIGHT)
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            await asyncio.gather(*(greet(session) for _ in range(IN_FLIGHT)))  # connections are there already
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(worker(session) for _ in range(IN_FLIGHT)))
            return Spent(len(names), time.perf_counter() - wall, time.process_time() - cpu)

    return asyncio.run(run())


# ── the run ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target beside what was measured."""

    subject: str
    measured: str
    target: str = ""
    met: bool | None = None


def reading(nodes: int, events: int, rounds: int) -> Iterator[Verdict]:
    """Lists and watches, from a server that is never the bottleneck."""
    with prepared_server(nodes, events) as access:
        kinds = ((NODES, "declared fields"), (replace(NODES, wire=None), "whole objects"))
        for kind, what in kinds:
            for streams in (False, True):
                runs = [measure_list(access, kind, nodes, streams=streams) for _ in range(rounds)]
                best = min(run.cpu for run in runs)
                how = "streamed" if streams else "in pages"
                told = f"{best:.2f} s CPU, {min(run.wall for run in runs):.2f} s"
                aim = (f"≤ {LIST_CPU_MAX:g} s CPU", best <= LIST_CPU_MAX) if kind.wire else ("", None)
                yield Verdict(f"list of {nodes:,} nodes, {how}, {what}", told, *aim)
        followed = [measure_watch(access, nodes, events) for _ in range(rounds)]
        cost = min(run.cpu / run.count for run in followed)
        for what, rate in (("CPU", 1 / cost), ("the clock", max(run.count / run.wall for run in followed))):
            told = f"{rate:,.0f} events/s" + (f", {cost * 1e6:.0f} µs CPU each" if what == "CPU" else "")
            yield Verdict(f"watch, by {what}", told, f"≥ {WATCH_RATE_MIN:,}/s", rate >= WATCH_RATE_MIN)


def binding(access: Access, server: str, rounds: int, batch: int, *, create: bool) -> Iterator[Verdict]:
    """Binds through the backend and through a bare session, in turns."""
    backend = RemoteBackend(access, in_flight_max=IN_FLIGHT)
    made: list[str] = []
    try:
        mine, bare = [], []
        for number in range(rounds + 1):
            names = [f"p{number}-{index}" for index in range(2 * batch)]
            if create:
                made += names
                make_pods(backend, names)
            else:
                measure_binds(backend, names[:IN_FLIGHT])
            if number % 2:
                mine.append(measure_binds(backend, names[:batch]))
            bare.append(measure_bare(access, names[batch:]))
            if not number % 2:
                mine.append(measure_binds(backend, names[:batch]))
        mine, bare = mine[1:], bare[1:]  # the first round warms up
    finally:
        if create:
            backend.submit([Write(Verb.DELETE, PODS, NAMESPACE, name, grace_seconds=0) for name in made])
            backend.submit([Write(Verb.DELETE, NAMESPACES, "", NAMESPACE)])
        backend.close(60)
    cost = min(run.cpu / run.count for run in mine) * 1e3
    other = min(run.cpu / run.count for run in bare) * 1e3
    told = f"{cost:.2f} ms CPU each (bare {other:.2f} ms)"
    yield Verdict(f"binds, {server}", told, f"≤ {BIND_MS_MAX:g} ms CPU", cost <= BIND_MS_MAX)
    rates = [run.count / run.wall for run in mine], [run.count / run.wall for run in bare]
    share = statistics.median(ours / theirs for ours, theirs in zip(*rates, strict=True))
    told = f"{max(rates[0]):,.0f}/s, bare {max(rates[1]):,.0f}/s: {share:.0%} (median of {rounds})"
    yield Verdict(f"binds, {server}", told, f"≥ {BIND_SHARE_MIN:.0%} of bare", share >= BIND_SHARE_MIN)


def make_pods(backend: RemoteBackend, names: list[str]) -> None:
    """Pods that nobody schedules, on a server that works for its answers."""
    write(backend, [Write(Verb.APPLY, NAMESPACES, "", NAMESPACE)])
    spec = {"schedulerName": "by-hand", "containers": [{"name": "main", "image": "none"}]}
    write(backend, [Write(Verb.CREATE, PODS, NAMESPACE, name, {"spec": spec}) for name in names])


def write(backend: RemoteBackend, writes: list[Write]) -> None:
    backend.submit(writes)
    left = len(writes)
    while left:
        backend.wait(5)
        for outcome in backend.outcomes():
            left -= 1
            assert outcome.ended is Ended.DONE, outcome


@contextmanager
def api_server() -> Iterator[tuple[Access, str] | None]:
    """A real kube-apiserver: the one that runs (BAYPLAN_CLUSTER), or one for the occasion if it is built."""
    from tools.controlplane.build import unavailable
    from tools.controlplane.cluster import attach
    from tools.controlplane.plan import DEFAULT_KUBE
    from tools.controlplane.start import control_plane

    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if running := os.environ.get("BAYPLAN_CLUSTER"):
        cluster = attach(Path(running))
        yield load(cluster.kubeconfig), f"kube-apiserver {cluster.kube}"
    elif reason := unavailable(kube):
        print(f"Skipped the real kube-apiserver: {reason}")
        yield None
    else:
        with control_plane(kube) as cluster:
            yield load(cluster.kubeconfig), f"kube-apiserver {kube}"


def main() -> int:
    """Measure and print; the exit status tells whether every target was met."""
    parser = argparse.ArgumentParser(prog="backends_remote", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--binds", type=int, default=150, help="in one round of many")
    options = parser.parse_args()
    found: list[Verdict] = []

    def tell(verdicts: Iterator[Verdict]) -> None:
        for verdict in verdicts:
            found.append(verdict)
            word = "" if verdict.met is None else "met" if verdict.met else "missed"
            print(
                f"{verdict.subject:<52} {verdict.measured:<52} {verdict.target:<18} {word}".rstrip(),
                flush=True,
            )

    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    tell(reading(options.nodes, options.events, options.rounds))
    with prepared_server(1, 1) as access:
        tell(binding(access, "prepared answers", 3 * options.rounds, options.binds, create=False))
    with api_server() as real:
        if real:
            tell(binding(*real, 3 * options.rounds, options.binds, create=True))
    return 1 if any(verdict.met is False for verdict in found) else 0


if __name__ == "__main__":
    sys.exit(main())
