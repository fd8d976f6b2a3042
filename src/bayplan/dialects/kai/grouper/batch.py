"""PodGroups of batch workloads: Job, CronJob, JobSet, and single pods that share a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bayplan.dialects.jobs.batch_jobs import JOBS, REPLICATED_JOB, job_parts, job_set_parts
from bayplan.dialects.jobs.kind import Grouping
from bayplan.dialects.jobs.part import JobPart
from bayplan.dialects.kai.api.names import POD_GROUP, POD_INDEX_LABEL, SEGMENT_SIZE, TOPOLOGY_ANNOTATIONS
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.segments import whole_number
from bayplan.dialects.kai.grouper.defaults import (
    CannotGroup,
    Object,
    View,
    annotations_of,
    default_group,
    meta_text,
)
from bayplan.dialects.kai.grouper.training import by_type
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

SPARK_APP, SPARK_SELECTOR = "spark-app-name", "spark-app-selector"
INDEXED = "Indexed"


def job(view: View, grouping: Grouping) -> PodGroup:
    """A batch Job: each pod is a group of its own, unless the Job has segments."""
    in_segments = _in_segments(view, view.top)
    if in_segments is not None:
        return in_segments
    name = _legacy_name(view) or f"pg-{meta_text(view.pod, 'name')}-{meta_text(view.top, 'uid')}"
    return replace(default_group(view), name=name)


def child_job(view: View, grouping: Grouping) -> PodGroup:
    """A CronJob: a group for each Job. Topology annotations may be on the Job or on the CronJob."""
    refs = Field(view.pod).at("metadata", "ownerReferences").items()
    name = next((ref.at("name").text() for ref in refs if ref.at("kind").text() == JOBS.kind), None)
    if name is None:
        raise CannotGroup("no owner reference of type 'Job'")
    job = view.find(JOBS.kind, meta_text(view.pod, "namespace"), name)
    if not isinstance(job, dict):
        raise CannotGroup(f'jobs.batch "{name}" not found')
    inherited = {key: text for key, text in annotations_of(view.top).items() if key in TOPOLOGY_ANNOTATIONS}
    meta = {**(job.get("metadata") or {}), "annotations": {**inherited, **annotations_of(job)}}
    owner = {**job, "apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta}
    child = replace(view, owners=(owner,))
    return _in_segments(child, child.top) or default_group(child)


def job_set(view: View, grouping: Grouping) -> PodGroup:
    """A JobSet: one group, or one for each replicated job if they start in order."""
    owner = Field(view.top)
    name, uid = meta_text(view.top, "name"), meta_text(view.top, "uid")
    if not name or not uid:
        where = f"{meta_text(view.top, 'namespace')}/{name}"
        raise CannotGroup(f"jobset top owner {where} missing name or UID")
    replicated_job = view.pod_labels.get(REPLICATED_JOB)
    if not replicated_job:
        raise CannotGroup(f'pod {view.pod_name} missing required label "{REPLICATED_JOB}"')
    parts = [_at_least_one(part, field) for part, field in _replicated_jobs(view)]
    flat = default_group(view)
    if owner.at("spec", "startupPolicy", "startupPolicyOrder").text("InOrder") == "InOrder":
        parts = [part for part in parts if part.name == replicated_job]
        flat = replace(flat, name=f"{flat.name}-{replicated_job}")
    pods = sum(part.count for part in parts)
    if pods > INT32_MAX:
        where = f"{meta_text(view.top, 'namespace')}/{name}"
        raise CannotGroup(
            f"total minAvailable too large ({pods}) for JobSet {where}: exceeds int32 max value"
        )
    return by_type(view, parts, max(pods, 1), replicated_job, flat=flat)


def run(view: View, grouping: Grouping) -> PodGroup:
    """A RunaiJob: a group for each parallel run, whose name is the pod's name up to the last dash."""
    pod = meta_text(view.pod, "name")
    name = _legacy_name(view) or f"pg-{pod.rpartition('-')[0] or pod}-{meta_text(view.top, 'uid')}"
    return replace(default_group(view), name=name)


def pod(view: View, grouping: Grouping) -> PodGroup:
    """A pod without owner; the pods of one Spark application share a group."""
    labels = view.pod_labels
    if SPARK_APP in labels and labels.get(SPARK_SELECTOR):
        return spark(view)
    return default_group(view)


def spark(view: View) -> PodGroup:
    """A pod of a Spark application."""
    return replace(default_group(view), name=view.pod_labels[SPARK_SELECTOR])


def default(view: View, grouping: Grouping) -> PodGroup:
    """Any other owner: a minimum of one pod; with segments if a pod label has the index."""
    annotations = annotations_of(view.pod)
    flat = default_group(view, asked=view.owners)
    if not annotations.get(SEGMENT_SIZE) or view.top is view.pod:
        return flat
    owner, count = Field(view.top), _replicas(view, grouping)
    pods = whole_number(annotations[SEGMENT_SIZE]) if count is None else count
    part = JobPart("main", pods or 1, Field(view.pod), owner, index_label=annotations.get(POD_INDEX_LABEL))
    group = by_type(view, [part], 1, "main", flat=flat)
    if count is None and group.sub_groups:
        view.warnings.append(
            f"{SEGMENT_SIZE}: the number of pods of a {view.kind} is unknown; its first segment requires "
            f"all {pods} pods, and further segments are optional"
        )
    return group


def _replicas(view: View, grouping: Grouping) -> int | None:
    """The number of pods of the topmost owner; None if its kind has no default and the field is missing."""
    replicas = Field(view.top).at("spec", "replicas")
    default = 1 if grouping.one_replica and not view.only_named else None
    return replicas.integer(default=1) if replicas.present else default


def _in_segments(view: View, owner: Object) -> PodGroup | None:
    """A Job with segments as one group; None if it has none."""
    field = Field(owner)
    if not field.at("spec", "template").present and SEGMENT_SIZE not in annotations_of(view.pod):
        return None
    indexed = field.at("spec", "completionMode").text() == INDEXED
    parts = [part if indexed else replace(part, index_label=None) for part in job_parts(field, view.find)]
    pods = sum(part.count for part in parts)
    group = by_type(view, parts, pods, parts[0].name, flat=default_group(view, owner))
    return group if group.sub_groups or group.flaw else None


def _replicated_jobs(view: View) -> Sequence[tuple[JobPart, Field]]:
    """The replicated jobs and their fields; their pods have no index across all replicas."""
    fields = Field(view.top).at("spec", "replicatedJobs").items()
    parts = job_set_parts(Field(view.top), view.find)
    return [(replace(part, index_label=None), field) for part, field in zip(parts, fields, strict=False)]


def _at_least_one(part: JobPart, field: Field) -> JobPart:
    """The part with an invalid parallelism read as 1; large numbers are not limited."""
    spec = field.at("template", "spec")
    pods = spec.at("parallelism").integer(default=1, minimum=1)
    pods = min(pods, spec.at("completions").integer(default=pods))
    return replace(part, count=pods * field.at("replicas").integer(default=1))


def _legacy_name(view: View) -> str:
    """The name of an existing group of an older version: of the job, or of each pod of a parallel job."""
    if not view.settings.legacy_names:
        return ""
    parallelism = Field(view.top).at("spec", "parallelism").integer(default=1)
    base = meta_text(view.pod if parallelism > 1 else view.top, "name")
    name = f"pg-{base}-{meta_text(view.top, 'uid')}"
    return name if view.find(POD_GROUP.kind, meta_text(view.pod, "namespace"), name) is not None else ""
