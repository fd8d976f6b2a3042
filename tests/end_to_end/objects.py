"""Small API objects for end-to-end tests, and a way to wait for what a controller will do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.support.api_objects import node, pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

Object = dict[str, Any]

PATIENCE = 120.0
"""Seconds; the garbage collector alone looks for new kinds only every thirty, and some machines are slow."""


def eventually(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Look again and again until something holds; `what` is the sentence that failed to come true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


def kwok_node(name: str, gpus: int = 8, **labels: str) -> Object:
    """A node that kwok will make Ready."""
    return node(name, {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}, labels)


def pod_template(played: Mapping[str, str]) -> Object:
    """A pod that asks for one GPU; `played` (run-seconds, exit, …) tells kwok what it does."""
    annotations = {f"bayplan.dev/{key}": value for key, value in played.items()}
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "schedulerName": "by-hand", "containers": [container]},
    }


def kwok_pod(namespace: str, name: str, played: Mapping[str, str]) -> Object:
    """A single pod."""
    template = pod_template(played)
    return pod(name, namespace=namespace, metadata=template["metadata"], **template["spec"])


def job_spec(pods: int, played: Mapping[str, str]) -> Object:
    """An indexed Job of `pods` pods that run at the same time."""
    completions = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return {**completions, "backoffLimit": 0, "template": pod_template(played)}


def bind(cluster: Cluster, namespace: str, name: str, node_name: str, user: str = "admin") -> None:
    """Bind one pod through the binding subresource."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
    cluster.kubectl("create", "--raw", path, "-f", "-", user=user, stdin=json.dumps(binding))


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
