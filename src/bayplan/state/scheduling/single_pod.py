"""A pod without a gang is scheduled as a gang of one: its reference and its spec."""

from __future__ import annotations

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey


def single_pod_ref(key: PodKey) -> Ref:
    """The gang reference of a single pod."""
    return Ref("kube", "Pod", key.namespace, key.name)


def single_pod_spec(pod: Pod) -> GangSpec:
    """The gang spec of a single pod."""
    wants = pod.spec
    return GangSpec(
        single_pod_ref(pod.key),
        1,
        priority=wants.priority,
        preempts=wants.preempts,
        created=pod.created,
        uid=pod.uid,
    )
