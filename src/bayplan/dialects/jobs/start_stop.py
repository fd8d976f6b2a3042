"""Suspending and starting jobs of any kind. The functions return changed copies."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add, restore
from bayplan.dialects.jobs.kinds import KINDS, parts
from bayplan.dialects.jobs.part import Find, JobPart, find_nothing
from bayplan.dialects.jobs.status import JobStatusReader
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]


def resource(kind: str) -> Kind:
    """The API resource of a job kind."""
    return KINDS[kind].resource


def status_reader(kind: str) -> JobStatusReader:
    """The status reader of a kind that has a suspend flag."""
    reader = KINDS[kind].status_reader
    assert reader is not None, f"{kind} has no suspend flag"
    return reader


def is_suspended(job: Object) -> bool:
    """Whether the suspend flag of a job is set."""
    return Field(job).at(*KINDS[job["kind"]].suspend).value is True


def is_suspendable(job: Object) -> bool:
    """Whether the suspend flag can be written: each field above it is a mapping or missing."""
    value: object = job
    for key in KINDS[job["kind"]].suspend[:-1]:
        value = value.get(key) if isinstance(value, dict) else value
    return value is None or isinstance(value, dict)


def suspended(job: Object) -> Object:
    """The job with its suspend flag set."""
    changed: Object = copy.deepcopy(job)
    _set(changed, True)
    return changed


def prepared(job: Object, infos: Sequence[Injected], find: Find = find_nothing) -> Object:
    """The job with pod set infos injected, still suspended. Raises InjectionConflict."""
    changed: Object = copy.deepcopy(job)
    inject = KINDS[job["kind"]].inject
    if inject is not None:
        inject(changed, infos, find)
        return changed
    pod_sets = parts(Field(changed), find)
    if len(pod_sets) != len(infos):
        raise InjectionConflict(f"invalid podset infos: expecting {len(pod_sets)} podset, got {len(infos)}")
    for part, info in zip(pod_sets, infos, strict=True):
        add(_template(part), info)
    return changed


def started(job: Object, infos: Sequence[Injected], find: Find = find_nothing) -> Object:
    """The job with pod set infos injected and its suspend flag cleared. Raises InjectionConflict."""
    changed = prepared(job, infos, find)
    _set(changed, False)
    return changed


def restored(job: Object, originals: Sequence[Object], find: Find = find_nothing) -> Object:
    """The job with its original pod templates; they are left alone if the number of pod sets changed."""
    changed: Object = copy.deepcopy(job)
    entry = KINDS[job["kind"]]
    if entry.restore is not None:
        entry.restore(changed, originals)
        return changed
    pod_sets = parts(Field(changed), find)
    if len(pod_sets) == len(originals):
        for part, original in zip(pod_sets, originals, strict=True):
            if isinstance(part.template.value, dict):
                restore(part.template.value, original, entry.controller_labels)
    return changed


def _set(job: Object, value: bool) -> None:
    path = KINDS[job["kind"]].suspend
    parent = job
    for key in path[:-1]:
        if parent.get(key) is None:
            parent[key] = {}
        parent = parent[key]
    parent[path[-1]] = value


def _template(part: JobPart) -> Object:
    if not isinstance(part.template.value, dict):
        raise InjectionConflict(f"{part.template.path}: a pod set without a template cannot be started")
    return part.template.value
