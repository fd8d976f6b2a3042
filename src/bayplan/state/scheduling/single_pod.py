"""A pod that has no gang is one by itself: how it is called, and by which rules it goes."""

from __future__ import annotations

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey


def lone_ref(key: PodKey) -> Ref:
    """The gang of a pod that has none: itself."""
    return Ref("kube", "Pod", key.namespace, key.name)


def lone_charter(pod: Pod) -> GangSpec:
    """The rules of a pod that stands for itself."""
    wants = pod.wants
    return GangSpec(
        lone_ref(pod.key),
        1,
        priority=wants.priority,
        preempts=wants.preempts,
        created=pod.created,
        uid=pod.uid,
    )
