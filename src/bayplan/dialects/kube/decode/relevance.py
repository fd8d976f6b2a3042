"""Which watch events of nodes and pods matter for scheduling; the others are ignored."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.decode.pod_fields import holds_capacity, node_name, pod_requests
from bayplan.dialects.kube.fields.reader import Field


class NodeChange(IntFlag):
    """What differs between two states of a node. NOTHING: the update is irrelevant for scheduling."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    CONDITIONS = 8
    ANNOTATIONS = 16
    UNSCHEDULABLE = 32


def node_changes(old: Field, new: Field) -> NodeChange:
    """What an update changed; heartbeats, images and versions are ignored."""
    changes = NodeChange.NOTHING
    for change, read in _READERS.items():
        if read(old) != read(new):
            changes |= change
    return changes


def pod_arrival_matters(pod: Field) -> bool:
    """Whether a new pod uses resources."""
    return holds_capacity(pod)


def pod_removal_matters(pod: Field) -> bool:
    """Whether a removed pod may have freed resources.

    Its phase is ignored: the update that reported its end may have been missed.
    """
    return bool(node_name(pod))


def pod_update_matters(old: Field, new: Field) -> bool:
    """Whether an update changed the usage of a pod, or its node."""
    used, uses = holds_capacity(old), holds_capacity(new)
    if not (used and uses):
        return used != uses
    return node_name(old) != node_name(new) or pod_requests(old.at("spec")) != pod_requests(new.at("spec"))


def _condition_states(node: Field) -> dict[str, str]:
    conditions = node.at("status", "conditions").items()
    return {condition.at("type").text(): condition.at("status").text() for condition in conditions}


_READERS: dict[NodeChange, Callable[[Field], object]] = {
    NodeChange.ALLOCATABLE: lambda node: amounts(node.at("status", "allocatable")),
    NodeChange.LABELS: lambda node: node.at("metadata", "labels").texts(),
    NodeChange.TAINTS: lambda node: node.at("spec", "taints").value or [],
    NodeChange.CONDITIONS: _condition_states,
    NodeChange.ANNOTATIONS: lambda node: node.at("metadata", "annotations").texts(),
    NodeChange.UNSCHEDULABLE: lambda node: node.at("spec", "unschedulable").flag(),
}
