"""PodGroups, Queues and Topologies as the API server sends them: only the fields that we read."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.kai.api import names
from bayplan.dialects.kai.api.names import FLAW
from bayplan.dialects.kai.api.pod_group import Constraint, Owner, PodGroup, SubGroup
from bayplan.dialects.kube.decode.wire import Metadata, PodWire, Struct
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Topology

Number = int | float
Amounts = dict[str, int | float | str]


class TopologyConstraintWire(Struct, frozen=True):
    """The topologyConstraint of a group or sub-group."""

    topology: str | None = None
    required_topology_level: str | None = None
    preferred_topology_level: str | None = None


class SubGroupWire(Struct, frozen=True):
    """A sub-group of a PodGroup."""

    name: str = ""
    min_member: int | None = None
    parent: str | None = None
    topology_constraint: TopologyConstraintWire | None = None


class PodGroupSpecWire(Struct, frozen=True):
    """The spec of a PodGroup."""

    min_member: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    topology_constraint: TopologyConstraintWire | None = None
    sub_groups: list[SubGroupWire] | None = None


class ReasonWire(Struct, frozen=True):
    """A reason why a PodGroup is pending."""

    reason: str | None = None
    message: str | None = None


class SchedulingConditionWire(Struct, frozen=True):
    """A scheduling condition of a PodGroup."""

    type: str = ""
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    reasons: list[ReasonWire] | None = None


class ResourcesStatusWire(Struct, frozen=True):
    """The allocated and requested resources of a PodGroup or Queue."""

    allocated: Amounts | None = None
    allocated_non_preemptible: Amounts | None = None
    requested: Amounts | None = None


class PodGroupStatusWire(Struct, frozen=True):
    """The status of a PodGroup."""

    phase: str | None = None
    pending: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    resources_status: ResourcesStatusWire | None = None
    scheduling_conditions: list[SchedulingConditionWire] | None = None


class KaiPodGroupWire(Struct, frozen=True):
    """A PodGroup."""

    metadata: Metadata = Metadata()
    spec: PodGroupSpecWire = PodGroupSpecWire()
    status: PodGroupStatusWire = PodGroupStatusWire()


class QueueResourceWire(Struct, frozen=True):
    """Quota, limit and over-quota weight of one resource."""

    quota: Number | None = None
    limit: Number | None = None
    over_quota_weight: Number | None = None


class ResourcesWire(Struct, frozen=True, rename=None):
    """The resources of a Queue."""

    cpu: QueueResourceWire | None = None
    memory: QueueResourceWire | None = None
    gpu: QueueResourceWire | None = None


class QueueSpecWire(Struct, frozen=True):
    """The spec of a Queue."""

    parent_queue: str | None = None
    priority: int | None = None
    resources: ResourcesWire | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class QueueConditionWire(Struct, frozen=True):
    """A condition of a Queue. All fields are read, since adding a condition rewrites the whole list."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: int | None = None


class QueueStatusWire(ResourcesStatusWire, frozen=True):
    """The status of a Queue."""

    child_queues: list[str] | None = None
    conditions: list[QueueConditionWire] | None = None


class QueueWire(Struct, frozen=True):
    """A Queue."""

    metadata: Metadata = Metadata()
    spec: QueueSpecWire = QueueSpecWire()
    status: QueueStatusWire = QueueStatusWire()


class LevelWire(Struct, frozen=True):
    """A level of a Topology."""

    node_label: str = ""


class TopologySpecWire(Struct, frozen=True):
    """The spec of a Topology."""

    levels: list[LevelWire] | None = None


class KaiTopologyWire(Struct, frozen=True):
    """A Topology."""

    metadata: Metadata = Metadata()
    spec: TopologySpecWire = TopologySpecWire()


POD_GROUPS = replace(names.POD_GROUP, wire=KaiPodGroupWire)
QUEUES = replace(names.QUEUE, wire=QueueWire)
TOPOLOGIES = replace(names.TOPOLOGY, wire=KaiTopologyWire)
KINDS = (POD_GROUPS, QUEUES, TOPOLOGIES)


def pod_group(wire: KaiPodGroupWire) -> PodGroup:
    """A PodGroup as a value."""
    meta, spec = wire.metadata, wire.spec
    annotations = meta.annotations or {}
    owner = next(iter(meta.owner_references or ()), None)
    return PodGroup(
        name=meta.name,
        namespace=meta.namespace or "default",
        queue=spec.queue or "",
        priority_class=spec.priority_class_name or "",
        preemptibility=spec.preemptibility or "",
        minimum=1 if spec.min_member is None else spec.min_member,
        constraint=_constraint(spec.topology_constraint),
        sub_groups=tuple(
            SubGroup(
                one.name,
                1 if one.min_member is None else one.min_member,
                one.parent or "",
                _constraint(one.topology_constraint),
            )
            for one in spec.sub_groups or ()
        ),
        labels=meta.labels or {},
        annotations=annotations,
        owner=Owner(owner.api_version, owner.kind, owner.name, owner.uid) if owner is not None else Owner(),
        uid=meta.uid,
        flaw=annotations.get(FLAW, ""),
    )


def topology(wire: KaiTopologyWire) -> Topology | None:
    """A Topology as a value; None if its levels are invalid, which its CRD already rejects."""
    levels = tuple(level.node_label for level in wire.spec.levels or ())
    sound = 1 <= len(levels) <= LEVELS_MAX and len(set(levels)) == len(levels) and all(levels)
    if not sound or HOSTNAME in levels[:-1]:
        return None
    return Topology(wire.metadata.name, levels)


def topology_name(name: str) -> str:
    """The name of a Topology in the model: prefixed, since Kueue has topologies of the same names."""
    return f"{names.TOPOLOGY.group}/{name}" if name else ""


def shown_topology(name: str) -> str:
    """The name of the Topology object."""
    return name.removeprefix(f"{names.TOPOLOGY.group}/")


def group_of(pod: PodWire) -> tuple[Ref, str] | None:
    """The gang of a pod, and its sub-group ("" if it names none)."""
    name = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME)
    if not name:
        return None
    ref = Ref(names.DIALECT, names.POD_GROUP.kind, pod.metadata.namespace or "default", name)
    return ref, (pod.metadata.labels or {}).get(names.SUB_GROUP_NAME, "")


def _constraint(wire: TopologyConstraintWire | None) -> Constraint | None:
    if wire is None:
        return None
    constraint = Constraint(
        wire.topology or "", wire.required_topology_level or "", wire.preferred_topology_level or ""
    )
    return constraint if constraint != Constraint() else None
