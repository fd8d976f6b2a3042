"""PodGroups of serving workloads: LeaderWorkerSet with its segments, Deployment, and Knative services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bayplan.dialects.jobs.kind import Grouping
from bayplan.dialects.jobs.owners import REVISION as REVISIONS
from bayplan.dialects.jobs.part import WORKER_INDEX
from bayplan.dialects.jobs.serving_jobs import GROUP_INDEX, LEADER_WORKER_SET, POD, SET_NAME
from bayplan.dialects.kai.api import segments
from bayplan.dialects.kai.api.names import POD_GROUP, POD_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import SEGMENT_ANNOTATIONS, SegmentAnnotations, WrongSegments
from bayplan.dialects.kai.grouper.defaults import (
    CannotGroup,
    View,
    annotations_of,
    default_group,
    group_name,
    labels_of,
    meta_text,
    one_pod,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field, shorten

GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"
LEADER, WORKERS, SEGMENT = "leader", "workers", "segment"
LEADER_READY, LEADER_CREATED, LEADER_EXCLUDED = "LeaderReady", "LeaderCreated", "LeaderExcluded"
LEADERS = 1
REVISION = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


def each_pod(view: View, grouping: Grouping) -> PodGroup:
    """A Deployment: each pod is a group of its own."""
    return one_pod(view, default_group(view, priority=grouping.work))


# ── LeaderWorkerSet ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cut:
    """How the pods of one group of a LeaderWorkerSet are split into segments."""

    size: int
    with_leader: bool  # whether the leader counts as a pod of the first segment
    apart: bool = False  # the leader is in no segment
    constraint: Constraint | None = None
    index_label: str = WORKER_INDEX


def leader_worker_set(view: View, grouping: Grouping) -> PodGroup:
    """One group of a LeaderWorkerSet."""
    group = default_group(view)
    group_index = segments.whole_number(view.pod_labels.get(GROUP_INDEX, ""))
    if group_index is not None:
        group = replace(group, name=f"{group.name}-group-{group_index}")
    size = _size(view)
    try:
        sub_groups = leader_worker_sub_groups(view, size)
    except WrongSegments as error:
        return replace(group, minimum=size, flaw=str(error))
    return replace(group, minimum=size, sub_groups=sub_groups)


def leader_worker_sub_groups(view: View, size: int) -> tuple[SubGroup, ...]:
    """Leader and workers; or segments, with the leader in the first one unless it is excluded."""
    cut = _cut(view, size)
    pod = (meta_text(view.pod, "name"),)
    is_leader = view.pod_labels.get(WORKER_INDEX) == "0"
    if cut is None or size <= LEADERS:
        leader = SubGroup(LEADER, LEADERS, pods=pod if is_leader else ())
        workers = SubGroup(WORKERS, size - LEADERS, pods=() if is_leader else pod)
        return (leader, workers) if size > LEADERS else (leader,)
    index = 0 if is_leader else segments.read_index(view.pod_labels, cut.index_label, view.pod_name)
    counted = size if cut.with_leader else size - LEADERS
    pod_index = index if cut.with_leader else max(segments.worker_number(index, LEADERS), 0)
    own_segment = 0 if is_leader else segments.segment_of(pod_index, cut.size)
    segment_groups = [
        SubGroup(f"{SEGMENT}-{number}", segment.minimum, "", cut.constraint)
        for number, segment in _shares(counted, cut)
    ]
    if own_segment >= len(segment_groups):  # a pod beyond the size of its group is optional
        segment_groups.append(SubGroup(f"{SEGMENT}-{own_segment}", 0, "", cut.constraint))
    if cut.apart:
        leader = SubGroup(LEADER, LEADERS, pods=pod if is_leader else ())
        return (
            leader,
            *(segment_groups if is_leader else _with_pod(segment_groups, f"{SEGMENT}-{own_segment}", pod)),
        )
    if own_segment and not is_leader:
        segment_groups = _with_pod(segment_groups, f"{SEGMENT}-{own_segment}", pod)
    return (
        *_first_with_leader(segment_groups, cut),
        *_inside_first(segment_groups[0], cut, pod, is_leader, own_segment == 0),
    )


def _shares(counted: int, cut: Cut) -> Sequence[tuple[int, segments.SegmentSize]]:
    return list(enumerate(segments.segment_sizes(counted, counted, cut.size)))


def _first_with_leader(segment_groups: Sequence[SubGroup], cut: Cut) -> Sequence[SubGroup]:
    if cut.with_leader:
        return segment_groups
    return [replace(segment_groups[0], minimum=segment_groups[0].minimum + LEADERS), *segment_groups[1:]]


def _inside_first(
    first: SubGroup, cut: Cut, pod: tuple[str, ...], is_leader: bool, is_own: bool
) -> tuple[SubGroup, ...]:
    workers = first.minimum - LEADERS if cut.with_leader else first.minimum
    leader = SubGroup(LEADER, LEADERS, first.name, None, pod if is_leader else ())
    if not workers:
        return (leader,)
    return (leader, SubGroup(WORKERS, workers, first.name, None, pod if is_own and not is_leader else ()))


def _with_pod(sub_groups: Sequence[SubGroup], name: str, pod: tuple[str, ...]) -> list[SubGroup]:
    return [replace(one, pods=pod) if one.name == name else one for one in sub_groups]


def _size(view: View) -> int:
    """The minimum of a group: its size, or only the leader if workers are created after it is ready."""
    spec, where = (
        Field(view.top).at("spec"),
        f"LWS {meta_text(view.top, 'namespace')}/{meta_text(view.top, 'name')}",
    )
    size_field = spec.at("leaderWorkerTemplate", "size")
    if view.only_named:
        return LEADERS
    if not size_field.present:
        raise CannotGroup(f"leaderWorkerTemplate.size not found in {where}")
    size = size_field.integer(minimum=1)
    if not size:
        raise CannotGroup(f"invalid leaderWorkerTemplate.size {shorten(size_field.value)} in {where}")
    policy = spec.at("startupPolicy").text(LEADER_CREATED)
    if policy not in (LEADER_CREATED, LEADER_READY):
        raise CannotGroup(f"unknown startupPolicy: {policy}")
    if policy == LEADER_CREATED:
        return size
    is_leader = view.pod_labels.get(WORKER_INDEX) == "0"
    if is_leader and _has_no_workers(view):
        return LEADERS
    annotated = segments.whole_number(annotations_of(view.pod).get(GROUP_SIZE, ""))
    return annotated if annotated is not None and 1 <= annotated <= INT32_MAX else size


def _has_no_workers(view: View) -> bool:
    """Whether a leader has no workers yet: they are created once it is ready."""
    pod = Field(view.pod)
    if not pod.at("spec", "nodeName").text():
        return True
    ready = any(
        one.at("type").text() == "Ready" and one.at("status").text() == "True"
        for one in pod.at("status", "conditions").items()
    )
    if ready or not pod.at("status", "phase").text():
        return False
    group_labels = {key: view.pod_labels.get(key, "") for key in (SET_NAME, GROUP_INDEX)}
    others = view.pods(meta_text(view.pod, "namespace"), group_labels)
    return all(labels_of(other).get(WORKER_INDEX) == "0" for other in others)


def _cut(view: View, size: int) -> Cut | None:
    """The segments of a LeaderWorkerSet: of its own subGroupPolicy, else of the annotations."""
    policy = Field(view.top).at("spec", "leaderWorkerTemplate", "subGroupPolicy")
    template = Field(view.top).at("spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations")
    annotations = template.texts()
    root_annotations = annotations_of(view.top)
    annotations = {
        key: root_annotations[key] for key in SEGMENT_ANNOTATIONS if key in root_annotations
    } | annotations
    segment_annotations = SegmentAnnotations(
        annotations, root_annotations, annotations_of(view.pod), view.pod_name, "worker"
    )
    policy_size = policy.at("subGroupSize").integer(default=0, minimum=1)
    apart = policy.at("subGroupPolicyType").text() == LEADER_EXCLUDED
    if not policy_size:
        plan = segments.read_plan(segment_annotations, LEADER_WORKER_SET.kind, view.warnings)
        cut = None if plan is None else Cut(plan.size, False, apart, plan.constraint, plan.index_label)
    else:
        # As in LeaderWorkerSet: the leader is in the first sub-group, unless the workers divide evenly.
        even = (size - LEADERS) % policy_size == 0
        if apart and not even and size > LEADERS:
            raise WrongSegments(
                f"replicasSize {size} is not divisible by segmentSize {policy_size}. LeaderExcluded policy "
                "is only supported when replicasSize is divisible by segmentSize."
            )
        cut = Cut(
            policy_size, not even and not apart, apart, segments.segment_constraint(segment_annotations)
        )
    counted = size if cut is not None and cut.with_leader else size - LEADERS
    if cut is not None and cut.size > counted > 0:
        what = "pods" if cut.with_leader else "workers"
        view.warnings.append(f"segments of {cut.size} in a group of {counted} {what}: one segment")
    return cut


# ── Knative ────────────────────────────────────────────────────────────────────────────────────────


def knative_service(view: View, grouping: Grouping) -> PodGroup:
    """A pod of a Knative revision: its pods are one gang, unless existing pods have groups of their own."""
    name = view.pod_labels.get(REVISION)
    if not name:
        raise CannotGroup(f"revisionName not found for knative service pod {view.pod_name}")
    revision = view.find(REVISIONS.kind, meta_text(view.pod, "namespace"), name)
    if not isinstance(revision, dict):
        raise CannotGroup(f'revisions.serving.knative.dev "{name}" not found')
    group = default_group(view, revision, grouping.work)
    if not view.settings.knative_gangs or _have_own_groups(view, name):
        return one_pod(view, group)
    minimum = segments.whole_number(annotations_of(revision).get(MIN_SCALE, "")) or 1
    return replace(group, name=group_name(revision), minimum=minimum if 1 <= minimum <= INT32_MAX else 1)


def _have_own_groups(view: View, revision: str) -> bool:
    """Whether the existing pods of a revision each have a group of their own."""
    namespace = meta_text(view.pod, "namespace")
    groups: dict[str, None] = {}
    for other in view.pods(namespace, {REVISION: revision}):
        if name := annotations_of(other).get(POD_GROUP_NAME):
            if name in groups:
                return False  # two pods in one group: the revision is a gang
            groups[name] = None
    if len(groups) != 1:
        return bool(groups)
    (only,) = groups
    refs = Field(view.find(POD_GROUP.kind, namespace, only)).at("metadata", "ownerReferences").items()
    return any(ref.at("kind").text() == POD.kind for ref in refs)
