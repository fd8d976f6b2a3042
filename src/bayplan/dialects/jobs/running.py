"""A job of any kind as it is when it runs, and when it is held back again; objects are not changed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.kinds import KINDS, Find, JobPart, parts
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.jobs.starting import Injected, InjectionConflict, add, restore
from bayplan.dialects.jobs.status import JobStatusReader
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]

_ALWAYS_THERE = ("Job",)


def resource(kind: str) -> Kind:
    """How a kind of job is addressed; a cluster may lack it, and may gain it later."""
    entry = KINDS[kind]
    return Kind(entry.group, entry.version, kind, entry.plural, optional=kind not in _ALWAYS_THERE)


def faring(kind: str) -> JobStatusReader:
    """How to read the status of a kind that is held back by a flag."""
    found = KINDS[kind].faring
    assert found is not None, f"{kind} has no flag"
    return found


def is_suspended(job: Object) -> bool:
    """Whether a job is held back by its flag."""
    return Field(job).at(*KINDS[job["kind"]].suspend).value is True


def is_suspendable(job: Object) -> bool:
    """Whether the flag can be written: everything above it is a mapping, or not there yet."""
    found: object = job
    for key in KINDS[job["kind"]].suspend[:-1]:
        found = found.get(key) if isinstance(found, dict) else found
    return found is None or isinstance(found, dict)


def suspended(job: Object) -> Object:
    """The job held back, and otherwise as it is."""
    found: Object = copy.deepcopy(job)
    _set(found, True)
    return found


def prepared(job: Object, extras: Sequence[Injected], find: Find = nothing) -> Object:
    """The job with what its pods are given, still held back. Clash if that cannot be."""
    found: Object = copy.deepcopy(job)
    begin = KINDS[job["kind"]].begin
    if begin is not None:
        begin(found, extras, find)
        return found
    pods = parts(Field(found), find)
    if len(pods) != len(extras):
        raise InjectionConflict(f"invalid podset infos: expecting {len(pods)} podset, got {len(extras)}")
    for part, extra in zip(pods, extras, strict=True):
        add(_template(part), extra)
    return found


def started(job: Object, extras: Sequence[Injected], find: Find = nothing) -> Object:
    """The job as it runs."""
    found = prepared(job, extras, find)
    _set(found, False)
    return found


def restored(job: Object, originals: Sequence[Object], find: Find = nothing) -> Object:
    """The job with pod templates as they were; if it has other pod sets by now, they are left alone."""
    found: Object = copy.deepcopy(job)
    entry = KINDS[job["kind"]]
    if entry.take_back is not None:
        entry.take_back(found, originals)
        return found
    pods = parts(Field(found), find)
    if len(pods) == len(originals):
        for part, original in zip(pods, originals, strict=True):
            if isinstance(part.template.value, dict):
                restore(part.template.value, original, entry.kept_labels)
    return found


def _set(job: Object, value: bool) -> None:
    path = KINDS[job["kind"]].suspend
    below = job
    for key in path[:-1]:
        if below.get(key) is None:
            below[key] = {}
        below = below[key]
    below[path[-1]] = value


def _template(part: JobPart) -> Object:
    if not isinstance(part.template.value, dict):
        raise InjectionConflict(f"{part.template.path}: a pod set without a template cannot be started")
    return part.template.value
