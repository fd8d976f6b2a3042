"""Columns of Workloads and PodGroups, in whatever version they are kept."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.tables.cells import NONE, Cell

Object = dict[str, Any]


def _groups(workload: Object, _: float) -> str:
    spec = workload["spec"]
    kinds = ("podGroups", "podGroupTemplates", "compositePodGroupTemplates")
    return ",".join(group["name"] for key in kinds for group in spec.get(key) or ()) or NONE


def _policy(group: Object, _: float) -> str:
    return "Gang" if group["spec"]["schedulingPolicy"].get("gang") is not None else "Basic"


def _workload(group: Object, _: float) -> str:
    spec = group["spec"]
    reference = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    return reference.get("workloadName") or NONE


def _status(group: Object, _: float) -> str:
    conditions = {one["type"]: one for one in group.get("status", {}).get("conditions") or ()}
    if "DisruptionTarget" in conditions:
        return str(conditions["DisruptionTarget"]["reason"])
    found = conditions.get("PodGroupInitiallyScheduled") or conditions.get("PodGroupScheduled")
    if found is None:
        return "Pending"
    return "Scheduled" if found["status"] == "True" else "Unschedulable"


CELLS: dict[str, Cell] = {
    "gang_groups": _groups,
    "gang_policy": _policy,
    "gang_workload": _workload,
    "gang_status": _status,
}
