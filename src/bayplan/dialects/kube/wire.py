"""Nodes and pods as the API server sends them: only the fields we read, decoded straight into structs."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.quantity import amount
from bayplan.model.node import PODS, Node
from bayplan.model.rules import Taint


class Struct(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Plain data: never part of a cycle, so the garbage collector need not look."""


class OwnerReference(Struct, frozen=True):
    """Who made the object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Struct, frozen=True):
    """What every object says of itself."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class TaintWire(Struct, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class Condition(Struct, frozen=True):
    """The state of one aspect."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeSpec(Struct, frozen=True):
    """What an administrator set."""

    unschedulable: bool | None = None
    taints: list[TaintWire] | None = None


class NodeStatus(Struct, frozen=True):
    """What the node reports."""

    allocatable: dict[str, str | int | float] | None = None
    conditions: list[Condition] | None = None


class NodeWire(Struct, frozen=True):
    """A Node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Struct, frozen=True):
    """What a container asks for."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Struct, frozen=True):
    """A container of a pod."""

    resources: Resources | None = None
    restart_policy: str | None = None


class Gate(Struct, frozen=True):
    """A reason not to schedule the pod yet."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    """What a pod asks for."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    scheduling_gates: list[Gate] | None = None
    priority: int | None = None


class PodStatus(Struct, frozen=True):
    """How a pod fares."""

    phase: str | None = None


class PodWire(Struct, frozen=True):
    """A Pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


NODES = Kind("", "v1", "Node", "nodes", namespaced=False, wire=NodeWire)
PODS_KIND = Kind("", "v1", "Pod", "pods", wire=PodWire)


@lru_cache(maxsize=4096)
def _known_amount(resource: str, value: str | int | float) -> int:
    return amount(resource, value)


def amounts_of(resources: dict[str, str | int | float] | None) -> dict[str, int]:
    """A resource list as whole numbers."""
    return {name: _known_amount(name, value) for name, value in (resources or {}).items()}


def node_of(wire: NodeWire) -> Node:
    """A Node as a value."""
    conditions = wire.status.conditions or []
    return Node(
        name=wire.metadata.name,
        labels=wire.metadata.labels or {},
        allocatable=amounts_of(wire.status.allocatable),
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in wire.spec.taints or ()),
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        schedulable=not wire.spec.unschedulable,
    )


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """What a pod takes at its most demanding moment, its own slot included."""
    running: dict[str, int] = {}
    for container in spec.containers or ():
        _add(running, _asked(container))
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _asked(container)
        if container.restart_policy == "Always":
            _add(sidecars, own)
            own = sidecars
        else:
            _add(own, sidecars)
        for name, value in own.items():
            starting[name] = max(starting.get(name, 0), value)
    _add(running, sidecars)
    for name, value in starting.items():
        running[name] = max(running.get(name, 0), value)
    if spec.resources is not None:
        running |= amounts_of(spec.resources.requests)
    _add(running, amounts_of(spec.overhead))
    running[PODS] = 1
    return running


def _asked(container: Container) -> dict[str, int]:
    if container.resources is None:
        return {}
    return amounts_of(container.resources.limits) | amounts_of(container.resources.requests)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value
