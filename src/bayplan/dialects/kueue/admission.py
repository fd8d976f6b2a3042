"""What is wrong with a job before it is kept: its topology annotations, all errors at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.kinds import is_known
from bayplan.dialects.kube.fields import Field, FieldError
from bayplan.dialects.kueue.jobs import job_gang
from bayplan.dialects.kueue.objects import topology

Object = dict[str, Any]

VALIDATED = (("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"), ("kueue.x-k8s.io", "topologies"))
"""Group and resource of what we look at."""


def validate(new: Object | None, old: Object | None) -> Sequence[FieldError]:
    """Everything wrong with an object; what was wrong already does not keep it from being changed."""
    if new is None:
        return ()
    known = {str(error) for error in _errors(old)} if old else set()
    return [error for error in _errors(new) if str(error) not in known]


def _errors(obj: Object) -> tuple[FieldError, ...]:
    field = Field(obj)
    if field.at("kind").text() == "Topology":
        topology(field)
    elif is_known(field):
        job_gang(field)
    return field.errors
