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

    def __init__(
        self, snapshot: SchedulingSnapshot, profile: Profile, now: float, overlay: NodeOverlay
    ) -> None:
        self.look, self.profile, self.now, self.floor = snapshot, profile, now, overlay
        self.actions: list[Action] = []
        self.reached: set[Ref] = set()  # gangs that were decided on
        self.promises = Nominations(overlay, snapshot)
        self.rooms = PreemptionSearch(PreemptionContext(snapshot, profile, overlay))
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

    def bind(self, candidate: SchedulingCandidate, result: AttemptResult) -> None:
        """Bind the assigned pods; the gang counts as started."""
        gang = candidate.charter.source
        hints = self._hints(candidate, result)
        for pod in candidate.waiting:
            row = result.seats.get(pod.key)
            if row is not None:
                self.actions.append(Bind(gang, pod, self.floor.node(row), hints.get(pod.key, ())))
        self.begin(candidate)

    def _hints(
        self, candidate: SchedulingCandidate, result: AttemptResult
    ) -> Mapping[PodKey, tuple[tuple[str, int], ...]]:
        """The NUMA nodes that the pods are meant for, if the profile publishes them."""
        if self.floor.zones is None or not self.profile.zone_hints:
            return {}
        rows = [(pod.key, pod.wants.shape, result.seats.get(pod.key)) for pod in candidate.waiting]
        return self.floor.zones.meant([(key, shape, row) for key, shape, row in rows if row is not None])

    def begin(self, candidate: SchedulingCandidate) -> None:
        """Record that a gang has started, unless that is recorded already."""
        spec = candidate.charter
        if not spec.started and not is_lone(candidate):
            self.actions.append(MarkStarted(spec.source, spec.uid))

    # ── preemption and nomination ──────────────────────────────────────────────────────────────────

    def displace(
        self, pod: Pod, spec: GangSpec, *, whole: bool, undoes: bool = False, target: str = ""
    ) -> None:
        """Preempt a pod for this gang."""
        self.actions.append(PreemptPod(pod, spec.source, spec.uid, whole=whole, undoes=undoes, to=target))

    def promise(
        self, request: AttemptRequest, rows: Mapping[PodKey, int], result: AttemptResult, preempted: int
    ) -> None:
        """Nominate the pods for the nodes where the victims free capacity."""
        candidate = request.candidate
        gang, priority = candidate.charter.source, priority_of(candidate)
        for pod in request.waiting:
            row = rows.get(pod.key)
            before = candidate.nominated.get(pod.key, "")
            node = "" if row is None else self.floor.node(row)
            if node != before:
                self.actions.append(Nominate(gang, pod, node))
            if node:
                self.promises.note(pod, node, priority)
        rejection = standstill(RejectionReason.MAKING_ROOM, request, result)
        fit = request.standing + len(rows)
        preempted += len(candidate.making_room)
        rejection = replace(rejection, fit=fit, sought=PreemptionSearchOutcome.FOUND, displaced=preempted)
        self.refuse(candidate, rejection, request.waiting)

    def goes_on_making_room(self, request: AttemptRequest, priority: int) -> bool:
        """Whether its terminating victims still free enough for all nominated pods; if so, keep waiting."""
        candidate = request.candidate
        if not candidate.nominated or not candidate.making_room:
            return False
        rows = self.rooms.still_promised(candidate)
        nominated = sum(pod.key in candidate.nominated for pod in candidate.waiting)
        if len(rows) < max(request.need, nominated):
            return False
        for pod in candidate.waiting:
            if pod.key in rows:
                self.promises.note(pod, candidate.nominated[pod.key], priority)
        rejection = SchedulingRejection(
            RejectionReason.MAKING_ROOM,
            candidate.charter.minimum,
            request.standing + len(request.waiting),
            request.standing + len(rows),
            sought=PreemptionSearchOutcome.FOUND,
            displaced=len(candidate.making_room),
        )
        self.refuse(candidate, rejection, request.waiting)
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
        rejection: SchedulingRejection,
        pods: tuple[Pod, ...] = (),
        reserved_nodes: tuple[str, ...] = (),
    ) -> None:
        """Report that a gang, or these of its pods, got no node. `reserved_nodes`: for it."""
        spec = candidate.charter
        self.reached.add(spec.source)
        changed = _is_news(rejection, candidate.refused)
        pods = pods or candidate.waiting
        self.actions.append(
            ReportUnschedulable(spec.source, rejection, pods, changed, spec.uid, reserved_nodes)
        )

    def fits(self, request: AttemptRequest) -> bool:
        """Whether the gang would fit without the backfill reservation."""
        checkpoint = self.floor.mark()
        result = attempt(self.look, self.floor, request, self.profile)
        self.floor.undo(checkpoint)
        return len(result.seats) >= request.need


def _is_news(rejection: SchedulingRejection, before: SchedulingRejection | None) -> bool:
    """Whether to publish the rejection: the reason or the number that fits changed, not just node counts."""
    return before is None or _gist(rejection) != _gist(before)


def _gist(rejection: SchedulingRejection) -> tuple[object, ...]:
    failure, misfit = rejection.unfit, rejection.misfit
    return (
        rejection.hindrance,
        rejection.minimum,
        rejection.there,
        rejection.fit,
        rejection.sought,
        rejection.about,
        rejection.unsure,
        rejection.pod,
        failure and (frozenset(failure.counts), failure.bar, failure.about),
        misfit and (misfit.code, misfit.level, misfit.fit, misfit.asked, misfit.layers),
        misfit and (misfit.is_too_large, misfit.lacked),
    )
