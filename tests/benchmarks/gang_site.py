"""Two schedulers on one API server, one after the other: started, watched, and their processor time read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec import Struct

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Happened, Kind
from tests.benchmarks.gang_load import ask_all, nodes, priority_class, without_taints
from tests.benchmarks.watched_processes import bayplan_run, cpu_seconds, until
from tools.controlplane import components, processes
from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster
from tools.controlplane.components import Site
from tools.controlplane.plan import CONTROLLERS, JOBSET, KWOK, SCHEDULER, switches

OURS, THEIRS = "bayplan", "kube-scheduler"
LOW, HIGH = "bench-low", "bench-high"
QUIET_SECONDS = 3.0


def furnish(cluster: Cluster, count: int) -> None:
    """Nodes, and nobody but etcd and the API server at work: the rest only takes processor time."""
    access = load(cluster.kubeconfig)
    until(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-n", "default"), "service account")
    for process in cluster.processes:
        if process.name in (KWOK.name, JOBSET.name, CONTROLLERS.name):
            processes.stop(process)
    ask_all(access, list(nodes(count)))
    ask_all(access, list(without_taints(count)))
    ask_all(access, [priority_class(LOW, 10), priority_class(HIGH, 1000)])


class _Condition(Struct, frozen=True, gc=False):
    type: str
    status: str
    reason: str = ""


class _Meta(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    uid: str
    resource_version: str
    namespace: str = ""


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Status(Struct, frozen=True, gc=False):
    conditions: list[_Condition] = []


class _Pod(Struct, frozen=True, gc=False):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(slots=True)
class Watcher:
    """What becomes of pods, and when: seconds since the clock was set."""

    backend: RemoteBackend
    start: float = 0.0
    bound: dict[str, float] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)

    def set_clock(self) -> None:
        self.start = time.perf_counter()

    def until(self, enough: Callable[[Watcher], bool], seconds: float) -> bool:
        """Look until it is enough; False if it was not in time."""
        end = time.perf_counter() + seconds
        while not enough(self):
            if time.perf_counter() > end:
                return False
            self.backend.wait(0.5)
            self._take_in()
        return True

    def _take_in(self) -> None:
        for event in self.backend.events():
            if event.happened is Happened.SYNCED:
                continue
            now, name = time.perf_counter() - self.start, event.object.metadata.name
            if event.happened is Happened.GONE:
                self.gone.setdefault(name, now)
            elif event.object.spec.node_name:
                self.bound.setdefault(name, now)
            elif any(
                c.type == "PodScheduled" and c.reason == "Unschedulable"
                for c in event.object.status.conditions
            ):
                self.refused.setdefault(name, now)


@contextmanager
def watching(cluster: Cluster) -> Iterator[Watcher]:
    """A watch of all pods, complete when the block begins."""
    backend = RemoteBackend(load(cluster.kubeconfig))
    try:
        backend.watch([Kind("", "v1", "Pod", "pods", wire=_Pod, label_selector="bench=yes")])
        until(lambda: any(event.happened is Happened.SYNCED for event in backend.events()), "watch")
        yield Watcher(backend)
    finally:
        backend.close(0)


@dataclass(frozen=True, slots=True)
class Running:
    """A scheduler at work."""

    name: str
    pid: int
    metrics: str = ""

    def cpu(self) -> float:
        return cpu_seconds(self.pid)[1]


@contextmanager
def scheduler(cluster: Cluster, name: str, folder: Path) -> Iterator[Running]:
    """One of the two, started and ready (not necessarily idle)."""
    with _ours(cluster, folder) if name == OURS else _theirs(cluster) as running:
        yield running


@contextmanager
def _ours(cluster: Cluster, folder: Path) -> Iterator[Running]:
    with bayplan_run(cluster, "scheduler", folder / "bayplan.log") as (process, server):
        yield Running(OURS, process.pid, f"{server}/metrics")


@contextmanager
def _theirs(cluster: Cluster) -> Iterator[Running]:
    """kube-scheduler with its default profile, its client's brakes off."""
    site = Site(cluster.state, cluster.ports, switches(cluster.kube))
    arguments = components.scheduler(site)
    plain = cluster.state / "kube-scheduler.json"
    settings = json.loads(plain.read_text()) | {"profiles": [{"schedulerName": THEIRS}]}
    path = cluster.state / "bench-scheduler.json"
    path.write_text(json.dumps(settings))
    arguments = [one for one in arguments if not one.startswith("--config=")] + [f"--config={path}"]
    program = build(cluster.kube, (SCHEDULER,))[SCHEDULER.name]
    log = cluster.state / "logs" / "bench-scheduler.log"
    process = processes.start(THEIRS, [str(program), *arguments], log, os.environ, dies_with_us=True)
    try:
        ready = f"https://127.0.0.1:{cluster.ports[SCHEDULER.name]}/readyz"
        processes.wait_until(partial(components.answers, site, ready), process, 60)
        yield Running(THEIRS, process.pid)
    finally:
        processes.stop(process)
