"""Workloads and PodGroups of the gang scheduling API, in all versions, as gang specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import Metadata, PodConditionWire, PodWire, Struct
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, V1ALPHA3, V1BETA1
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.whole_numbers import INT32_MAX, whole_number

DIALECT = "gang"
WORKLOAD, POD_GROUP, COMPOSITE = "Workload", "PodGroup", "CompositePodGroup"
DESIRED = "bayplan.dev/desired-count"
TOPOLOGY = "bayplan.dev/required-topology"
"""Annotations for what no released version has a field for."""
CONDITIONS = {V1ALPHA2: "PodGroupScheduled", V1BETA1: "PodGroupInitiallyScheduled"}


class BasicPolicy(Struct, frozen=True):
    """Pods are scheduled one by one."""

    desired_count: int | None = None


class GangPolicy(Struct, frozen=True):
    """At least minCount pods are scheduled together."""

    min_count: int | None = None


class GroupPolicyWire(Struct, frozen=True):
    """The scheduling policy of a group: basic or gang."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class WorkloadGroup(Struct, frozen=True):
    """A group of a Workload of v1alpha1."""

    name: str = ""
    policy: GroupPolicyWire = GroupPolicyWire()


class WorkloadSpec(Struct, frozen=True):
    """The spec of a Workload."""

    pod_groups: list[WorkloadGroup] | None = None


class WorkloadWire(Struct, frozen=True):
    """A Workload of v1alpha1; later versions only contain templates, which do not affect scheduling."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()


class TopologyKey(Struct, frozen=True):
    """A node label; all pods must share one value of it."""

    key: str = ""


class Constraints(Struct, frozen=True):
    """The scheduling constraints of a group."""

    topology: list[TopologyKey] | None = None


class PodGroupSpec(Struct, frozen=True):
    """The spec of a PodGroup."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: GroupPolicyWire = GroupPolicyWire()
    scheduling_constraints: Constraints | None = None
    disruption_mode: str | dict[str, Any] | None = None  # a string in v1alpha2, a union since v1beta1
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroupStatus(Struct, frozen=True):
    """The status of a PodGroup."""

    conditions: list[PodConditionWire] | None = None


class PodGroupWire(Struct, frozen=True):
    """A PodGroup."""

    metadata: Metadata = Metadata()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class CompositeGangPolicy(Struct, frozen=True):
    """At least minGroupCount groups are scheduled together."""

    min_group_count: int | None = None


class CompositePolicy(Struct, frozen=True):
    """The scheduling policy of a CompositePodGroup; basic needs one group."""

    gang: CompositeGangPolicy | None = None


class CompositeSpec(Struct, frozen=True):
    """The spec of a CompositePodGroup."""

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


WORKLOADS = Kind(GROUP, V1ALPHA1, WORKLOAD, "workloads", wire=WorkloadWire, optional=True)
POD_GROUPS = {
    version: Kind(GROUP, version, POD_GROUP, "podgroups", wire=PodGroupWire, optional=True)
    for version in (V1ALPHA2, V1BETA1)
}
COMPOSITES = Kind(GROUP, V1ALPHA3, COMPOSITE, "compositepodgroups", wire=CompositeWire, optional=True)
GANG_KINDS = (WORKLOADS, *POD_GROUPS.values(), COMPOSITES)


def gang_of(pod: PodWire) -> Ref | None:
    """The gang that a pod names; None if it names none. Each replica of a group is a gang."""
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


def pod_group_spec(wire: PodGroupWire) -> GangSpec:
    """The gang spec of a PodGroup."""
    meta, spec = wire.metadata, wire.spec
    conditions = wire.status.conditions or ()
    return GangSpec(
        source=Ref(DIALECT, POD_GROUP, meta.namespace or "default", meta.name),
        minimum=_minimum(spec.scheduling_policy),
        desired=_desired(spec.scheduling_policy, meta.annotations or {}),
        priority=spec.priority,
        preempts=None if spec.preemption_policy is None else spec.preemption_policy != "Never",
        disrupt_together=spec.disruption_mode == POD_GROUP or _disrupts_all(spec.disruption_mode),
        locality=_locality(spec.scheduling_constraints, meta.annotations or {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
        started=any(one.type in CONDITIONS.values() and one.status == "True" for one in conditions),
    )


def pending_message(wire: PodGroupWire) -> str:
    """Why a PodGroup is pending, as its condition says; empty if it says nothing."""
    for one in wire.status.conditions or ():
        if one.type in CONDITIONS.values() and one.status == "False":
            return one.message or ""
    return ""


def composite_spec(wire: CompositeWire) -> GangSpec:
    """The gang spec of a CompositePodGroup alone; its minimum counts groups."""
    meta, spec = wire.metadata, wire.spec
    gang = spec.scheduling_policy.gang
    return GangSpec(
        source=Ref(DIALECT, COMPOSITE, meta.namespace or "default", meta.name),
        minimum=gang.min_group_count or 1 if gang is not None else 1,
        priority=spec.priority,
        preempts=None if spec.preemption_policy is None else spec.preemption_policy != "Never",
        disrupt_together=_disrupts_all(spec.disruption_mode),
        locality=_locality(spec.scheduling_constraints, {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
    )


def workload_group_spec(wire: WorkloadWire, ref: Ref) -> GangSpec:
    """The gang spec of one replica of a group of a Workload; a missing group is a flaw."""
    meta = wire.metadata
    name, group_name, _ = ref.name.split("/")
    group = next((one for one in wire.spec.pod_groups or () if one.name == group_name), None)
    flaw = ""
    if group is None:
        group, flaw = WorkloadGroup(), f'pod group "{group_name}" doesn\'t exist for a workload "{name}"'
    return GangSpec(
        source=ref,
        minimum=_minimum(group.policy),
        desired=_desired(group.policy, meta.annotations or {}),
        locality=_locality(None, meta.annotations or {}),
        created=seconds(meta.creation_timestamp or ""),
        uid=meta.uid,
        flaw=flaw,
    )


def _disrupts_all(mode: object) -> bool:
    return isinstance(mode, Mapping) and "all" in mode


def _minimum(policy: GroupPolicyWire) -> int:
    return policy.gang.min_count or 1 if policy.gang is not None else 0


def _desired(policy: GroupPolicyWire, annotations: Mapping[str, str]) -> int:
    if policy.gang is not None:
        return 0
    if policy.basic is not None and policy.basic.desired_count is not None:
        return policy.basic.desired_count
    return whole_number(annotations.get(DESIRED), INT32_MAX) or 0


def _locality(constraints: Constraints | None, annotations: Mapping[str, str]) -> Locality:
    keys = [one.key for one in (constraints.topology or () if constraints is not None else ())]
    return Locality(required=keys[0] if keys else annotations.get(TOPOLOGY) or None)
