"""Groups of things that serve: LeaderWorkerSet with its segments, Deployment, and services of revisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bayplan.dialects.jobs.part import WORKER_INDEX
from bayplan.dialects.kai.api import segments
from bayplan.dialects.kai.api.names import INFERENCE, POD_GROUP, POD_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import SEGMENT_NOTES, SegmentAnnotations, WrongSegments
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

SET_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"
LEADER, WORKERS, SEGMENT = "leader", "workers", "segment"
LEADER_READY, LEADER_CREATED, LEADER_EXCLUDED = "LeaderReady", "LeaderCreated", "LeaderExcluded"
LEADERS = 1
REVISION = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


def deployment(view: View) -> PodGroup:
    """A Deployment: each pod starts on its own."""
    return one_pod(view, default_group(view, priority=INFERENCE))


def inference(view: View) -> PodGroup:
    """Something that serves, and has no rules of its own."""
    return default_group(view, priority=INFERENCE)


# ── LeaderWorkerSet ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cut:
    """How the pods of one group of a LeaderWorkerSet are cut up."""

    size: int
    with_leader: bool  # whether the leader counts as one of the first segment's pods
    apart: bool = False  # the leader is in no segment
    constraint: Constraint | None = None
    index_label: str = WORKER_INDEX


def leader_worker_set(view: View) -> PodGroup:
    """One group of a LeaderWorkerSet."""
    group = default_group(view)
    number = segments.whole_number(view.pod_labels.get(GROUP_INDEX, ""))
    if number is not None:
        group = replace(group, name=f"{group.name}-group-{number}")
    size = _size(view)
    try:
        made = leader_worker_sub_groups(view, size)
    except WrongSegments as wrong:
        return replace(group, minimum=size, flaw=str(wrong))
    return replace(group, minimum=size, sub_groups=made)


def leader_worker_sub_groups(view: View, size: int) -> tuple[SubGroup, ...]:
    """Leader and workers; or segments, the leader within the first unless it is kept apart."""
    cut = _cut(view, size)
    pod = (meta_text(view.pod, "name"),)
    leads = view.pod_labels.get(WORKER_INDEX) == "0"
    if cut is None or size <= LEADERS:
        leader = SubGroup(LEADER, LEADERS, pods=pod if leads else ())
        workers = SubGroup(WORKERS, size - LEADERS, pods=() if leads else pod)
        return (leader, workers) if size > LEADERS else (leader,)
    index = 0 if leads else segments.read_index(view.pod_labels, cut.index_label, view.pod_name)
    counted = size if cut.with_leader else size - LEADERS
    number = index if cut.with_leader else max(segments.normalised(index, LEADERS), 0)
    mine = 0 if leads else segments.segment_of(number, cut.size)
    found = [SubGroup(f"{SEGMENT}-{at}", s.minimum, "", cut.constraint) for at, s in _shares(counted, cut)]
    if mine >= len(found):  # a pod beyond the size of its group holds nobody up
        found.append(SubGroup(f"{SEGMENT}-{mine}", 0, "", cut.constraint))
    if cut.apart:
        leader = SubGroup(LEADER, LEADERS, pods=pod if leads else ())
        return (leader, *(found if leads else _with(found, f"{SEGMENT}-{mine}", pod)))
    if mine and not leads:
        found = _with(found, f"{SEGMENT}-{mine}", pod)
    return (*_first_with_leader(found, cut), *_inside_first(found[0], cut, pod, leads, mine == 0))


def _shares(counted: int, cut: Cut) -> Sequence[tuple[int, segments.SegmentSize]]:
    return list(enumerate(segments.shares(counted, counted, cut.size)))


def _first_with_leader(found: Sequence[SubGroup], cut: Cut) -> Sequence[SubGroup]:
    if cut.with_leader:
        return found
    return [replace(found[0], minimum=found[0].minimum + LEADERS), *found[1:]]


def _inside_first(
    first: SubGroup, cut: Cut, pod: tuple[str, ...], leads: bool, here: bool
) -> tuple[SubGroup, ...]:
    workers = first.minimum - LEADERS if cut.with_leader else first.minimum
    leader = SubGroup(LEADER, LEADERS, first.name, None, pod if leads else ())
    if not workers:
        return (leader,)
    return (leader, SubGroup(WORKERS, workers, first.name, None, pod if here and not leads else ()))


def _with(found: Sequence[SubGroup], name: str, pod: tuple[str, ...]) -> list[SubGroup]:
    return [replace(one, pods=pod) if one.name == name else one for one in found]


def _size(view: View) -> int:
    """How many pods a group waits for. One whose leader has to be ready first starts with the leader."""
    spec, where = (
        Field(view.top).at("spec"),
        f"LWS {meta_text(view.top, 'namespace')}/{meta_text(view.top, 'name')}",
    )
    given = spec.at("leaderWorkerTemplate", "size")
    if view.only_named:
        return LEADERS
    if not given.present:
        raise CannotGroup(f"leaderWorkerTemplate.size not found in {where}")
    size = given.integer(minimum=1)
    if not size:
        raise CannotGroup(f"invalid leaderWorkerTemplate.size {shorten(given.value)} in {where}")
    policy = spec.at("startupPolicy").text(LEADER_CREATED)
    if policy not in (LEADER_CREATED, LEADER_READY):
        raise CannotGroup(f"unknown startupPolicy: {policy}")
    if policy == LEADER_CREATED:
        return size
    leads = view.pod_labels.get(WORKER_INDEX) == "0"
    if leads and _leads_alone(view):
        return LEADERS
    own = segments.whole_number(annotations_of(view.pod).get(GROUP_SIZE, ""))
    return own if own is not None and 1 <= own <= INT32_MAX else size


def _leads_alone(view: View) -> bool:
    """Whether a leader has no followers yet: they are made once it is ready, however long that takes."""
    pod = Field(view.pod)
    if not pod.at("spec", "nodeName").text():
        return True
    ready = any(
        one.at("type").text() == "Ready" and one.at("status").text() == "True"
        for one in pod.at("status", "conditions").items()
    )
    if ready or not pod.at("status", "phase").text():
        return False
    mine = {key: view.pod_labels.get(key, "") for key in (SET_NAME, GROUP_INDEX)}
    others = view.pods(meta_text(view.pod, "namespace"), mine)
    return all(labels_of(other).get(WORKER_INDEX) == "0" for other in others)


def _cut(view: View, size: int) -> Cut | None:
    """Its own sub-group policy comes first; then the annotations of this family."""
    policy = Field(view.top).at("spec", "leaderWorkerTemplate", "subGroupPolicy")
    template = Field(view.top).at("spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations")
    notes = template.texts()
    root = annotations_of(view.top)
    notes = {key: root[key] for key in SEGMENT_NOTES if key in root} | notes
    told = SegmentAnnotations(notes, root, annotations_of(view.pod), view.pod_name, "worker")
    own = policy.at("subGroupSize").integer(default=0, minimum=1)
    apart = policy.at("subGroupPolicyType").text() == LEADER_EXCLUDED
    if not own:
        plan = segments.read_plan(told, "LeaderWorkerSet", view.warnings)
        found = None if plan is None else Cut(plan.size, False, apart, plan.constraint, plan.index_label)
    else:
        # The set numbers its sub-groups itself: the leader is one of the first, unless workers divide evenly.
        even = (size - LEADERS) % own == 0
        if apart and not even and size > LEADERS:
            raise WrongSegments(
                f"replicasSize {size} is not divisible by segmentSize {own}. LeaderExcluded policy is only "
                "supported when replicasSize is divisible by segmentSize."
            )
        found = Cut(own, not even and not apart, apart, segments.segment_constraint(told))
    counted = size if found is not None and found.with_leader else size - LEADERS
    if found is not None and found.size > counted > 0:
        what = "pods" if found.with_leader else "workers"
        view.warnings.append(f"segments of {found.size} in a group of {counted} {what}: one segment")
    return found


# ── revisions ──────────────────────────────────────────────────────────────────────────────────────


def knative_service(view: View) -> PodGroup:
    """A pod of a revision: the pods of a revision start together, unless earlier ones did not."""
    name = view.pod_labels.get(REVISION)
    if not name:
        raise CannotGroup(f"revisionName not found for knative service pod {view.pod_name}")
    found = view.find("Revision", meta_text(view.pod, "namespace"), name)
    if not isinstance(found, dict):
        raise CannotGroup(f'revisions.serving.knative.dev "{name}" not found')
    group = default_group(view, found, INFERENCE)
    if not view.settings.knative_gangs or _start_apart(view, name):
        return one_pod(view, group)
    least = segments.whole_number(annotations_of(found).get(MIN_SCALE, "")) or 1
    return replace(group, name=group_name(found), minimum=least if 1 <= least <= INT32_MAX else 1)


def _start_apart(view: View, revision: str) -> bool:
    """Whether pods of the revision that are there have each a group of their own."""
    namespace = meta_text(view.pod, "namespace")
    groups: dict[str, None] = {}
    for other in view.pods(namespace, {REVISION: revision}):
        if name := annotations_of(other).get(POD_GROUP_NAME):
            if name in groups:
                return False  # two in one group: they start together
            groups[name] = None
    if len(groups) != 1:
        return bool(groups)
    (only,) = groups
    refs = Field(view.find(POD_GROUP.kind, namespace, only)).at("metadata", "ownerReferences").items()
    return any(ref.at("kind").text() == "Pod" for ref in refs)
