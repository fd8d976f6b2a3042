"""A job of any kind as it is when it runs, and when it is held back again; objects are not changed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.faring import Faring
from bayplan.dialects.jobs.kinds import KINDS, Find, Part, parts
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.jobs.starting import Clash, Injected, add, restore
from bayplan.dialects.kube.fields import Field

Object = dict[str, Any]

_ALWAYS_THERE = ("Job",)


def resource(kind: str) -> Kind:
    """How a kind of job is addressed; a cluster may lack it, and may gain it later."""
    entry = KINDS[kind]
    return Kind(entry.group, entry.version, kind, entry.plural, optional=kind not in _ALWAYS_THERE)


def faring(kind: str) -> Faring:
    """How to read the status of a kind that is held back by a flag."""
    found = KINDS[kind].faring
    assert found is not None, f"{kind} has no flag"
    return found


def is_suspended(job: Object) -> bool:
    """Whether a job is held back by its flag."""
    return Field(job).at(*KINDS[job["kind"]].suspend).value is True


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
        raise Clash(f"invalid podset infos: expecting {len(pods)} podset, got {len(extras)}")
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
            restore(_template(part), original, entry.kept_labels)
    return found


def _set(job: Object, value: bool) -> None:
    path = KINDS[job["kind"]].suspend
    below = job
    for key in path[:-1]:
        below = below.setdefault(key, {})
    below[path[-1]] = value


def _template(part: Part) -> Object:
    assert isinstance(part.template.value, dict), "a pod set without a template"
    return part.template.value
