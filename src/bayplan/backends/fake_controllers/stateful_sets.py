"""A simulated StatefulSet controller: indexed pods, in order unless the policy is Parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from bayplan.backends.fake_controllers.objects import (
    OVER,
    PODS,
    STATEFUL_SETS,
    Object,
    create,
    delete,
    has_condition,
    is_terminating,
    name_of,
    owner_reference,
    patch_status,
    phase_of,
)  # fmt: skip
from bayplan.dialects.api import Write

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


def reconcile_stateful_set(found: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring a set's pods and status a step further."""
    if is_terminating(found):
        return
    count = int(found["spec"].get("replicas", 1))
    at_once = found["spec"].get("podManagementPolicy") == "Parallel"
    there = {name_of(pod)[1]: pod for pod in pods}
    for index in range(count):
        wanted = _pod(found, index)
        known = there.pop(name_of(wanted)[1], None)
        if known is None:
            yield create(PODS, wanted)
        elif phase_of(known) in OVER and not is_terminating(known):
            yield delete(PODS, known)
        if not at_once and (known is None or not has_condition(known, "Ready")):
            break
    for pod in pods:
        if int(pod["metadata"]["labels"][POD_INDEX]) >= count and not is_terminating(pod):
            yield delete(PODS, pod)
    ready = sum(has_condition(pod, "Ready") for pod in pods)
    status = {"replicas": len(pods), "readyReplicas": ready}
    if any((found.get("status") or {}).get(key, 0) != value for key, value in status.items()):
        yield patch_status(STATEFUL_SETS, found, status)


def _pod(found: Object, index: int) -> Object:
    namespace, name = name_of(found)
    template = deepcopy(found["spec"]["template"])
    meta = template.get("metadata") or {}
    own = {POD_NAME: f"{name}-{index}", POD_INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{index}",
            "namespace": namespace,
            "labels": (meta.get("labels") or {}) | own,
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [owner_reference(found, STATEFUL_SETS)],
        },
        "spec": template["spec"],
    }
