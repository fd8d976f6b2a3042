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
    look: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog | None = None
) -> Plan:
    """Decide in queue order; each gang sees the assignments and nominations of those before it.

    Gangs that were not reached when the time budget ran out are left for the next cycle.
    """
    scene = look.scene
    if scene.zones is not None:
        scene = replace(scene, zones=replace(scene.zones, rules=profile.zones))
    with NodeOverlay(scene, watchdog) as floor:
        builder = PlanBuilder(look, profile, now, floor)
        muster, turns = BindingCycle(builder), FairShareCycle(builder)
        for candidate in look.candidates:
            if floor.watchdog.is_over:
                break
            if turns.has(candidate):
                turns.next()
            else:
                floor.watchdog.turn(candidate.charter.source)
                muster.turn(candidate)
        turns.end()
        floor.watchdog.end_turn()
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
        asked = asked_of(candidate)
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
        twin = _twin(candidate, priority)
        if twin is not None and twin in self.refused:
            self.builder.refuse(candidate, replace(self.refused[twin], pod=candidate.waiting[0].key))
            return
        self.builder.promises.drop(candidate.nominated)
        self.builder.promises.hold(priority)
        within = self.builder.reservation.allowed(candidate, priority)
        mark = self.floor.mark()
        found = attempt(self.look, self.floor, asked, self.profile, within)
        if len(found.seats) >= asked.need:
            self.builder.bind(candidate, found)
            if found.left:
                rest = rest_of(asked, found.seats, self.floor)
                self._make_room(rest, found, within, tuple(found.seats.values()))
            return
        self.floor.undo(mark)
        self.floor.watchdog.so_far = partial(standstill, RejectionReason.NO_ROOM, asked, found)
        if self.builder.goes_on_making_room(asked, priority):
            return
        if within is not None and self.builder.fits(asked):
            self.builder.take_back_promises(candidate, candidate.waiting)
            self.builder.refuse(candidate, standstill(RejectionReason.KEPT_FREE, asked, found))
        else:
            self._make_room(asked, found, within, twin=twin)

    def _nobody_waits(self, candidate: SchedulingCandidate) -> None:
        if len(candidate.standing) >= max(candidate.charter.minimum, 1):
            self.builder.begin(candidate)

    # ── preemption ─────────────────────────────────────────────────────────────────────────────────

    def _make_room(
        self, asked: AttemptRequest, found: AttemptResult, within: Bools | None, beside: tuple[int, ...] = (),
        twin: object = None,
    ) -> None:  # fmt: skip
        """Search for victims; none is preempted unless the pods then fit."""
        candidate = asked.candidate
        room = self.builder.rooms.find(asked, priority_of(candidate), within, beside)
        if room.sought is not PreemptionSearchOutcome.FOUND:
            room = self.builder.rooms.of_its_own(asked, within) or room
        if room.sought is PreemptionSearchOutcome.FOUND:
            self._nominate(asked, room, found)
            return
        why = replace(standstill(RejectionReason.NO_ROOM, asked, found), sought=room.sought)
        if twin is not None and self.builder.reservation.open_nodes is None:
            self.refused[twin] = why
        self.builder.take_back_promises(candidate, asked.waiting)
        self.builder.refuse(candidate, why, asked.waiting, self.builder.reservation.keeps(asked))

    def _nominate(self, asked: AttemptRequest, room: PreemptionResult, found: AttemptResult) -> None:
        """Preempt the victims and nominate the pending pods for their nodes."""
        candidate = asked.candidate
        whole = not is_lone(candidate)
        for victim, together in room.pods:
            self.builder.displace(victim, candidate.charter, whole=whole or together)
        self.builder.promise(asked, room.seats, found, len(room.pods))

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
