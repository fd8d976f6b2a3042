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
from bayplan.dialects.nrt.wire import GROUP, TOPOLOGIES
from tests.benchmarks.device_pods import CLAIMS, DRIVER, claim, inventory
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
from tests.support.numa_crd import definition, topology
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


def store(node_count: int, pod_count: int, *, inside: bool = False) -> Path:
    """The folder with the files of etcd, made now if it is not there yet."""
    name = f"{DEFAULT_KUBE}-{node_count}-{pod_count}{'-inside' if inside else ''}-{VERSION}"
    kept = cache_root().parent / "scale" / name
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix="bayplan-scale-") as name:
        state = Path(name) / "cluster"
        with control_plane(state=state, store=Path(name) / "nothing") as cluster:
            furnish(cluster, node_count, pod_count)
            if inside:
                furnish_inside(cluster, node_count, pod_count)
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


def furnish_inside(cluster: Cluster, node_count: int, pod_count: int) -> None:
    """NUMA zones and devices of all nodes; a claim of a device on each of them."""
    access = load(cluster.kubeconfig, None)
    cluster.apply(definition())
    until(lambda: TOPOLOGIES.plural in cluster.kubectl("api-resources", "-o", "name"), "definitions")
    _make(access, [*inventory(node_count)])
    claims = [f"held-{number:05d}" for number in range(node_count)]
    _make(access, [claim(name) for name in claims])
    _make(access, [_allocated(name, number) for number, name in enumerate(claims)])
    _make(access, _zones(node_count, pod_count))


def _allocated(name: str, node: int) -> Ask:
    """The first device of a node, for a pod that is not there any more: only the device is in use."""
    device = {"request": "gpu", "driver": DRIVER, "pool": f"n{node:05d}", "device": "gpu-0"}
    return "PATCH", f"{CLAIMS}/{name}/status", {"status": {"allocation": {"devices": {"results": [device]}}}}


def _zones(node_count: int, pod_count: int) -> Iterator[Ask]:
    """Two zones to a node; the bound pods are on the first, as long as it has GPUs."""
    pods, where = pod_count // node_count, f"/apis/{GROUP}/{TOPOLOGIES.version}/{TOPOLOGIES.plural}"
    for number in range(node_count):
        zones: list[dict[str, str | int]] = [
            {"cpu": 16 - used, "memory": f"{128 - used}Gi", "nvidia.com/gpu": 4 - used}
            for used in (min(pods, 4), max(0, pods - 4))
        ]
        yield "POST", where, topology(f"n{number:05d}", zones)


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
