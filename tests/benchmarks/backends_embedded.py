"""`python -m tests.benchmarks.backends_embedded`: what the cluster in memory sustains.

Seconds are of the processor, so that a busy machine measures the same; the clock stands beside them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.patching.apply import STRATEGIC
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind, Verb, Write

WRITES_MIN, LOAD_SECONDS_MAX, WATCHERS = 5_000, 3.0, 10
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement beside its target."""

    subject: str
    count: int
    cpu: float
    wall: float
    target: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def rate(self) -> float:
        return self.count / self.cpu


def measured(subject: str, count: int, work: Callable[[], object]) -> Figure:
    """How long some work takes."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Figure(subject, count, time.process_time() - cpu, time.perf_counter() - wall)


def empty_store() -> Store:
    """A store whose clock stands still."""
    numbers = itertools.count(1)
    return new_store(lambda: 1.8e9, lambda: f"uid-{next(numbers):08d}", lambda: f"{next(numbers):05x}")


def registered_node(number: int) -> dict[str, Any]:
    """A node as a kubelet registers it: labels, resources, conditions."""
    rack, block = number // 16, number // 256
    labels = {"kubernetes.io/hostname": f"n{number}", "rack": f"r{rack}", "block": f"b{block}"}
    amounts = {"cpu": "96", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [
        {"type": kind, "status": status, "reason": "Fine", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}
        for kind, status in (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"))
    ]
    return {
        "metadata": {"name": f"n{number}", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }


def training_pod(number: int) -> dict[str, Any]:
    """A pod of a training job."""
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": f"p{number}", "labels": {"job": f"j{number // 64}"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train:1", "resources": {"limits": limits}}],
        },
    }


def figures(nodes: int, writes: int) -> list[Figure]:
    """Everything that is measured, in order."""
    store = empty_store()
    found = [loaded(store, nodes), measured(f"list {nodes:,} nodes", nodes, lambda: store.list(NODES))]
    each = written(store, nodes, writes)
    cpu, wall = sum(figure.cpu for figure in each), sum(figure.wall for figure in each)
    count = len(each) * writes
    fast = count / cpu >= WRITES_MIN
    total = Figure("all writes", count, cpu, wall, f"≥ {WRITES_MIN:,}/s", fast, f"{WATCHERS} watchers")
    return [*found, *each, total, through_the_backend(writes)]


def loaded(store: Store, nodes: int) -> Figure:
    """Nodes, and the memory that they take."""
    before = resident()
    figure = measured(
        "", nodes, lambda: [store.create(NODES, registered_node(number)) for number in range(nodes)]
    )
    held = (resident() - before) / 1e6
    return replace(
        figure,
        subject=f"load {nodes:,} nodes",
        target=f"≤ {LOAD_SECONDS_MAX:g} s",
        met=figure.cpu <= LOAD_SECONDS_MAX,
        note=f"{held:.0f} MB, {held * 1e3 / nodes:.1f} kB a node",
    )


def written(store: Store, nodes: int, writes: int) -> list[Figure]:
    """The life of pods, every change of which ten watchers read."""
    watches = [store.watch(PODS) for _ in range(WATCHERS)]
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}

    def create(number: int) -> None:
        store.create(PODS, training_pod(number), "default")

    def bind(number: int) -> None:
        target = {"target": {"name": f"n{number % nodes}"}}
        store.connect(PODS, "default", f"p{number}", "binding", target)

    def run(number: int) -> None:
        store.patch(PODS, "default", f"p{number}", running, STRATEGIC, subresource="status")

    def delete(number: int) -> None:
        store.delete(PODS, "default", f"p{number}")

    def heard(write: Callable[[int], None]) -> None:
        for number in range(writes):
            write(number)
            for watch in watches:
                watch.take()

    named = {"create pods": create, "bind pods": bind, "patch status": run, "delete pods": delete}
    return [measured(subject, writes, partial(heard, write)) for subject, write in named.items()]


def through_the_backend(writes: int) -> Figure:
    """Writes as the loop makes them, with their events read back."""
    store = empty_store()
    backend = EmbeddedBackend(store)
    backend.watch([PODS])
    batch = [
        Write(Verb.CREATE, PODS, "default", f"p{number}", training_pod(number)) for number in range(writes)
    ]

    def work() -> None:
        backend.submit(batch)
        assert len(list(backend.outcomes())) == writes
        assert len(list(backend.events())) == writes + 1

    return measured("create pods through the backend, events read", writes, work)


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 if path.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table; exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.backends_embedded", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--writes", type=int, default=5_000)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args(arguments)
    found = figures(given.nodes, given.writes)
    print(f"{'cluster in memory':46} {'count':>7} {'CPU s':>7} {'clock s':>8} {'per CPU s':>10}  target")
    for figure in found:
        verdict = {True: "reached", False: "MISSED", None: ""}[figure.met]
        line = f"{figure.subject:46} {figure.count:7,} {figure.cpu:7.2f} {figure.wall:8.2f}"
        print(f"{line} {figure.rate:10,.0f}  {figure.target} {verdict} {figure.note}".rstrip())
    if given.json:
        given.json.write_text(json.dumps([asdict(figure) for figure in found], indent=2) + "\n")
    return int(any(figure.met is False for figure in found))


if __name__ == "__main__":
    sys.exit(main())
