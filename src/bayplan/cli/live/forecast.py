"""What would happen now: rounds of admission on a state of our own, until nothing new is decided.

Nothing is written. The state given is changed: it believes what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bayplan.model.admission_rejection import AdmissionRemark
from bayplan.model.gang import Group, PodSet, Ref
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted, Requeue
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.snapshot import QueueHead
from bayplan.state.admission.state import AdmissionState

ROUNDS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What is decided about a gang, and who has to leave for it."""

    action: Admit | ReportNotAdmitted | EvictGang
    victims: tuple[EvictGang, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether another round would say the same."""
        if not isinstance(self.action, ReportNotAdmitted):
            return True
        leaving = (AdmissionRemark.LEAVING, AdmissionRemark.SAME_VICTIMS_WILL_FIT)
        return self.action.again is not Requeue.AT_ONCE or self.action.refusal.remark in leaving


def forecast(
    state: AdmissionState, profile: Profile, now: float, until: Ref | None = None
) -> dict[Ref, ForecastResult]:
    """The fate of every gang whose turn comes; with `until`, only as far as that one's is settled."""
    fates: dict[Ref, ForecastResult] = {}
    for _ in range(ROUNDS_MAX):
        heads = state.heads(now)
        if not heads:
            break
        plan = decide_admissions(state.snapshot(heads), profile, now)
        evictions = [action for action in plan.actions if isinstance(action, EvictGang)]
        news = False
        for action in plan.actions:
            if isinstance(action, EvictGang) and action.by is not None:
                continue
            if not isinstance(action, Admit | ReportNotAdmitted | EvictGang):
                continue
            victims = tuple(e for e in evictions if e.by is not None and e.by.gang.source == action.gang)
            known = fates.get(action.gang)
            if known is not None and known.action == action:
                continue
            news = True
            if known is not None and known.victims and not victims:
                victims = known.victims  # they were told to leave in an earlier round
            fates[action.gang] = ForecastResult(action, victims)
        state.assume(plan, now)
        if not news or (until is not None and until in fates and fates[until].settled):
            break
    return fates


def with_fewer_pods(
    state: AdmissionState, profile: Profile, demand: QueuedGang, queue: str, now: float
) -> Admission | None:
    """What the gang would be given at once if fewer pods were enough for it; None if nothing."""
    if all(pod_set.count <= 1 for pod_set in demand.gang.root.pod_sets()):
        return None
    smaller = replace(demand, gang=replace(demand.gang, root=_content_with_less(demand.gang.root)))
    plan = decide_admissions(state.snapshot([QueueHead(smaller, queue)]), profile, now)
    for action in plan.actions:
        if isinstance(action, Admit) and action.gang == demand.gang.source:
            return action.admission
    return None


def _content_with_less(group: Group) -> Group:
    members: list[Group | PodSet] = [
        _content_with_less(member)
        if isinstance(member, Group)
        else replace(member, minimum=min(1, member.count))
        for member in group.members
    ]
    return replace(group, members=tuple(members))


def pods_by_set(admission: Admission) -> Mapping[str, int]:
    """How many pods each pod set was given."""
    return {given.name: given.count for given in admission.given}
