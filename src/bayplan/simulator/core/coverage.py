"""What a run reached: states of objects in the API, actions, and reasons of rejections.

A play that reaches a state or reason no longer checks nothing there any more, and no checker tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, get_args

from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange
from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterReason, PodError
from bayplan.model.plan import Action, EvictGang, EvictionReason, Plan, ReportNotAdmitted, ReportUnschedulable
from bayplan.model.rejection import (
    AdmissionRemark,
    ObstacleKind,
    PreemptionSearchOutcome,
    Rejection,
    RejectionDetail,
    RejectionReason,
)

Object = dict[str, Any]
Reached = Counter[str]
"""How often something was reached, by group and name: `filter taint`, `Pod phase Running`."""

REASONS: Mapping[str, type[StrEnum]] = {
    "rejection": RejectionReason,
    "remark": AdmissionRemark,
    "filter": FilterReason,
    "pod-error": PodError,
    "obstacle": ObstacleKind,
    "misfit": Code,
    "eviction": EvictionReason,
    "preemption": PreemptionSearchOutcome,
}
_UNCOUNTED = ("nodes", "namespaces", "customresourcedefinitions.apiextensions.k8s.io")  # not ours


def all_reasons() -> list[str]:
    """Every action and reason that there is."""
    reasons = [f"{group} {one.value}" for group, kinds in REASONS.items() for one in kinds]
    return [*(f"action {kind.__name__}" for kind in get_args(Action)), *reasons]


def note_plan(reached: Reached, plan: Plan) -> None:
    """Count the actions of a plan and their reasons."""
    for action in plan.actions:
        reached[f"action {type(action).__name__}"] += 1
        match action:
            case ReportUnschedulable() | ReportNotAdmitted():
                reached.update(set(_reasons_of(action.rejection)))  # each once for a rejection
            case EvictGang():
                reached[f"eviction {action.reason.value}"] += 1


def note_change(reached: Reached, storage: str, change: StoreChange) -> None:
    """Count the states that an object of the API enters: its phase and its conditions."""
    if change.type == DELETED or storage in _UNCOUNTED:
        return
    status, before = change.object.get("status"), (change.previous or {}).get("status")
    if status and status is not before:
        kind = change.object["kind"]
        reached.update(f"{kind} {state}" for state in set(_states(status)) - set(_states(before or {})))


def _reasons_of(rejection: Rejection) -> Iterator[str]:
    yield f"rejection {rejection.reason.value}"
    yield f"remark {rejection.remark.value}"
    yield f"preemption {rejection.preemption.value}"
    if rejection.misfit is not None:
        yield f"misfit {rejection.misfit.code.value}"
    if rejection.filter_failure is not None:
        yield from (f"filter {reason.value}" for reason, _ in rejection.filter_failure.counts)
        if rejection.filter_failure.error is not None:
            yield f"pod-error {rejection.filter_failure.error.value}"
    for tried in rejection.tried:
        yield from _details(tried.obstacles if tried.fatal is None else (*tried.obstacles, tried.fatal))
        for attempt in tried.attempts:
            yield from _details(attempt.obstacles)


def _details(details: Iterable[RejectionDetail]) -> Iterator[str]:
    for one in details:
        yield f"misfit {one.code.value}" if isinstance(one, Misfit) else f"obstacle {one.kind.value}"


def _states(status: Object) -> Iterator[str]:
    if isinstance(phase := status.get("phase"), str):
        yield f"phase {phase}"
    for condition in status.get("conditions") or ():
        if isinstance(condition, dict):
            yield f"{condition.get('type')}={condition.get('status')} {condition.get('reason', '')}".rstrip()
