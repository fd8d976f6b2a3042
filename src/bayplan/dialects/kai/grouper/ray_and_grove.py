"""Groups of Ray clusters and of Grove's gangs: sub-groups that their own objects name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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


def ray_cluster(view: View) -> PodGroup:
    """A RayCluster of its own."""
    return _ray(view, Field(view.top).at("spec"))


def ray_job(view: View) -> PodGroup:
    """A RayJob, by the cluster it made, or by the one it will make."""
    owner = Field(view.top)
    name = owner.at("status", "rayClusterName").text()
    found = view.find("RayCluster", meta_text(view.top, "namespace"), name) if name else None
    if isinstance(found, dict):
        return _ray(view, Field(found).at("spec"))
    return _ray(view, _own_cluster(view, owner.at("spec", "rayClusterSpec")))


def ray_service(view: View) -> PodGroup:
    """A RayService, by the cluster that the pod is in."""
    owner, namespace = Field(view.top), meta_text(view.top, "namespace")
    refs = Field(view.pod).at("metadata", "ownerReferences").items()
    names = [ref.at("name").text() for ref in refs if ref.at("kind").text() == "RayCluster"]
    status = owner.at("status")
    names += [
        status.at(key, "rayClusterName").text() for key in ("activeServiceStatus", "pendingServiceStatus")
    ]
    for name in names:
        found = view.find("RayCluster", namespace, name) if name else None
        if isinstance(found, dict):
            return _ray(view, Field(found).at("spec"))
    return _ray(view, _own_cluster(view, owner.at("spec", "rayClusterConfig")))


def _own_cluster(view: View, spec: Field) -> Field:
    """The cluster as it will be made, where none is found that was."""
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
    own = _ray_constraint(head, "headGroupSpec")
    found = [SubGroup(HEAD_GROUP, 1, "", own, pod if mine == HEAD_GROUP else ())]
    for number, workers in enumerate(spec.at("workerGroupSpecs").items()):
        if workers.at("suspend").value is True or workers.at("suspended").value is True:
            continue
        name = workers.at("groupName").text() or f"worker-group-{number}"
        found += _ray_workers(view, workers, name, here=mine == name)
    return tuple(found)


def _ray_workers(view: View, workers: Field, name: str, *, here: bool) -> Sequence[SubGroup]:
    hosts = max(workers.at("numOfHosts").integer(default=1), 1)
    replicas = workers.at("replicas").integer() * hosts
    minimum = workers.at("minReplicas").integer() * hosts or replicas
    if not minimum and not here:
        return []  # nobody, for now
    notes = workers.at("template", "metadata", "annotations").texts()
    constraint, pod = _ray_constraint(notes, f"workerGroupSpecs.{name}"), (meta_text(view.pod, "name"),)
    own = annotations_of(view.pod) if here else {}
    told = SegmentAnnotations(notes, annotations_of(view.top), own, view.pod_name, name)
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


def _ray_constraint(notes: Mapping[str, str], where: str) -> Constraint | None:
    """Where a group of nodes belongs; a level of no topology is a mistake that nobody may be placed by."""
    found = constraint_of(notes)
    if found is None or not found.is_placed:
        return None
    if not found.topology:
        why = f"topology annotation ({TOPOLOGY_NAME}) is required for {where}"
        raise WrongSegments(f"{why} when topology placement annotations are set")
    return found


# ── Grove ──────────────────────────────────────────────────────────────────────────────────────────


def grove(view: View) -> PodGroup:
    """A pod of a PodGang."""
    namespace, name = meta_text(view.pod, "namespace"), view.pod_labels.get(POD_GANG, "")
    if not name:
        raise CannotGroup(f"label for podgang name (key: {POD_GANG}) not found in pod {view.pod_name}")
    where = f"PodGang {namespace}/{name}"
    found = view.find("PodGang", namespace, name)
    if not isinstance(found, dict):
        raise CannotGroup(f'failed to get {where}. Err: podgangs.scheduler.grove.io "{name}" not found')
    spec, notes = Field(found).at("spec"), annotations_of(found)
    gang = PodGang(namespace, where, notes.get(GROVE_TOPOLOGY) or notes.get(TOPOLOGY_NAME, ""))
    whole = _packed(spec, gang, f"failed to apply topology constraints from {where}. {UNREAD} PodGang, Err: ")
    sub_groups = _grove_sub_groups(spec, gang)
    group = default_group(view, found)
    group = replace(
        group,
        minimum=sum(one.minimum for one in sub_groups),
        sub_groups=sub_groups,
        priority_class=spec.at("priorityClassName").text() or group.priority_class,
        constraint=whole or group.constraint,
    )
    return _with_owner(group, view.owners[-1] if view.owners else {})


@dataclass(frozen=True, slots=True)
class PodGang:
    """What all parts of a PodGang share."""

    namespace: str
    where: str  # the PodGang, for complaints
    topology: str


def _with_owner(group: PodGroup, owner: Object) -> PodGroup:
    """What the user wrote on the set that the PodGang was made for counts where the PodGang says nothing."""
    labels = {**labels_of(owner), **group.labels}
    annotations = {**annotations_of(owner), **group.annotations}
    asked, mine = constraint_of(annotations) or Constraint(), group.constraint or Constraint()
    constraint = Constraint(
        mine.topology or asked.topology, mine.required or asked.required, mine.preferred or asked.preferred
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
    found: list[SubGroup] = []
    configs = _listed(
        spec.at("topologyConstraintGroupConfigs"), "failed to parse 'topologyConstraintGroupConfigs' field"
    )
    for number, config in enumerate(configs):
        trouble = f"failed to parse topologyConstraintGroupConfig[{number}]: "
        name = _needed(config, "name", trouble).text()
        names = [one.text() for one in config.at("podGroupNames").items()]
        if names:
            unread = f"{trouble}{UNREAD.removeprefix('Err: ')} topologyConstraintGroupConfig {name}. Err: "
            found.append(SubGroup(name, 0, "", _packed(config, gang, unread)))
            parents |= dict.fromkeys(names, name)
    for number, part in enumerate(
        _listed(spec.at("podgroups"), f"failed to get spec.podgroups from {gang.where}")
    ):
        found.append(_grove_part(part, gang, number, parents))
    return tuple(found)


def _grove_part(part: Field, gang: PodGang, number: int, parents: Mapping[str, str]) -> SubGroup:
    trouble = f"failed to parse spec.podgroups[{number}] from {gang.where}. Err: "
    name = _needed(part, "name", trouble).text()
    minimum = _needed(part, "minReplicas", trouble).integer(minimum=1)
    if not minimum:
        raise CannotGroup(f"{trouble}invalid 'minReplicas' field. Must be greater than 0")
    pods = []
    for at, ref in enumerate(_needed(part, "podReferences", trouble).items()):
        place = (
            f"{trouble}failed to parse spec.podgroups[{number}].podreferences[{at}] from {gang.where}. Err: "
        )
        namespace, pod = (_needed(ref, key, place).text() for key in ("namespace", "name"))
        if namespace != gang.namespace:
            why = f"cross-namespace pod reference not allowed: pod {namespace}/{pod} cannot be referenced"
            raise CannotGroup(f"{trouble}{why} from PodGang in namespace {gang.namespace}")
        pods.append(pod)
    unread = f"{trouble}failed to parse topology constraint from {gang.where}. Err: "
    return SubGroup(name, minimum, parents.get(name, ""), _packed(part, gang, unread), tuple(pods))


def _needed(field: Field, key: str, trouble: str) -> Field:
    found = field.at(key)
    if not found.present:
        raise CannotGroup(f"{trouble}missing required '{key}' field")
    return found


def _packed(field: Field, gang: PodGang, trouble: str) -> Constraint | None:
    """Where pods belong together, if they do."""
    pack = field.at("topologyConstraint", "packConstraint")
    found = Constraint(gang.topology, pack.at("required").text(), pack.at("preferred").text())
    if found.is_placed and not gang.topology:
        raise CannotGroup(f"{trouble}topology name cannot be empty when topology constraints are defined")
    return found if found.is_placed else None


def _listed(field: Field, trouble: str) -> Sequence[Field]:
    if field.present and not isinstance(field.value, list):
        field.items()
        raise CannotGroup(f"{trouble}. Err: {field.errors[-1]}")
    return field.items()
