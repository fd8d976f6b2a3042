"""Rejections of gangs on which no decision could be made, and snapshots without them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Nominate, Plan, ReportUnschedulable
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import DecisionFault
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from bayplan.state.scheduling.state import SchedulingState

FAILURES_MAX = 1000  # failures in one snapshot; each removes its gang from it


def heads_of(state: SchedulingState, now: float, containment: Containment) -> list[Ref]:
    """The heads of the scheduling queue; a gang that cannot be sorted does not block the others."""
    for _ in range(FAILURES_MAX):
        try:
            return state.heads(now)
        except Exception as error:
            containment.failed(error, "look")
    return []


def snapshot_for(
    state: SchedulingState, heads: Iterable[Ref], now: float, containment: Containment
) -> SchedulingSnapshot | None:
    """A snapshot for these gangs. One that cannot be part of it is rejected and tried later."""
    heads = list(heads)
    try:
        return state.snapshot(heads, now)
    except Exception:
        heads = [ref for ref in heads if _fits_in_snapshot(state, ref, now, containment)]
        return state.snapshot(heads, now) if heads else None


def _fits_in_snapshot(state: SchedulingState, ref: Ref, now: float, containment: Containment) -> bool:
    try:
        state.snapshot((ref,), now)
    except Exception as error:
        identity = containment.failed(error, "look", ref.kind, f"{ref.namespace}/{ref.name}")
        state.assume(
            Plan((ReportUnschedulable(ref, Rejection(RejectionReason.INTERNAL, about=identity)),)),
            now,
        )
        return False
    return True


def restricted_to(snapshot: SchedulingSnapshot, gangs: Collection[Ref]) -> SchedulingSnapshot:
    """The same snapshot with only these gangs to decide on; nominations of the others stay."""
    wanted = set(gangs)
    stay = tuple(one for one in snapshot.candidates if one.spec.source in wanted)
    nomination = dict(snapshot.nominations)
    for candidate in snapshot.candidates:
        if candidate.nominated and candidate.spec.source not in wanted:
            for pod in candidate.pending:
                if node := candidate.nominated.get(pod.key):
                    nomination[pod.key] = pod, node
    return replace(snapshot, candidates=stay, nominations=nomination)


def rejection_for_fault(snapshot: SchedulingSnapshot, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
    """Reject the gang with the fault as the reason, and clear its nominations."""
    [candidate] = [one for one in snapshot.candidates if one.spec.source == gang]
    spec = candidate.spec
    there = len(candidate.pending) + len(candidate.bound)
    if fault.id:
        rejection = Rejection(RejectionReason.INTERNAL, spec.minimum, there, about=fault.id)
    else:
        so_far = fault.so_far if isinstance(fault.so_far, Rejection) else None
        known = so_far or Rejection(RejectionReason.OUT_OF_TIME, spec.minimum, there)
        rejection = replace(
            known, reason=RejectionReason.OUT_OF_TIME, about=f"{fault.seconds:g}", incomplete=True
        )
    before = candidate.reported
    news = before is None or (before.reason, before.about) != (rejection.reason, rejection.about)
    nomination = [pod for pod in candidate.pending if candidate.nominated.get(pod.key)]
    withdrawn = (Nominate(gang, pod, "") for pod in nomination)
    return *withdrawn, ReportUnschedulable(gang, rejection, candidate.pending, news, spec.uid)
