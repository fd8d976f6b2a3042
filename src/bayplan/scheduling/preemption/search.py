"""The preemption search for a gang or a single pod: as few victims of as low a priority as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from bayplan.model.pod import Pod, PodKey
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, attempt, capacity_of, domains_for
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.self_preemption import fewest_victims, surplus_pods
from bayplan.scheduling.preemption.single_pod import VictimsByNode
from bayplan.scheduling.preemption.trial import PreemptionTrial
from bayplan.scheduling.preemption.victim_units import VictimUnit, victim_units
from bayplan.state.scheduling.snapshot import SchedulingCandidate

DOMAINS_MAX = 16


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The outcome of the search, the victims, and the rows of the pods once the victims are gone."""

    outcome: PreemptionSearchOutcome
    victims: tuple[VictimUnit, ...] = ()
    rows: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def pods(self) -> list[tuple[Pod, bool]]:
        """All pods to preempt, and whether each leaves with its whole gang."""
        return [(pod, unit.leaves_together) for unit in self.victims for pod in unit.pods]


class PreemptionSearch:
    """The preemption searches of one cycle; victims count as removed for later searches."""

    def __init__(self, context: PreemptionContext) -> None:
        self.context = context
        self.snapshot, self.profile, self.overlay = context.snapshot, context.profile, context.overlay
        self.nodes: VictimsByNode | None = None
        self.limit = 0  # `nodes` holds all units below this priority

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
        nodes = self._nodes(priority)
        if request.is_single_pod:
            if not nodes.units or nodes.units[-1].priority >= priority:
                return PreemptionResult(PreemptionSearchOutcome.NO_CANDIDATES)
            found = nodes.victims_for(request.pending[0], priority, allowed_nodes)
            result = (
                PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT)
                if found is None
                else PreemptionResult(PreemptionSearchOutcome.FOUND, found[1], found[0])
            )
        else:
            units = self.below(priority, request.candidate)
            if not units:
                return PreemptionResult(PreemptionSearchOutcome.NO_CANDIDATES)
            result = self._preempt_for_gang(request, units, allowed_nodes, placed_rows)
        if result.victims:
            nodes.preempted.update(map(id, result.victims))
            self.context.terminating.add(pod.key for pod, _ in result.pods)
            self.context.budgets.spend(pod for pod, _ in result.pods)
        return result

    def preempt_own_surplus(
        self, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Preempt surplus pods of the gang itself for those that its minimum lacks."""
        candidate = request.candidate
        surplus, tree = surplus_pods(candidate, self.context.terminating.keys), candidate.spec.tree
        if not surplus or tree is None or not self.profile.preemption:
            return None
        lacking, capacity = replace(request, extra=0), capacity_of(self.snapshot, candidate, tree)

        def sought(pods: Sequence[Pod]) -> PreemptionResult | None:
            units = [
                VictimUnit((pod,), pod.spec.priority, True, pod.started or inf) for pod in reversed(pods)
            ]
            result, _ = self._preempt_within(lacking, units, allowed_nodes)
            return result if result.outcome is PreemptionSearchOutcome.FOUND else None

        result = fewest_victims(capacity, tree, surplus, sought)
        if result is not None:
            self.context.terminating.add(pod.key for pod, _ in result.pods)
            self.context.budgets.spend(pod for pod, _ in result.pods)
            self.nodes = None  # the rest of the gang forms other victim units
        return result

    def below(
        self, priority: int, candidate: SchedulingCandidate, *, or_equal: bool = False
    ) -> list[VictimUnit]:
        """Units of lower priority, highest first, without pods of the gang itself."""
        nodes = self._nodes(priority + 1 if or_equal else priority)
        limit = -priority - 1 if or_equal else -priority
        start = bisect_right(nodes.units, limit, key=lambda unit: -unit.priority)
        units, preempted = list(nodes.units[start:]), nodes.preempted
        if preempted:
            units = [unit for unit in units if id(unit) not in preempted]
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
        return self.nodes

    def still_nominated(self, candidate: SchedulingCandidate) -> dict[PodKey, int]:
        """Of the nominated rows, those that fit once all terminating pods are gone."""
        overlay = self.overlay
        found: dict[PodKey, int] = {}
        with self._rolled_back():
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
            PreemptionResult(PreemptionSearchOutcome.FOUND, (), found.rows)
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
            return self._preempt_within(request, self._reprieve_order(units), allowed_nodes)[0]
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
            result, worth = self._preempt_within(request, near, area.nodes, among=trial)
            order = (*worth, area.value != first, area.value)
            if result.outcome is PreemptionSearchOutcome.FOUND and (best is None or order < best[0]):
                best = order, result
        return best[1] if best is not None else PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT)

    def _preempt_within(
        self,
        request: AttemptRequest,
        units: Sequence[VictimUnit],
        allowed_nodes: Bools | None,
        *,
        among: PreemptionTrial | None = None,
    ) -> tuple[PreemptionResult, tuple[object, ...]]:
        """The result within the allowed nodes, and its cost.

        The cost is: assigned pods, violated budgets, highest priority of a victim, number of victims.
        `among`: a trial with all units, of which these units are those of a single domain.
        """
        trial = PreemptionTrial(
            self.context, request, units, allowed_nodes, single=among is not None, among=among
        )
        with trial:
            rows = trial.reprieve()
            victims = trial.victims() if rows is not None else []
        if rows is None:
            return PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT), ()
        highest = max((unit.priority for unit in victims), default=-(2**31))
        broken, size = self.context.budgets.broken(victims), sum(len(unit.pods) for unit in victims)
        return PreemptionResult(PreemptionSearchOutcome.FOUND, tuple(victims), rows), (
            -len(rows),
            broken,
            highest,
            size,
        )

    def _reprieve_order(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The order of reprieve: units that would violate a budget first."""
        breaking, others = self.context.budgets.split(units)
        return [*breaking, *others]

    @contextmanager
    def _rolled_back(self) -> Iterator[None]:
        checkpoint = self.overlay.checkpoint()
        try:
            yield
        finally:
            self.overlay.rollback(checkpoint)


def _may_preempt(request: AttemptRequest) -> bool:
    """Whether the gang may preempt: as its spec says, or else if all of its pods may."""
    spec_preempts = request.candidate.spec.preempts
    return spec_preempts if spec_preempts is not None else all(pod.spec.preempts for pod in request.pending)
