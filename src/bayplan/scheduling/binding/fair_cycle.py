"""The fair-share part of a binding cycle: bind the gangs that fit, then preempt pods for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bayplan.model.rejection import (
    FairShareWakeup,
    PreemptionSearchOutcome,
    QuotaExcess,
    Rejection,
    RejectionReason,
)
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, attempt, request_for
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.attempt.rejection import earliest, rejection_for
from bayplan.scheduling.binding.plan_builder import PlanBuilder
from bayplan.scheduling.fair_share.accounts import Accounts, amounts_of
from bayplan.scheduling.fair_share.order import FairTurn, Order, turn_of
from bayplan.scheduling.fair_share.preemption import FairPreemptionSearch
from bayplan.scheduling.preemption.context import PreemptionResult
from bayplan.state.scheduling.snapshot import SchedulingCandidate

LOWEST_PRIORITY = -(2**31)  # below every priority: all nominations are respected


@dataclass(frozen=True, slots=True)
class _Late:
    """A gang that did not fit in its first turn."""

    turn: FairTurn
    request: AttemptRequest
    result: AttemptResult
    allowed_nodes: Bools | None = None
    excess: QuotaExcess | None = None


class FairShareCycle:
    """Decides on gangs of fair-share queues, in the order of their queues' shares."""

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.order: Order | None = None
        self.late: list[_Late] = []
        snapshot = builder.snapshot
        fair_candidates = [
            (number, late) for number, late in enumerate(snapshot.candidates) if self.has(late)
        ]
        if not fair_candidates:
            return
        if snapshot.fair is not None:
            nominated = [(snapshot.specs[pod.gang], pod) for pod, _ in snapshot.nominations.values()
                        if pod.gang is not None and pod.gang in snapshot.specs]  # fmt: skip
            self.accounts = Accounts(snapshot.fair, nominated)
            self.preemption = FairPreemptionSearch(builder.preemption.context, self.accounts, builder.now)
            self.order = Order(self.accounts)
        for number, candidate in fair_candidates:
            builder.overlay.watchdog.turn(candidate.spec.source)
            queue = candidate.spec.queue
            missing = queue if self.order is None else self.accounts.missing(queue)
            if self.order is None or missing is not None:
                self._reject(
                    request_for(candidate),
                    Rejection(RejectionReason.NO_QUEUE, about=missing or queue),
                )
            else:
                self.order.push(turn_of(candidate, number))

    @staticmethod
    def has(candidate: SchedulingCandidate) -> bool:
        """Whether this class decides on the gang; one rejected without an attempt is left to BindingCycle."""
        tried = candidate.blocker is None and not candidate.stale and bool(candidate.pending)
        return bool(candidate.spec.queue) and tried

    def next(self) -> None:
        """Decide on the next gang in fair-share order."""
        turn = self.order.pop() if self.order is not None else None
        if turn is not None:
            self._try(turn)

    def end(self) -> None:
        """Grow gangs while capacity is free, then preempt for the gangs that did not fit."""
        if self.order is None:
            return
        watchdog = self.builder.overlay.watchdog
        while not watchdog.is_over and (turn := self.order.pop()) is not None:
            self._try(turn)
        self._preempt_for_late()

    # ── gangs that fit ─────────────────────────────────────────────────────────────────────────────

    def _try(self, turn: FairTurn) -> None:
        builder, spec = self.builder, turn.candidate.spec
        if builder.loses_pods(turn.candidate):
            return
        builder.reached.add(spec.source)
        builder.overlay.watchdog.turn(spec.source)
        if builder.rejects_taken(turn.candidate):
            return
        builder.nominations.take(turn.candidate)
        if builder.holds_back(turn.candidate, priority_of(turn.candidate)):
            return
        request = _request_for(turn)
        excess = self.accounts.beyond_quota(turn.queue, turn.amounts) if spec.non_preemptible else None
        if excess is not None:
            rejection = Rejection(RejectionReason.OVER_QUOTA, spec.minimum, excess=excess)
            self._reject(request, rejection, self._reserve(turn, request))
            return
        excess = self.accounts.beyond_limit(turn.queue, turn.amounts)
        if excess is not None:
            self._postpone(_Late(turn, request, AttemptResult(), None, excess))
            return
        if self._takes_reserved(turn):
            self._reject(request, rejection_for(RejectionReason.RESERVED, request, AttemptResult()))
            return
        priority = priority_of(turn.candidate)
        builder.nominations.respect(LOWEST_PRIORITY)
        allowed_nodes = builder.reservation.allowed(turn.candidate, priority)
        checkpoint = builder.overlay.checkpoint()
        result = self._grow_fully(turn, request, allowed_nodes)
        if result is None:
            result = attempt(builder.snapshot, builder.overlay, request, builder.profile, allowed_nodes)
        if result.rows and (turn.grows or len(result.rows) >= request.need):
            builder.bind(turn.candidate, result)
            self._charge(turn, result)
            return
        builder.overlay.rollback(checkpoint)
        builder.overlay.watchdog.so_far = partial(rejection_for, RejectionReason.NO_CAPACITY, request, result)
        if builder.keeps_waiting_for_victims(request, priority):
            return
        if not self._waits_for_victims(turn, request, result, allowed_nodes):
            self._postpone(_Late(turn, request, result, allowed_nodes))

    def _takes_reserved(self, turn: FairTurn) -> bool:
        """Whether quota or limits would no longer suffice for the gang with the backfill reservation."""
        owner = self.builder.snapshot.reserved_candidate
        if owner is None or not owner.pending or turn.candidate.spec.source == owner.spec.source:
            return False
        if priority_of(turn.candidate) > priority_of(owner):
            return False
        kept, spec = turn_of(owner, 0), owner.spec
        if self.accounts.missing(kept.queue) is not None:
            return False
        self.accounts.take(turn.queue, turn.amounts, lasting=turn.candidate.spec.non_preemptible)
        excess = self.accounts.beyond_limit(kept.queue, kept.amounts)
        if excess is None and spec.non_preemptible and turn.candidate.spec.non_preemptible:
            excess = self.accounts.beyond_quota(kept.queue, kept.amounts)
        self.accounts.take(turn.queue, turn.amounts, lasting=turn.candidate.spec.non_preemptible, sign=-1)
        return excess is not None

    def _reserve(self, turn: FairTurn, request: AttemptRequest) -> tuple[str, ...]:
        """The nodes to reserve for a gang; none for one that exceeds the share of its queue by itself.

        Its pods that run count, too: they do not end before the gang does.
        """
        spec, running = turn.candidate.spec, [pod for pod in turn.candidate.bound if pod.uses_capacity]
        whole = amounts_of((*turn.pods, *running))
        fair = self.accounts.could_hold(turn.queue, whole, lasting=spec.non_preemptible)
        if fair and turn.grows:
            fair = self.accounts.within_share(turn.queue, turn.amounts)
        return self.builder.reservation.reserve(request) if fair else ()

    def _postpone(self, late: _Late) -> None:
        """Try this gang again after the others, which respect its claims meanwhile."""
        self.late.append(late)
        self.builder.nominations.give_back(late.turn.candidate.pending)

    def _grow_fully(
        self, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> AttemptResult | None:
        """Grow a gang as far as possible if no other gang is pending; None if it may not or cannot."""
        candidate, builder = turn.candidate, self.builder
        if not turn.grows or len(candidate.pending) == len(turn.pods) or self.order:
            return None
        amounts = amounts_of(candidate.pending)
        beyond = self.accounts.beyond_quota(turn.queue, amounts) if candidate.spec.non_preemptible else None
        if beyond is not None or self.accounts.beyond_limit(turn.queue, amounts) is not None:
            return None
        wide = replace(request, pending=candidate.pending, need=1, extra=None)
        result = attempt(builder.snapshot, builder.overlay, wide, builder.profile, allowed_nodes)
        return result if result.rows else None

    def _charge(self, turn: FairTurn, result: AttemptResult) -> None:
        """Charge the queue for the assigned pods; the remaining pods get a later turn."""
        candidate, overlay = turn.candidate, self.builder.overlay
        rows, spec = result.rows, candidate.spec
        assigned = tuple(pod for pod in candidate.pending if pod.key in rows)
        self.preemption.protect(spec.source)
        self.accounts.take(turn.queue, amounts_of(assigned), lasting=spec.non_preemptible)
        rest = tuple(pod for pod in candidate.pending if pod.key not in rows)
        if rest and self.order is not None:
            started = replace(spec, started=True)
            placed = tuple(replace(pod, node=overlay.node(rows[pod.key])) for pod in assigned)
            grown = replace(candidate, spec=started, pending=rest, bound=candidate.bound + placed)
            self.order.push(turn_of(grown, turn.number))

    def _waits_for_victims(
        self, turn: FairTurn, request: AttemptRequest, result: AttemptResult, allowed_nodes: Bools | None
    ) -> bool:
        """Whether the pods that terminate anyway free enough capacity; if so, nominate."""
        preemption = self.builder.preemption.wait_for_terminating(request, allowed_nodes, ())
        if preemption is None:
            return False
        self.builder.make_room(request, preemption, result, whole=False)
        self.preemption.protect(turn.candidate.spec.source)
        assigned = [pod for pod in request.pending if pod.key in preemption.rows]
        self.accounts.take(turn.queue, amounts_of(assigned), lasting=turn.candidate.spec.non_preemptible)
        return True

    # ── gangs that did not fit ─────────────────────────────────────────────────────────────────────

    def _preempt_for_late(self) -> None:
        """Preempt by each means for every gang, in fair-share order."""
        by_number = {late.turn.number: late for late in self.late}
        order = Order(self.accounts, [late.turn for late in self.late])
        watchdog = self.builder.overlay.watchdog
        while not (self.preemption.is_exhausted or watchdog.is_over) and (turn := order.pop()) is not None:
            late = by_number[turn.number]
            watchdog.turn(turn.candidate.spec.source)
            self.builder.nominations.take(turn.candidate)
            watchdog.so_far = partial(rejection_for, RejectionReason.NO_CAPACITY, late.request, late.result)
            self.builder.nominations.respect(LOWEST_PRIORITY)
            preemption = self._find(late)
            if preemption is None:
                self._reject_late(late)
            else:
                self.builder.make_room(late.request, preemption, late.result, whole=len(turn.pods) > 1)
        if watchdog.is_over:
            while (turn := order.pop()) is not None:
                self.builder.reached.discard(turn.candidate.spec.source)

    def _find(self, late: _Late) -> PreemptionResult | None:
        profile = self.builder.profile
        spec = late.turn.candidate.spec
        if not profile.preemption or spec.source in self.preemption.losing_pods:
            return None
        if late.turn.candidate.paused_until is not None:
            return None
        self.preemption.lacks_placement = False
        for means in profile.preemption_means if spec.preempts is not False else ():
            preemption = self.preemption.find(means, late.turn, late.request, late.allowed_nodes)
            if preemption is not None:
                return preemption
        return self.preemption.preempt_own_surplus(late.turn, late.request, late.allowed_nodes)

    def _reject_late(self, late: _Late) -> None:
        fair = self.accounts.within_share(late.turn.queue, late.turn.amounts)
        candidate = late.turn.candidate
        retry_at = earliest(
            self.builder.reservation.retry_at(candidate),
            self.preemption.retry_for(candidate.spec.source),
            candidate.paused_until,
        )
        reserved_nodes = self._reserve(late.turn, late.request)
        wakeups = self._wakeups(late, fair)
        if late.excess is not None:
            minimum = candidate.spec.minimum
            rejection = Rejection(
                RejectionReason.OVER_LIMIT, minimum, excess=late.excess, retry_at=retry_at, wakeups=wakeups
            )
            self._reject(late.request, rejection, reserved_nodes)
            return
        outcome = (
            PreemptionSearchOutcome.INSUFFICIENT
            if self.preemption.victim_pool.by_queue()
            else PreemptionSearchOutcome.NO_CANDIDATES
        )
        if not wakeups:
            outcome = PreemptionSearchOutcome.NOT_ALLOWED
        elif candidate.paused_until is not None:
            outcome = PreemptionSearchOutcome.PAUSED
        lacking = self.builder.lacks(late.request, late.allowed_nodes)
        rejection = rejection_for(lacking, late.request, late.result)
        rejection = replace(rejection, preemption=outcome, retry_at=retry_at, wakeups=wakeups)
        self._reject(late.request, rejection, reserved_nodes)

    def _wakeups(self, late: _Late, fair: bool) -> frozenset[FairShareWakeup]:
        """The wakeups that may let it preempt later; none if it may never preempt."""
        if not self.builder.profile.preemption or late.turn.candidate.spec.preempts is False:
            return frozenset()
        result = {FairShareWakeup.VICTIMS}
        if fair:
            result.add(FairShareWakeup.EXCESS)
        if late.excess is not None and self.preemption.lacks_placement:
            result.add(FairShareWakeup.NODES)
        return frozenset(result)

    def _reject(
        self, request: AttemptRequest, rejection: Rejection, reserved_nodes: tuple[str, ...] = ()
    ) -> None:
        """Reject the gang and clear its nominations."""
        builder, candidate = self.builder, request.candidate
        rejection = replace(rejection, existing=request.bound + len(candidate.pending))
        builder.clear_nominations(candidate, candidate.pending)
        builder.reject(candidate, rejection, candidate.pending, reserved_nodes)


def _request_for(turn: FairTurn) -> AttemptRequest:
    """The request for the pods of this turn only."""
    request = replace(request_for(turn.candidate), need=len(turn.pods))
    if turn.candidate.spec.tree is None:
        return replace(request, pending=turn.pods)
    return replace(request, extra=len(turn.pods) if turn.grows else 0)
