"""Job, JobSet and CronJob."""

from __future__ import annotations

from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.change_rules import NEW, OLD, listed, same_but, spec_but, template, within
from bayplan.dialects.jobs.kind import SUSPEND, GroupBy, Grouping, JobKind, Ranks, Resizing
from bayplan.dialects.jobs.part import (
    COMPLETION_INDEX,
    JOB_INDEX,
    MAIN_POD_SET,
    Find,
    JobPart,
    pods_at_once,
    required_template,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_RUN_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
_JOB_LABELS = (
    *("job-name", "controller-uid"),
    *("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
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
    return [replicated_job(field) for field in replicated.items()]


def replicated_job(field: Field) -> JobPart:
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


_JOB_OF_SET = (
    f"{same_but('now', 'before', 'template')} && "
    f"{same_but('now.template', 'before.template', 'spec', 'metadata')} && "
    f"{within('template', 'now.template.spec', 'before.template.spec')}"
)

JOB = JobKind(
    "Job",
    "batch",
    "v1",
    "jobs",
    job_parts,
    index_label=COMPLETION_INDEX,
    ranks=Ranks(COMPLETION_INDEX, names="object.spec.template.spec.schedulerName == 'SCHEDULER'"),
    grouping=Grouping(GroupBy.POD_OF_JOB),
    looked_up=True,
    creates_pods=True,
    suspend=SUSPEND,
    status_reader=status.JOB,
    clears_start_time=True,
    controller_labels=_JOB_LABELS,
    run_labels=_RUN_LABELS,
    resizing=Resizing(),
    partial=True,
    changes=(
        spec_but("suspend", "parallelism", "completions", "template"),
        template(f"{NEW}.spec.template", f"{OLD}.spec.template"),
    ),
)
JOB_SET = JobKind(
    "JobSet",
    "jobset.x-k8s.io",
    "v1alpha2",
    "jobsets",
    job_set_parts,
    ranks=Ranks(
        COMPLETION_INDEX,
        owner=JOB_SET_NAME,
        pod_set=REPLICATED_JOB,
        outer=JOB_INDEX,
        names=(
            "object.spec.replicatedJobs.exists(job, has(job.template.spec.template.spec.schedulerName) && "
            "job.template.spec.template.spec.schedulerName == 'SCHEDULER')"
        ),
    ),
    grouping=Grouping(GroupBy.REPLICATED_JOBS),
    suspend=SUSPEND,
    status_reader=status.JOB_SET,
    changes=(spec_but("suspend", "replicatedJobs"), listed("spec.replicatedJobs", "name", _JOB_OF_SET)),
)
CRON_JOB = JobKind("CronJob", "batch", "v1", "cronjobs", grouping=Grouping(GroupBy.CHILD_JOB))

JOBS, JOB_SETS = JOB.resource, JOB_SET.resource
ENTRIES = (JOB, JOB_SET, CRON_JOB)
