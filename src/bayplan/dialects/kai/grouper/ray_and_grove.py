"""PodGroups of Ray clusters and of Grove PodGangs: their own objects define the sub-groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bayplan.dialects.jobs.kind import Grouping
from bayplan.dialects.jobs.owners import POD_GANG as GANGS
from bayplan.dialects.jobs.ray_jobs import CLUSTER
from bayplan.dialects.kai.api import segments
from bayplan.dialects.kai.api.names import (
    NON_PREEMPTIBLE,
    POD_GROUP,
    PREEMPTIBILITY,
    PREEMPTIBLE,
    PRIORITY_LABEL,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import SegmentAnnotations, WrongSegments
from bayplan.dialects.kai.grouper.defaults import (
    CannotGroup,
    Object,
    View,
    annotations_of,
    constraint_of,
    default_group,
    labels_of,
    meta_text,
)
from bayplan.dialects.kube.fields.reader import Field

RAY_GROUP = "ray.io/group"
RAY_PRIORITY = "ray.io/priority-class-name"
HEAD_GROUP = "headgroup"
POD_GANG = "grove.io/podgang"
GROVE_TOPOLOGY = "grove.io/topology-name"
UNREAD = "Err: failed to parse topology from"


# ── Ray ────────────────────────────────────────────────────────────────────────────────────────────


def ray(view: View, grouping: Grouping) -> PodGroup:
    """A Ray cluster: from the RayCluster that was created, else from the spec of the owner."""
    owner, namespace = Field(view.top), meta_text(view.top, "namespace")
    names = []
    if grouping.of_pod:
        refs = Field(view.pod).at("metadata", "ownerReferences").items()
        names = [ref.at("name").text() for ref in refs if ref.at("kind").text() == CLUSTER]
    names += [owner.at(*path).text() for path in grouping.cluster_names]
    for name in names:
        cluster = view.find(CLUSTER, namespace, name) if name else None
        if isinstance(cluster, dict):
            return _ray(view, Field(cluster).at("spec"))
    spec = owner.at(*grouping.cluster)
    return _ray(view, _own_cluster(view, spec) if grouping.cluster_names else spec)


def _own_cluster(view: View, spec: Field) -> Field:
    """The cluster spec of a RayJob or RayService, used if no RayCluster is found."""
    if not spec.present and not view.only_named:
        where = f"{meta_text(view.top, 'namespace')}/{meta_text(view.top, 'name')} of kind {view.kind}"
        why = "Please make sure that the ray-operator is up and a rayCluster child-object has been created"
        raise CannotGroup(f"failed to extract rayClusterName for {where}. {why}")
    return spec


def _ray(view: View, spec: Field) -> PodGroup:
    group = default_group(view)
    priority = group.labels.get(RAY_PRIORITY)
    if priority:
        group = replace(group, priority_class=priority)
    try:
        sub_groups = _ray_sub_groups(view, spec)
    except WrongSegments as error:
        return replace(group, flaw=str(error))
    leaves = [one for one in sub_groups if one.name not in {other.parent for other in sub_groups}]
    minimum = sum(one.minimum for one in leaves)
    known = Field(view.find(POD_GROUP.kind, group.namespace, group.name))
    if known.present and not known.at("spec", "subGroups").items():
        return replace(group, minimum=minimum)  # the existing group has no sub-groups: keep it so
    return replace(group, minimum=minimum, sub_groups=sub_groups)


def _ray_sub_groups(view: View, spec: Field) -> tuple[SubGroup, ...]:
    head_annotations = spec.at("headGroupSpec", "template", "metadata", "annotations").texts()
    ray_group, pod = view.pod_labels.get(RAY_GROUP), (meta_text(view.pod, "name"),)
    constraint = _ray_constraint(head_annotations, "headGroupSpec")
    sub_groups = [SubGroup(HEAD_GROUP, 1, "", constraint, pod if ray_group == HEAD_GROUP else ())]
    for number, workers in enumerate(spec.at("workerGroupSpecs").items()):
        if workers.at("suspend").value is True or workers.at("suspended").value is True:
            continue
        name = workers.at("groupName").text() or f"worker-group-{number}"
        sub_groups += _ray_workers(view, workers, name, is_own=ray_group == name)
    return tuple(sub_groups)


def _ray_workers(view: View, workers: Field, name: str, *, is_own: bool) -> Sequence[SubGroup]:
    hosts = max(workers.at("numOfHosts").integer(default=1), 1)
    replicas = workers.at("replicas").integer() * hosts
    minimum = workers.at("minReplicas").integer() * hosts or replicas
    if not minimum and not is_own:
        return []  # no workers at present
    template_annotations = workers.at("template", "metadata", "annotations").texts()
    constraint, pod = (
        _ray_constraint(template_annotations, f"workerGroupSpecs.{name}"),
        (meta_text(view.pod, "name"),),
    )
    pod_annotations = annotations_of(view.pod) if is_own else {}
    annotations = SegmentAnnotations(
        template_annotations, annotations_of(view.top), pod_annotations, view.pod_name, name
    )
    plan = segments.read_plan(annotations, view.kind, view.warnings)
    if plan is None:
        return [SubGroup(name, minimum, "", constraint, pod if is_own else ())]
    segment_groups = list(segments.sub_groups(name, max(replicas, minimum), minimum, plan, view.warnings))
    if is_own:
        index = segments.segment_of(
            segments.read_index(view.pod_labels, plan.index_label, view.pod_name), plan.size
        )
        if index >= len(segment_groups):
            segment_groups.append(SubGroup(f"{name}-{index}", 0, name, plan.constraint, pod))
        segment_groups = [
            replace(one, pods=pod) if one.name == f"{name}-{index}" else one for one in segment_groups
        ]
    return [SubGroup(name, sum(one.minimum for one in segment_groups), "", constraint), *segment_groups]


def _ray_constraint(annotations: Mapping[str, str], where: str) -> Constraint | None:
    """The constraint of a worker group or the head. Raises WrongSegments for a level without a topology."""
    constraint = constraint_of(annotations)
    if constraint is None or not constraint.has_level:
        return None
    if not constraint.topology:
        why = f"topology annotation ({TOPOLOGY_NAME}) is required for {where}"
        raise WrongSegments(f"{why} when topology placement annotations are set")
    return constraint


# ── Grove ──────────────────────────────────────────────────────────────────────────────────────────


def grove(view: View, grouping: Grouping) -> PodGroup:
    """A pod of a Grove PodGang."""
    namespace, name = meta_text(view.pod, "namespace"), view.pod_labels.get(POD_GANG, "")
    if not name:
        raise CannotGroup(f"label for podgang name (key: {POD_GANG}) not found in pod {view.pod_name}")
    where = f"PodGang {namespace}/{name}"
    pod_gang = view.find(GANGS.kind, namespace, name)
    if not isinstance(pod_gang, dict):
        raise CannotGroup(f'failed to get {where}. Err: podgangs.scheduler.grove.io "{name}" not found')
    spec, annotations = Field(pod_gang).at("spec"), annotations_of(pod_gang)
    gang = PodGang(namespace, where, annotations.get(GROVE_TOPOLOGY) or annotations.get(TOPOLOGY_NAME, ""))
    gang_constraint = _pack_constraint(
        spec, gang, f"failed to apply topology constraints from {where}. {UNREAD} PodGang, Err: "
    )
    sub_groups = _grove_sub_groups(spec, gang)
    group = default_group(view, pod_gang)
    group = replace(
        group,
        minimum=sum(one.minimum for one in sub_groups),
        sub_groups=sub_groups,
        priority_class=spec.at("priorityClassName").text() or group.priority_class,
        constraint=gang_constraint or group.constraint,
    )
    return _with_owner(group, view.owners[-1] if view.owners else {})


@dataclass(frozen=True, slots=True)
class PodGang:
    """What the sub-groups of a PodGang share."""

    namespace: str
    where: str  # the PodGang, for messages
    topology: str


def _with_owner(group: PodGroup, owner: Object) -> PodGroup:
    """The PodGroup with labels, annotations and constraint of its owner, unless the PodGang has its own."""
    labels = {**labels_of(owner), **group.labels}
    annotations = {**annotations_of(owner), **group.annotations}
    inherited, own = constraint_of(annotations) or Constraint(), group.constraint or Constraint()
    constraint = Constraint(
        own.topology or inherited.topology,
        own.required or inherited.required,
        own.preferred or inherited.preferred,
    )
    preemptibility = labels.get(PREEMPTIBILITY)
    known = preemptibility in (PREEMPTIBLE, NON_PREEMPTIBLE)
    return replace(
        group,
        labels=labels,
        annotations=annotations,
        priority_class=labels.get(PRIORITY_LABEL) or group.priority_class,
        preemptibility=preemptibility if preemptibility and known else group.preemptibility,
        constraint=constraint if constraint != Constraint() else None,
    )


def _grove_sub_groups(spec: Field, gang: PodGang) -> tuple[SubGroup, ...]:
    parents: dict[str, str] = {}
    sub_groups: list[SubGroup] = []
    configs = _items(
        spec.at("topologyConstraintGroupConfigs"), "failed to parse 'topologyConstraintGroupConfigs' field"
    )
    for number, config in enumerate(configs):
        prefix = f"failed to parse topologyConstraintGroupConfig[{number}]: "
        name = _required(config, "name", prefix).text()
        names = [one.text() for one in config.at("podGroupNames").items()]
        if names:
            error_prefix = (
                f"{prefix}{UNREAD.removeprefix('Err: ')} topologyConstraintGroupConfig {name}. Err: "
            )
            sub_groups.append(SubGroup(name, 0, "", _pack_constraint(config, gang, error_prefix)))
            parents |= dict.fromkeys(names, name)
    for number, part in enumerate(
        _items(spec.at("podgroups"), f"failed to get spec.podgroups from {gang.where}")
    ):
        sub_groups.append(_grove_part(part, gang, number, parents))
    return tuple(sub_groups)


def _grove_part(part: Field, gang: PodGang, number: int, parents: Mapping[str, str]) -> SubGroup:
    prefix = f"failed to parse spec.podgroups[{number}] from {gang.where}. Err: "
    name = _required(part, "name", prefix).text()
    minimum = _required(part, "minReplicas", prefix).integer(minimum=1)
    if not minimum:
        raise CannotGroup(f"{prefix}invalid 'minReplicas' field. Must be greater than 0")
    pods = []
    for index, ref in enumerate(_required(part, "podReferences", prefix).items()):
        where = f"spec.podgroups[{number}].podreferences[{index}] from {gang.where}"
        reference_prefix = f"{prefix}failed to parse {where}. Err: "
        namespace, pod = (_required(ref, key, reference_prefix).text() for key in ("namespace", "name"))
        if namespace != gang.namespace:
            why = f"cross-namespace pod reference not allowed: pod {namespace}/{pod} cannot be referenced"
            raise CannotGroup(f"{prefix}{why} from PodGang in namespace {gang.namespace}")
        pods.append(pod)
    error_prefix = f"{prefix}failed to parse topology constraint from {gang.where}. Err: "
    return SubGroup(
        name, minimum, parents.get(name, ""), _pack_constraint(part, gang, error_prefix), tuple(pods)
    )


def _required(field: Field, key: str, prefix: str) -> Field:
    required = field.at(key)
    if not required.present:
        raise CannotGroup(f"{prefix}missing required '{key}' field")
    return required


def _pack_constraint(field: Field, gang: PodGang, prefix: str) -> Constraint | None:
    """The packConstraint of a PodGang, or of a part of it; None if it has none."""
    pack = field.at("topologyConstraint", "packConstraint")
    constraint = Constraint(gang.topology, pack.at("required").text(), pack.at("preferred").text())
    if constraint.has_level and not gang.topology:
        raise CannotGroup(f"{prefix}topology name cannot be empty when topology constraints are defined")
    return constraint if constraint.has_level else None


def _items(field: Field, prefix: str) -> Sequence[Field]:
    if field.present and not isinstance(field.value, list):
        field.items()
        raise CannotGroup(f"{prefix}. Err: {field.errors[-1]}")
    return field.items()
