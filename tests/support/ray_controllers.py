"""Stand-ins for the Ray operator: a cluster of a head and groups of workers, by itself or under a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from bayplan.backends.fake_controllers.controller_manager import FakeController
from bayplan.backends.fake_controllers.objects import (
    PODS,
    create,
    delete,
    is_terminating,
    labels_of,
    owner_reference,
    patch_status,
    phase_of,
)
from bayplan.dialects.api import Write
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kai.grouper.ray_and_grove import HEAD_GROUP
from tests.support.job_world import LABELS, pod_template

Object = dict[str, Any]

CLUSTERS, JOBS = (replace(resource(kind), optional=False) for kind in ("RayCluster", "RayJob"))
GROUP = "ray.io/group"


def _pod(cluster: Object, group: str, name: str, template: Object) -> Object:
    meta = deepcopy(template.get("metadata") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta,
            "name": f"{cluster['metadata']['name']}-{name}",
            "namespace": "default",
            "labels": {**(meta.get("labels") or {}), GROUP: group},
            "ownerReferences": [owner_reference(cluster, CLUSTERS)],
        },
        "spec": deepcopy(template["spec"]),
    }


def reconcile_cluster(cluster: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """Pods as they are wanted; those with the highest numbers go first."""
    if is_terminating(cluster):
        return
    spec, wanted = cluster["spec"], []
    if not spec.get("suspend"):
        wanted.append(_pod(cluster, HEAD_GROUP, "head", spec["headGroupSpec"]["template"]))
        for group in spec.get("workerGroupSpecs") or ():
            name = group["groupName"]
            wanted += [
                _pod(cluster, name, f"{name}-{number}", group["template"])
                for number in range(int(group.get("replicas", 1)))
            ]
    names = {pod["metadata"]["name"] for pod in wanted}
    there = {pod["metadata"]["name"] for pod in pods}
    yield from (create(PODS, pod) for pod in wanted if pod["metadata"]["name"] not in there)
    yield from (
        delete(PODS, pod) for pod in pods if pod["metadata"]["name"] not in names and not is_terminating(pod)
    )
    workers = sum(labels_of(pod)[GROUP] != HEAD_GROUP for pod in pods)
    runs = bool(wanted) and there >= names and all(phase_of(pod) == "Running" for pod in pods)
    status = {
        "state": "ready" if runs else "suspended" if not pods else "",
        "availableWorkerReplicas": workers,
    }
    if (cluster.get("status") or {}) != status:
        yield patch_status(CLUSTERS, cluster, status)


def reconcile_job(job: Object, clusters: Sequence[Object], now: str) -> Iterator[Write]:
    """A cluster of its own while it is not suspended, with its labels and annotations."""
    if is_terminating(job):
        return
    meta, held = job["metadata"], bool(job["spec"].get("suspend"))
    name = f"{meta['name']}-cluster"
    if held:
        yield from (delete(CLUSTERS, one) for one in clusters if not is_terminating(one))
    elif not clusters:
        copied = {key: meta[key] for key in ("labels", "annotations") if key in meta}
        mine = {"name": name, "namespace": "default", "ownerReferences": [owner_reference(job, JOBS)]}
        spec = deepcopy(job["spec"]["rayClusterSpec"])
        body = {"apiVersion": CLUSTERS.api_version, "kind": "RayCluster", "metadata": {**copied, **mine}}
        yield create(CLUSTERS, {**body, "spec": spec})
    status = {
        "jobDeploymentStatus": "Suspended" if held and not clusters else "Running",
        "rayClusterName": "" if held else name,
        "rayClusterStatus": (clusters[0].get("status") or {}) if clusters else {"state": ""},
    }
    if (job.get("status") or {}) != status:
        yield patch_status(JOBS, job, status)


OPERATORS = (
    FakeController(CLUSTERS, (PODS,), reconcile_cluster),
    FakeController(JOBS, (CLUSTERS,), reconcile_job),
)


# ── what people submit ─────────────────────────────────────────────────────────────────────────────


def cluster_spec(workers: int, notes: dict[str, str]) -> Object:
    group = {"groupName": "small", "replicas": workers, "template": pod_template(seconds=None, notes=notes)}
    head = {"template": pod_template(seconds=None, notes=notes)}
    return {"headGroupSpec": head, "workerGroupSpecs": [group]}


def _queued(kind: str, spec: Object, notes: dict[str, str]) -> Object:
    meta = {"name": "train", "namespace": "default", "labels": dict(LABELS), "annotations": notes}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def ray_cluster(workers: int, notes: dict[str, str], of_pods: dict[str, str]) -> Object:
    return _queued("RayCluster", cluster_spec(workers, of_pods), notes)


def ray_job(workers: int, notes: dict[str, str], of_pods: dict[str, str]) -> Object:
    """One whose cluster an autoscaler may change."""
    spec = {**cluster_spec(workers, of_pods), "enableInTreeAutoscaling": True}
    whole = {"rayClusterSpec": spec, "shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode"}
    return _queued("RayJob", whole, notes)
