"""Job kinds as a table: which pod sets each stands for. A new kind is one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.fields import INT32_MAX, Field

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
ONLY = "main"
"""The name of the pod set of a job that has only one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one template: the raw form of a pod set."""

    name: str
    count: int
    template: Field
    name_field: Field  # where the name was written
    index_label: str | None = None  # the pod label that numbers the pods
    subgroup_label: str | None = None  # the pod label that numbers equal sub-groups, if there are any
    subgroup_count: int | None = None
    natural_segment: int | None = None  # the pods of one sub-group, where that is what users mean


@dataclass(frozen=True, slots=True)
class Kind:
    """How to read one kind of job."""

    group: str
    parts: Callable[[Field], list[Part]]


def parts(job: Field) -> list[Part]:
    """The pod sets of a job of a known kind."""
    return KINDS[job.at("kind").text()].parts(job)


def is_known(job: Field) -> bool:
    """Whether the table has the kind. An object without apiVersion is judged by its kind alone."""
    kind = KINDS.get(job.at("kind").text())
    version = job.at("apiVersion").text()
    return kind is not None and (not version or version.partition("/")[0] == kind.group)


def _job(job: Field) -> list[Part]:
    spec = job.at("spec")
    return [Part(ONLY, _pods_at_once(spec), _template(spec), job.at("metadata", "name"), COMPLETION_INDEX)]


def _job_set(job_set: Field) -> list[Part]:
    replicated = job_set.at("spec", "replicatedJobs")
    if not replicated.items():
        replicated.error("must hold at least one job")
    return [_replicated_job(field) for field in replicated.items()]


def _replicated_job(field: Field) -> Part:
    name, spec = field.at("name"), field.at("template", "spec")
    replicas = field.at("replicas").integer(default=1)
    if not name.text():
        name.error("must be set")
    pods = _pods_at_once(spec)
    if replicas * pods > INT32_MAX:
        field.at("replicas").error(f"makes more than {INT32_MAX} pods")
        replicas = 1
    return Part(
        name=name.text(),
        count=replicas * pods,
        template=_template(spec),
        name_field=name,
        index_label=COMPLETION_INDEX,
        subgroup_label=JOB_INDEX,
        subgroup_count=replicas,
        natural_segment=pods,
    )


def _pods_at_once(spec: Field) -> int:
    parallelism = spec.at("parallelism").integer(default=1)
    return min(parallelism, spec.at("completions").integer(default=parallelism))


def _template(spec: Field) -> Field:
    template = spec.at("template")
    if not template.present:
        template.error("must be set")
    return template


KINDS: Mapping[str, Kind] = {
    "Job": Kind("batch", _job),
    "JobSet": Kind("jobset.x-k8s.io", _job_set),
}
