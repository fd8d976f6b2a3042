"""The same Workloads on a real API server: `bayplan run` in a process of its own, watched from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kueue.names import api_kinds
from tests.benchmarks.admission_world import NAMESPACE, arrivals, nodes, rules
from tools.controlplane.cluster import Cluster
from tools.controlplane.start import control_plane

COUNT = 1000
READY_SECONDS, RUN_SECONDS = 60.0, 300.0


def measured() -> tuple[float, float, int, str]:
    """Seconds until all were admitted, the share of them our loop was at work, how many, and a remark."""
    with tempfile.TemporaryDirectory() as folder, control_plane(state=Path(folder) / "cluster") as cluster:
        return _measured(cluster, Path(folder))


def _measured(cluster: Cluster, folder: Path) -> tuple[float, float, int, str]:
    cluster.apply(*custom_resources(InstallSettings(roles=("admission",))))
    _until(lambda: "workloads.kueue" in cluster.kubectl("api-resources", "-o", "name"), "definitions")
    cluster.apply(*rules(), *_kept(nodes()))
    log = (folder / "run.log").open("w")
    command = [sys.executable, "-m", "bayplan", "run", "--roles", "admission", "--no-elect"]
    process = subprocess.Popen([*command, "--kubeconfig", str(cluster.kubeconfig)], stdout=log, stderr=log)
    backend = RemoteBackend(load(cluster.kubeconfig, None))
    try:
        time.sleep(8.0)  # it lists 640 nodes and begins to watch
        backend.watch([api_kinds.WORKLOADS])
        before, start = _cpu(process.pid), time.perf_counter()
        admitted = _load(backend)
        seconds = time.perf_counter() - start
        loop, all_threads = (now - then for now, then in zip(_cpu(process.pid), before, strict=True))
    finally:
        process.terminate()
        process.wait(30)
        backend.close()
    each = f"CPU for each {1000 * loop / admitted:.1f} ms in the loop, {1000 * all_threads / admitted:.1f} ms"
    told = f"{each} with the HTTP client: {100 * all_threads / seconds:.0f} % of one core"
    return seconds, 100 * loop / seconds, admitted, told


def _load(backend: RemoteBackend) -> int:
    """Create Workloads, and end each as soon as it is admitted; ours is the only other client."""
    coming = [obj for _, obj, _ in arrivals(share=COUNT / 15_000)]
    backend.submit([_create(obj) for obj in coming])
    left = {obj["metadata"]["name"] for obj in coming}
    end = time.monotonic() + RUN_SECONDS
    while left and time.monotonic() < end:
        backend.wait(1.0)
        for event in backend.events():
            obj = event.object
            if not obj or obj["metadata"]["name"] not in left:
                continue
            conditions = (obj.get("status") or {}).get("conditions") or []
            if any(c["type"] == "Admitted" and c["status"] == "True" for c in conditions):
                left.discard(obj["metadata"]["name"])
                backend.submit([_finish(obj, conditions)])
        list(backend.outcomes())
    assert not left, f"{len(left)} Workloads were not admitted in {RUN_SECONDS:g} s"
    return len(coming)


def _create(obj: dict[str, Any]) -> Write:
    return Write(Verb.CREATE, api_kinds.WORKLOADS, NAMESPACE, obj["metadata"]["name"], obj)


def _finish(obj: dict[str, Any], conditions: list[dict[str, Any]]) -> Write:
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
    over["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    patch = {"status": {"conditions": [*conditions, over]}}
    name = obj["metadata"]["name"]
    return Write(Verb.MERGE_PATCH, api_kinds.WORKLOADS, NAMESPACE, name, patch, subresource="status")


def _kept(hosts: Any) -> list[dict[str, Any]]:
    """Nodes that kwok keeps alive."""
    found = []
    for host in hosts:
        host["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        found.append(host)
    return found


def _cpu(pid: int) -> tuple[float, float]:
    """CPU seconds of the thread that decides, and of all threads together."""

    def spent(file: str) -> float:
        fields = Path(file).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return spent(f"/proc/{pid}/task/{pid}/stat"), spent(f"/proc/{pid}/stat")


def _until(holds: Any, what: str) -> None:
    end = time.monotonic() + READY_SECONDS
    while not holds():
        assert time.monotonic() < end, f"no {what} within {READY_SECONDS:g} s"
        time.sleep(0.2)
