"""Manifests for clusters in memory: a topology, hosts, and jobs of our scheduler."""

from __future__ import annotations

from typing import Any

from bayplan.backends.fake_controllers.objects import has_condition

Object = dict[str, Any]

BLOCK, RACK = "topology.bayplan.dev/block", "topology.bayplan.dev/rack"
HOSTNAME = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
DRIVER = "gpu.example.com"
"""The driver of devices that are to be had by claim."""
TOPOLOGY = "data-centre"
NAMESPACE = "default"


def topology() -> Object:
    """A topology of blocks, racks and hosts."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": TOPOLOGY},
        "spec": {"levels": [{"nodeLabel": level} for level in (BLOCK, RACK, HOSTNAME)]},
    }


def node(name: str, block: str, rack: str, gpus: int) -> Object:
    """A ready host."""
    amounts = {"cpu": "96", "memory": "1Ti", GPU: str(gpus), "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "in memory"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {BLOCK: block, RACK: rack, HOSTNAME: name}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def device_class() -> Object:
    """The class of all devices of the example driver."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [selector]},
    }


def resource_slice(host: str, devices: int) -> Object:
    """The devices of a host, as its driver publishes them."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{host}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": host,
            "pool": {"name": host, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
        },
    }


def job(
    name: str, pods: int, gpus: int, wishes: dict[str, str], seconds: float, fails: bool = False
) -> Object:
    """An indexed job whose pods run at the same time, for so many seconds."""
    played = {"bayplan.dev/run-seconds": f"{seconds:.0f}"} | ({"bayplan.dev/exit": "1"} if fails else {})
    container = {
        "name": "main",
        "image": "example.invalid/trainer",
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {GPU: str(gpus)}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 3,
            "template": {
                "metadata": {"annotations": wishes | played},
                "spec": {"schedulerName": "bayplan", "restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def is_finished(job: Object) -> bool:
    """Whether a job is complete or failed."""
    return has_condition(job, "Complete", "Failed")
