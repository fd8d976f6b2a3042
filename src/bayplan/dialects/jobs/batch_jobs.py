"""Job, JobSet and TrainJob: batches of pods, alone, in sets, and made from a runtime."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.jobs.part import (
    COMPLETION_INDEX,
    JOB_INDEX,
    ONLY,
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
    """A batch Job: one pod set."""
    spec = job.at("spec")
    name = job.at("metadata", "name")
    return [JobPart(ONLY, pods_at_once(spec), required_template(spec), name, COMPLETION_INDEX)]


def job_set_parts(job_set: Field, find: Find) -> list[JobPart]:
    """A JobSet: one pod set for each replicated job."""
    replicated = job_set.at("spec", "replicatedJobs")
    if not replicated.items():
        replicated.error("must hold at least one job")
    return [_replicated_job(field) for field in replicated.items()]


def train_job_parts(train_job: Field, find: Find) -> list[JobPart]:
    """A TrainJob: the JobSet that its runtime and its patches make; without the runtime, what patches say."""
    runtime = runtime_of(train_job, find)
    made = Field(job_set_of(train_job, runtime))
    found = []
    for field in made.at("spec", "replicatedJobs").items():
        part = _replicated_job(field)
        notes = train_job.derived(part.template.at("metadata").value, f"job[{part.name}]")
        name = train_job.at("metadata", "name")
        known = bool(runtime)
        found.append(replace(part, name_field=name, notes=notes, counted=known, advice=TRAIN_ADVICE))
    return found


def _replicated_job(field: Field) -> JobPart:
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
