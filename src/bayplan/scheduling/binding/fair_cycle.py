"""The fair-share part of a binding cycle: bind the gangs that fit, then preempt pods for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf

from bayplan.model.scheduling_rejection import (
    FairShareWakeup,
    PreemptionSearchOutcome,
    QuotaExcess,
    RejectionReason,
    SchedulingRejection,
)
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, asked_of, attempt
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.attempt.rejection import standstill
from bayplan.scheduling.binding.plan_builder import PlanBuilder
from bayplan.scheduling.fair_share.accounts import Accounts, amounts_of
from bayplan.scheduling.fair_share.order import FairTurn, Order, turn_of
from bayplan.scheduling.fair_share.preemption import FairPreemptionResult, FairPreemptionSearch
from bayplan.state.scheduling.snapshot import SchedulingCandidate

EVERYBODY = -(2**31)  # below every priority: all nominations are respected


@dataclass(frozen=True, slots=True)
class _Late:
    """A gang that did not fit in its first turn."""

    turn: FairTurn
    asked: AttemptRequest
    found: AttemptResult
    within: Bools | None = None
    excess: QuotaExcess | None = None


class FairShareCycle:
    """Decides on gangs of fair-share queues, in the order of their queues' shares."""

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.order: Order | None = None
        self.late: list[_Late] = []
        look = builder.look
        mine = [(number, one) for number, one in enumerate(look.candidates) if self.has(one)]
        if not mine:
            return
        if look.fair is not None:
            promised = [(look.charters[pod.gang], pod) for pod, _ in look.nominations.values()
                        if pod.gang is not None and pod.gang in look.charters]  # fmt: skip
            self.accounts = Accounts(look.fair, promised)
            self.rooms = FairPreemptionSearch(builder.rooms.context, self.accounts, builder.now)
            self.order = Order(self.accounts)
        for number, candidate in mine:
            builder.floor.watchdog.turn(candidate.charter.source)
            queue = candidate.charter.queue
            missing = queue if self.order is None else self.accounts.missing(queue)
            if self.order is None or missing is not None:
                self._refuse(
                    asked_of(candidate), SchedulingRejection(RejectionReason.NO_QUEUE, about=missing or queue)
                )
            else:
                self.order.push(turn_of(candidate, number))

    @staticmethod
    def has(candidate: SchedulingCandidate) -> bool:
        """Whether this class decides on the gang; one rejected without an attempt is left to BindingCycle."""
        tried = candidate.hindrance is None and not candidate.stale and bool(candidate.waiting)
        return bool(candidate.charter.queue) and tried

    def next(self) -> None:
        """Decide on the next gang in fair-share order."""
        turn = self.order.pop() if self.order is not None else None
        if turn is not None:
            self._try(turn)

    def end(self) -> None:
        """Grow gangs while capacity is free, then preempt for the gangs that did not fit."""
        if self.order is None:
            return
        watchdog = self.builder.floor.watchdog
        while not watchdog.is_over and (turn := self.order.pop()) is not None:
            self._try(turn)
        self._make_room()

    # ── gangs that fit ─────────────────────────────────────────────────────────────────────────────

    def _try(self, turn: FairTurn) -> None:
        builder, charter = self.builder, turn.candidate.charter
        builder.reached.add(charter.source)
        builder.floor.watchdog.turn(charter.source)
        builder.promises.drop(turn.candidate.nominated)
        asked = _asked(turn)
        excess = self.accounts.beyond_quota(turn.queue, turn.amounts) if charter.lasting else None
        if excess is not None:
            self._refuse(
                asked, SchedulingRejection(RejectionReason.OVER_QUOTA, charter.minimum, excess=excess)
            )
            return
        excess = self.accounts.beyond_limit(turn.queue, turn.amounts)
        if excess is not None:
            self.late.append(_Late(turn, asked, AttemptResult(), None, excess))
            return
        priority = priority_of(turn.candidate)
        builder.promises.hold(EVERYBODY)
        within = builder.reservation.allowed(turn.candidate, priority)
        mark = builder.floor.mark()
        found = self._at_once(turn, asked, within)
        if found is None:
            found = attempt(builder.look, builder.floor, asked, builder.profile, within)
        if found.seats and (turn.grows or len(found.seats) >= asked.need):
            builder.bind(turn.candidate, found)
            self._took(turn, found)
            return
        builder.floor.undo(mark)
        builder.floor.watchdog.so_far = partial(standstill, RejectionReason.NO_ROOM, asked, found)
        if builder.goes_on_making_room(asked, priority):
            return
        if within is not None and builder.fits(asked):
            self._refuse(asked, standstill(RejectionReason.KEPT_FREE, asked, found))
        elif not self._only_waits(turn, asked, found, within):
            self.late.append(_Late(turn, asked, found, within))

    def _at_once(self, turn: FairTurn, asked: AttemptRequest, within: Bools | None) -> AttemptResult | None:
        """Grow a gang as far as possible if no other gang is pending; None if it may not or cannot."""
        candidate, builder = turn.candidate, self.builder
        if not turn.grows or len(candidate.waiting) == len(turn.pods) or self.order:
            return None
        amounts = amounts_of(candidate.waiting)
        beyond = self.accounts.beyond_quota(turn.queue, amounts) if candidate.charter.lasting else None
        if beyond is not None or self.accounts.beyond_limit(turn.queue, amounts) is not None:
            return None
        wide = replace(asked, waiting=candidate.waiting, need=1, extra=None)
        found = attempt(builder.look, builder.floor, wide, builder.profile, within)
        return found if found.seats else None

    def _took(self, turn: FairTurn, found: AttemptResult) -> None:
        """Charge the queue for the assigned pods; the remaining pods get a later turn."""
        candidate, floor = turn.candidate, self.builder.floor
        rows, charter = found.seats, candidate.charter
        seated = tuple(pod for pod in candidate.waiting if pod.key in rows)
        self.rooms.serve(charter.source)
        self.accounts.take(turn.queue, amounts_of(seated), lasting=charter.lasting)
        rest = tuple(pod for pod in candidate.waiting if pod.key not in rows)
        if rest and self.order is not None:
            started = replace(charter, started=True)
            stands = tuple(replace(pod, node=floor.node(rows[pod.key])) for pod in seated)
            grown = replace(candidate, charter=started, waiting=rest, standing=candidate.standing + stands)
            self.order.push(turn_of(grown, turn.number))

    def _only_waits(
        self, turn: FairTurn, asked: AttemptRequest, found: AttemptResult, within: Bools | None
    ) -> bool:
        """Whether the pods that terminate anyway free enough capacity; if so, nominate."""
        room = self.builder.rooms.room_of_those_going(asked, within, ())
        if room is None:
            return False
        self.builder.promise(asked, room.seats, found, 0)
        self.rooms.serve(turn.candidate.charter.source)
        seated = [pod for pod in asked.waiting if pod.key in room.seats]
        self.accounts.take(turn.queue, amounts_of(seated), lasting=turn.candidate.charter.lasting)
        return True

    # ── gangs that did not fit ─────────────────────────────────────────────────────────────────────

    def _make_room(self) -> None:
        """Preempt by each means for every gang, in fair-share order."""
        by_number = {one.turn.number: one for one in self.late}
        order = Order(self.accounts, [one.turn for one in self.late])
        watchdog = self.builder.floor.watchdog
        while not (self.rooms.tired or watchdog.is_over) and (turn := order.pop()) is not None:
            one = by_number[turn.number]
            watchdog.turn(turn.candidate.charter.source)
            watchdog.so_far = partial(standstill, RejectionReason.NO_ROOM, one.asked, one.found)
            self.builder.promises.hold(EVERYBODY)
            room = self._find(one)
            if room is None:
                self._go_without(one)
            else:
                self._send_away(one, room)
        if watchdog.is_over:
            while (turn := order.pop()) is not None:
                self.builder.reached.discard(turn.candidate.charter.source)

    def _find(self, one: _Late) -> FairPreemptionResult | None:
        profile = self.builder.profile
        charter = one.turn.candidate.charter
        if not profile.displace or charter.source in self.rooms.sent:
            return None
        self.rooms.placeless = False
        for means in profile.fair_means if charter.preempts is not False else ():
            room = self.rooms.find(means, one.turn, one.asked, one.within)
            if room is not None:
                return room
        return self.rooms.of_its_own(one.turn, one.asked, one.within)

    def _send_away(self, one: _Late, room: FairPreemptionResult) -> None:
        charter, floor = one.turn.candidate.charter, self.builder.floor
        for pod, together in room.pods:
            to = floor.node(room.moves[pod.key]) if pod.key in room.moves else ""
            self.builder.displace(pod, charter, whole=together or len(one.turn.pods) > 1, to=to)
        self.builder.promise(one.asked, room.seats, one.found, len(room.pods))

    def _go_without(self, one: _Late) -> None:
        fair = self.accounts.within_share(one.turn.queue, one.turn.amounts)
        again = self.rooms.again if self.rooms.again < inf else None
        hopes = self._hopes(one, fair)
        if one.excess is not None:
            minimum = one.turn.candidate.charter.minimum
            why = SchedulingRejection(
                RejectionReason.OVER_LIMIT, minimum, excess=one.excess, again=again, hopes=hopes
            )
            self._refuse(one.asked, why)
            return
        sought = (
            PreemptionSearchOutcome.NO_HELP
            if self.rooms.pieces.by_queue()
            else PreemptionSearchOutcome.NOBODY
        )
        if not hopes:
            sought = PreemptionSearchOutcome.NEVER
        why = standstill(RejectionReason.NO_ROOM, one.asked, one.found)
        why = replace(why, sought=sought, again=again, hopes=hopes)
        # over its share, the gang gets no reservation
        keeps = self.builder.reservation.keeps(one.asked) if fair else ()
        self._refuse(one.asked, why, keeps)

    def _hopes(self, one: _Late, fair: bool) -> frozenset[FairShareWakeup]:
        """The wakeups that may let it preempt later; none if it may never preempt."""
        if not self.builder.profile.displace or one.turn.candidate.charter.preempts is False:
            return frozenset()
        found = {FairShareWakeup.OTHERS}
        if fair:
            found.add(FairShareWakeup.EXCESS)
        if one.excess is not None and self.rooms.placeless:
            found.add(FairShareWakeup.PLACE)
        return frozenset(found)

    def _refuse(self, asked: AttemptRequest, why: SchedulingRejection, keeps: tuple[str, ...] = ()) -> None:
        """Reject the gang and clear its nominations."""
        builder, candidate = self.builder, asked.candidate
        why = replace(why, there=asked.standing + len(candidate.waiting))
        builder.take_back_promises(candidate, candidate.waiting)
        builder.refuse(candidate, why, candidate.waiting, keeps)


def _asked(turn: FairTurn) -> AttemptRequest:
    """The request for the pods of this turn only."""
    asked = replace(asked_of(turn.candidate), need=len(turn.pods))
    if turn.candidate.charter.tree is None:
        return replace(asked, waiting=turn.pods)
    return replace(asked, extra=len(turn.pods) if turn.grows else 0)
