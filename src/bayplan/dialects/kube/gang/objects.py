"""Workloads and PodGroups of the gang API, in every version a cluster may have, as the rules of gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import Metadata, PodConditionWire, PodWire, Struct
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang_api.gates import FIRST, GROUP, OF_COMPOSITES, SECOND, THIRD
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.whole_numbers import INT32_MAX, whole_number

DIALECT = "gang"
WORKLOAD, POD_GROUP, COMPOSITE = "Workload", "PodGroup", "CompositePodGroup"
DESIRED = "bayplan.dev/desired-count"
TOPOLOGY = "bayplan.dev/required-topology"
"""What no released version has a field for may be written on the object."""
CONDITIONS = {SECOND: "PodGroupScheduled", THIRD: "PodGroupInitiallyScheduled"}


class BasicPolicy(Struct, frozen=True):
    """Each pod stands for itself."""

    desired_count: int | None = None


class GangPolicy(Struct, frozen=True):
    """So many together, or none."""

    min_count: int | None = None


class GroupPolicyWire(Struct, frozen=True):
    """One of the two."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class WorkloadGroup(Struct, frozen=True):
    """A group of a Workload of v1alpha1."""

    name: str = ""
    policy: GroupPolicyWire = GroupPolicyWire()


class WorkloadSpec(Struct, frozen=True):
    """What a Workload consists of."""

    pod_groups: list[WorkloadGroup] | None = None


class WorkloadWire(Struct, frozen=True):
    """A Workload of v1alpha1; later ones only hold templates, and nobody schedules by them."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()


class TopologyKey(Struct, frozen=True):
    """A node label of which all pods share one value."""

    key: str = ""


class Constraints(Struct, frozen=True):
    """Where a group may be."""

    topology: list[TopologyKey] | None = None


class PodGroupSpec(Struct, frozen=True):
    """What a group asks for."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: GroupPolicyWire = GroupPolicyWire()
    scheduling_constraints: Constraints | None = None
    disruption_mode: str | dict[str, Any] | None = None  # a word in v1alpha2, a choice since
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroupStatus(Struct, frozen=True):
    """How a group fares."""

    conditions: list[PodConditionWire] | None = None


class PodGroupWire(Struct, frozen=True):
    """A PodGroup."""

    metadata: Metadata = Metadata()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class CompositeGangPolicy(Struct, frozen=True):
    """So many groups, or none."""

    min_group_count: int | None = None


class CompositePolicy(Struct, frozen=True):
    """What is not a gang does with one group."""

    gang: CompositeGangPolicy | None = None


class CompositeSpec(Struct, frozen=True):
    """What a group of groups asks for."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: Constraints | None = None
    disruption_mode: dict[str, Any] | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class CompositeWire(Struct, frozen=True):
    """A CompositePodGroup."""

    metadata: Metadata = Metadata()
    spec: CompositeSpec = CompositeSpec()


WORKLOADS = Kind(GROUP, FIRST, WORKLOAD, "workloads", wire=WorkloadWire, optional=True)
POD_GROUPS = {
    version: Kind(GROUP, version, POD_GROUP, "podgroups", wire=PodGroupWire, optional=True)
    for version in (SECOND, THIRD)
}
COMPOSITES = Kind(GROUP, OF_COMPOSITES, COMPOSITE, "compositepodgroups", wire=CompositeWire, optional=True)
GANG_KINDS = (WORKLOADS, *POD_GROUPS.values(), COMPOSITES)


def gang_of(pod: PodWire) -> Ref | None:
    """The gang that a pod names, if it names one. Copies of a group are gangs of their own."""
    spec, namespace = pod.spec, pod.metadata.namespace or "default"
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return Ref(DIALECT, POD_GROUP, namespace, spec.scheduling_group.pod_group_name)
    if spec.workload_ref is not None and spec.workload_ref.name:
        named = spec.workload_ref
        return Ref(
            DIALECT,
            WORKLOAD,
            namespace,
            f"{named.name}/{named.pod_group}/{named.pod_group_replica_key or ''}",
        )
    return None


def group_charter(wire: PodGroupWire) -> GangSpec:
    """The rules of a PodGroup."""
    meta, spec = wire.metadata, wire.spec
    said = wire.status.conditions or ()
    return GangSpec(
        source=Ref(DIALECT, POD_GROUP, meta.namespace or "default", meta.name),
        minimum=_minimum(spec.scheduling_policy),
        desired=_desired(spec.scheduling_policy, meta.annotations or {}),
        priority=spec.priority,
        preempts=None if spec.preemption_policy is None else spec.preemption_policy != "Never",
        leaves_whole=spec.disruption_mode == POD_GROUP or _all_go(spec.disruption_mode),
        locality=_locality(spec.scheduling_constraints, meta.annotations or {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
        started=any(one.type in CONDITIONS.values() and one.status == "True" for one in said),
    )


def composite_charter(wire: CompositeWire) -> GangSpec:
    """The rules of a CompositePodGroup by itself; its minimum counts groups."""
    meta, spec = wire.metadata, wire.spec
    gang = spec.scheduling_policy.gang
    return GangSpec(
        source=Ref(DIALECT, COMPOSITE, meta.namespace or "default", meta.name),
        minimum=gang.min_group_count or 1 if gang is not None else 1,
        priority=spec.priority,
        preempts=None if spec.preemption_policy is None else spec.preemption_policy != "Never",
        leaves_whole=_all_go(spec.disruption_mode),
        locality=_locality(spec.scheduling_constraints, {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
    )


def workload_charter(wire: WorkloadWire, ref: Ref) -> GangSpec:
    """The rules of one copy of one group of a Workload; a group that it lacks is a flaw."""
    meta = wire.metadata
    name, wanted, _ = ref.name.split("/")
    group = next((one for one in wire.spec.pod_groups or () if one.name == wanted), None)
    flaw = ""
    if group is None:
        group, flaw = WorkloadGroup(), f'pod group "{wanted}" doesn\'t exist for a workload "{name}"'
    return GangSpec(
        source=ref,
        minimum=_minimum(group.policy),
        desired=_desired(group.policy, meta.annotations or {}),
        locality=_locality(None, meta.annotations or {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
        flaw=flaw,
    )


def _all_go(mode: object) -> bool:
    return isinstance(mode, Mapping) and "all" in mode


def _minimum(policy: GroupPolicyWire) -> int:
    return policy.gang.min_count or 1 if policy.gang is not None else 0


def _desired(policy: GroupPolicyWire, notes: Mapping[str, str]) -> int:
    if policy.gang is not None:
        return 0
    if policy.basic is not None and policy.basic.desired_count is not None:
        return policy.basic.desired_count
    return whole_number(notes.get(DESIRED), INT32_MAX) or 0


def _locality(constraints: Constraints | None, notes: Mapping[str, str]) -> Locality:
    keys = [one.key for one in (constraints.topology or () if constraints is not None else ())]
    return Locality(required=keys[0] if keys else notes.get(TOPOLOGY) or None)
