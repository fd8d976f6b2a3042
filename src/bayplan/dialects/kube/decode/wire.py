"""Nodes and pods as the API server sends them: only the fields that we read, decoded into structs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.quantity import amount
from bayplan.model.node import PODS, ROOM_MAX, Node
from bayplan.model.node_rules import Taint

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Struct(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Plain data: never part of a reference cycle, so that the garbage collector can ignore it."""


class OwnerReference(Struct, frozen=True):
    """An owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Struct, frozen=True):
    """The metadata of an object."""

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


class ConditionWire(Struct, frozen=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeSpecWire(Struct, frozen=True):
    """The spec of a Node."""

    unschedulable: bool | None = None
    taints: list[TaintWire] | None = None


class ImageWire(Struct, frozen=True):
    """A container image on a node, with all its names."""

    names: list[str] | None = None
    size_bytes: int | None = None


class NodeStatusWire(Struct, frozen=True):
    """The status of a Node."""

    allocatable: dict[str, str | int | float] | None = None
    conditions: list[ConditionWire] | None = None
    images: list[ImageWire] | None = None


class NodeWire(Struct, frozen=True):
    """A Node."""

    metadata: Metadata = Metadata()
    spec: NodeSpecWire = NodeSpecWire()
    status: NodeStatusWire = NodeStatusWire()


class ContainerResources(Struct, frozen=True):
    """Requests and limits of a container or pod."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Port(Struct, frozen=True):
    """A container port, and its host port if it has one."""

    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class ContainerWire(Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    resources: ContainerResources | None = None
    restart_policy: str | None = None
    image: str | None = None
    ports: list[Port] | None = None


class SchedulingGate(Struct, frozen=True):
    """A scheduling gate of a pod."""

    name: str = ""


class RequirementWire(Struct, frozen=True):
    """A label selector requirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Struct, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementWire] | None = None


class NodeTerm(Struct, frozen=True):
    """A node selector term."""

    match_expressions: list[RequirementWire] | None = None
    match_fields: list[RequirementWire] | None = None


class NodeTerms(Struct, frozen=True):
    """Node selector terms, of which one must match."""

    node_selector_terms: list[NodeTerm] | None = None


class WeightedNodeTerm(Struct, frozen=True):
    """A preferred node selector term."""

    weight: int = 0
    preference: NodeTerm = NodeTerm()


class NodeAffinityWire(Struct, frozen=True):
    """Required and preferred node affinity."""

    required: NodeTerms | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[WeightedNodeTerm] | None = msgspec.field(default=None, name=PREFERRED)


class PodTerm(Struct, frozen=True):
    """A pod affinity term."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTerm(Struct, frozen=True):
    """A preferred pod affinity term."""

    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinityWire(Struct, frozen=True):
    """Required and preferred pod affinity or anti-affinity."""

    required: list[PodTerm] | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[WeightedPodTerm] | None = msgspec.field(default=None, name=PREFERRED)


class AffinityWire(Struct, frozen=True):
    """Node and pod affinity of a pod."""

    node_affinity: NodeAffinityWire | None = None
    pod_affinity: PodAffinityWire | None = None
    pod_anti_affinity: PodAffinityWire | None = None


class TolerationWire(Struct, frozen=True):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SpreadConstraint(Struct, frozen=True):
    """A topology spread constraint."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(Struct, frozen=True):
    """A volume from a PersistentVolumeClaim."""

    claim_name: str = ""


class InlineDisk(Struct, frozen=True):
    """A disk named in the pod itself: GCE, AWS, iSCSI or RBD."""

    pd_name: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    iqn: str = ""
    image: str = ""
    pool: str | None = None
    monitors: list[str] | None = None
    read_only: bool | None = None


class OwnVolume(Struct, frozen=True):
    """A generic ephemeral volume; its claim template is not read."""


class VolumeWire(Struct, frozen=True):
    """A volume of a pod."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: OwnVolume | None = None
    gce_persistent_disk: InlineDisk | None = None
    aws_elastic_block_store: InlineDisk | None = None
    iscsi: InlineDisk | None = None
    rbd: InlineDisk | None = None


class WorkloadRef(Struct, frozen=True):
    """The gang of a pod in v1alpha1: a group of a Workload, replicated by key."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class SchedulingGroup(Struct, frozen=True):
    """The gang of a pod since v1alpha2."""

    pod_group_name: str | None = None


class PodSpecWire(Struct, frozen=True):
    """The spec of a Pod."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    containers: list[ContainerWire] | None = None
    init_containers: list[ContainerWire] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: ContainerResources | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    affinity: AffinityWire | None = None
    tolerations: list[TolerationWire] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[VolumeWire] | None = None
    resource_claims: list[dict[str, Any]] | None = None
    workload_ref: WorkloadRef | None = None
    scheduling_group: SchedulingGroup | None = None


class PodConditionWire(Struct, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatusWire(Struct, frozen=True):
    """The status of a Pod."""

    phase: str | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: list[PodConditionWire] | None = None
    qos_class: str | None = msgspec.field(default=None, name="qosClass")
    resource_claim_statuses: list[dict[str, Any]] | None = None


class PodWire(Struct, frozen=True):
    """A Pod."""

    metadata: Metadata = Metadata()
    spec: PodSpecWire = PodSpecWire()
    status: PodStatusWire = PodStatusWire()


NODES = Kind("", "v1", "Node", "nodes", namespaced=False, wire=NodeWire)
PODS_KIND = Kind("", "v1", "Pod", "pods", wire=PodWire)


def amounts_of(resources: dict[str, str | int | float] | None) -> dict[str, int]:
    """A resource list as integers, bounded by an amount that no node has.

    An invalid amount becomes that bound too: a pod that requests it fits on no node.
    """
    return {name: _bounded(name, value) for name, value in (resources or {}).items()}


def _bounded(resource: str, value: str | int | float) -> int:
    try:
        return max(0, min(amount(resource, value), ROOM_MAX))
    except ValueError:
        return ROOM_MAX


def node_of(wire: NodeWire) -> Node:
    """A Node as a value. Texts that many nodes, or the pods on a node, have in common are stored once."""
    conditions = wire.status.conditions or []
    return Node(
        name=intern(wire.metadata.name),
        labels={key: intern(value) for key, value in (wire.metadata.labels or {}).items()},
        allocatable=_allocatable(tuple((wire.status.allocatable or {}).items())),
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in wire.spec.taints or ()),
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        schedulable=not wire.spec.unschedulable,
    )


@lru_cache(maxsize=256)  # nodes of one model share the result
def _allocatable(resources: tuple[tuple[str, str | int | float], ...]) -> Mapping[str, int]:
    """The allocatable resources, below the bound: a pod at the bound never fits. Invalid amounts are 0."""
    amounts: dict[str, int] = {}
    for name, value in resources:
        try:
            amounts[name] = max(0, min(amount(name, value), ROOM_MAX - 1))
        except ValueError:
            amounts[name] = 0
    return amounts


def pod_amounts(spec: PodSpecWire) -> dict[str, int]:
    """The effective requests of a pod, including its `pods` slot."""
    running: dict[str, int] = {}
    for container in spec.containers or ():
        _add(running, _requests(container))
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _requests(container)
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
    return {name: min(value, ROOM_MAX) for name, value in running.items()}


def _requests(container: ContainerWire) -> dict[str, int]:
    if container.resources is None:
        return {}
    return amounts_of(container.resources.limits) | amounts_of(container.resources.requests)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value
