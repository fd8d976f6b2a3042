"""What else must hold before a PodGroup is kept: the template it comes from exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = Mapping[str, Any]
FindWorkload = Callable[[str], Object | None]  # by name, in the namespace of the group


def missing_template(pod_group: Object, find: FindWorkload) -> str:
    """Why a PodGroup of v1alpha2 cannot come from the Workload that it names, or nothing."""
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
