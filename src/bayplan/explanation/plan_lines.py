"""A plan in sentences: one for each gang and decision, as `bayplan replay` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bayplan.dialects.kueue.status.rejection_messages import reason, rejection_message
from bayplan.model.gang import Ref
from bayplan.model.plan import (
    Admit,
    Bind,
    EvictGang,
    Plan,
    PreemptPod,
    ReportNotAdmitted,
    ReportUnschedulable,
)
from bayplan.model.rejection import Rejection


@dataclass(frozen=True, slots=True)
class PlanLine:
    """What was decided about a gang; names of nodes and of another gang are apart from the text."""

    gang: Ref
    text: str
    nodes: tuple[str, ...] = ()
    other: Ref | None = None  # the gang that another one is evicted for

    @property
    def sentence(self) -> str:
        where = f" on {', '.join(self.nodes)}" if self.nodes else ""
        return self.text + where + (f" for {self.other.name}" if self.other is not None else "")


def plan_lines(plan: Plan) -> Iterator[PlanLine]:
    """The sentences of a plan, placements last."""
    bound: dict[Ref, list[str]] = {}
    for action in plan.actions:
        match action:
            case Bind(ref, _, node):
                bound.setdefault(ref, []).append(node)
            case ReportUnschedulable(ref, why, changed=True):
                yield PlanLine(ref, _unschedulable(why))
            case PreemptPod(pod, ref):
                yield PlanLine(ref, f"preempts pod {pod.key}")
            case Admit(queued, admission):
                pods = sum(pod_set.count for pod_set in admission.pod_sets)
                yield PlanLine(queued.gang.source, f"{pods} pods admitted by {admission.queue}")
            case EvictGang(queued, why, by):
                other = None if by is None else by.gang.source
                yield PlanLine(queued.gang.source, f"evicted ({why})", other=other)
            case ReportNotAdmitted(queued, rejection):
                told = f"{reason(rejection.reason)}: {rejection_message(rejection)}"
                yield PlanLine(queued.gang.source, f"not admitted: {told}")
    for ref, nodes in bound.items():
        yield PlanLine(ref, f"{len(nodes)} pods", tuple(sorted(set(nodes))))


def _unschedulable(why: Rejection) -> str:
    if why.misfit is not None:
        return f"unschedulable, {why.misfit.code}, {why.misfit.fit} of {why.misfit.asked} fit"
    return f"unschedulable, {why.reason}, {why.fit} of {why.minimum} fit"
