"""One admission cycle: the head of every queue is admitted, preempts other gangs, or gets a rejection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from bayplan.model.gang import Ref
from bayplan.model.plan import (
    Action,
    Admit,
    EvictGang,
    EvictionReason,
    Plan,
    ReportNotAdmitted,
    Requeue,
    ReservedCapacity,
)
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import CheckState, QueuedGang
from bayplan.model.rejection import AdmissionRemark, Rejection, RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.placement.overlay.topology_numa_overlay import TopologyNumaOverlay
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.placement.pods.host_rooms import HostRooms
from bayplan.scheduling.admission.candidates import Victim
from bayplan.scheduling.admission.evaluate import Assessment, domains_to_reserve, evaluate, may_set_aside
from bayplan.scheduling.admission.offer import Mode, Offer, net_load
from bayplan.scheduling.admission.order import CycleEntry, in_order
from bayplan.scheduling.admission.pod_trials import PodTrials
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad
from bayplan.state.admission.quota_tree import QuotaAccount
from bayplan.state.admission.snapshot import AdmissionSnapshot, QueueHead


def decide_admissions(
    snapshot: AdmissionSnapshot, profile: Profile, now: float, watchdog: Watchdog | None = None
) -> Plan:
    """Decide on the heads of all queues; each gang sees what the gangs before it in the cycle took.

    Gangs that were not reached when the time budget ran out are left for the next cycle.
    """
    watchdog = watchdog or Watchdog()
    numa_overlay = TopologyNumaOverlay(snapshot.numa, profile.zones) if snapshot.numa else None
    rooms = HostRooms(snapshot.domains, snapshot.flavors) if profile.binding_filters else None
    beside = rooms.beside_other_topologies if rooms is not None and len(snapshot.supplies) > 1 else None
    simulation = AdmissionSimulation(
        snapshot.quota_tree,
        TopologyOverlay(snapshot.supplies, snapshot.flavors, snapshot.known, numa_overlay, beside),
        snapshot.queues,
        snapshot.flavors,
        snapshot.checks,
        snapshot.admitted,
        profile,
        now,
        snapshot.inactive_queues,
        snapshot.reservations,
        snapshot.quota_reservations,
        usage=snapshot.usage,
        watchdog=watchdog,
        rooms=rooms,
    )
    if snapshot.binding is not None and profile.binding_filters:
        simulation.trials = PodTrials(snapshot.binding, snapshot.flavors, watchdog)
    try:
        return _Decision(simulation).run(snapshot.heads)
    finally:
        simulation.close()


class _Decision:
    def __init__(self, simulation: AdmissionSimulation) -> None:
        self.simulation = simulation
        self.actions: list[Action] = []
        self.preempted: dict[Ref, QueuedGang] = {}  # gangs that this cycle preempts
        self.set_aside: list[int] = []  # priorities of gangs for which quota is set aside
        # by queue: the load of gangs that wait for their victims to leave
        self.reserved_loads: list[tuple[str, GangLoad]] = []

    def run(self, heads: Iterable[QueueHead]) -> Plan:
        entries: list[CycleEntry] = []
        left: list[Ref] = []
        watchdog = self.simulation.watchdog
        for head in heads:
            if watchdog.is_over:
                left.append(head.queued_gang.gang.source)
                continue
            watchdog.turn(head.queued_gang.gang.source)
            if head.taken and not (head.has_started and head.queued_gang.movable):
                # nothing is lost: it starts elsewhere as a whole
                self.actions.append(EvictGang(head.queued_gang, EvictionReason.NODES_TAKEN))
                continue
            rejection = self._precheck(head)
            if rejection is not None:
                self._report(
                    self._requeue_or_evict(ReportNotAdmitted(head.queued_gang, rejection), head.tries),
                    head.equivalents,
                )
                continue
            follows = head.queued_gang.admission is None and any(one.queue == head.queue for one in entries)
            entries.append(
                CycleEntry(
                    head.queued_gang,
                    head.queue,
                    Assessment(Offer()) if follows else self._evaluate(head),
                    head.equivalents,
                    head.tries,
                    head.has_victims,
                    taken=bool(head.taken),
                    may_hold=head.may_hold,
                    held=head.held,
                    evaluate=partial(self._evaluate, head) if follows else None,
                )
            )
        watchdog.end_turn()
        for entry in in_order(self.simulation, entries, self._load):
            watchdog.turn(entry.queued_gang.gang.source)
            if entry.evaluate is not None:
                self._evaluate_after_others(entry, entry.evaluate)
            self._process(entry)
            if not entry.done:
                declined = replace(_rejection(entry), reserves=self._reserves(entry))
                self._report(self._requeue_or_evict(declined, entry.tries), entry.alike)
        watchdog.end_turn()
        return Plan(tuple(self.actions), tuple(left))

    def _reserves(self, entry: CycleEntry) -> ReservedCapacity | None:
        """Quota and domains to reserve for a gang that only waits for other gangs to end."""
        offer, queued_gang = entry.assessment.offer, entry.queued_gang
        if not self.simulation.profile.reserve or queued_gang.admission is not None:
            return None
        if offer.mode is not Mode.PREEMPT or entry.assessment.victims:
            return None
        domains = domains_to_reserve(self.simulation, queued_gang, entry.queue, offer)
        return ReservedCapacity(entry.queue, dict(offer.quota), *domains)

    def _requeue_or_evict(self, action: ReportNotAdmitted, tries: int) -> ReportNotAdmitted | EvictGang:
        """Requeue a gang that holds quota without a placement; evict it after the time limit."""
        profile, queued_gang = self.simulation.profile, action.queued_gang
        if queued_gang.admission is None:
            return action
        first, limit = profile.place_first, profile.place_limit
        if queued_gang.failed_nodes:
            first, limit = profile.replace_first, profile.replace_limit
        seconds = first * 2.0 ** min(tries, 64)
        if seconds > limit and not queued_gang.failed_nodes:
            return EvictGang(queued_gang, EvictionReason.NO_PLACE_IN_TIME)
        return replace(action, requeue=Requeue.AFTER_DELAY, delay=min(seconds, limit))

    def _report(self, action: ReportNotAdmitted | EvictGang, alike: Iterable[QueuedGang]) -> None:
        """Report the rejection; one that only an event can resolve applies to all gangs of the same shape."""
        self.actions.append(action)
        if isinstance(action, ReportNotAdmitted) and action.requeue is Requeue.ON_EVENT:
            self.actions += [replace(action, queued_gang=queued_gang, reserves=None) for queued_gang in alike]

    def _evaluate(self, head: QueueHead) -> Assessment:
        search = partial(evaluate, preempts=not (head.may_hold and head.held))
        if not self.simulation.reserved_quota:
            return search(self.simulation, head.queued_gang, head.queue, head.progress)
        with self.simulation.tentative():
            self.simulation.set_aside_reserved(head.queued_gang, head.queue)
            return search(self.simulation, head.queued_gang, head.queue, head.progress)

    def _evaluate_after_others(self, entry: CycleEntry, evaluate: Callable[[], Assessment]) -> None:
        """Evaluate a gang on what the gangs before it in this cycle leave, once their victims have left."""
        with self._without_preempted():
            entry.assessment = evaluate()
        offer = entry.assessment.offer
        if offer.mode is Mode.FIT and not all(self._fits(entry, self._load(entry))):
            offer.set_mode(Mode.LATER)

    @contextmanager
    def _without_preempted(self) -> Iterator[None]:
        """As if the gangs that this cycle preempts had left."""
        with self.simulation.tentative():
            self.simulation.remove(self.preempted.values())
            self.simulation.removed = set(self.preempted)
            try:
                yield
            finally:
                self.simulation.removed = set()

    def _precheck(self, head: QueueHead) -> Rejection | None:
        """Reasons to reject a head that do not depend on free quota or capacity."""
        bad = (CheckState.RETRY, CheckState.REJECTED)
        if any(verdict.state in bad for verdict in head.queued_gang.check_statuses):
            return Rejection(RejectionReason.TO_BE_EVALUATED, remark=AdmissionRemark.CHECKS_FAILED)
        if head.queue in self.simulation.closed:
            return Rejection(RejectionReason.CLOSED, remark=AdmissionRemark.QUEUE_INACTIVE, queue=head.queue)
        if head.queue not in self.simulation.queues or head.queue not in self.simulation.quota_tree.queues:
            return Rejection(
                RejectionReason.MISCONFIGURED, remark=AdmissionRemark.QUEUE_MISSING, queue=head.queue
            )
        return head.ineligible

    def _load(self, entry: CycleEntry) -> GangLoad:
        shapes = {pod_set.name: pod_set for pod_set in entry.queued_gang.gang.root.pod_sets()}
        return net_load(entry.assessment.offer, entry.queued_gang, shapes, self.simulation)

    def _process(self, entry: CycleEntry) -> None:
        preempts = entry.assessment.offer.mode is Mode.PREEMPT and (entry.held or entry.assessment.victims)
        if entry.may_hold and preempts:
            self._hold(entry)
            return
        load, fits = self._refreshed(entry)
        offer, profile = entry.assessment.offer, self.simulation.profile
        gives_up = entry.taken or (entry.queued_gang.failed_nodes and profile.replace_fast)
        if gives_up and offer.mode is not Mode.FIT:
            reason = EvictionReason.NODES_TAKEN if entry.taken else EvictionReason.NODES_FAILED
            self.actions.append(EvictGang(entry.queued_gang, reason))
            entry.done = True
            return
        match offer.mode:
            case Mode.NO_FIT:
                entry.reason = offer.reason or RejectionReason.TO_BE_EVALUATED
                return
            case Mode.PREEMPT if not entry.assessment.victims:
                entry.reason = RejectionReason.NO_QUOTA_NOW
                self._set_aside(entry)
                return
            case Mode.LATER:
                entry.reason, entry.remark = (
                    RejectionReason.VICTIMS_LEAVING,
                    AdmissionRemark.SAME_VICTIMS_WILL_FIT,
                )
                entry.requeue, entry.keeps_progress = Requeue.AT_ONCE, False
                self._reserve_load(entry.queue, load)
                return
        if self._overlaps(entry.assessment.victims) or not fits:
            overlaps = self._overlaps(entry.assessment.victims)
            entry.remark = AdmissionRemark.SAME_VICTIMS if overlaps else AdmissionRemark.OVERTAKEN
            entry.reason, entry.requeue, entry.keeps_progress = (
                RejectionReason.NO_QUOTA_NOW,
                Requeue.AT_ONCE,
                False,
            )
            return
        self.preempted |= {v.queued_gang.gang.source: v.queued_gang for v in entry.assessment.victims}
        if offer.mode is Mode.PREEMPT:
            self._reserve_load(entry.queue, load)
            self._evict_victims(entry)
        else:
            self.simulation.apply(entry.queue, load)
            self._admit(entry)

    def _refreshed(self, entry: CycleEntry) -> tuple[GangLoad, bool]:
        """The load of the gang, and whether it fits; what other gangs took is searched again."""
        load = self._load(entry)
        quota_fits, spots_fit = self._fits(entry, load)
        overlaps = self._overlaps(entry.assessment.victims)
        if not overlaps and not (quota_fits and not spots_fit and self.simulation.profile.recompute):
            return load, quota_fits and spots_fit
        pinned = {
            part.name: {resource: choice.flavor for resource, choice in part.choices.items()}
            for part in entry.assessment.offer.parts
        }
        with self._without_preempted() if overlaps else self.simulation.tentative():
            self.simulation.set_aside_reserved(entry.queued_gang, entry.queue)
            entry.assessment = evaluate(self.simulation, entry.queued_gang, entry.queue, (), pinned)
        entry.blocked_by_set_aside = bool(self.set_aside)
        if any(priority < entry.queued_gang.gang.priority for priority in self.set_aside):
            # it need not wait for these victims to leave
            entry.requeue, entry.keeps_progress = Requeue.AT_ONCE, False
        entry.overtaken = any(isinstance(action, Admit) for action in self.actions)
        if overlaps and entry.assessment.offer.mode is Mode.FIT:
            entry.assessment.offer.set_mode(Mode.LATER)
        load = self._load(entry)
        quota_fits, spots_fit = self._fits(entry, load)
        return load, quota_fits and spots_fit

    def _fits(self, entry: CycleEntry, load: GangLoad) -> tuple[bool, bool]:
        """Whether quota and placement fit once all gangs preempted in this cycle have left.

        A gang that is admitted now must also fit while those victims still run.
        """
        victims = {v.queued_gang.gang.source: v.queued_gang for v in entry.assessment.victims}
        removed = list((self.preempted | victims).values())
        with self.simulation.tentative():
            self.simulation.remove(removed)
            fits = self._fits_now(entry, load)
        if not removed or not all(fits) or entry.assessment.offer.mode is not Mode.FIT:
            return fits
        with self.simulation.tentative():
            for queue, reserved_load in self.reserved_loads:
                self.simulation.apply(queue, reserved_load, -1)
            return self._fits_now(entry, load)

    def _fits_now(self, entry: CycleEntry, load: GangLoad) -> tuple[bool, bool]:
        self.simulation.set_aside_reserved(entry.queued_gang, entry.queue)
        return self.simulation.fits_quota(entry.queue, load.quota), self.simulation.fits_placed(load.placed)

    def _reserve_load(self, queue: str, load: GangLoad) -> None:
        """Count the load of a gang that waits for its victims, so that no other gang takes it."""
        self.simulation.apply(queue, load)
        self.reserved_loads.append((queue, load))

    def _hold(self, entry: CycleEntry) -> None:
        """Keep what is free for the gang, and preempt no gang yet: an eviction now would be in vain."""
        self._reserve_load(entry.queue, self._load(entry))
        entry.reason, entry.remark = RejectionReason.NO_QUOTA_NOW, AdmissionRemark.OTHERS_ENDING
        entry.requeue, entry.keeps_progress = Requeue.AT_ONCE, False

    def _overlaps(self, victims: Sequence[Victim]) -> bool:
        return any(victim.queued_gang.gang.source in self.preempted for victim in victims)

    def _set_aside(self, entry: CycleEntry) -> None:
        """Set aside quota, up to the queue's own, for a gang that found no victims to preempt."""
        if not may_set_aside(self.simulation.queues[entry.queue]):
            return
        load, account, offer = self._load(entry), self.simulation.account(entry.queue), entry.assessment.offer
        quota: dict[tuple[str, str], int] = {}
        for cell, amount in load.quota.items():
            rules, used = account.quota(cell), account.usage.get(cell, 0)
            if not offer.borrow:
                quota[cell] = max(0, min(amount, rules.nominal - used))
            elif rules.borrowing is None:
                quota[cell] = amount
            else:
                quota[cell] = min(amount, rules.nominal + rules.borrowing - used)
        self._reserve_load(entry.queue, replace(load, quota=quota))
        self.set_aside.append(entry.queued_gang.gang.priority)

    def _evict_victims(self, entry: CycleEntry) -> None:
        path = _path(self.simulation.account(entry.queue))
        for victim in entry.assessment.victims:
            if victim.queued_gang.evicted:
                continue
            assert victim.queued_gang.admission is not None
            victim_path = _path(self.simulation.account(victim.queued_gang.admission.queue))
            self.actions.append(
                EvictGang(victim.queued_gang, victim.reason, entry.queued_gang, victim_path, path)
            )
        entry.reason, entry.remark = RejectionReason.VICTIMS_LEAVING, AdmissionRemark.PREEMPTING
        entry.requeue, entry.keeps_progress = Requeue.AT_ONCE, False
        entry.victims = len(entry.assessment.victims)

    def _admit(self, entry: CycleEntry) -> None:
        offer, queue = entry.assessment.offer, self.simulation.queues[entry.queue]
        flavors = {choice.flavor for part in offer.parts for choice in part.choices.values()}
        checks = tuple(
            name for name, only in sorted(queue.checks.items()) if not only or flavors.intersection(only)
        )
        self.actions.append(Admit(entry.queued_gang, offer.admission(entry.queue), checks, offer.tried()))
        entry.done = True


def _rejection(entry: CycleEntry) -> ReportNotAdmitted:
    offer = entry.assessment.offer
    rejection = Rejection(
        entry.reason or RejectionReason.TO_BE_EVALUATED,
        remark=entry.remark,
        tried=offer.tried(),
        victims=entry.victims,
        queue=entry.queue,
    )
    progress = offer.progress() if entry.keeps_progress else ()
    again = entry.requeue
    if any(index >= 0 for part in progress for index in part.values()):
        again = Requeue.AT_ONCE  # some flavors were not tried yet
    return ReportNotAdmitted(
        entry.queued_gang,
        rejection,
        again,
        progress,
        contended=entry.blocked_by_set_aside,
        overtaken=entry.overtaken,
    )


def _path(account: QuotaAccount) -> tuple[str, ...]:
    return (*reversed([above.name for above in account.ancestors()]), account.name)
