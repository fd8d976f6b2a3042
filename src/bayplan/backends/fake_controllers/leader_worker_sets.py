"""A simulated LeaderWorkerSet controller: groups of one leader and its workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from bayplan.backends.fake_controllers.objects import (
    LEADER_WORKER_SETS,
    PODS,
    Object,
    create,
    delete,
    is_terminating,
    name_of,
    owner_reference,
    patch_status,
    phase_of,
)  # fmt: skip
from bayplan.dialects.api import Write

PREFIX = "leaderworkerset.sigs.k8s.io/"


def reconcile_leader_worker_set(found: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring a set's groups and status a step further."""
    if is_terminating(found):
        return
    replicas, size = int(found["spec"].get("replicas", 1)), _size(found)
    there = {name_of(pod)[1] for pod in pods}
    for group in range(replicas):
        for index in range(size):
            pod = _pod(found, group, index, size)
            if name_of(pod)[1] not in there:
                yield create(PODS, pod)
    for pod in pods:
        if int(pod["metadata"]["labels"][f"{PREFIX}group-index"]) >= replicas and not is_terminating(pod):
            yield delete(PODS, pod)
    ready = sum(phase_of(pod) == "Running" for pod in pods) // size
    if (found.get("status") or {}).get("readyReplicas") != ready:
        yield patch_status(LEADER_WORKER_SETS, found, {"replicas": replicas, "readyReplicas": ready})


def _size(found: Object) -> int:
    return int(found["spec"]["leaderWorkerTemplate"].get("size", 1))


def _pod(found: Object, group: int, index: int, size: int) -> Object:
    namespace, name = name_of(found)
    templates = found["spec"]["leaderWorkerTemplate"]
    leads = index == 0 and "leaderTemplate" in templates
    template = deepcopy(templates["leaderTemplate" if leads else "workerTemplate"])
    labels = {
        f"{PREFIX}name": name,
        f"{PREFIX}group-index": str(group),
        f"{PREFIX}worker-index": str(index),
    }
    meta = template.get("metadata") or {}
    led = {f"{PREFIX}leader-name": f"{name}-{group}"} if index else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{group}" if index == 0 else f"{name}-{group}-{index}",
            "namespace": namespace,
            "labels": (meta.get("labels") or {}) | labels,
            "annotations": (meta.get("annotations") or {}) | {f"{PREFIX}size": str(size)} | led,
            "ownerReferences": [owner_reference(found, LEADER_WORKER_SETS)],
        },
        "spec": template["spec"],
    }
