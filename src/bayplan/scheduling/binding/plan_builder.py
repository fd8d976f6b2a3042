"""Builds the plan of one binding cycle: the actions so far, and the overlay they lead to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bayplan.model.devices.claims import DeviceAllocation, DeviceClaimKey
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import Action, Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, attempt, is_single_pod
from bayplan.scheduling.attempt.nominations import Nominations, priority_of
from bayplan.scheduling.attempt.rejection import rejection_for
from bayplan.scheduling.binding.backfill_reservation import BackfillReservation
from bayplan.scheduling.fair_share.preemption import RETRY_SECONDS
from bayplan.scheduling.preemption.context import PreemptionContext, PreemptionResult
from bayplan.scheduling.preemption.search import PreemptionSearch
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot


class PlanBuilder:
    """Turns decisions about gangs into actions, in the order in which they are made."""

    def __init__(
        self, snapshot: SchedulingSnapshot, profile: Profile, now: float, overlay: NodeOverlay
    ) -> None:
        self.snapshot, self.profile, self.now, self.overlay = snapshot, profile, now, overlay
        self.actions: list[Action] = []
        self.reached: set[Ref] = set()  # gangs that were decided on
        self.preempted: set[PodKey] = set()
        self.nominations = Nominations(overlay, snapshot)
        self.preemption = PreemptionSearch(PreemptionContext(snapshot, profile, overlay))
        self.reservation = BackfillReservation(self.preemption, now)

    def plan(self) -> Plan:
        """All actions, and the gangs left for the next cycle."""
        return Plan(tuple(self.actions), self._left())

    def _left(self) -> tuple[Ref, ...]:
        """Gangs that were not reached before the time budget ran out, and those that have just lost pods."""
        if len(self.reached) == len(self.snapshot.candidates):
            return ()
        refs = (candidate.spec.source for candidate in self.snapshot.candidates)
        return tuple(ref for ref in refs if ref not in self.reached)

    # ── gangs that fit ─────────────────────────────────────────────────────────────────────────────

    def bind(self, candidate: SchedulingCandidate, result: AttemptResult) -> None:
        """Bind the assigned pods; the gang counts as started."""
        gang = candidate.spec.source
        if candidate.bound:
            self.preemption.keep(gang, priority_of(candidate))
        hints = self._numa_hints(candidate, result)
        for pod in candidate.pending:
            row = result.rows.get(pod.key)
            if row is not None:
                zones, devices = hints.get(pod.key, ()), self._devices(pod)
                self.actions.append(Bind(gang, pod, self.overlay.node(row), zones, devices))
        self.mark_started(candidate)

    def _devices(self, pod: Pod) -> tuple[tuple[DeviceClaimKey, DeviceAllocation], ...]:
        """The devices of a pod that was assigned, by claim."""
        devices, names = pod.spec.signature.devices, pod.spec.new_claims
        if devices is None or self.overlay.devices is None:
            return ()
        found = self.overlay.devices.allocations(pod.key, devices)
        return tuple((names[at], allocation) for at, allocation in found)

    def _numa_hints(
        self, candidate: SchedulingCandidate, result: AttemptResult
    ) -> Mapping[PodKey, tuple[tuple[str, int], ...]]:
        """The NUMA nodes that the pods are meant for, if the profile publishes them."""
        if self.overlay.zones is None or not self.profile.zone_hints:
            return {}
        rows = [(pod.key, pod.spec.signature, result.rows.get(pod.key)) for pod in candidate.pending]
        return self.overlay.zones.assumed_zones(
            [(key, shape, row) for key, shape, row in rows if row is not None]
        )

    def mark_started(self, candidate: SchedulingCandidate) -> None:
        """Record that a gang has started, unless that is recorded already."""
        spec = candidate.spec
        if not spec.started and not is_single_pod(candidate):
            self.actions.append(MarkStarted(spec.source, spec.uid))

    # ── preemption and nomination ──────────────────────────────────────────────────────────────────

    def preempt(
        self, pod: Pod, spec: GangSpec, *, whole: bool, undoes: bool = False, target: str = ""
    ) -> None:
        """Preempt a pod for this gang."""
        self.preempted.add(pod.key)
        self.actions.append(
            PreemptPod(pod, spec.source, spec.uid, with_gang=whole, undoes=undoes, moves_to=target)
        )

    def loses_pods(self, candidate: SchedulingCandidate) -> bool:
        """Whether pods of a gang are being preempted, by this plan or one before it.

        If that fails, they keep their nodes, and its other pods must be beside them. So it is decided on
        when they terminate.
        """
        if candidate.spec.source in self.snapshot.losing:
            return True
        return bool(self.preempted) and any(pod.key in self.preempted for pod in candidate.bound)

    def make_room(
        self, request: AttemptRequest, preemption: PreemptionResult, result: AttemptResult, *, whole: bool
    ) -> None:
        """Preempt the victims, and nominate the pods for the nodes where they free capacity."""
        candidate, rows = request.candidate, preemption.rows
        for victim, together in preemption.pods:
            target = self.overlay.node(preemption.moves[victim.key]) if victim.key in preemption.moves else ""
            self.preempt(victim, candidate.spec, whole=whole or together, target=target)
        gang, priority = candidate.spec.source, priority_of(candidate)
        for pod in request.pending:
            row = rows.get(pod.key)
            before = candidate.nominated.get(pod.key, "")
            node = "" if row is None else self.overlay.node(row)
            if node != before:
                self.actions.append(Nominate(gang, pod, node))
            if node:
                self.nominations.add(pod, node, priority)
        rejection = rejection_for(RejectionReason.PREEMPTING, request, result)
        fit = request.bound + len(rows)
        preempted = len(preemption.pods) + len(candidate.victims)
        rejection = replace(rejection, fit=fit, preemption=PreemptionSearchOutcome.FOUND, victims=preempted)
        self.reject(candidate, rejection, request.pending)

    def keeps_waiting_for_victims(self, request: AttemptRequest, priority: int) -> bool:
        """Whether its terminating victims still free enough for all nominated pods; if so, keep waiting."""
        candidate = request.candidate
        if not candidate.nominated or not candidate.victims:
            return False
        rows = self.preemption.still_nominated(candidate)
        nominated = sum(pod.key in candidate.nominated for pod in candidate.pending)
        if len(rows) < max(request.need, nominated):
            return False
        for pod in candidate.pending:
            if pod.key in rows:
                self.nominations.add(pod, candidate.nominated[pod.key], priority)
        rejection = Rejection(
            RejectionReason.PREEMPTING,
            candidate.spec.minimum,
            request.bound + len(request.pending),
            request.bound + len(rows),
            preemption=PreemptionSearchOutcome.FOUND,
            victims=len(candidate.victims),
        )
        self.reject(candidate, rejection, request.pending)
        return True

    def clear_nominations(self, candidate: SchedulingCandidate, pods: Iterable[Pod]) -> None:
        """Clear the nominations of these pods: no capacity is being freed for them any more."""
        for pod in pods:
            if candidate.nominated.get(pod.key):
                self.actions.append(Nominate(candidate.spec.source, pod, ""))

    # ── gangs that stay pending ────────────────────────────────────────────────────────────────────

    def rejects_taken(self, candidate: SchedulingCandidate) -> bool:
        """Whether a gang is rejected because other pods use one of its slots: it must not start in part."""
        slots = (pod.slot for pod in candidate.pending) if self.snapshot.taken else ()
        node = next((self.snapshot.taken[s.gang] for s in slots if s and s.gang in self.snapshot.taken), "")
        if node:
            pod = candidate.pending[0].key
            self.clear_nominations(candidate, candidate.pending)
            self.reject(candidate, Rejection(RejectionReason.NODE_TAKEN, pod=pod, about=node))
        return bool(node)

    def holds_back(self, candidate: SchedulingCandidate, priority: int) -> bool:
        """Whether a gang is rejected because it would undo what pods are being preempted for."""
        gang = self.nominations.holding_back(candidate.pending, priority)
        if gang is None:
            return False
        about = f"{gang.namespace}/{gang.name}"
        self.clear_nominations(candidate, candidate.pending)
        retry_at = self.now + RETRY_SECONDS
        rejection = Rejection(
            RejectionReason.HELD_BACK, pod=candidate.pending[0].key, about=about, retry_at=retry_at
        )
        self.reject(candidate, rejection)
        return True

    def reject(
        self,
        candidate: SchedulingCandidate,
        rejection: Rejection,
        pods: tuple[Pod, ...] = (),
        reserved_nodes: tuple[str, ...] = (),
    ) -> None:
        """Report that a gang, or these of its pods, got no node. `reserved_nodes`: for it."""
        spec = candidate.spec
        self.reached.add(spec.source)
        changed = _is_changed(rejection, candidate.reported)
        pods = pods or candidate.pending
        self.nominations.give_back(pods)
        self.actions.append(
            ReportUnschedulable(spec.source, rejection, pods, changed, spec.uid, reserved_nodes)
        )

    def lacks(self, request: AttemptRequest, allowed_nodes: Bools | None) -> RejectionReason:
        """Why a gang that found neither room nor victims stays pending: free capacity may be reserved.

        Victims are searched first, as if reserved nodes were full: what is free there may be taken later,
        and that is no event after which a gang is tried again.
        """
        if allowed_nodes is None:
            return RejectionReason.NO_CAPACITY
        with self.overlay.tentative():
            result = attempt(self.snapshot, self.overlay, request, self.profile)
        fits = len(result.rows) >= request.need
        return RejectionReason.RESERVED if fits else RejectionReason.NO_CAPACITY


def _is_changed(rejection: Rejection, before: Rejection | None) -> bool:
    """Whether to publish the rejection: the reason or the number that fits changed, not just node counts."""
    return before is None or _essentials(rejection) != _essentials(before)


def _essentials(rejection: Rejection) -> tuple[object, ...]:
    failure, misfit = rejection.filter_failure, rejection.misfit
    return (
        rejection.reason,
        rejection.minimum,
        rejection.existing,
        rejection.fit,
        rejection.preemption,
        rejection.about,
        rejection.incomplete,
        rejection.pod,
        failure and (frozenset(failure.counts), failure.error, failure.about),
        misfit and (misfit.code, misfit.level, misfit.fit, misfit.asked, misfit.layers),
        misfit and (misfit.is_too_large, misfit.lacked),
    )
