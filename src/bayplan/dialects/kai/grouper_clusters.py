"""Groups of Ray clusters and of Grove's gangs: sub-groups that their own objects name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bayplan.dialects.kai import segments
from bayplan.dialects.kai.names import POD_GROUP
from bayplan.dialects.kai.owners import (
    CannotGroup,
    Object,
    View,
    annotations_of,
    default_group,
    meta_text,
    placed_constraint,
)
from bayplan.dialects.kai.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.segments import Notes, WrongSegments
from bayplan.dialects.kube.fields import Field

RAY_GROUP = "ray.io/group"
RAY_PRIORITY = "ray.io/priority-class-name"
HEAD_GROUP = "headgroup"
POD_GANG = "grove.io/podgang"
GROVE_TOPOLOGY = "grove.io/topology-name"


# ── Ray ────────────────────────────────────────────────────────────────────────────────────────────


def ray_cluster(view: View) -> PodGroup:
    """A RayCluster of its own."""
    return _ray(view, Field(view.top).at("spec"))


def ray_job(view: View) -> PodGroup:
    """A RayJob, by the cluster it made, or by the one it will make."""
    owner = Field(view.top)
    name = owner.at("status", "rayClusterName").text()
    found = view.find("RayCluster", meta_text(view.top, "namespace"), name) if name else None
    made = Field(found).at("spec") if isinstance(found, dict) else owner.at("spec", "rayClusterSpec")
    return _ray(view, made)


def ray_service(view: View) -> PodGroup:
    """A RayService, by the cluster that the pod is in."""
    owner, namespace = Field(view.top), meta_text(view.top, "namespace")
    refs = Field(view.pod).at("metadata", "ownerReferences").items()
    names = [ref.at("name").text() for ref in refs if ref.at("kind").text() == "RayCluster"]
    status = owner.at("status")
    names += [
        status.at(key, "rayClusterName").text() for key in ("pendingServiceStatus", "activeServiceStatus")
    ]
    for name in names:
        found = view.find("RayCluster", namespace, name) if name else None
        if isinstance(found, dict):
            return _ray(view, Field(found).at("spec"))
    return _ray(view, owner.at("spec", "rayClusterConfig"))


def _ray(view: View, spec: Field) -> PodGroup:
    group = default_group(view)
    priority = group.labels.get(RAY_PRIORITY)
    if priority:
        group = replace(group, priority_class=priority)
    try:
        found = _ray_sub_groups(view, spec)
    except WrongSegments as wrong:
        return replace(group, flaw=str(wrong))
    leaves = [one for one in found if one.name not in {other.parent for other in found}]
    minimum = sum(one.minimum for one in leaves)
    known = Field(view.find(POD_GROUP.kind, group.namespace, group.name))
    if known.present and not known.at("spec", "subGroups").items():
        return replace(group, minimum=minimum)  # it runs as one group; its pods are in no sub-group
    return replace(group, minimum=minimum, sub_groups=found)


def _ray_sub_groups(view: View, spec: Field) -> tuple[SubGroup, ...]:
    head = spec.at("headGroupSpec", "template", "metadata", "annotations").texts()
    mine, pod = view.pod_labels.get(RAY_GROUP), (meta_text(view.pod, "name"),)
    found = [SubGroup(HEAD_GROUP, 1, "", placed_constraint(head), pod if mine == HEAD_GROUP else ())]
    for number, workers in enumerate(spec.at("workerGroupSpecs").items()):
        if workers.at("suspend").value is True or workers.at("suspended").value is True:
            continue
        name = workers.at("groupName").text() or f"worker-group-{number}"
        found += _ray_workers(view, workers, name, here=mine == name)
    return tuple(found)


def _ray_workers(view: View, workers: Field, name: str, *, here: bool) -> Sequence[SubGroup]:
    hosts = max(workers.at("numOfHosts").integer(default=1), 1)
    replicas = workers.at("replicas").integer(default=1) * hosts
    minimum = (workers.at("minReplicas").integer() or workers.at("replicas").integer(default=1)) * hosts
    notes = workers.at("template", "metadata", "annotations").texts()
    constraint, pod = placed_constraint(notes), (meta_text(view.pod, "name"),)
    own = annotations_of(view.pod) if here else {}
    told = Notes(notes, annotations_of(view.top), own, view.pod_name, name)
    plan = segments.read_plan(told, view.kind, view.warnings)
    if plan is None:
        return [SubGroup(name, minimum, "", constraint, pod if here else ())]
    cut = list(segments.sub_groups(name, max(replicas, minimum), minimum, plan, view.warnings))
    if here:
        at = segments.segment_of(
            segments.read_index(view.pod_labels, plan.index_label, view.pod_name), plan.size
        )
        if at >= len(cut):
            cut.append(SubGroup(f"{name}-{at}", 0, name, plan.constraint, pod))
        cut = [replace(one, pods=pod) if one.name == f"{name}-{at}" else one for one in cut]
    return [SubGroup(name, sum(one.minimum for one in cut), "", constraint), *cut]


# ── Grove ──────────────────────────────────────────────────────────────────────────────────────────


def grove(view: View) -> PodGroup:
    """A pod of a PodGang."""
    namespace, name = meta_text(view.pod, "namespace"), view.pod_labels.get(POD_GANG, "")
    if not name:
        raise CannotGroup(f'pod {view.pod_name} missing required label "{POD_GANG}"')
    found = view.find("PodGang", namespace, name)
    if not isinstance(found, dict):
        raise CannotGroup(f'podgangs.scheduler.grove.io "{name}" not found')
    where, spec = f"PodGang {namespace}/{name}", Field(found).at("spec")
    parts = _listed(spec.at("podgroups"), f"failed to get spec.podgroups from {where}")
    configs = _listed(
        spec.at("topologyConstraintGroupConfigs"), "failed to parse 'topologyConstraintGroupConfigs' field"
    )
    topology = annotations_of(found).get(GROVE_TOPOLOGY, "")
    if not topology and any(_packed(one, "").is_placed for one in (spec, *parts, *configs)):
        raise CannotGroup(
            f"failed to apply topology constraints from {where}. Err: failed to parse topology from PodGang, "
            "Err: topology name cannot be empty when topology constraints are defined"
        )
    group = default_group(view, found)
    sub_groups = _grove_sub_groups(parts, configs, topology, namespace, where)
    whole = _packed(spec, topology)
    return replace(
        group,
        minimum=sum(one.minimum for one in sub_groups),
        sub_groups=sub_groups,
        priority_class=spec.at("priorityClassName").text() or group.priority_class,
        constraint=whole if whole.is_placed else group.constraint,
    )


def _grove_sub_groups(
    parts: Sequence[Field], configs: Sequence[Field], topology: str, namespace: str, where: str
) -> tuple[SubGroup, ...]:
    parents: dict[str, str] = {}
    found: list[SubGroup] = []
    for config in configs:
        names = [one.text() for one in config.at("podGroupNames").items()]
        if names:
            found.append(SubGroup(config.at("name").text(), 0, "", _asked(config, topology)))
            parents |= dict.fromkeys(names, config.at("name").text())
    for part in parts:
        name, refs = part.at("name").text(), part.at("podReferences").items()
        for ref in refs:
            if ref.at("namespace").text(namespace) != namespace:
                other = f"{ref.at('namespace').text()}/{ref.at('name').text()}"
                raise CannotGroup(f"{where} refers to pod {other} in another namespace")
        pods = tuple(ref.at("name").text() for ref in refs)
        minimum = part.at("minReplicas").integer(default=1)
        found.append(SubGroup(name, minimum, parents.get(name, ""), _asked(part, topology), pods))
    return tuple(found)


def _asked(field: Field, topology: str) -> Constraint | None:
    found = _packed(field, topology)
    return found if found.is_placed else None


def _packed(field: Field, topology: str) -> Constraint:
    pack = field.at("topologyConstraint", "packConstraint")
    return Constraint(topology, pack.at("required").text(), pack.at("preferred").text())


def _listed(field: Field, trouble: str) -> Sequence[Field]:
    if field.present and not isinstance(field.value, list):
        field.items()
        raise CannotGroup(f"{trouble}. Err: {field.errors[-1]}")
    return field.items()


def pod_gang_of(pod: Object) -> str:
    """The PodGang that a pod belongs to, if any."""
    return Field(pod).at("metadata", "labels").texts().get(POD_GANG, "")
