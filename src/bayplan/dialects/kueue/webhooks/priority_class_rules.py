"""Validation that the priority class of a job or Workload exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.kube.fields.reader import Field, FieldError, FieldErrorType
from bayplan.dialects.kueue.names.annotations import PRIORITY_CLASS
from bayplan.dialects.kueue.webhooks.validate import FAMILY, QUEUED, WORKLOAD
from bayplan.dialects.reviews import HasClass, any_class

Object = dict[str, Any]

CLASSES = ("WorkloadPriorityClass", "PriorityClass")
WITH_PRIORITY_CLASS = (*QUEUED, (FAMILY, "workloads"))
"""Group and resource of objects that can name a priority class."""


def check_class(
    new: Object | None, old: Object | None, has_class: HasClass = any_class
) -> Sequence[FieldError]:
    """The error if an object names a class that does not exist; an unchanged name is accepted."""
    if new is None:
        return []
    field = Field(new)
    kind, named = _named(field)
    if old is not None and _named(Field(old))[1].text() == named.text():
        return []
    if named.text() and not has_class(kind, named.text()):
        named.error(f"there is no {kind} of this name", FieldErrorType.NOT_FOUND, named.text())
    return list(field.errors)


def _named(obj: Field) -> tuple[str, Field]:
    """Kind and name of the class. A Workload with an owner is not checked, since its job was."""
    if obj.at("kind").text() != WORKLOAD:
        return CLASSES[0], obj.at("metadata", "labels", PRIORITY_CLASS)
    if obj.at("metadata", "ownerReferences").items():
        return CLASSES[0], Field(None)
    reference = obj.at("spec", "priorityClassRef")
    kind = reference.at("kind").text()
    return (kind, reference.at("name")) if kind in CLASSES else (CLASSES[0], Field(None))
