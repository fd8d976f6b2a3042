"""What a job of any kind must satisfy to be queued, and what of it may change; every breach is noted."""

from __future__ import annotations

import re

from bayplan.dialects.jobs.kinds import KINDS, Find, is_suspended
from bayplan.dialects.jobs.part import nothing
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
_READY_COUNTED = ("LeaderWorkerSet", "StatefulSet", "Deployment")


def check_job(job: Field, rules: FeatureSwitches) -> None:
    """What holds for jobs of every kind: names, times and gates."""
    kind = job.at("kind").text()
    entry = KINDS[kind]
    check_name(job.at("metadata", "labels", QUEUE))
    if kind not in _READY_COUNTED:
        name = prebuilt_name(job, rules)
        check_name(name)
        if name.text() and not entry.prebuilt:
            name.error(f'Is not supported for "{_long_name(kind)}"', FieldErrorType.FORBIDDEN)
        _check_seconds(job.at("metadata", "labels", SECONDS_MAX))
    if is_elastic(job) and rules.elastic and not entry.elastic:
        field = job.at("metadata", "annotations", ELASTIC)
        field.error(f'elastic job is not supported for "{_long_name(kind)}"', FieldErrorType.FORBIDDEN)
    check_gates(job.at("metadata", "annotations", GATED_BY))


def check_job_update(new: Field, old: Field, rules: FeatureSwitches, find: Find = nothing) -> None:
    """What may not change, above all while the job runs."""
    labels, labels_before = new.at("metadata", "labels"), old.at("metadata", "labels")
    paused = is_paused(new, old)
    queue = labels.at(QUEUE)
    if new.at("kind").text() in _READY_COUNTED:
        if not (paused and queue.text()):
            check_unchanged(queue, labels_before.at(QUEUE))
    else:
        if not paused:
            check_unchanged(queue, labels_before.at(QUEUE))
        if not paused and not is_elastic(old):
            check_unchanged(prebuilt_name(new, rules), prebuilt_name(old, rules))
        if not (paused and is_paused(old, old)):
            check_unchanged(labels.at(SECONDS_MAX), labels_before.at(SECONDS_MAX))
        if labels_before.at(QUEUE).text() and not queue.text() and find(*_default_queue(old)) is not None:
            why = "queue-name must not be empty in namespace with default queue"
            queue.error(why, FieldErrorType.INVALID, "")
        if rules.elastic and is_elastic(new) != is_elastic(old):
            new.at("metadata", "annotations", ELASTIC).error(
                IMMUTABLE, FieldErrorType.INVALID, is_elastic(new)
            )
    _check_priority_update(labels.at(PRIORITY_CLASS), labels_before.at(PRIORITY_CLASS), paused=paused)
    check_gates_update(
        new.at("metadata", "annotations", GATED_BY), old.at("metadata", "annotations", GATED_BY)
    )


def is_paused(job: Field, old: Field) -> bool:
    """Whether none of a job's pods may run: by its flag, by the gate of a pod, or because none is ready."""
    kind = job.at("kind").text()
    if kind in _READY_COUNTED:
        return old.at("status", "readyReplicas").integer() == 0
    if kind == "Pod":
        return any(
            gate.at("name").text() == SCHEDULING_GATE for gate in job.at("spec", "schedulingGates").items()
        )
    return is_suspended(job)


def prebuilt_name(obj: Field, rules: FeatureSwitches) -> Field:
    """Where an object names the Workload that somebody made for it."""
    label, note = obj.at("metadata", "labels", PREBUILT), obj.at("metadata", "annotations", PREBUILT)
    return note if note.text() and (rules.identifiers or len(note.text()) > LABEL_MAX) else label


def check_name(field: Field) -> None:
    """The name of another object."""
    if field.present and (problems := subdomain_problems(field.text())):
        field.error(",".join(problems), FieldErrorType.INVALID)


def check_gates(field: Field) -> None:
    """A comma-separated list of admission gates, each named like acme.io/budget."""
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
    """Gates are only ever taken away."""
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


def check_fewest(field: Field, count: int) -> None:
    """The fewest pods that a Job of `count` pods is content with."""
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
