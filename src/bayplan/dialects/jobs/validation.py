"""Structural validation of jobs: field types and nesting depth.

CRDs of other projects often accept any value. Jobs with errors are not reconciled, and the errors are
reported to their owners. All code that handles jobs may rely on what is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, copies, parts
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kube.fields.reader import Field, FieldError

DEPTH_MAX = 100
"""The deepest nesting of lists and mappings. A pod template needs about a dozen levels."""
_TEXTS = ("labels", "annotations")
_OBJECT_LISTS = ("containers", "initContainers", "tolerations", "schedulingGates", "volumes")


def flaws(
    job: Mapping[str, Any], find: Find = find_nothing, *, complete: bool = True
) -> tuple[FieldError, ...]:
    """All structural errors of a job of a known kind; with `complete`, missing fields are errors too."""
    if is_too_deep(job):
        return (FieldError("", None, f"is nested more than {DEPTH_MAX} levels deep: write it flatter"),)
    field = Field(job)
    _check_metadata(field.at("metadata"))
    _is_mapping(field.at("spec"), required=True)
    if _is_mapping(field.at("status")):
        _object_list(field.at("status", "conditions"))
    if not field.errors:
        _check_flag(field)
        if complete:
            copies(field)
        _check_parts(field, find, complete)
    return field.errors


def note_flaws(job: Field, find: Find = find_nothing) -> None:
    """Record the type errors of a job on the job itself; missing fields are not reported."""
    if isinstance(job.value, dict):
        job.adopt(flaws(job.value, find, complete=False))


def is_too_deep(value: object) -> bool:
    """Whether lists and mappings are nested deeper than DEPTH_MAX."""
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
        if complete and not template.present and part.count_known:
            template.error("must be set")
        if not _is_mapping(template):
            continue
        own = template.at("metadata") if part.pod_metadata is None else part.pod_metadata
        for metadata in (own, template.at("metadata")):
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
    """The fields above the suspend flag must be mappings."""
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
    """Whether the field is a mapping. Another type is an error, and a missing value too if it is required."""
    if field.value is None:
        if required:
            field.error("must be set")
        return False
    list(field.entries())
    return isinstance(field.value, dict)


def _object_list(field: Field) -> None:
    for one in field.items():
        _is_mapping(one, required=True)
