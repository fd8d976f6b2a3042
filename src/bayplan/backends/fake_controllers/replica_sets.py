"""A simulated ReplicaSet controller: keeps the number of replicas, and counts ready pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from bayplan.backends.fake_controllers.made_pods import free_endings, pod_from_template
from bayplan.backends.fake_controllers.objects import (
    OVER,
    PODS,
    REPLICA_SETS,
    Object,
    create,
    delete,
    has_condition,
    is_terminating,
    name_of,
    patch_status,
    phase_of,
)  # fmt: skip
from bayplan.dialects.api import Write


def reconcile_replica_set(found: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring the pods and the status of a ReplicaSet a step further."""
    if is_terminating(found):
        return
    wanted = replicas_of(found)
    active = [pod for pod in pods if phase_of(pod) not in OVER and not is_terminating(pod)]
    yield from _status(found, active)
    for _, ending in zip(range(len(active), wanted), free_endings(found, pods), strict=False):
        yield create(PODS, _pod(found, ending))
    for pod in sorted(active, key=_deletion_order)[: max(len(active) - wanted, 0)]:
        yield delete(PODS, pod)


def replicas_of(found: Object) -> int:
    """The wanted number of replicas."""
    wanted = found["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def changed_status(found: Object, status: Object) -> Object:
    """Of a status, the fields that differ from those that the object has."""
    known = found.get("status") or {}
    return {key: value for key, value in status.items() if known.get(key, 0) != value}


def _status(found: Object, active: Sequence[Object]) -> Iterator[Write]:
    ready = sum(has_condition(pod, "Ready") for pod in active)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": found["metadata"].get("generation", 1),
    }
    if changed := changed_status(found, status):
        yield patch_status(REPLICA_SETS, found, changed)


def _deletion_order(pod: Object) -> tuple[bool, bool, str, str]:
    """The deletion order of pods: unbound first, then not ready, then the youngest."""
    placed, ready = bool(pod["spec"].get("nodeName")), has_condition(pod, "Ready")
    born = str(pod["metadata"].get("creationTimestamp", ""))
    return placed, ready, "".join(chr(255 - ord(letter) % 256) for letter in born), name_of(pod)[1]


def _pod(found: Object, ending: str) -> Object:
    made = pod_from_template(found, REPLICA_SETS, ending, {})
    made["metadata"]["generateName"] = f"{name_of(found)[1]}-"
    return {**made, "spec": deepcopy(made["spec"])}
