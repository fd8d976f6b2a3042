"""What a watch event on a node or pod means for scheduling, so that the rest can be passed over."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.decode.pod_fields import holds_capacity, node_name, pod_requests
from bayplan.dialects.kube.fields.reader import Field


class NodeChange(IntFlag):
    """What differs between two states of a node. Nothing means: no reason to look again."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    CONDITIONS = 8
    ANNOTATIONS = 16
    UNSCHEDULABLE = 32


def node_changes(old: Field, new: Field) -> NodeChange:
    """What an update changed; heartbeats, images and versions do not count."""
    found = NodeChange.NOTHING
    for change, look in _LOOKS.items():
        if look(old) != look(new):
            found |= change
    return found


def pod_arrival_counts(pod: Field) -> bool:
    """Whether a pod seen for the first time takes room."""
    return holds_capacity(pod)


def pod_removal_counts(pod: Field) -> bool:
    """Whether a removed pod may have freed room.

    Its phase says nothing: the update that reported its end may have been missed.
    """
    return bool(node_name(pod))


def pod_update_counts(old: Field, new: Field) -> bool:
    """Whether an update changed what the pod takes, or from which node."""
    held, holds = holds_capacity(old), holds_capacity(new)
    if not (held and holds):
        return held != holds
    return node_name(old) != node_name(new) or pod_requests(old.at("spec")) != pod_requests(new.at("spec"))


def _condition_states(node: Field) -> dict[str, str]:
    conditions = node.at("status", "conditions").items()
    return {condition.at("type").text(): condition.at("status").text() for condition in conditions}


_LOOKS: dict[NodeChange, Callable[[Field], object]] = {
    NodeChange.ALLOCATABLE: lambda node: amounts(node.at("status", "allocatable")),
    NodeChange.LABELS: lambda node: node.at("metadata", "labels").texts(),
    NodeChange.TAINTS: lambda node: node.at("spec", "taints").value or [],
    NodeChange.CONDITIONS: _condition_states,
    NodeChange.ANNOTATIONS: lambda node: node.at("metadata", "annotations").texts(),
    NodeChange.UNSCHEDULABLE: lambda node: node.at("spec", "unschedulable").flag(),
}
