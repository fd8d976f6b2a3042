"""Validation of queued jobs of any kind and of their updates; every violation is recorded."""

from __future__ import annotations

import re

from bayplan.dialects.jobs.kinds import KINDS, is_suspended, kind_of
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE, check_unchanged
from bayplan.dialects.kube.fields.name_rules import LABEL_MAX, subdomain_problems
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.names.annotations import (
    ELASTIC,
    GATED_BY,
    PREBUILT,
    PRIORITY_CLASS,
    QUEUE,
    SECONDS_MAX,
    is_elastic,
)
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches

GATE_MAX = 63
SCHEDULING_GATE = "kueue.x-k8s.io/admission"
_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def check_job(job: Field, rules: FeatureSwitches) -> None:
    """Validate the labels and annotations of a job: names, time limits and gates."""
    kind = job.at("kind").text()
    entry = KINDS[kind]
    check_name(job.at("metadata", "labels", QUEUE))
    if entry.serving is None:
        name = prebuilt_name(job, rules)
        check_name(name)
        if name.text() and not entry.prebuilt:
            name.error(f'Is not supported for "{_long_name(kind)}"', FieldErrorType.FORBIDDEN)
        _check_seconds(job.at("metadata", "labels", SECONDS_MAX))
    if is_elastic(job) and rules.elastic and not entry.elastic:
        field = job.at("metadata", "annotations", ELASTIC)
        field.error(f'elastic job is not supported for "{_long_name(kind)}"', FieldErrorType.FORBIDDEN)
    check_gates(job.at("metadata", "annotations", GATED_BY))


def check_job_update(new: Field, old: Field, rules: FeatureSwitches, find: Find = find_nothing) -> None:
    """Validate an update of a job; most fields are immutable while it runs."""
    labels, labels_before = new.at("metadata", "labels"), old.at("metadata", "labels")
    suspended = is_suspended_or_gated(new, old)
    queue = labels.at(QUEUE)
    if kind_of(new).serving is not None:
        if not (suspended and queue.text()):
            check_unchanged(queue, labels_before.at(QUEUE))
    else:
        if not suspended:
            check_unchanged(queue, labels_before.at(QUEUE))
        if not suspended and not is_elastic(old):
            check_unchanged(prebuilt_name(new, rules), prebuilt_name(old, rules))
        if not (suspended and is_suspended_or_gated(old, old)):
            check_unchanged(labels.at(SECONDS_MAX), labels_before.at(SECONDS_MAX))
        if labels_before.at(QUEUE).text() and not queue.text() and find(*_default_queue(old)) is not None:
            why = "queue-name must not be empty in namespace with default queue"
            queue.error(why, FieldErrorType.INVALID, "")
        if rules.elastic and is_elastic(new) != is_elastic(old):
            new.at("metadata", "annotations", ELASTIC).error(
                IMMUTABLE, FieldErrorType.INVALID, is_elastic(new)
            )
    _check_priority_update(labels.at(PRIORITY_CLASS), labels_before.at(PRIORITY_CLASS), paused=suspended)
    check_gates_update(
        new.at("metadata", "annotations", GATED_BY), old.at("metadata", "annotations", GATED_BY)
    )


def is_suspended_or_gated(job: Field, old: Field) -> bool:
    """Whether no pod of a job can run: it is suspended, its pod is gated, or no replica is ready."""
    kind = kind_of(job)
    if kind.serving is not None:
        return old.at("status", "readyReplicas").integer() == 0
    if kind.is_pod:
        return any(
            gate.at("name").text() == SCHEDULING_GATE for gate in job.at("spec", "schedulingGates").items()
        )
    return is_suspended(job)


def prebuilt_name(obj: Field, rules: FeatureSwitches) -> Field:
    """The field in which an object names its prebuilt Workload."""
    label, annotation = obj.at("metadata", "labels", PREBUILT), obj.at("metadata", "annotations", PREBUILT)
    return (
        annotation
        if annotation.text() and (rules.identifiers or len(annotation.text()) > LABEL_MAX)
        else label
    )


def check_name(field: Field) -> None:
    """Validate the name of another object."""
    if field.present and (problems := subdomain_problems(field.text())):
        field.error(",".join(problems), FieldErrorType.INVALID)


def check_gates(field: Field) -> None:
    """Validate a comma-separated list of admission gates, such as acme.io/budget."""
    seen: set[str] = set()
    text = field.text()
    for gate in (one.strip() for one in text.split(",")) if text else ():
        if not gate:
            field.error("cannot contain empty gate names", FieldErrorType.INVALID)
        elif gate in seen:
            field.error(f"duplicate gate name: {gate}", FieldErrorType.INVALID)
        else:
            _check_gate(field, gate)
        seen.add(gate)


def check_gates_update(new: Field, old: Field) -> None:
    """Validate an update of admission gates: they can only be removed."""
    before = {gate.strip() for gate in old.text().split(",")} if old.text() else set()
    if new.text() and not before:
        new.error("cannot add admission gate after creation", FieldErrorType.FORBIDDEN)
    elif new.text() and {gate.strip() for gate in new.text().split(",")} - before:
        new.error("can only remove gates, not add new ones", FieldErrorType.FORBIDDEN)


def whole_number(text: str) -> int:
    """A whole number in decimal digits; ValueError says what is wrong with the text."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    if len(text) > 19:
        raise ValueError(f'strconv.Atoi: parsing "{text}": value out of range')
    return int(text)


def check_minimum(field: Field, count: int) -> None:
    """Validate the minimum parallelism of a Job of `count` pods."""
    text = str(field.value)
    try:
        number = whole_number(text)
    except ValueError as wrong:
        field.error(str(wrong), FieldErrorType.INVALID)
        return
    if not 0 < number < count:
        field.error(f"should be between 0 and {count - 1}", FieldErrorType.INVALID, number)


def _check_gate(field: Field, gate: str) -> None:
    host, slash, path = gate.partition("/")
    if not (slash and host and path):
        field.error('must be a domain-prefixed path (such as "acme.io/foo")', FieldErrorType.INVALID, gate)
        return
    for problem in subdomain_problems(host):
        field.error(problem, FieldErrorType.INVALID, host)
    if not _HTTP_PATH.fullmatch(path):
        why = f"Invalid path (regex used for validation is '{_HTTP_PATH.pattern}')"
        field.error(why, FieldErrorType.INVALID, path)
    if len(gate) > GATE_MAX:
        field.error(f"may not be more than {GATE_MAX} bytes", FieldErrorType.TOO_LONG)


def _check_seconds(field: Field) -> None:
    if not field.present:
        return
    try:
        number = whole_number(field.text())
    except ValueError as wrong:
        field.error(str(wrong), FieldErrorType.INVALID)
        return
    if number <= 0:
        field.error("should be greater than 0", FieldErrorType.INVALID, number)


def _check_priority_update(new: Field, old: Field, *, paused: bool) -> None:
    if new.text() and not old.text() and not paused:
        new.error("WorkloadPriorityClass cannot be added to a non-suspended workload", FieldErrorType.INVALID)
    if old.text() and not new.text():
        new.error("WorkloadPriorityClass cannot be removed from a workload", FieldErrorType.INVALID, "")


def _default_queue(job: Field) -> tuple[str, str, str]:
    return "LocalQueue", job.at("metadata", "namespace").text(), "default"


def _long_name(kind: str) -> str:
    entry = KINDS[kind]
    return f"{entry.api_version}, Kind={kind}"
