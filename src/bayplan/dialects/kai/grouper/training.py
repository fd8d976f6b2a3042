"""PodGroups of training jobs: replica types, with segments where a template requests them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bayplan.dialects.jobs.kind import Grouping
from bayplan.dialects.jobs.kinds import parts as read_parts
from bayplan.dialects.jobs.part import JobPart
from bayplan.dialects.jobs.training_jobs import LAUNCHER, mpi_parts, replica_parts
from bayplan.dialects.kai.api import segments
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import SegmentAnnotations, SegmentPlan, WrongSegments, whole_number
from bayplan.dialects.kai.grouper.defaults import CannotGroup, View, annotations_of, default_group, meta_text
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field, shorten

REPLICA_TYPE = "training.kubeflow.org/replica-type"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
LATE_LAUNCHER = "WaitForWorkersReady"
ELASTIC = "worker"
"""The replica type that is elastic if the minimum is below the sum of all replicas."""


def replica_types(view: View, grouping: Grouping) -> PodGroup:
    """A job with a map of replica types."""
    if grouping.waits:
        return _with_launcher(view, grouping)
    parts = _parts(view, grouping.specs)
    minimum = _minimum(view, grouping.specs, parts, grouping.mandatory, elastic=grouping.elastic)
    return by_type(view, parts, minimum, view.pod_labels.get(REPLICA_TYPE, ""), always=grouping.always)


def pod_set(view: View, grouping: Grouping) -> PodGroup:
    """A job with one pod set, whose pods start together."""
    if view.only_named:
        return default_group(view)
    parts = read_parts(Field(view.top), view.find)
    return by_type(view, parts, sum(part.count for part in parts), parts[0].name)


def _with_launcher(view: View, grouping: Grouping) -> PodGroup:
    """An MPIJob. A launcher that is created after the workers are ready does not count for the minimum."""
    parts = mpi_parts(Field(view.top), view.find)
    minimum = _minimum(view, grouping.specs, parts, grouping.mandatory)
    labels = view.pod_labels
    role = labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE, "")
    if Field(view.top).at("spec", "launcherCreationPolicy").text() == LATE_LAUNCHER:
        launcher_labels = {JOB_NAME: meta_text(view.top, "name"), JOB_ROLE: LAUNCHER.lower()}
        launcher_pods = view.pods(meta_text(view.pod, "namespace"), launcher_labels)
        if role != LAUNCHER.lower() and all(meta_text(pod, "deletionTimestamp") for pod in launcher_pods):
            launchers = [part for part in parts if part.name == LAUNCHER.lower()]
            minimum -= sum(part.count for part in launchers)
            parts = [part for part in parts if part not in launchers]
    return by_type(view, parts, minimum, role)


def node_count(view: View, grouping: Grouping) -> PodGroup:
    """An AmlJob: its environment has the number of nodes."""
    count = Field(view.top).at(*grouping.count).value
    if count is None:
        raise CannotGroup("azureml envs count not found in spec")
    number = whole_number(count) if isinstance(count, str) else count
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= INT32_MAX:
        raise CannotGroup(f"AZUREML_NODE_COUNT must be a whole number from 1, not {shorten(count)}")
    return replace(default_group(view), minimum=number)


def by_type(
    view: View, parts: Sequence[JobPart], minimum: int, mine: str, *, always: bool = False,
    flat: PodGroup | None = None,
) -> PodGroup:  # fmt: skip
    """A PodGroup with a sub-group for each replica type, and segments below those that request them.

    Without segments, sub-groups add nothing to the minimum and are left out, unless `always`.
    """
    group = default_group(view) if flat is None else flat
    mine = mine.lower()
    try:
        plans = {part.name: _plan(view, part, mine) for part in parts}
        if not always and not any(plans.values()):
            return replace(group, minimum=minimum)
        sub_groups, rounded = _sub_groups(view, parts, plans, minimum, mine)
    except WrongSegments as error:  # the flaw keeps the gang pending
        plain = _plain(view, parts, minimum, mine) if always else ()
        return replace(group, minimum=minimum, sub_groups=plain, flaw=str(error))
    return replace(group, minimum=minimum + rounded, sub_groups=sub_groups)


def types_minimum(parts: Sequence[JobPart], minimum: int) -> dict[str, int]:
    """The minimum of each type: all replicas, except for the elastic type, which has the rest."""
    elastic = next((part.name for part in parts if part.name == ELASTIC), parts[-1].name if parts else "")
    if len(parts) == 1 and elastic != ELASTIC:
        return {part.name: min(part.count, minimum) for part in parts}
    others = sum(part.count for part in parts if part.name != elastic)
    return {part.name: max(minimum - others, 0) if part.name == elastic else part.count for part in parts}


def _plain(view: View, parts: Sequence[JobPart], minimum: int, mine: str) -> tuple[SubGroup, ...]:
    pods = (meta_text(view.pod, "name"),)
    return tuple(
        SubGroup(name, type_minimum, pods=pods if name == mine else ())
        for name, type_minimum in types_minimum(parts, minimum).items()
    )


def _sub_groups(
    view: View, parts: Sequence[JobPart], plans: dict[str, SegmentPlan | None], minimum: int, mine: str
) -> tuple[tuple[SubGroup, ...], int]:
    """All sub-groups, and by how much rounding up to whole segments raises the minimum."""
    minimums = types_minimum(parts, minimum)
    type_groups: list[SubGroup] = []
    segment_groups: list[SubGroup] = []
    rounded = 0
    for part in parts:
        plan = plans[part.name]
        if plan is None:
            own_pods = (meta_text(view.pod, "name"),) if part.name == mine else ()
            type_groups.append(SubGroup(part.name, minimums[part.name], pods=own_pods))
            continue
        type_minimum = min(minimums[part.name], part.count)
        segments_of_type = segments.sub_groups(part.name, part.count, type_minimum, plan, view.warnings)
        rounded_minimum = sum(one.minimum for one in segments_of_type)
        rounded += rounded_minimum - type_minimum
        type_groups.append(SubGroup(part.name, rounded_minimum))
        segment_groups += (
            joined(view, part, plan, segments_of_type) if part.name == mine else segments_of_type
        )
    return (*type_groups, *segment_groups), rounded


def joined(
    view: View, part: JobPart, plan: SegmentPlan, segment_groups: Sequence[SubGroup]
) -> Sequence[SubGroup]:
    """The segments of the pod's own type, with the pod in its segment; a high index adds a segment."""
    name = meta_text(view.pod, "name")
    index = segments.read_index(view.pod_labels, plan.index_label, view.pod_name) - part.index_offset
    segment = segments.segment_of(max(index, 0), plan.size)
    if segment < len(segment_groups):
        return [replace(one, pods=(name,)) if i == segment else one for i, one in enumerate(segment_groups)]
    return [*segment_groups, SubGroup(f"{part.name}-{segment}", 0, part.name, plan.constraint, (name,))]


def _plan(view: View, part: JobPart, mine: str) -> SegmentPlan | None:
    pod_annotations = annotations_of(view.pod) if part.name == mine else {}
    annotations = SegmentAnnotations(
        part.metadata.at("annotations").texts(),
        annotations_of(view.top),
        pod_annotations,
        view.pod_name,
        part.name,
    )
    indexed = part.index_label is not None
    return segments.read_plan(annotations, view.kind, view.warnings, indexed=indexed)


def _parts(view: View, specs: str) -> list[JobPart]:
    owner = Field(view.top)
    types = sorted(name for name, _ in owner.at("spec", specs).entries())  # a map has no order
    return replica_parts(specs, *types)(owner, view.find)


def _minimum(
    view: View, specs: str, parts: Sequence[JobPart], mandatory: Sequence[str], *, elastic: bool = False
) -> int:
    spec = Field(view.top).at("spec")
    stated = spec.at("runPolicy", "schedulingPolicy", "minAvailable")
    if stated.present:
        return stated.integer(minimum=1, default=1)
    if view.only_named:
        return 1
    name, types = meta_text(view.top, "name"), dict(spec.at(specs).entries())
    job, fix = f"the type of the job {name}", "Please fix the replica field"
    if not spec.at(specs).present:
        raise CannotGroup(f"{job} doesn't have a {specs} field. {fix}")
    for one in mandatory:
        if one not in types:
            raise CannotGroup(f"{job} doesn't have a {one} replica spec which is required. {fix}")
    for one, field in types.items():
        if not field.present or field.at("replicas").value == 0:
            raise CannotGroup(f"{job} doesn't allow for 0 {one} pods. {fix}")
    if not parts:
        why = "Must be greater than 0, but got 0"
        raise CannotGroup(f"failed calculate number of pods for a distributed job {name}. {why}")
    min_replicas = spec.at("elasticPolicy", "minReplicas")
    if elastic and min_replicas.present:
        return min_replicas.integer(minimum=1, default=1)
    return sum(part.count for part in parts)
