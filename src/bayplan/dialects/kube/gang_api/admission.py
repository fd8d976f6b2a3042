"""Admission of PodGroups: the template that a PodGroup names must exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = Mapping[str, Any]
FindWorkload = Callable[[str], Object | None]  # by name, in the namespace of the group


def missing_template(pod_group: Object, find: FindWorkload) -> str:
    """Why the template that a PodGroup of v1alpha2 names does not exist; empty if it does."""
    reference = ((pod_group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload")
    if reference is None:
        return ""
    name, template = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
    workload = find(name)
    if workload is None:
        return f'PodGroup rejected: Workload "{name}" not found'
    if workload["metadata"].get("deletionTimestamp"):
        return f'PodGroup rejected: Workload "{name}" is being deleted'
    if template not in (one.get("name", "") for one in workload["spec"].get("podGroupTemplates") or ()):
        return f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"'
    return ""
