"""Nodes, pods and gangs by the thousand: made, bound and taken away as fast as an API server allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bayplan.backends.remote.access import Access
from tests.benchmarks.bare_connections import JSON, bare_connections
from tests.benchmarks.bare_connections import Ask as Asking
from tests.support.api_objects import container, pod

Object = dict[str, Any]
Ask = tuple[str, str, Object | None]
"""Method, path, body."""

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKLOADS = f"/apis/scheduling.k8s.io/v1alpha1/namespaces/{NAMESPACE}/workloads"
IN_FLIGHT = 64
MERGE = "application/merge-patch+json"
NODE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}


def ask_all(access: Access, asks: Sequence[Ask], in_flight: int = IN_FLIGHT) -> float:
    """Make all requests, so many at a time; the seconds it took."""
    return asyncio.run(_ask_all(access, asks, in_flight))


async def _ask_all(access: Access, asks: Sequence[Ask], in_flight: int) -> float:
    async with bare_connections(access, in_flight) as ask:
        left = iter(asks)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:  # one that fails ends them all
            for _ in range(in_flight):
                group.create_task(_work(ask, left))
        return time.perf_counter() - start


async def _work(ask: Asking, left: Iterable[Ask]) -> None:
    for method, path, body in left:
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await ask(method, path, data, MERGE if method == "PATCH" else JSON)
        done = answer.status < 300 or (method, answer.status) == ("DELETE", 404)
        assert done, (path, answer.body[:300])


# ── objects ────────────────────────────────────────────────────────────────────────────────────────


def nodes(count: int) -> Iterable[Ask]:
    """Hosts in racks of 16. They are told apart from real ones by nobody: there is no kubelet."""
    for number in range(count):
        name = f"n{number:05d}"
        labels = {"kubernetes.io/hostname": name, "example.com/rack": f"r{number // 16:04d}"}
        ready = [{"type": "Ready", "status": "True", "reason": "Bench", "message": "as good as there"}]
        status = {"allocatable": NODE, "capacity": NODE, "conditions": ready}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        yield "POST", "/api/v1/nodes", {**body, "status": status}


def without_taints(count: int) -> Iterable[Ask]:
    """The API server taints every new node; the controller that would take that back does not run."""
    for number in range(count):
        yield "PATCH", f"/api/v1/nodes/n{number:05d}", {"spec": {"taints": None}}


def load_pod(name: str, scheduler: str, gpus: int = 1, gang: str = "", priority: str = "") -> Object:
    """A pod that names its scheduler, and its gang if it has one."""
    asked = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    spec: Object = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container(asked, asked)],
    }
    if gang:
        spec["workloadRef"] = {"name": gang, "podGroup": "main"}
    if priority:
        spec["priorityClassName"] = priority
    return pod(name, labels={"bench": "yes", "gang": gang or "none"}, **spec)


def gang_workload(name: str, minimum: int) -> Object:
    """A gang."""
    groups = [{"name": "main", "policy": {"gang": {"minCount": minimum}}}]
    head = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": name}}
    return {**head, "spec": {"podGroups": groups}}


def priority_class(name: str, value: int) -> Ask:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value}


def binding(name: str, node: str) -> Ask:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
    return (
        "POST",
        f"{PODS}/{name}/binding",
        {**body, "target": {"apiVersion": "v1", "kind": "Node", "name": node}},
    )


def deletion(path: str, name: str) -> Ask:
    return "DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
