"""Marks on everything that a defragmentation plan writes, so that a later run finds what was left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.decode.wire import NodeWire
from bayplan.dialects.kube.fields.times import seconds, timestamp

PLAN = "bayplan.dev/defragment"
"""The key of the taint that keeps pods off nodes which a plan frees, and an annotation of a gang that the
plan has stopped; the value is the name of the plan."""
UNTIL = "bayplan.dev/defragment-until"
"""An annotation of such nodes, gangs and holding pods: by then the run is over, or has written a later
time."""


@dataclass(frozen=True, slots=True)
class PlanMark:
    """The plan that has written something, and until when it may be at work."""

    plan: str
    until: float


def gang_marks(mark: PlanMark | None) -> dict[str, str | None]:
    """The annotations of a gang that a plan stops; without a mark, those of one that is started again."""
    if mark is None:
        return {PLAN: None, UNTIL: None}
    return {PLAN: mark.plan, UNTIL: timestamp(mark.until)}


def mark_in(plan: str, annotations: Mapping[str, str] | None) -> PlanMark:
    """The mark of an object; one without a readable time was left behind."""
    return PlanMark(plan, seconds((annotations or {}).get(UNTIL, "")))


def fence_of(node: NodeWire) -> PlanMark | None:
    """The plan that keeps pods off a node."""
    plan = next((one.value or "" for one in node.spec.taints or () if one.key == PLAN), None)
    return None if plan is None else mark_in(plan, node.metadata.annotations)


def fence_patch(node: NodeWire, mark: PlanMark | None) -> dict[str, object]:
    """The change that gives a node the taint of a plan, or takes it away; other taints stay."""
    taints = [
        {"key": one.key, "value": one.value or "", "effect": one.effect}
        for one in node.spec.taints or ()
        if one.key != PLAN
    ]
    if mark is not None:
        taints.append({"key": PLAN, "value": mark.plan, "effect": "NoSchedule"})
    until = None if mark is None else timestamp(mark.until)
    return {"metadata": {"annotations": {UNTIL: until}}, "spec": {"taints": taints or None}}
