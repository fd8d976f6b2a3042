"""One binding cycle: every gang and single pod of the snapshot gets nodes, preempts pods, or is rejected."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bayplan.model.plan import Plan
from bayplan.model.profile import Profile
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome, RejectionReason, SchedulingRejection
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, asked_of, attempt, is_lone, rest_of
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.attempt.rejection import standstill
from bayplan.scheduling.binding.fair_cycle import FairShareCycle
from bayplan.scheduling.binding.plan_builder import PlanBuilder
from bayplan.scheduling.preemption.search import PreemptionResult
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot


def decide_gangs(
    snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog | None = None
) -> Plan:
    """Decide in queue order; each gang sees the assignments and nominations of those before it.

    Gangs that were not reached when the time budget ran out are left for the next cycle.
    """
    filter_input = snapshot.scene
    if filter_input.zones is not None:
        filter_input = replace(filter_input, zones=replace(filter_input.zones, rules=profile.zones))
    with NodeOverlay(filter_input, watchdog) as overlay:
        builder = PlanBuilder(snapshot, profile, now, overlay)
        cycle, fair_cycle = BindingCycle(builder), FairShareCycle(builder)
        for candidate in snapshot.candidates:
            if overlay.watchdog.is_over:
                break
            if fair_cycle.has(candidate):
                fair_cycle.next()
            else:
                overlay.watchdog.turn(candidate.charter.source)
                cycle.turn(candidate)
        fair_cycle.end()
        overlay.watchdog.end_turn()
        return builder.plan()


class BindingCycle:
    """Decides on gangs outside fair-share queues, and on all gangs that are rejected without an attempt."""

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.look, self.profile, self.floor = builder.look, builder.profile, builder.floor
        self.refused: dict[object, SchedulingRejection] = {}  # rejections of single pods, by equivalence key

    def turn(self, candidate: SchedulingCandidate) -> None:
        """Decide on one gang or single pod."""
        self.builder.reached.add(candidate.charter.source)
        request = asked_of(candidate)
        if candidate.hindrance is not None:
            self.builder.take_back_promises(candidate, candidate.waiting)
            self.builder.refuse(candidate, candidate.hindrance, candidate.waiting)
            return
        if candidate.stale:  # even if it fits now: it exceeded its time limit and could not be bound
            self._take_back(candidate)
            return
        if not candidate.waiting:
            self._nobody_waits(candidate)
            return
        priority = priority_of(candidate)
        equivalence = _twin(candidate, priority)
        if equivalence is not None and equivalence in self.refused:
            self.builder.refuse(candidate, replace(self.refused[equivalence], pod=candidate.waiting[0].key))
            return
        self.builder.promises.drop(candidate.nominated)
        self.builder.promises.hold(priority)
        allowed_nodes = self.builder.reservation.allowed(candidate, priority)
        checkpoint = self.floor.mark()
        result = attempt(self.look, self.floor, request, self.profile, allowed_nodes)
        if len(result.seats) >= request.need:
            self.builder.bind(candidate, result)
            if result.left:
                rest = rest_of(request, result.seats, self.floor)
                self._make_room(rest, result, allowed_nodes, tuple(result.seats.values()))
            return
        self.floor.undo(checkpoint)
        self.floor.watchdog.so_far = partial(standstill, RejectionReason.NO_ROOM, request, result)
        if self.builder.goes_on_making_room(request, priority):
            return
        if allowed_nodes is not None and self.builder.fits(request):
            self.builder.take_back_promises(candidate, candidate.waiting)
            self.builder.refuse(candidate, standstill(RejectionReason.KEPT_FREE, request, result))
        else:
            self._make_room(request, result, allowed_nodes, equivalence=equivalence)

    def _nobody_waits(self, candidate: SchedulingCandidate) -> None:
        if len(candidate.standing) >= max(candidate.charter.minimum, 1):
            self.builder.begin(candidate)

    # ── preemption ─────────────────────────────────────────────────────────────────────────────────

    def _make_room(
        self,
        request: AttemptRequest,
        result: AttemptResult,
        allowed_nodes: Bools | None,
        placed_rows: tuple[int, ...] = (),
        equivalence: object = None,
    ) -> None:
        """Search for victims; none is preempted unless the pods then fit."""
        candidate = request.candidate
        preemption = self.builder.rooms.find(request, priority_of(candidate), allowed_nodes, placed_rows)
        if preemption.sought is not PreemptionSearchOutcome.FOUND:
            preemption = self.builder.rooms.of_its_own(request, allowed_nodes) or preemption
        if preemption.sought is PreemptionSearchOutcome.FOUND:
            self._nominate(request, preemption, result)
            return
        rejection = replace(standstill(RejectionReason.NO_ROOM, request, result), sought=preemption.sought)
        if equivalence is not None and self.builder.reservation.open_nodes is None:
            self.refused[equivalence] = rejection
        self.builder.take_back_promises(candidate, request.waiting)
        self.builder.refuse(candidate, rejection, request.waiting, self.builder.reservation.keeps(request))

    def _nominate(self, request: AttemptRequest, preemption: PreemptionResult, result: AttemptResult) -> None:
        """Preempt the victims and nominate the pending pods for their nodes."""
        candidate = request.candidate
        whole = not is_lone(candidate)
        for victim, together in preemption.pods:
            self.builder.displace(victim, candidate.charter, whole=whole or together)
        self.builder.promise(request, preemption.seats, result, len(preemption.pods))

    # ── rejections ─────────────────────────────────────────────────────────────────────────────────

    def _take_back(self, candidate: SchedulingCandidate) -> None:
        """Preempt the bound pods of a gang that was only partly bound for too long."""
        for pod in candidate.standing:
            if pod.takes_room and not pod.leaving:
                self.builder.displace(pod, candidate.charter, whole=True, undoes=True)
        self.builder.refuse(
            candidate, standstill(RejectionReason.TAKEN_BACK, asked_of(candidate), AttemptResult())
        )


def _twin(candidate: SchedulingCandidate, priority: int) -> object:
    """Equivalence key of single pods: if one is rejected, so is the other in the same cycle.

    None for pods that pods bound in this cycle could help.
    """
    if not is_lone(candidate) or candidate.nominated:
        return None
    wants = candidate.waiting[0].wants
    if wants.shape.neighbours.near or any(spread.must for spread in wants.shape.spread):
        return None
    return wants.shape, priority, wants.preempts
