"""Groups of training jobs: replica types that start together, in segments where a template asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bayplan.dialects.jobs.part import JobPart
from bayplan.dialects.jobs.training_jobs import LAUNCHER, MPI_SPECS, mpi_parts, replica_parts
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
"""The replica type that a minimum below the sum of all is taken from."""

Grouper = Callable[[View], PodGroup]


def training(specs: str, *mandatory: str, always: bool = False, elastic: bool = False) -> Grouper:
    """A job with a map of replica types; `always` has sub-groups also where no type has segments."""

    def group(view: View) -> PodGroup:
        parts = _parts(view, specs)
        minimum = _minimum(view, specs, parts, mandatory, elastic=elastic)
        return by_type(view, parts, minimum, view.pod_labels.get(REPLICA_TYPE, ""), always=always)

    return group


def mpi_job(view: View) -> PodGroup:
    """An MPIJob; a launcher that comes once all workers are ready is not waited for."""
    parts = mpi_parts(Field(view.top), view.find)
    minimum = _minimum(view, MPI_SPECS, parts, ("Launcher", "Worker"))
    labels = view.pod_labels
    role = labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE, "")
    if Field(view.top).at("spec", "launcherCreationPolicy").text() == LATE_LAUNCHER:
        wanted = {JOB_NAME: meta_text(view.top, "name"), JOB_ROLE: LAUNCHER.lower()}
        there = view.pods(meta_text(view.pod, "namespace"), wanted)
        if role != LAUNCHER.lower() and all(meta_text(pod, "deletionTimestamp") for pod in there):
            launchers = [part for part in parts if part.name == LAUNCHER.lower()]
            minimum -= sum(part.count for part in launchers)
            parts = [part for part in parts if part not in launchers]
    return by_type(view, parts, minimum, role)


def aml_job(view: View) -> PodGroup:
    """An AmlJob says in its environment how many nodes it wants."""
    count = Field(view.top).at("spec", "job", "options", "envs", "AZUREML_NODE_COUNT").value
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
    """A group with a sub-group for each replica type, and segments below those that ask for them.

    Without segments the sub-groups say nothing that the minimum does not, and are left out unless wanted.
    """
    group = default_group(view) if flat is None else flat
    mine = mine.lower()
    try:
        plans = {part.name: _plan(view, part, mine) for part in parts}
        if not always and not any(plans.values()):
            return replace(group, minimum=minimum)
        made, rounded = _sub_groups(view, parts, plans, minimum, mine)
    except WrongSegments as wrong:  # never placed in a way that was not asked for, never lost
        plain = _plain(view, parts, minimum, mine) if always else ()
        return replace(group, minimum=minimum, sub_groups=plain, flaw=str(wrong))
    return replace(group, minimum=minimum + rounded, sub_groups=made)


def types_minimum(parts: Sequence[JobPart], minimum: int) -> dict[str, int]:
    """How many of each type cannot be done without: all, but for the elastic type, which has the rest."""
    elastic = next((part.name for part in parts if part.name == ELASTIC), parts[-1].name if parts else "")
    if len(parts) == 1 and elastic != ELASTIC:
        return {part.name: min(part.count, minimum) for part in parts}
    others = sum(part.count for part in parts if part.name != elastic)
    return {part.name: max(minimum - others, 0) if part.name == elastic else part.count for part in parts}


def _plain(view: View, parts: Sequence[JobPart], minimum: int, mine: str) -> tuple[SubGroup, ...]:
    pods = (meta_text(view.pod, "name"),)
    return tuple(
        SubGroup(name, least, pods=pods if name == mine else ())
        for name, least in types_minimum(parts, minimum).items()
    )


def _sub_groups(
    view: View, parts: Sequence[JobPart], plans: dict[str, SegmentPlan | None], minimum: int, mine: str
) -> tuple[tuple[SubGroup, ...], int]:
    """All sub-groups, and by how much segments that cannot be halved raise the minimum."""
    least = types_minimum(parts, minimum)
    found: list[SubGroup] = []
    below: list[SubGroup] = []
    rounded = 0
    for part in parts:
        plan = plans[part.name]
        if plan is None:
            here = (meta_text(view.pod, "name"),) if part.name == mine else ()
            found.append(SubGroup(part.name, least[part.name], pods=here))
            continue
        asked = min(least[part.name], part.count)
        cut = segments.sub_groups(part.name, part.count, asked, plan, view.warnings)
        total = sum(one.minimum for one in cut)
        rounded += total - asked
        found.append(SubGroup(part.name, total))
        below += joined(view, part, plan, cut) if part.name == mine else cut
    return (*found, *below), rounded


def joined(view: View, part: JobPart, plan: SegmentPlan, cut: Sequence[SubGroup]) -> Sequence[SubGroup]:
    """The segments of the pod's own type with the pod in one of them; beyond the last a new one opens."""
    name = meta_text(view.pod, "name")
    number = segments.read_index(view.pod_labels, plan.index_label, view.pod_name) - part.index_offset
    at = segments.segment_of(max(number, 0), plan.size)
    if at < len(cut):
        return [replace(one, pods=(name,)) if i == at else one for i, one in enumerate(cut)]
    return [*cut, SubGroup(f"{part.name}-{at}", 0, part.name, plan.constraint, (name,))]


def _plan(view: View, part: JobPart, mine: str) -> SegmentPlan | None:
    own = annotations_of(view.pod) if part.name == mine else {}
    notes = SegmentAnnotations(
        part.metadata.at("annotations").texts(),
        annotations_of(view.top),
        own,
        view.pod_name,
        part.name,
    )
    indexed = part.index_label is not None
    return segments.read_plan(notes, view.kind, view.warnings, indexed=indexed)


def _parts(view: View, specs: str) -> list[JobPart]:
    owner = Field(view.top)
    types = sorted(name for name, _ in owner.at("spec", specs).entries())  # the order of a map says nothing
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
    least = spec.at("elasticPolicy", "minReplicas")
    if elastic and least.present:
        return least.integer(minimum=1, default=1)
    return sum(part.count for part in parts)
