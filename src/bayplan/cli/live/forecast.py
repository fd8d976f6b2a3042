"""Simulated admission: cycles on a copy of the state, until a cycle decides nothing new.

Nothing is written. The state passed in changes: it assumes what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bayplan.model.gang import Group, PodSet, Ref
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted, Requeue
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.rejection import AdmissionRemark
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.snapshot import QueueHead
from bayplan.state.admission.state import AdmissionState

CYCLES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """The decision about a gang, and the gangs that it preempts."""

    action: Admit | ReportNotAdmitted | EvictGang
    victims: tuple[EvictGang, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether another cycle would decide the same."""
        if not isinstance(self.action, ReportNotAdmitted):
            return True
        terminating = (AdmissionRemark.PREEMPTING, AdmissionRemark.SAME_VICTIMS_WILL_FIT)
        return self.action.requeue is not Requeue.AT_ONCE or self.action.rejection.remark in terminating


def forecast(
    state: AdmissionState, profile: Profile, now: float, until: Ref | None = None
) -> dict[Ref, ForecastResult]:
    """The decision about every gang that becomes head of its queue; with `until`, up to that gang."""
    results: dict[Ref, ForecastResult] = {}
    for _ in range(CYCLES_MAX):
        heads = state.heads(now)
        if not heads:
            break
        plan = decide_admissions(state.snapshot(heads), profile, now)
        evictions = [action for action in plan.actions if isinstance(action, EvictGang)]
        changed = False
        for action in plan.actions:
            if isinstance(action, EvictGang) and action.by is not None:
                continue
            if not isinstance(action, Admit | ReportNotAdmitted | EvictGang):
                continue
            victims = tuple(e for e in evictions if e.by is not None and e.by.gang.source == action.gang)
            known = results.get(action.gang)
            if known is not None and known.action == action:
                continue
            changed = True
            if known is not None and known.victims and not victims:
                victims = known.victims  # they were evicted in an earlier cycle
            results[action.gang] = ForecastResult(action, victims)
        state.assume(plan, now)
        if not changed or (until is not None and until in results and results[until].settled):
            break
    return results


def with_fewer_pods(
    state: AdmissionState, profile: Profile, queued_gang: QueuedGang, queue: str, now: float
) -> Admission | None:
    """The admission that the gang would get now with fewer pods; None if there is none."""
    if all(pod_set.count <= 1 for pod_set in queued_gang.gang.root.pod_sets()):
        return None
    smaller = replace(
        queued_gang, gang=replace(queued_gang.gang, root=_with_minimum_one(queued_gang.gang.root))
    )
    plan = decide_admissions(state.snapshot([QueueHead(smaller, queue)]), profile, now)
    for action in plan.actions:
        if isinstance(action, Admit) and action.gang == queued_gang.gang.source:
            return action.admission
    return None


def _with_minimum_one(group: Group) -> Group:
    members: list[Group | PodSet] = [
        _with_minimum_one(member)
        if isinstance(member, Group)
        else replace(member, minimum=min(1, member.count))
        for member in group.members
    ]
    return replace(group, members=tuple(members))


def pods_by_set(admission: Admission) -> Mapping[str, int]:
    """The admitted number of pods by pod set."""
    return {pod_set.name: pod_set.count for pod_set in admission.pod_sets}
