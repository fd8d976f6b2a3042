"""`make bench-cli`: what `explain` and `list` take at 10,000 nodes, beside a bare loop of the lists."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.live.state import pages
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kueue.names import api_kinds
from tests.benchmarks.cli_server import POOL
from tests.support.api_objects import container, job

ROOT = Path(__file__).resolve().parents[2]
NODES_COUNT, JOBS_COUNT, JOB_PODS = 10_000, 8, 300
WALL_SECONDS, CPU_SECONDS, HELP_CPU_SECONDS = 2.0, 2.0, 0.3
START_SECONDS = 300.0
BLOCK = "topology.bayplan.dev/block"
QUEUE = "team"
BARE, HELP = "the bare loop", "--help"
RESOURCES = {"cpu": "1", "nvidia.com/gpu": "8"}


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds that a process took: on the clock, and of CPU."""

    wall: float
    cpu: float


def block_job(name: str, pods: int, how: str, **asks: str) -> dict[str, Any]:
    """A Job in the queue; without `how` in none."""
    requests = RESOURCES | asks
    labels = {"kueue.x-k8s.io/queue-name": QUEUE} if how else None
    notes = {"annotations": {f"kueue.x-k8s.io/podset-{how}-topology": BLOCK}} if how else {}
    spec = {
        "restartPolicy": "Never",
        "schedulerName": "bayplan",
        "containers": [container(requests, requests)],
    }
    template = {"metadata": notes, "spec": spec}
    counts: dict[str, Any] = {"completionMode": "Indexed", "suspend": bool(how)}
    return job(name, template, pods, namespace="default", labels=labels, **counts)


def objects() -> Iterator[tuple[Kind, dict[str, Any]]]:
    """A queue with room for all, gangs that run, one that is too big, and one without a queue."""
    quotas = [{"name": name, "nominalQuota": 10_000_000} for name in RESOURCES]
    group = {"coveredResources": [*RESOURCES], "flavors": [{"name": "all", "resources": quotas}]}
    for kind, spec in (
        (api_kinds.FLAVORS, {"topologyName": "data-centre", "nodeLabels": POOL}),
        (api_kinds.CLUSTER_QUEUES, {"namespaceSelector": {}, "resourceGroups": [group]}),
        (api_kinds.LOCAL_QUEUES, {"clusterQueue": QUEUE}),
    ):
        name = "all" if kind is api_kinds.FLAVORS else QUEUE
        meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
        yield kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    for number in range(JOBS_COUNT):
        yield JOBS, block_job(f"run{number}", JOB_PODS, "preferred")
    yield JOBS, block_job("toobig", 1100, "required")
    yield JOBS, block_job("plainbig", 2, "", cpu="200")


@contextmanager
def cluster() -> Iterator[Path]:
    """A cluster with the objects in it, once the gangs that fit have their nodes; gives its kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, log = Path(folder) / "config", Path(folder) / "log"
        options = ["up", "--no-mix", "--nodes", str(NODES_COUNT), "--kubeconfig", str(kubeconfig)]
        options += ["--for", "36000"]
        with log.open("wb") as out:
            command = [sys.executable, "-m", "tests.benchmarks.cli_server", *options]
            server = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        try:
            backend = _reached(kubeconfig, server)
            try:
                _filled(backend)
            finally:
                backend.close(0)
            yield kubeconfig
        finally:
            server.terminate()
            server.wait()


def _filled(backend: RemoteBackend) -> None:
    for kind, one in objects():
        path = kind.path("default" if kind.namespaced else "")
        status, body = backend.request("POST", path, json.dumps(one).encode(), 60.0)
        assert status == 201, body
    _until_bound(backend, JOBS_COUNT * JOB_PODS)


def _reached(kubeconfig: Path, server: subprocess.Popen[bytes]) -> RemoteBackend:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            if kubeconfig.exists():
                return connect(kubeconfig, "bayplan")
        except ApiError:
            pass
        time.sleep(0.5)
    raise SystemExit("the cluster in memory did not start")


def _until_bound(backend: RemoteBackend, wanted: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        pods = [pod for page in pages(backend, PODS_KIND) for pod in page]
        if sum(bool(pod.spec.node_name) for pod in pods) >= wanted and len(pods) > wanted:
            return
        time.sleep(1.0)
    raise SystemExit(f"not all of {wanted} pods got a node")


def taken(command: list[str]) -> Taken:
    """What a process took; its output is not looked at, but it must end well."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, (command, ran.stderr)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> int:
    """Measure, print a table, and say what was missed."""
    parser = argparse.ArgumentParser(prog="cli", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with cluster() as kubeconfig:
        return _measured(kubeconfig, rounds)


def _measured(kubeconfig: Path, rounds: int) -> int:
    reach = ["--kubeconfig", str(kubeconfig), "--context", "bayplan"]
    commands = {
        BARE: ["-m", "tests.benchmarks.cli_bare", str(kubeconfig)],
        "explain, a gang in a queue": ["-m", "bayplan", "explain", "toobig", *reach],
        "explain, a gang without a queue": ["-m", "bayplan", "explain", "plainbig", *reach],
        "list gangs": ["-m", "bayplan", "list", "gangs", *reach],
        "list topologies": ["-m", "bayplan", "list", "topologies", *reach],
        HELP: ["-m", "bayplan", "--help"],
    }
    found: dict[str, list[Taken]] = {title: [] for title in commands}
    for _ in range(rounds):  # in turn, so that a busy moment of the machine meets all of them
        for title, command in commands.items():
            found[title].append(taken(command))
    least = min(one.cpu for one in found[BARE])
    pods = JOBS_COUNT * JOB_PODS
    print(f"{NODES_COUNT:,} nodes, {pods:,} pods: least seconds of {rounds} runs, × the bare loop")
    good = True
    for title, runs in found.items():
        wall, cpu = min(one.wall for one in runs), min(one.cpu for one in runs)
        line = f"{title:32} clock {wall:6.2f}  CPU {cpu:6.2f}  × {cpu / least:4.1f}"
        if title != BARE:
            cpu_limit = HELP_CPU_SECONDS if title == HELP else CPU_SECONDS
            met = cpu <= cpu_limit and wall <= WALL_SECONDS
            line += f"  clock ≤ {WALL_SECONDS:g}, CPU ≤ {cpu_limit:g} {'met' if met else 'MISSED'}"
            good &= met
        print(line)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
