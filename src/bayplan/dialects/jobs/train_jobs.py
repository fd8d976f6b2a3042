"""TrainJob: the JobSet that its runtime and its patches produce, changed by a patch of our own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.batch_jobs import replicated_job
from bayplan.dialects.jobs.change_rules import NEW, OLD, WHERE, every, optional, spec_but
from bayplan.dialects.jobs.kind import SUSPEND, GroupBy, Grouping, JobKind
from bayplan.dialects.jobs.part import Find, JobPart
from bayplan.dialects.jobs.train_runtime import (
    PATCH_MANAGER,
    inject_train_job,
    job_set_of,
    restore_train_job,
    runtime_of,
)
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
RUNTIMES = (
    Kind(GROUP, VERSION, "TrainingRuntime", "trainingruntimes", optional=True),
    Kind(
        GROUP, VERSION, "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False, optional=True
    ),
)
TRAIN_ADVICE = (
    '. Adjust either the "TrainJob.spec.runtimePatches" or the "TrainingRuntime.Template" annotations '
    "for the corresponding Job"
)


def train_job_parts(train_job: Field, find: Find) -> list[JobPart]:
    """The pod sets of a TrainJob.

    They are those of the JobSet that its runtime and its patches produce. If the runtime is unknown, only
    what the patches contain is used.
    """
    runtime = runtime_of(train_job, find)
    job_set = Field(job_set_of(train_job, runtime))
    parts = []
    for field in job_set.at("spec", "replicatedJobs").items():
        part = replicated_job(field)
        metadata = train_job.derived(part.template.at("metadata").value, f"job[{part.name}]")
        name = train_job.at("metadata", "name")
        parts.append(
            replace(
                part, name_field=name, pod_metadata=metadata, count_known=bool(runtime), advice=TRAIN_ADVICE
            )
        )
    return parts


def _add_patch(job: Object) -> None:
    """Add an empty runtime patch of Bayplan, which is filled when the job starts."""
    if not isinstance(job.get("spec"), dict):
        job["spec"] = {}
    if not isinstance(job["spec"].get("runtimePatches"), list):
        job["spec"]["runtimePatches"] = []
    patches = job["spec"]["runtimePatches"]
    if all(Field(patch).at("manager").text() != PATCH_MANAGER for patch in patches):
        empty: Object = {"trainingRuntimeSpec": {"template": {"spec": {}}}}
        patches.append({"manager": PATCH_MANAGER, **empty})


_MANAGED_BY_US = f"has(it.manager) && it.manager == '{PATCH_MANAGER}'"
_OTHER_PATCHES = [
    f"{optional(one, 'spec', 'runtimePatches')}.filter(it, !({_MANAGED_BY_US}))" for one in (NEW, OLD)
]


def _own_patch() -> str:
    """CEL: our patch of a TrainJob changes only where the pods of its jobs may run."""
    steps = ["it", "trainingRuntimeSpec", "template", "spec"]
    paths = [".".join(steps[: depth + 1]) for depth in range(len(steps))]
    only = [
        f"!has({path}) || dyn({path}).all(key, key in ['{key}'])"
        for path, key in zip(paths[1:], (*steps[2:], "replicatedJobs"), strict=True)
    ]
    named = "dyn(it).all(key, key in ['manager', 'time', 'trainingRuntimeSpec'])"
    pod = "job.template.spec.template"
    job = " && ".join(
        (
            "dyn(job).all(key, key in ['name', 'template'])",
            "dyn(job.template).all(key, key in ['spec'])",
            "dyn(job.template.spec).all(key, key in ['template'])",
            f"dyn({pod}).all(key, key in ['metadata', 'spec'])",
            f"(!has({pod}.spec) || dyn({pod}.spec).all(key, key in {every(WHERE)}))",
        )
    )
    jobs = f"{optional('it', *steps[1:], 'replicatedJobs')}.all(job, {job})"
    ours = f"{optional(NEW, 'spec', 'runtimePatches')}.filter(it, {_MANAGED_BY_US})"
    return f"{ours}.all(it, {' && '.join(f'({one})' for one in (named, *only, jobs))})"


TRAIN_JOB = JobKind(
    "TrainJob",
    GROUP,
    VERSION,
    "trainjobs",
    train_job_parts,
    grouping=Grouping(GroupBy.BELOW),
    suspend=SUSPEND,
    status_reader=status.TRAIN_JOB,
    inject=inject_train_job,
    restore=restore_train_job,
    in_steps=True,
    references=RUNTIMES,
    default=_add_patch,
    changes=(
        spec_but("suspend", "runtimePatches"),
        f"{_OTHER_PATCHES[0]} == {_OTHER_PATCHES[1]}",
        _own_patch(),
    ),
)
ENTRIES = (TRAIN_JOB,)
