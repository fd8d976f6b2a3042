"""The table of job kinds, for every family. A new kind is one entry, in a module of `MODULES`."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.dialects.jobs import (
    batch_jobs,
    flux_jobs,
    owners,
    ray_jobs,
    serving_jobs,
    spark_jobs,
    train_jobs,
    training_jobs,
)
from bayplan.dialects.jobs.kind import JobKind
from bayplan.dialects.jobs.part import Find, JobPart, find_nothing
from bayplan.dialects.jobs.wrapped_jobs import app_wrapper
from bayplan.dialects.kube.fields.reader import Field

MODULES = (batch_jobs, training_jobs, train_jobs, ray_jobs, spark_jobs, flux_jobs, serving_jobs, owners)


def parts(job: Field, find: Find = find_nothing) -> list[JobPart]:
    """The pod sets of a job; its kind must be one that can be queued."""
    read = kind_of(job).parts
    assert read is not None
    return read(job, find)


def copies(job: Field) -> int:
    """The number of gangs with these pod sets that a job consists of; its kind must be in the table."""
    count = kind_of(job).copies
    return 1 if count is None else count(job)


def kind_of(job: Field) -> JobKind:
    """The entry of a job whose kind is known."""
    return KINDS[job.at("kind").text()]


def is_known(job: Field) -> bool:
    """Whether a job can be queued. Without apiVersion, only the kind is compared."""
    kind = KINDS.get(job.at("kind").text())
    version = job.at("apiVersion").text()
    group = version.partition("/")[0] if "/" in version else ""
    return kind is not None and (not version or group == kind.group)


def is_suspended(job: Field) -> bool:
    """Whether the suspend flag of a job is set; its kind must be in the table."""
    path = kind_of(job).suspend
    return bool(path) and job.at(*path).value is True


def _of_component(component: Field, find: Find) -> list[JobPart]:
    return parts(component, find) if is_known(component) else []


TABLE: tuple[JobKind, ...] = (
    *(entry for module in MODULES for entry in module.ENTRIES),
    app_wrapper(_of_component),
)
"""All kinds, also those that only own pods."""
KINDS: Mapping[str, JobKind] = {entry.kind: entry for entry in TABLE if entry.parts is not None}
"""The kinds that can be queued."""
BY_GROUP: Mapping[tuple[str, str], JobKind] = {(entry.group, entry.kind): entry for entry in TABLE}
"""All kinds by API group and kind."""
SUSPENDED = tuple(entry.kind for entry in KINDS.values() if entry.suspend)
"""Kinds with a suspend flag."""
AHEAD = tuple(entry.kind for entry in KINDS.values() if entry.ahead)
"""Kinds whose Workloads are created before their pods."""
RECONCILED = tuple(entry.resource for entry in KINDS.values() if entry.reconciled)
"""The API resources of the jobs that the queue integration reconciles."""
SCHEDULED = tuple(entry for entry in KINDS.values() if entry.ranks is not None)
"""Kinds that are gangs of the scheduler without a queue; those that name their jobs by a label come last."""
