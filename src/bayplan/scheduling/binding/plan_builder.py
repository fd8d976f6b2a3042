"""Builds the plan of one binding cycle: the actions so far, and the overlay they lead to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bayplan.model.gang import Ref
from bayplan.model.gang_spec import GangSpec
from bayplan.model.plan import Action, Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome, RejectionReason, SchedulingRejection
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, attempt, is_lone
from bayplan.scheduling.attempt.nominations import Nominations, priority_of
from bayplan.scheduling.attempt.rejection import standstill
from bayplan.scheduling.binding.backfill_reservation import BackfillReservation
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.search import PreemptionSearch
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot


class PlanBuilder:
    """Turns decisions about gangs into actions, in the order in which they are made."""

    def __init__(self, look: SchedulingSnapshot, profile: Profile, now: float, floor: NodeOverlay) -> None:
        self.look, self.profile, self.now, self.floor = look, profile, now, floor
        self.actions: list[Action] = []
        self.reached: set[Ref] = set()  # gangs that were decided on
        self.promises = Nominations(floor, look)
        self.rooms = PreemptionSearch(PreemptionContext(look, profile, floor))
        self.reservation = BackfillReservation(self.rooms, now)

    def plan(self) -> Plan:
        """All actions, and the gangs left for the next cycle."""
        return Plan(tuple(self.actions), self._left())

    def _left(self) -> tuple[Ref, ...]:
        """Gangs that were not reached before the time budget ran out."""
        if len(self.reached) == len(self.look.candidates):
            return ()
        refs = (candidate.charter.source for candidate in self.look.candidates)
        return tuple(ref for ref in refs if ref not in self.reached)

    # ── gangs that fit ─────────────────────────────────────────────────────────────────────────────

    def bind(self, candidate: SchedulingCandidate, found: AttemptResult) -> None:
        """Bind the assigned pods; the gang counts as started."""
        gang = candidate.charter.source
        hints = self._hints(candidate, found)
        for pod in candidate.waiting:
            row = found.seats.get(pod.key)
            if row is not None:
                self.actions.append(Bind(gang, pod, self.floor.node(row), hints.get(pod.key, ())))
        self.begin(candidate)

    def _hints(
        self, candidate: SchedulingCandidate, found: AttemptResult
    ) -> Mapping[PodKey, tuple[tuple[str, int], ...]]:
        """The NUMA nodes that the pods are meant for, if the profile publishes them."""
        if self.floor.zones is None or not self.profile.zone_hints:
            return {}
        seats = [(pod.key, pod.wants.shape, found.seats.get(pod.key)) for pod in candidate.waiting]
        return self.floor.zones.meant([(key, shape, row) for key, shape, row in seats if row is not None])

    def begin(self, candidate: SchedulingCandidate) -> None:
        """Record that a gang has started, unless that is recorded already."""
        charter = candidate.charter
        if not charter.started and not is_lone(candidate):
            self.actions.append(MarkStarted(charter.source, charter.uid))

    # ── preemption and nomination ──────────────────────────────────────────────────────────────────

    def displace(
        self, pod: Pod, charter: GangSpec, *, whole: bool, undoes: bool = False, to: str = ""
    ) -> None:
        """Preempt a pod for this gang."""
        self.actions.append(PreemptPod(pod, charter.source, charter.uid, whole=whole, undoes=undoes, to=to))

    def promise(
        self, asked: AttemptRequest, seats: Mapping[PodKey, int], found: AttemptResult, displaced: int
    ) -> None:
        """Nominate the pods for the nodes where the victims free capacity."""
        candidate = asked.candidate
        gang, priority = candidate.charter.source, priority_of(candidate)
        for pod in asked.waiting:
            row = seats.get(pod.key)
            before = candidate.nominated.get(pod.key, "")
            node = "" if row is None else self.floor.node(row)
            if node != before:
                self.actions.append(Nominate(gang, pod, node))
            if node:
                self.promises.note(pod, node, priority)
        why = standstill(RejectionReason.MAKING_ROOM, asked, found)
        fit = asked.standing + len(seats)
        displaced += len(candidate.making_room)
        why = replace(why, fit=fit, sought=PreemptionSearchOutcome.FOUND, displaced=displaced)
        self.refuse(candidate, why, asked.waiting)

    def goes_on_making_room(self, asked: AttemptRequest, priority: int) -> bool:
        """Whether its terminating victims still free enough for all nominated pods; if so, keep waiting."""
        candidate = asked.candidate
        if not candidate.nominated or not candidate.making_room:
            return False
        rows = self.rooms.still_promised(candidate)
        promised = sum(pod.key in candidate.nominated for pod in candidate.waiting)
        if len(rows) < max(asked.need, promised):
            return False
        for pod in candidate.waiting:
            if pod.key in rows:
                self.promises.note(pod, candidate.nominated[pod.key], priority)
        why = SchedulingRejection(
            RejectionReason.MAKING_ROOM,
            candidate.charter.minimum,
            asked.standing + len(asked.waiting),
            asked.standing + len(rows),
            sought=PreemptionSearchOutcome.FOUND,
            displaced=len(candidate.making_room),
        )
        self.refuse(candidate, why, asked.waiting)
        return True

    def take_back_promises(self, candidate: SchedulingCandidate, pods: Iterable[Pod]) -> None:
        """Clear the nominations of these pods: no capacity is being freed for them any more."""
        for pod in pods:
            if candidate.nominated.get(pod.key):
                self.actions.append(Nominate(candidate.charter.source, pod, ""))

    # ── gangs that stay pending ────────────────────────────────────────────────────────────────────

    def refuse(
        self,
        candidate: SchedulingCandidate,
        why: SchedulingRejection,
        pods: tuple[Pod, ...] = (),
        keeps: tuple[str, ...] = (),
    ) -> None:
        """Report that a gang, or these of its pods, got no node. `keeps`: nodes to reserve for it."""
        charter = candidate.charter
        self.reached.add(charter.source)
        news = _is_news(why, candidate.refused)
        pods = pods or candidate.waiting
        self.actions.append(ReportUnschedulable(charter.source, why, pods, news, charter.uid, keeps))

    def fits(self, asked: AttemptRequest) -> bool:
        """Whether the gang would fit without the backfill reservation."""
        mark = self.floor.mark()
        found = attempt(self.look, self.floor, asked, self.profile)
        self.floor.undo(mark)
        return len(found.seats) >= asked.need


def _is_news(why: SchedulingRejection, before: SchedulingRejection | None) -> bool:
    """Whether to publish the rejection: the reason or the number that fits changed, not just node counts."""
    return before is None or _gist(why) != _gist(before)


def _gist(why: SchedulingRejection) -> tuple[object, ...]:
    unfit, misfit = why.unfit, why.misfit
    return (
        why.hindrance, why.minimum, why.there, why.fit, why.sought, why.about, why.unsure, why.pod,
        unfit and (frozenset(unfit.counts), unfit.bar, unfit.about),
        misfit and (misfit.code, misfit.level, misfit.fit, misfit.asked, misfit.layers),
        misfit and (misfit.is_too_large, misfit.lacked),
    )  # fmt: skip
