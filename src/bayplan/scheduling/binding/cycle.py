"""One binding cycle: every gang and single pod of the snapshot gets nodes, preempts pods, or is rejected."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bayplan.model.plan import Plan
from bayplan.model.profile import Profile
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import (
    AttemptRequest,
    AttemptResult,
    attempt,
    is_single_pod,
    request_for,
    request_for_rest,
)
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.attempt.rejection import earliest, rejection_for
from bayplan.scheduling.binding.fair_cycle import FairShareCycle
from bayplan.scheduling.binding.plan_builder import PlanBuilder
from bayplan.scheduling.fair_share.preemption import RETRY_SECONDS
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot


def decide_gangs(
    snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog | None = None
) -> Plan:
    """Decide in queue order; each gang sees the assignments and nominations of those before it.

    Gangs that were not reached when the time budget ran out are left for the next cycle.
    """
    filter_input = snapshot.filter_input
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
                overlay.watchdog.turn(candidate.spec.source)
                cycle.decide(candidate)
        fair_cycle.end()
        overlay.watchdog.end_turn()
        return builder.plan()


class BindingCycle:
    """Decides on gangs outside fair-share queues, and on all gangs that are rejected without an attempt."""

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.snapshot, self.profile, self.overlay = builder.snapshot, builder.profile, builder.overlay
        self.rejections: dict[object, Rejection] = {}  # rejections of single pods, by equivalence key

    def decide(self, candidate: SchedulingCandidate) -> None:
        """Decide on one gang or single pod."""
        if self.builder.loses_pods(candidate):
            return
        self.builder.reached.add(candidate.spec.source)
        request = request_for(candidate)
        if candidate.blocker is not None:
            self.builder.clear_nominations(candidate, candidate.pending)
            self.builder.reject(candidate, candidate.blocker, candidate.pending)
            return
        if candidate.stale:  # even if it fits now: it exceeded its time limit and could not be bound
            self._undo_partial_binding(candidate)
            return
        if not candidate.pending:
            self._mark_if_complete(candidate)
            return
        if self.builder.rejects_taken(candidate):
            return
        priority = priority_of(candidate)
        claimed = candidate.pending[0].key in self.snapshot.claims
        equivalence = None if claimed else _equivalence_key(candidate, priority)
        if equivalence is not None and equivalence in self.rejections:
            self.builder.reject(
                candidate, replace(self.rejections[equivalence], pod=candidate.pending[0].key)
            )
            return
        self.builder.nominations.take(candidate)
        if self.builder.holds_back(candidate, priority):
            return
        self.builder.nominations.respect(priority)
        allowed_nodes = self.builder.reservation.allowed(candidate, priority)
        checkpoint = self.overlay.checkpoint()
        each_counts = replace(request, most=request.need == 1)  # it has no minimum, or has reached it
        result = attempt(self.snapshot, self.overlay, each_counts, self.profile, allowed_nodes)
        if len(result.rows) >= request.need:
            self.builder.bind(candidate, result)
            if result.unassigned:
                rest = request_for_rest(request, result.rows, self.overlay)
                self._preempt(rest, result, allowed_nodes, tuple(result.rows.values()))
            return
        self.overlay.rollback(checkpoint)
        self.overlay.watchdog.so_far = partial(rejection_for, RejectionReason.NO_CAPACITY, request, result)
        if self.builder.keeps_waiting_for_victims(request, priority):
            return
        self._preempt(request, result, allowed_nodes, equivalence=equivalence)

    def _mark_if_complete(self, candidate: SchedulingCandidate) -> None:
        if len(candidate.bound) >= max(candidate.spec.minimum, 1):
            self.builder.mark_started(candidate)

    # ── preemption ─────────────────────────────────────────────────────────────────────────────────

    def _preempt(
        self,
        request: AttemptRequest,
        result: AttemptResult,
        allowed_nodes: Bools | None,
        placed_rows: tuple[int, ...] = (),
        equivalence: object = None,
    ) -> None:
        """Search for victims; none is preempted unless the pods then fit."""
        candidate = request.candidate
        preemption = self.builder.preemption.find(request, priority_of(candidate), allowed_nodes, placed_rows)
        if preemption.outcome is not PreemptionSearchOutcome.FOUND:
            preemption = self.builder.preemption.preempt_own_surplus(request, allowed_nodes) or preemption
        if preemption.outcome is PreemptionSearchOutcome.FOUND:
            self.builder.make_room(request, preemption, result, whole=not is_single_pod(candidate))
            return
        rejection = replace(
            rejection_for(self.builder.lacks(request, allowed_nodes), request, result),
            preemption=preemption.outcome,
            retry_at=self._retry_at(candidate),
        )
        unreserved = self.builder.reservation.unreserved_nodes is None
        if equivalence is not None and unreserved and candidate.paused_until is None:
            self.rejections[equivalence] = rejection
        self.builder.clear_nominations(candidate, request.pending)
        self.builder.reject(candidate, rejection, request.pending, self.builder.reservation.reserve(request))

    def _retry_at(self, candidate: SchedulingCandidate) -> float | None:
        """When to try a gang without victims again; None if events are enough."""
        at = earliest(self.builder.reservation.retry_at(candidate), candidate.paused_until)
        if not self.builder.preemption.has_kept_below(priority_of(candidate)):
            return at
        return earliest(at, self.builder.now + RETRY_SECONDS)

    # ── rejections ─────────────────────────────────────────────────────────────────────────────────

    def _undo_partial_binding(self, candidate: SchedulingCandidate) -> None:
        """Preempt the bound pods of a gang that was only partly bound for too long."""
        for pod in candidate.bound:
            if pod.uses_capacity and not pod.terminating:
                self.builder.preempt(pod, candidate.spec, whole=True, undoes=True)
        self.builder.reject(
            candidate, rejection_for(RejectionReason.UNDONE, request_for(candidate), AttemptResult())
        )


def _equivalence_key(candidate: SchedulingCandidate, priority: int) -> object:
    """Equivalence key of single pods: if one is rejected, so is the other in the same cycle.

    None for pods that pods bound in this cycle could help.
    """
    if not is_single_pod(candidate) or candidate.nominated:
        return None
    wants = candidate.pending[0].spec
    if wants.signature.affinity.required or any(spread.required for spread in wants.signature.spread):
        return None
    return wants.signature, priority, wants.preempts
