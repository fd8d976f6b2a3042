"""A large cluster in the store of a real API server, made once and kept as files of etcd."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.remote.access import Access
from bayplan.backends.remote.kubeconfig import load
from tests.benchmarks.gang_load import (
    PODS,
    WORKLOADS,
    Ask,
    ask_all,
    gang_workload,
    load_pod,
    nodes,
    without_taints,
)
from tests.benchmarks.watched_processes import until
from tests.support.api_objects import KUEUE, Object, api_object, cluster_queue, container, workload
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import DEFAULT_KUBE, cache_root
from tools.controlplane.start import control_plane

VERSION = 1
"""To be raised when the objects below change: what was kept is made anew then."""
NAMESPACE = "bayplan-system"
GANG = 20
"""Pods of a bound gang; every second pod is in one."""
QUEUED = 200
"""Gangs in a queue, all of which fit."""
PENDING = 20
"""Gangs that no node has room for."""
POOL = "example.com/pool"


def store(node_count: int, pod_count: int) -> Path:
    """The folder with the files of etcd, made now if it is not there yet."""
    kept = cache_root().parent / "scale" / f"{DEFAULT_KUBE}-{node_count}-{pod_count}-{VERSION}"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix="bayplan-scale-") as name:
        state = Path(name) / "cluster"
        with control_plane(state=state, store=Path(name) / "nothing") as cluster:
            furnish(cluster, node_count, pod_count)
        unfinished = kept.with_name(f".{kept.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(state / "etcd", unfinished)
        unfinished.rename(kept)
    return kept


def furnish(cluster: Cluster, node_count: int, pod_count: int) -> None:
    """Nodes, bound pods alone and in gangs, gangs in a queue, and gangs that do not fit."""
    access, began = load(cluster.kubeconfig, None), time.monotonic()
    cluster.apply(*custom_resources(InstallSettings(roles=("admission", "scheduler"))))
    until(lambda: "workloads.kueue" in cluster.kubectl("api-resources", "-o", "name"), "definitions")
    cluster.apply(api_object("v1", "Namespace", NAMESPACE))
    _make(access, [_account("default"), _account(NAMESPACE)])
    _make(access, _pooled(node_count))
    _make(access, without_taints(node_count))
    cluster.apply(*_rules(node_count))
    _make(access, _bound(node_count, pod_count))
    _make(access, _pending())
    _make(access, _queued())
    print(f"made {node_count:,} nodes and {pod_count:,} pods in {time.monotonic() - began:.0f} s", flush=True)


def _make(access: Access, asks: Iterable[Ask]) -> None:
    ask_all(access, list(asks), 16)


def _account(namespace: str) -> Ask:
    """The controller that would make it does not run."""
    made = api_object("v1", "ServiceAccount", "default", namespace=namespace)
    return "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", made


def _pooled(node_count: int) -> Iterator[Ask]:
    for method, path, body in nodes(node_count):
        assert body is not None
        body["metadata"]["labels"][POOL] = "bench"
        yield method, path, body


def _bound(node_count: int, pod_count: int) -> Iterator[Ask]:
    for number in range(0, pod_count // 2, GANG):
        yield "POST", WORKLOADS, gang_workload(f"gang-{number // GANG:05d}", GANG)
    for number in range(pod_count):
        gang = f"gang-{number // GANG:05d}" if number < pod_count // 2 else ""
        yield "POST", PODS, bound_pod(f"bound-{number:06d}", number % node_count, gang)


def bound_pod(name: str, node: int, gang: str = "") -> Object:
    made = load_pod(name, "bayplan", gang=gang)
    made["spec"]["nodeName"] = f"n{node:05d}"
    return made


def _pending() -> Iterator[Ask]:
    for number in range(PENDING):
        yield "POST", WORKLOADS, gang_workload(f"large-{number:02d}", 2)
        for pod in range(2):
            yield "POST", PODS, load_pod(f"large-{number:02d}-{pod}", "bayplan", 64, f"large-{number:02d}")


def _rules(node_count: int) -> list[Object]:
    levels = [{"nodeLabel": label} for label in ("example.com/rack", "kubernetes.io/hostname")]
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 8 * node_count}]
    return [
        api_object(KUEUE, "Topology", "hall", spec={"levels": levels}),
        api_object(
            KUEUE, "ResourceFlavor", "hosts", spec={"nodeLabels": {POOL: "bench"}, "topologyName": "hall"}
        ),
        cluster_queue("team", quota, ["hosts"], namespaceSelector={}),
        api_object(KUEUE, "LocalQueue", "team", namespace="default", spec={"clusterQueue": "team"}),
    ]


def _queued() -> Iterator[Ask]:
    where = f"/apis/{KUEUE}/namespaces/default/workloads"
    asked = {"nvidia.com/gpu": "1"}
    spec = {"restartPolicy": "Never", "containers": [container(asked, asked)]}
    for number in range(QUEUED):
        pods = {
            "name": "main", "count": 8, "template": {"spec": spec},
            "topologyRequest": {"required": "example.com/rack"},
        }  # fmt: skip
        yield "POST", where, workload(f"queued-{number:04d}", pods, namespace="default", queueName="team")
