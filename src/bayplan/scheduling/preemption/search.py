"""The preemption search for a gang or a single pod: as few victims of as low a priority as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, attempt, domains_for
from bayplan.scheduling.preemption.context import PreemptionContext, PreemptionResult
from bayplan.scheduling.preemption.self_preemption import preempt_surplus
from bayplan.scheduling.preemption.single_pod import VictimsByNode
from bayplan.scheduling.preemption.trial import PreemptionTrial
from bayplan.scheduling.preemption.victim_units import VictimUnit, victim_units
from bayplan.state.scheduling.snapshot import SchedulingCandidate

DOMAINS_MAX = 16


class PreemptionSearch:
    """The preemption searches of one cycle; victims count as removed for later searches."""

    def __init__(self, context: PreemptionContext) -> None:
        self.context = context
        self.snapshot, self.profile, self.overlay = context.snapshot, context.profile, context.overlay
        self.nodes: VictimsByNode | None = None
        self.limit = 0  # `nodes` holds all units below this priority
        self.kept: dict[Ref, int] = {}  # gangs whose pods are no victims, and their priorities

    def find(
        self,
        request: AttemptRequest,
        priority: int,
        allowed_nodes: Bools | None = None,
        placed_rows: Sequence[int] = (),
    ) -> PreemptionResult:
        """Search for victims; those found count as removed from now on."""
        if not self.profile.preemption or not _may_preempt(request):
            return PreemptionResult(PreemptionSearchOutcome.NOT_ALLOWED)
        waiting_result = self.wait_for_terminating(request, allowed_nodes, placed_rows)
        if waiting_result is not None:
            return waiting_result
        if request.candidate.paused_until is not None:
            return PreemptionResult(PreemptionSearchOutcome.PAUSED)
        nodes = self._nodes(priority)
        if request.is_single_pod:
            if not nodes.units or nodes.units[-1].priority >= priority:
                return PreemptionResult(PreemptionSearchOutcome.NO_CANDIDATES)
            result = nodes.victims_for(request.pending[0], priority, allowed_nodes)
        else:
            units = self.below(priority, request.candidate)
            if not units:
                return PreemptionResult(PreemptionSearchOutcome.NO_CANDIDATES)
            result = self._preempt_for_gang(request, units, allowed_nodes, placed_rows)
        if result.units:
            result = replace(result, units=(*result.units, *self._surplus_of(result.units, nodes)))
            nodes.excluded.update(map(id, result.units))
            self.context.commit(result)
        return result

    def _surplus_of(self, victims: Sequence[VictimUnit], nodes: VictimsByNode) -> list[VictimUnit]:
        """The other pods of gangs whose core is preempted: they cannot run below the minimum."""
        gangs, chosen = {unit.gang for unit in victims if unit.core}, set(map(id, victims))
        left = (unit for unit in nodes.units if gangs and unit.gang in gangs)
        return [unit for unit in left if id(unit) not in chosen and id(unit) not in nodes.excluded]

    def keep(self, gang: Ref, priority: int) -> None:
        """Of a gang that gets nodes, no pod is preempted in this cycle: it would start in part."""
        self.kept[gang] = priority
        if self.nodes is not None:
            self.nodes.exclude((gang,))

    def has_kept_below(self, priority: int) -> bool:
        """Whether the next cycle has more victims for a gang of this priority."""
        return any(kept < priority for kept in self.kept.values())

    def preempt_own_surplus(
        self, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Preempt surplus pods of the gang itself for those that its minimum lacks."""
        if not self.profile.preemption or request.candidate.paused_until is not None:
            return None
        lacking = replace(request, extra=0)

        def try_victims(pods: Sequence[Pod]) -> PreemptionResult | None:
            units = [
                VictimUnit((pod,), pod.spec.priority, True, pod.started or inf) for pod in reversed(pods)
            ]
            result = PreemptionTrial(self.context, lacking, units, allowed_nodes).run()
            return result if result.outcome is PreemptionSearchOutcome.FOUND else None

        result = preempt_surplus(self.context, request.candidate, try_victims)
        if result is not None:
            self.context.commit(result)
            self.nodes = None  # the rest of the gang forms other victim units
        return result

    def below(
        self, priority: int, candidate: SchedulingCandidate, *, or_equal: bool = False
    ) -> list[VictimUnit]:
        """Units of lower priority, highest first, without pods of the gang itself."""
        nodes = self._nodes(priority + 1 if or_equal else priority)
        limit = -priority - 1 if or_equal else -priority
        start = bisect_right(nodes.units, limit, key=lambda unit: -unit.priority)
        units = list(nodes.units[start:])
        if nodes.excluded:
            units = [unit for unit in units if id(unit) not in nodes.excluded]
        gang = candidate.spec.source
        if self.snapshot.members.get(gang):
            units = [unit for unit in units if unit.pods[0].gang != gang]
        return units

    def _nodes(self, priority: int) -> VictimsByNode:
        if self.nodes is None or priority > self.limit:
            removed = self.context.terminating.keys
            pods = (pod for key, pod in self.snapshot.pods.items() if key not in removed)
            units = victim_units(
                pods if removed else self.snapshot.pods.values(),
                self.snapshot.specs,
                priority,
                self.snapshot.slots,
            )
            self.limit = priority
            self.nodes = VictimsByNode(self.overlay, self.context.budgets, units, self.context.terminating)
            self.nodes.exclude(self.kept)
        return self.nodes

    def still_nominated(self, candidate: SchedulingCandidate) -> dict[PodKey, int]:
        """Of the nominated rows, those that fit once all terminating pods are gone."""
        overlay = self.overlay
        found: dict[PodKey, int] = {}
        with overlay.tentative():
            overlay.remove_pods(self.context.terminating.keys)
            for pod in candidate.pending:
                row = overlay.row(candidate.nominated.get(pod.key, ""))
                if row >= 0 and overlay.run_filters(pod.spec.signature).fits[row]:
                    overlay.add_pod(pod.key, pod.spec.signature, row)
                    found[pod.key] = row
        return found

    def wait_for_terminating(
        self, request: AttemptRequest, allowed_nodes: Bools | None, placed_rows: Sequence[int]
    ) -> PreemptionResult | None:
        """The gang's rows if the pods that terminate anyway free enough capacity; None otherwise."""
        if not self.context.terminating.keys:
            return None
        trial = PreemptionTrial(self.context, request, (), allowed_nodes)
        if (
            trial.is_unconstrained
            and trial.signature
            and self.context.terminating.fitting_pods(trial.signature, allowed_nodes) < request.need
        ):
            return None
        with trial.emptied() as overlay:
            found = attempt(self.snapshot, overlay, request, self.profile, allowed_nodes, placed_rows)
        return (
            PreemptionResult(PreemptionSearchOutcome.FOUND, found.rows)
            if len(found.rows) >= request.need
            else None
        )

    def _preempt_for_gang(
        self,
        request: AttemptRequest,
        units: Sequence[VictimUnit],
        allowed_nodes: Bools | None,
        placed_rows: Sequence[int],
    ) -> PreemptionResult:
        if request.candidate.spec.locality.required is None or request.candidate.spec.tree is not None:
            return PreemptionTrial(self.context, request, self._reprieve_order(units), allowed_nodes).run()
        best: tuple[tuple[object, ...], PreemptionResult] | None = None
        trial = PreemptionTrial(self.context, request, units, allowed_nodes)
        with trial.emptied() as overlay:
            areas, first = domains_for(
                overlay, request, self.profile, allowed_nodes, placed_rows, DOMAINS_MAX
            )
        turns: dict[int, int] = {}
        if self.context.budgets.budgets and not trial.is_unconstrained:
            turns = {id(unit): turn for turn, unit in enumerate(self._reprieve_order(units))}
        for area in areas:
            near = trial.near(area.nodes)
            near = sorted(near, key=lambda unit: turns[id(unit)]) if turns else self._reprieve_order(near)
            result = PreemptionTrial(self.context, request, near, area.nodes, single=True, among=trial).run()
            order = (*self._cost(result), area.value != first, area.value)
            if result.outcome is PreemptionSearchOutcome.FOUND and (best is None or order < best[0]):
                best = order, result
        return best[1] if best is not None else PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT)

    def _cost(self, result: PreemptionResult) -> tuple[int, ...]:
        """Assigned pods, violated budgets, highest priority of a victim, number of victims."""
        highest = max((unit.priority for unit in result.units), default=-(2**31))
        broken = self.context.budgets.broken(result.units)
        return -len(result.rows), broken, highest, sum(len(unit.pods) for unit in result.units)

    def _reprieve_order(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The order of reprieve: units that would violate a budget first."""
        breaking, others = self.context.budgets.split(units)
        return [*breaking, *others]


def _may_preempt(request: AttemptRequest) -> bool:
    """Whether the gang may preempt: as its spec says, or else if all of its pods may."""
    spec_preempts = request.candidate.spec.preempts
    return spec_preempts if spec_preempts is not None else all(pod.spec.preempts for pod in request.pending)
