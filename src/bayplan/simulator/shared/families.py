"""Families of pods on shared nodes: those of queued jobs, of groups with sub-groups, and all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.simulator.core.documents import once_per_document, once_per_listing
from bayplan.simulator.jobs.checkers import gang_of
from bayplan.simulator.shared.pod_groups import group_of as queued_group_of
from bayplan.simulator.subgroups.group_view import group_of

Object = dict[str, Any]
JOBS, TREES, GANGS = "jobs", "trees", "gangs"


@once_per_document
def family_of(pod: Object) -> str:
    """The family of a pod."""
    return JOBS if gang_of(pod) or queued_group_of(pod) else TREES if group_of(pod) else GANGS


@once_per_listing
def of_queued_jobs(pods: Sequence[Object]) -> tuple[Object, ...]:
    """The pods that belong to a Workload."""
    return tuple([pod for pod in pods if gang_of(pod)])


@once_per_listing
def of_gangs(pods: Sequence[Object]) -> tuple[Object, ...]:
    """The pods that are neither queued nor in a tree."""
    return tuple([pod for pod in pods if family_of(pod) == GANGS])
