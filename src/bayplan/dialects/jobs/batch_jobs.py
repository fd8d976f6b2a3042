"""Pod sets of Job, JobSet and TrainJob."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.jobs.part import (
    COMPLETION_INDEX,
    JOB_INDEX,
    MAIN_POD_SET,
    Find,
    JobPart,
    pods_at_once,
    required_template,
)
from bayplan.dialects.jobs.train_runtime import job_set_of, runtime_of
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

TRAIN_ADVICE = (
    '. Adjust either the "TrainJob.spec.runtimePatches" or the "TrainingRuntime.Template" annotations '
    "for the corresponding Job"
)


def job_parts(job: Field, find: Find) -> list[JobPart]:
    """The single pod set of a batch Job."""
    spec = job.at("spec")
    name = job.at("metadata", "name")
    return [JobPart(MAIN_POD_SET, pods_at_once(spec), required_template(spec), name, COMPLETION_INDEX)]


def job_set_parts(job_set: Field, find: Find) -> list[JobPart]:
    """The pod sets of a JobSet: one for each replicated job."""
    replicated = job_set.at("spec", "replicatedJobs")
    if not replicated.items():
        replicated.error("must hold at least one job")
    return [_replicated_job(field) for field in replicated.items()]


def train_job_parts(train_job: Field, find: Find) -> list[JobPart]:
    """The pod sets of a TrainJob.

    They are those of the JobSet that its runtime and its patches produce. If the runtime is unknown, only
    what the patches contain is used.
    """
    runtime = runtime_of(train_job, find)
    job_set = Field(job_set_of(train_job, runtime))
    parts = []
    for field in job_set.at("spec", "replicatedJobs").items():
        part = _replicated_job(field)
        metadata = train_job.derived(part.template.at("metadata").value, f"job[{part.name}]")
        name = train_job.at("metadata", "name")
        parts.append(
            replace(
                part, name_field=name, pod_metadata=metadata, count_known=bool(runtime), advice=TRAIN_ADVICE
            )
        )
    return parts


def _replicated_job(field: Field) -> JobPart:
    """The pod set of one replicated job: the pods of all its replicas."""
    name, spec = field.at("name"), field.at("template", "spec")
    replicas = field.at("replicas").integer(default=1)
    if not name.text():
        name.error("must be set")
    pods = pods_at_once(spec)
    if replicas * pods > INT32_MAX:
        field.at("replicas").error(f"makes more than {INT32_MAX} pods")
        replicas = 1
    return JobPart(
        name=name.text(),
        count=replicas * pods,
        template=required_template(spec),
        name_field=name,
        index_label=COMPLETION_INDEX,
        subgroup_label=JOB_INDEX,
        subgroup_count=replicas,
        natural_segment=pods,
    )
