"""A cluster in memory that is fragmented: gangs on a host of each rack, queued ones and plain jobs."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.times import timestamp
from tests.support.api_objects import HOSTNAME, READY, job, pod
from tests.support.queued_cluster import (
    GPU,
    NOW,
    Object,
    QueuedCluster,
    admitted,
    queued_workload,
    template,
)

JOBS = Kind("batch", "v1", "Job", "jobs")
BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")


def run_job(
    cluster: QueuedCluster,
    name: str,
    hosts: list[str],
    gpus: int,
    *,
    ago: float = 600,
    labels: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    owned: bool = True,
    required: str = "",
    **spec: Any,
) -> None:
    """A Job whose pods our scheduler has bound to these hosts."""
    inside = {"kueue.x-k8s.io/podset-required-topology": required} if required else {}
    shape = template(gpus)["spec"] | {"schedulerName": "bayplan", **spec}
    made = cluster.put(
        JOBS,
        job(
            name, {"metadata": {"labels": labels or {}, "annotations": inside}, "spec": shape}, len(hosts),
            namespace="ml", annotations=notes,
        ),
    )  # fmt: skip
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    marks = {"batch.kubernetes.io/job-name": name, "job-name": name, **(labels or {})}
    for rank, host in enumerate(hosts):
        meta = {"ownerReferences": [owner]} if owned else {}
        run_pod(
            cluster,
            pod(f"{name}-{rank}", namespace="ml", labels=marks, metadata=meta, nodeName=host, **shape),
            ago,
        )


def run_workload(
    cluster: QueuedCluster, name: str, hosts: list[str], gpus: int, *, ago: float = 600, required: str = "",
    **spec: Any,
) -> None:  # fmt: skip
    """A Workload that is admitted to these hosts, with its pods."""
    counts = {host: hosts.count(host) for host in hosts}
    usage = {"cpu": str(8 * len(hosts)), GPU: str(gpus * len(hosts))}
    cluster.submit(
        queued_workload(name, len(hosts), gpus, required=required, **spec),
        admitted("left-queue", "a100", usage, counts, ago),
    )
    queue = {"kueue.x-k8s.io/queue-name": "left"}
    made = cluster.put(JOBS, job(name, template(gpus), len(hosts), namespace="ml", labels=queue))
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    for rank, host in enumerate(hosts):
        whole = template(gpus)["spec"] | {"nodeName": host, "nodeSelector": {HOSTNAME: host, "gpu": "yes"}}
        run_pod(
            cluster,
            pod(
                f"{name}-{rank}",
                namespace="ml",
                labels={"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/managed": "true"},
                annotations={"kueue.x-k8s.io/workload": name},
                metadata={"ownerReferences": [owner]},
                **whole,
            ),
            ago,
        )


def run_pod(cluster: QueuedCluster, obj: Object, ago: float) -> None:
    """A pod that its node started some time ago."""
    cluster.put(PODS_KIND, obj)
    status = {"phase": "Running", "startTime": timestamp(NOW - ago), "conditions": [READY]}
    cluster.store.patch(PODS_KIND, "ml", obj["metadata"]["name"], {"status": status}, subresource="status")


def protect(cluster: QueuedCluster, name: str, labels: dict[str, str], least: int) -> None:
    """A PodDisruptionBudget that wants so many pods to stay."""
    cluster.put(
        BUDGETS,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": labels}},
        },
    )
