"""The pod grouper: the PodGroup of each pod, by the kind of its topmost owner.

The table of job kinds names the rule of each kind. Owners that only wrap others are skipped, and their
labels and annotations are inherited by the objects below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bayplan.dialects.jobs.kind import GroupBy, Grouping
from bayplan.dialects.jobs.kinds import BY_GROUP
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kai.api.names import (
    POD_GROUP_NAME,
    POD_INDEX_LABEL,
    SUB_GROUP_NAME,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import INDEX_LABELS, SEGMENT_ANNOTATIONS
from bayplan.dialects.kai.api.validation import SUB_GROUPS_MAX, sub_group_problems
from bayplan.dialects.kai.grouper import batch, serving, training
from bayplan.dialects.kai.grouper import ray_and_grove as clusters
from bayplan.dialects.kai.grouper.defaults import (
    CannotGroup,
    FindPods,
    GrouperSettings,
    Object,
    View,
    annotations_of,
    default_group,
    labels_of,
    meta_text,
    no_pods,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

Grouper = Callable[[View, Grouping], PodGroup]
Siblings = Callable[[PodGroup, str, str], Iterable[Object]]
"""Looks up the pods of a sub-group that have a given index."""


def no_siblings(group: PodGroup, sub_group: str, number: str) -> Iterable[Object]:
    """A `Siblings` that knows no pods."""
    return ()


def skipped(view: View, grouping: Grouping) -> PodGroup:
    """An owner that only wraps others: the next owner below it decides."""
    return group_for(without_top_owner(view))


def without_top_owner(view: View) -> View:
    """The view without the topmost owner, whose labels and annotations are inherited."""
    *owners, top = view.owners
    if not owners:
        return replace(view, owners=(), pod=_inherited(view.pod, top))
    return replace(view, owners=tuple(_inherited(one, top) for one in owners))


def top_owner(view: View, grouping: Grouping) -> PodGroup:
    """One group of at least one pod, from the topmost owner alone."""
    return default_group(view, priority=grouping.work)


RULES: Mapping[GroupBy, Grouper] = {
    GroupBy.OWNER: batch.default,
    GroupBy.TOP: top_owner,
    GroupBy.BELOW: skipped,
    GroupBy.POD: serving.each_pod,
    GroupBy.POD_OF_JOB: batch.job,
    GroupBy.CHILD_JOB: batch.child_job,
    GroupBy.RUN: batch.run,
    GroupBy.APPLICATION: batch.pod,
    GroupBy.POD_SET: training.pod_set,
    GroupBy.REPLICATED_JOBS: batch.job_set,
    GroupBy.REPLICA_TYPES: training.replica_types,
    GroupBy.LEADERS: serving.leader_worker_set,
    GroupBy.REVISION: serving.knative_service,
    GroupBy.CLUSTER: clusters.ray,
    GroupBy.POD_GANG: clusters.grove,
    GroupBy.NODE_COUNT: training.node_count,
}
"""The rules that the table of job kinds names. Kinds that are not in the table: see batch.default."""
DEFAULT = Grouping()


@dataclass(frozen=True, slots=True)
class Grouped:
    """The result for a pod: its PodGroup and sub-group, an error, and warnings."""

    group: PodGroup | None = None
    sub_group: str = ""
    error: str = ""  # for the pod and its group; a group with an error may still be set
    warnings: tuple[str, ...] = ()


def group_pod(
    pod: Object, owners: Sequence[Object] = (), *, find: Find = find_nothing, pods: FindPods = no_pods,
    siblings: Siblings = no_siblings, settings: GrouperSettings | None = None,
) -> Grouped:  # fmt: skip
    """The PodGroup of a pod. `owners` are nearest first; `siblings` looks up pods already in groups."""
    view = View(pod, tuple(owners), find, pods, settings or GrouperSettings())
    return grouped(view, lambda: group_for(view), siblings)


def grouped(view: View, create: Callable[[], PodGroup], siblings: Siblings = no_siblings) -> Grouped:
    """The result of a grouper function, with its exception as an error value."""
    try:
        group = create()
        if group.minimum > INT32_MAX:
            raise CannotGroup(f"{group.minimum} pods are more than a pod group can have")
        group = _as_the_api_accepts(group)
    except CannotGroup as error:
        return Grouped(error=str(error), warnings=tuple(view.warnings))
    name = meta_text(view.pod, "name")
    sub_group = next((one.name for one in group.sub_groups if name in one.pods), "")
    duplicate = "" if group.flaw else _duplicate_index(view, group, sub_group, siblings)
    if duplicate:
        group = replace(group, flaw=duplicate)
    _warn_of_ignored_segments(view, group)
    warnings = tuple(dict.fromkeys(view.warnings))
    return Grouped(group, sub_group, group.flaw, warnings)


def _as_the_api_accepts(group: PodGroup) -> PodGroup:
    """The PodGroup without what the API would reject, which becomes its flaw."""
    group = replace(group, minimum=max(group.minimum, 1))
    problems = _problems(tuple((one.name, one.minimum, one.parent) for one in group.sub_groups))
    if len(group.sub_groups) > SUB_GROUPS_MAX:
        problems = (
            f"{len(group.sub_groups)} subgroups are more than the {SUB_GROUPS_MAX} that a group can have",
        )
    if problems:
        group = replace(group, sub_groups=(), flaw=group.flaw or problems[0])
    constraint = group.constraint
    if constraint is not None and constraint.has_level and not constraint.topology:
        why = f"topology annotation ({TOPOLOGY_NAME}) is required when topology placement annotations are set"
        group = replace(group, constraint=None, flaw=group.flaw or why)
    return group


@lru_cache(maxsize=64)  # the same for every pod of a gang
def _problems(parts: tuple[tuple[str, int, str], ...]) -> tuple[str, ...]:
    return tuple(sub_group_problems([SubGroup(*part) for part in parts]))


def group_for(view: View) -> PodGroup:
    """The PodGroup by the kind of the topmost owner."""
    version = str(view.top.get("apiVersion") or ("v1" if view.top is view.pod else ""))
    kind = view.kind or ("Pod" if view.top is view.pod else "")
    entry = BY_GROUP.get((version.rpartition("/")[0], kind))
    grouping = (None if entry is None else entry.grouping) or DEFAULT
    return RULES[grouping.by](view, grouping)


def membership(result: Grouped) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that assign a pod to its PodGroup."""
    assert result.group is not None
    labels = {SUB_GROUP_NAME: result.sub_group} if result.sub_group else {}
    return labels, {POD_GROUP_NAME: result.group.name}


def _duplicate_index(view: View, group: PodGroup, sub_group: str, siblings: Siblings) -> str:
    """An error message if another pod of the same segment has the same index."""
    kinds = [str(one.get("kind") or "") for one in reversed(view.owners)]  # wrapping kinds have no label
    default_label = next((INDEX_LABELS[kind] for kind in kinds if kind in INDEX_LABELS), "")
    label = annotations_of(view.pod).get(POD_INDEX_LABEL) or default_label
    index = view.pod_labels.get(label)
    own = next((one for one in group.sub_groups if one.name == sub_group), None)
    if index is None or own is None or not (own.parent or sub_group.startswith(f"{serving.SEGMENT}-")):
        return ""
    for other in siblings(group, sub_group, index):
        labels = labels_of(other)
        same = labels.get(SUB_GROUP_NAME) == sub_group and labels.get(label) == index
        alive = not (phase(other) in ("Succeeded", "Failed") or meta_text(other, "deletionTimestamp"))
        named = annotations_of(other).get(POD_GROUP_NAME) == group.name
        if same and alive and named and meta_text(other, "name") != meta_text(view.pod, "name"):
            names = f"{meta_text(other, 'name')} and {meta_text(view.pod, 'name')}"
            return f"pods {names} both have {label}={index}"
    return ""


def _warn_of_ignored_segments(view: View, group: PodGroup) -> None:
    """Warn if segments are requested but not created, unless a warning says why."""
    annotations = annotations_of(view.pod)
    requested = [key for key in SEGMENT_ANNOTATIONS if annotations.get(key)]
    if requested and not (group.sub_groups or group.flaw or view.warnings):
        kind = view.kind or "Pod"
        view.warnings.append(f"{', '.join(requested)}: ignored, because a {kind} has no segments")


def phase(pod: Object) -> str:
    """The phase of a pod."""
    return Field(pod).at("status", "phase").text()


def _inherited(obj: Object, owner: Object) -> Object:
    """The object with the labels and annotations of an owner that it does not have itself."""
    meta = obj.get("metadata")
    labels = {**labels_of(owner), **labels_of(obj)}
    annotations = {**annotations_of(owner), **annotations_of(obj)}
    own = meta if isinstance(meta, dict) else {}
    return {**obj, "metadata": {**own, "labels": labels, "annotations": annotations}}
