"""Validation of jobs by their kind, beyond the rules for all kinds; every violation is recorded."""

from __future__ import annotations

from bayplan.dialects.jobs.kind import QueuedJob
from bayplan.dialects.jobs.kinds import kind_of
from bayplan.dialects.jobs.part import pods_at_once
from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.job_rules import check_minimum
from bayplan.dialects.kueue.fields.pod_rules import check_pod, check_pod_update
from bayplan.dialects.kueue.fields.topology_request import parse_bool
from bayplan.dialects.kueue.names.annotations import (
    MINIMUM,
    PREFERRED,
    REQUIRED,
    SYNCED,
    has_queue,
    is_elastic,
    read_annotations,
)
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches


def check_kind(job: Field, rules: FeatureSwitches) -> None:
    """Validate a job by the rules of its kind."""
    kind = kind_of(job)
    if kind.partial:
        _check_sizes(job, rules)
    if kind.is_pod:
        check_pod(job, rules)
    if kind.check is not None:
        kind.check(job, _queue(job, rules))


def check_kind_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a job by the rules of its kind."""
    kind = kind_of(new)
    if kind.partial:
        _check_sizes_update(new, old, rules)
    if kind.is_pod:
        check_pod_update(new, old, rules)
    if kind.check_update is not None:
        kind.check_update(new, old, _queue(new, rules))


def _queue(job: Field, rules: FeatureSwitches) -> QueuedJob:
    elastic = is_elastic(job)
    return QueuedJob(has_queue(job) or rules.jobs_without_queue, elastic, elastic and rules.elastic)


def check_partial(job: Field, rules: FeatureSwitches) -> None:
    """Validate partial admission; checked when it is requested, not when its size was reduced."""
    minimum = job.at("metadata", "annotations", MINIMUM)
    if not minimum.present:
        return
    check_minimum(minimum, pods_at_once(job.at("spec")))
    if is_elastic(job) and rules.elastic:
        minimum.error("partial admission and elastic job cannot be used together", FieldErrorType.INVALID)


def _check_sizes(job: Field, rules: FeatureSwitches) -> None:
    spec, synced = job.at("spec"), job.at("metadata", "annotations", SYNCED)
    if synced.present and _flag(synced):
        if spec.at("completionMode").text("NonIndexed") == "NonIndexed":
            synced.error("should not be enabled for NonIndexed jobs", FieldErrorType.INVALID)
        completions = spec.at("completions")
        if spec.at("parallelism").integer(default=1) != completions.integer(default=1):
            why = f"should be equal to parallelism when {SYNCED} annotation is true"
            completions.error(why, FieldErrorType.INVALID)
    if is_elastic(job) and rules.elastic:
        annotations = spec.at("template", "metadata", "annotations")
        for name, word in ((REQUIRED, "required"), (PREFERRED, "preferred")):
            if name in read_annotations(spec.at("template", "metadata")):
                where = annotations.derived(None, f"{annotations.path}.{name}")
                where.error(f"{word} topology is not supported with elastic jobs", FieldErrorType.FORBIDDEN)


def _check_sizes_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    minimum = new.at("metadata", "annotations", MINIMUM)
    minimum_before, is_running = (
        old.at("metadata", "annotations", MINIMUM),
        not old.at("spec", "suspend").flag(),
    )
    if minimum.value != minimum_before.value:
        check_partial(new, rules)
    parallelism = new.at("spec", "parallelism")
    before = old.at("spec", "parallelism").integer(default=1)
    if minimum_before.present and is_running and parallelism.integer(default=1) != before:
        why = "cannot change when partial admission is enabled and the job is not suspended"
        parallelism.error(why, FieldErrorType.FORBIDDEN)
    synced, synced_before = (job.at("metadata", "annotations", SYNCED) for job in (new, old))
    if is_running and not new.at("spec", "suspend").flag() and _flag(synced) != _flag(synced_before):
        synced.error(f"{IMMUTABLE} while the job is not suspended", FieldErrorType.FORBIDDEN)


def _flag(field: Field) -> bool:
    if not field.present:
        return False
    try:
        return parse_bool(field.text())
    except ValueError as wrong:
        field.error(str(wrong), FieldErrorType.INVALID)
        return False
