"""Node objects: labels, taints, allocatable resources, readiness."""

from __future__ import annotations

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.node import Node
from bayplan.model.node_rules import Taint

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node(obj: Field) -> Node:
    """A Node object as a value."""
    status = obj.at("status")
    # The API server sets allocatable from capacity, which manifests may rely on.
    resources = status.at("allocatable") if status.at("allocatable").present else status.at("capacity")
    name = obj.at("metadata", "name")
    if not name.text():
        name.error("must be set")
    return Node(
        name=name.text(),
        labels=obj.at("metadata", "labels").texts(),
        allocatable=amounts(resources),
        taints=tuple(taint(field) for field in obj.at("spec", "taints").items()),
        ready=is_ready(obj),
        schedulable=not obj.at("spec", "unschedulable").flag(),
    )


def taint(field: Field) -> Taint:
    """One taint of a node or flavor."""
    key, effect = field.at("key"), field.at("effect")
    if not key.text():
        key.error("must be set")
    if effect.text() not in EFFECTS:
        effect.error(f"must be one of {', '.join(EFFECTS)}")
    return Taint(key.text(), field.at("value").text(), effect.text())


def is_ready(obj: Field) -> bool:
    """Whether the Ready condition of a node is true; a missing condition means no."""
    for condition in obj.at("status", "conditions").items():
        if condition.at("type").text() == "Ready":
            return condition.at("status").text() == "True"
    return False


def amounts(field: Field) -> dict[str, int]:
    """A resource list as integers; negative amounts are errors."""
    by_resource: dict[str, int] = {}
    for resource, entry in field.entries():
        try:
            by_resource[resource] = amount(resource, entry.value)
        except ValueError as error:
            entry.error(str(error))
            continue
        if by_resource[resource] < 0:
            entry.error("must not be negative")
            by_resource[resource] = 0
    return by_resource


def has_labels(node: Node, labels: dict[str, str], levels: tuple[str, ...]) -> bool:
    """Whether a node has these labels and some value for every level."""
    return all(node.labels.get(key) == value for key, value in labels.items()) and all(
        level in node.labels for level in levels
    )
