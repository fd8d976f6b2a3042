"""Whether a job is what its kind promises: mappings, lists and texts where they belong, and not too deep.

Definitions of other projects often let users write anything. A job that is not sound is left alone, and its
author is told what is wrong with it; so everything that looks after jobs may rely on what is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, Find, copies, parts
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.kube.fields.reader import Field, FieldError

DEPTH_MAX = 100
"""Lists and mappings inside each other. A pod template needs about a dozen."""
_TEXTS = ("labels", "annotations")
_OBJECT_LISTS = ("containers", "initContainers", "tolerations", "schedulingGates", "volumes")


def flaws(job: Mapping[str, Any], find: Find = nothing, *, complete: bool = True) -> tuple[FieldError, ...]:
    """Everything that keeps a job of a known kind from being read; `complete`: also what it lacks."""
    if is_too_deep(job):
        return (FieldError("", None, f"is nested more than {DEPTH_MAX} levels deep: write it flatter"),)
    found = Field(job)
    _check_metadata(found.at("metadata"))
    _is_mapping(found.at("spec"), required=True)
    if _is_mapping(found.at("status")):
        _object_list(found.at("status", "conditions"))
    if not found.errors:
        _check_flag(found)
        if complete:
            copies(found)
        _check_parts(found, find, complete)
    return found.errors


def note_flaws(job: Field, find: Find = nothing) -> None:
    """Note with the job itself what has the wrong type. What it lacks is for others to say."""
    if isinstance(job.value, dict):
        job.adopt(flaws(job.value, find, complete=False))


def is_too_deep(value: object) -> bool:
    """Whether more lists and mappings are inside each other than anybody needs."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _check_parts(job: Field, find: Find, complete: bool) -> None:
    for part in parts(job, find):
        template = part.template
        if complete and not template.present and part.counted:
            template.error("must be set")
        if not _is_mapping(template):
            continue
        where = template.at("metadata") if part.notes is None else part.notes
        for metadata in (where, template.at("metadata")):
            if _is_mapping(metadata):
                for key in _TEXTS:
                    metadata.at(key).texts()
        _check_pod_spec(template.at("spec"))
        job.adopt(template.errors)


def _check_pod_spec(spec: Field) -> None:
    if not _is_mapping(spec):
        return
    spec.at("nodeSelector").texts()
    for key in _OBJECT_LISTS:
        _object_list(spec.at(key))
    for key in ("containers", "initContainers"):
        for container in spec.at(key).items():
            if isinstance(container.value, dict):
                _object_list(container.at("env"))
                for amounts in ("requests", "limits"):
                    _is_mapping(container.at("resources", amounts))


def _check_flag(job: Field) -> None:
    """All above the flag that holds the job back can be written to."""
    path = KINDS[job.at("kind").text()].suspend
    for end in range(1, len(path)):
        _is_mapping(job.at(*path[:end]))


def _check_metadata(metadata: Field) -> None:
    if not _is_mapping(metadata, required=True):
        return
    for key in _TEXTS:
        metadata.at(key).texts()
    _object_list(metadata.at("ownerReferences"))


def _is_mapping(field: Field, *, required: bool = False) -> bool:
    """Whether there is a mapping, or nothing that has to be one."""
    if field.value is None:
        if required:
            field.error("must be set")
        return False
    list(field.entries())
    return isinstance(field.value, dict)


def _object_list(field: Field) -> None:
    for one in field.items():
        _is_mapping(one, required=True)
