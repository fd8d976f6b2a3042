"""The pod grouper: for every pod the group it starts with, by the kind of what the user made.

One table; a new kind is one entry. Kinds that only wrap others are skipped;
their labels and annotations are handed down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bayplan.dialects.jobs.part import Find, nothing
from bayplan.dialects.kai.api.names import (
    BUILD,
    POD_GROUP_NAME,
    POD_INDEX_LABEL,
    SUB_GROUP_NAME,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup
from bayplan.dialects.kai.api.segments import INDEX_LABELS, SEGMENT_NOTES
from bayplan.dialects.kai.api.validation import SUB_GROUPS_MAX, sub_group_problems
from bayplan.dialects.kai.grouper import batch, serving
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
from bayplan.dialects.kai.grouper.training import aml_job, mpi_job, training
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

Grouper = Callable[[View], PodGroup]
Siblings = Callable[[PodGroup, str, str], Iterable[Object]]
"""Pods that belong to a sub-group of a group and bear a number."""


def no_siblings(group: PodGroup, sub_group: str, number: str) -> Iterable[Object]:
    """Knows no other pods."""
    return ()


def skipped(view: View) -> PodGroup:
    """An owner that only wraps others: the next one below counts."""
    return grouper_of(below(view))


def below(view: View) -> View:
    """The view without the topmost owner, whose labels and annotations are handed down."""
    *owners, top = view.owners
    if not owners:
        return replace(view, owners=(), pod=_heir(view.pod, top))
    return replace(view, owners=tuple(_heir(one, top) for one in owners))


def notebook(view: View) -> PodGroup:
    """Somebody works in it."""
    return default_group(view, priority=BUILD)


KINDS: Mapping[tuple[str, str], Grouper] = {
    ("", "Pod"): batch.pod,
    ("batch", "Job"): batch.job,
    ("batch", "CronJob"): batch.cron_job,
    ("apps", "Deployment"): serving.deployment,
    ("apps", "StatefulSet"): batch.default,
    ("apps", "ReplicaSet"): batch.default,
    ("kubeflow.org", "PyTorchJob"): training("pytorchReplicaSpecs", always=True, elastic=True),
    ("kubeflow.org", "TFJob"): training("tfReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): training("xgbReplicaSpecs", "Master", "Worker"),
    ("kubeflow.org", "JAXJob"): training("jaxReplicaSpecs", "Worker"),
    ("kubeflow.org", "MPIJob"): mpi_job,
    ("kubeflow.org", "Notebook"): notebook,
    ("kubeflow.org", "ScheduledWorkflow"): batch.default,
    ("trainer.kubeflow.org", "TrainJob"): skipped,
    ("jobset.x-k8s.io", "JobSet"): batch.job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): serving.leader_worker_set,
    ("ray.io", "RayCluster"): clusters.ray_cluster,
    ("ray.io", "RayJob"): clusters.ray_job,
    ("ray.io", "RayService"): clusters.ray_service,
    ("grove.io", "PodGangSet"): clusters.grove,
    ("grove.io", "PodCliqueSet"): clusters.grove,
    ("nvidia.com", "DynamoGraphDeployment"): skipped,
    ("argoproj.io", "Workflow"): skipped,
    ("run.ai", "TrainingWorkload"): skipped,
    ("run.ai", "InteractiveWorkload"): skipped,
    ("run.ai", "DistributedWorkload"): skipped,
    ("run.ai", "InferenceWorkload"): skipped,
    ("run.ai", "DistributedInferenceWorkload"): skipped,
    ("run.ai", "RunaiJob"): batch.runai_job,
    ("serving.knative.dev", "Service"): serving.knative_service,
    ("amlarc.azureml.com", "AmlJob"): aml_job,
    ("egx.nvidia.io", "SPOTRequest"): serving.inference,
}
"""By API group and kind. All others: one pod at least, see batch.default."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What became of a pod: its group and sub-group, what is wrong, and what was passed over."""

    group: PodGroup | None = None
    sub_group: str = ""
    error: str = ""  # for the group and the pod; a group is there all the same if one can be named
    warnings: tuple[str, ...] = ()


def group_pod(
    pod: Object, owners: Sequence[Object] = (), *, find: Find = nothing, pods: FindPods = no_pods,
    siblings: Siblings = no_siblings, settings: GrouperSettings | None = None,
) -> Grouped:  # fmt: skip
    """The group of a pod. `owners` stand nearest first; `siblings` finds pods already in groups."""
    view = View(pod, tuple(owners), find, pods, settings or GrouperSettings())
    return grouped(view, lambda: grouper_of(view), siblings)


def grouped(view: View, make: Callable[[], PodGroup], siblings: Siblings = no_siblings) -> Grouped:
    """What a way of grouping makes of a pod, with trouble as a value."""
    try:
        group = make()
        if group.minimum > INT32_MAX:
            raise CannotGroup(f"{group.minimum} pods are more than a group can have")
        group = _acceptable(group)
    except CannotGroup as trouble:
        return Grouped(error=str(trouble), warnings=tuple(view.warnings))
    name = meta_text(view.pod, "name")
    mine = next((one.name for one in group.sub_groups if name in one.pods), "")
    twin = "" if group.flaw else _twin(view, group, mine, siblings)
    if twin:
        group = replace(group, flaw=twin)
    _note_passed_over(view, group)
    told = tuple(dict.fromkeys(view.warnings))
    return Grouped(group, mine, group.flaw, told)


def _acceptable(group: PodGroup) -> PodGroup:
    """The group as the API takes it: what it would refuse is left out, and told as what is wrong."""
    group = replace(group, minimum=max(group.minimum, 1))
    wrong = _problems(tuple((one.name, one.minimum, one.parent) for one in group.sub_groups))
    if len(group.sub_groups) > SUB_GROUPS_MAX:
        wrong = (
            f"{len(group.sub_groups)} subgroups are more than the {SUB_GROUPS_MAX} that a group can have",
        )
    if wrong:
        group = replace(group, sub_groups=(), flaw=group.flaw or wrong[0])
    asked = group.constraint
    if asked is not None and asked.is_placed and not asked.topology:
        why = f"topology annotation ({TOPOLOGY_NAME}) is required when topology placement annotations are set"
        group = replace(group, constraint=None, flaw=group.flaw or why)
    return group


@lru_cache(maxsize=64)  # every pod of a gang asks for the same, one after the other
def _problems(parts: tuple[tuple[str, int, str], ...]) -> tuple[str, ...]:
    return tuple(sub_group_problems([SubGroup(*part) for part in parts]))


def grouper_of(view: View) -> PodGroup:
    """The group as the kind of the topmost owner has it."""
    version = str(view.top.get("apiVersion") or ("v1" if view.top is view.pod else ""))
    kind = view.kind or ("Pod" if view.top is view.pod else "")
    return KINDS.get((version.rpartition("/")[0], kind), batch.default)(view)


def membership(found: Grouped) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that join a pod to its group."""
    assert found.group is not None
    labels = {SUB_GROUP_NAME: found.sub_group} if found.sub_group else {}
    return labels, {POD_GROUP_NAME: found.group.name}


def _twin(view: View, group: PodGroup, mine: str, siblings: Siblings) -> str:
    """A complaint if another pod of the same segment bears the same number."""
    kinds = [str(one.get("kind") or "") for one in reversed(view.owners)]  # some only wrap others
    usual = next((INDEX_LABELS[kind] for kind in kinds if kind in INDEX_LABELS), "")
    label = annotations_of(view.pod).get(POD_INDEX_LABEL) or usual
    number = view.pod_labels.get(label)
    own = next((one for one in group.sub_groups if one.name == mine), None)
    if number is None or own is None or not (own.parent or mine.startswith(f"{serving.SEGMENT}-")):
        return ""
    for other in siblings(group, mine, number):
        labels = labels_of(other)
        same = labels.get(SUB_GROUP_NAME) == mine and labels.get(label) == number
        alive = not (phase(other) in ("Succeeded", "Failed") or meta_text(other, "deletionTimestamp"))
        named = annotations_of(other).get(POD_GROUP_NAME) == group.name
        if same and alive and named and meta_text(other, "name") != meta_text(view.pod, "name"):
            names = f"{meta_text(other, 'name')} and {meta_text(view.pod, 'name')}"
            return f"pods {names} both have {label}={number}"
    return ""


def _note_passed_over(view: View, group: PodGroup) -> None:
    """Warn of segments that are asked for where there are none, and nobody has said why yet."""
    notes = annotations_of(view.pod)
    asked = [key for key in SEGMENT_NOTES if notes.get(key)]
    if asked and not (group.sub_groups or group.flaw or view.warnings):
        kind = view.kind or "Pod"
        view.warnings.append(f"{', '.join(asked)}: ignored, because a {kind} has no segments")


def phase(pod: Object) -> str:
    """How far a pod is."""
    return Field(pod).at("status", "phase").text()


def _heir(obj: Object, top: Object) -> Object:
    """The object with labels and annotations of another that it does not have itself."""
    meta = obj.get("metadata")
    labels = {**labels_of(top), **labels_of(obj)}
    annotations = {**annotations_of(top), **annotations_of(obj)}
    kept = meta if isinstance(meta, dict) else {}
    return {**obj, "metadata": {**kept, "labels": labels, "annotations": annotations}}
