"""Preemption for gangs of fair-share queues: consolidation, reclaim above the fair share, and priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf

from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import PreemptionMeans
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.attempt.rejection import earliest
from bayplan.scheduling.fair_share.accounts import Accounts, Ratio, Use, share_ratio
from bayplan.scheduling.fair_share.consolidation import Consolidation
from bayplan.scheduling.fair_share.order import FairTurn
from bayplan.scheduling.fair_share.victims import (
    FairVictimPool,
    FairVictims,
    fair_unit_of,
    protected_until,
)
from bayplan.scheduling.preemption.context import PreemptionContext, PreemptionResult
from bayplan.scheduling.preemption.self_preemption import preempt_surplus
from bayplan.scheduling.preemption.trial import PreemptionTrial
from bayplan.scheduling.preemption.victim_units import VictimUnit

POOL_FIRST = 32  # victim units tried first
TRIES_BY_NODES = 200_000  # placement attempts in one cycle, times the number of nodes
TRIES_LEAST = 64
RETRY_SECONDS = 1.0  # seconds
EQUAL: Ratio = (False, Fraction(1))  # usage that is just the share


class FairPreemptionSearch:
    """Searches victims among gangs of queues; victims count as removed for later searches of the cycle."""

    def __init__(self, context: PreemptionContext, accounts: Accounts, now: float) -> None:
        self.context, self.accounts, self.now = context, accounts, now
        self.overlay, self.snapshot = context.overlay, context.snapshot
        self.consolidation = Consolidation(context)
        self._victim_pool: FairVictimPool | None = None
        self.protected: set[Ref] = set()  # gangs that got nodes or nominations
        self.losing_pods: set[Ref] = set()  # gangs that lose pods
        self.tries = max(TRIES_LEAST, TRIES_BY_NODES // (len(self.overlay) + 1))
        # searches that failed since the last change; value: whether only placement failed
        self.failed: dict[object, bool] = {}
        self.lacks_placement = False  # whether the last gang lacked only a placement, by any means so far
        self.retry_at = inf  # when the first gang has had its minimum runtime

    def find(
        self, means: PreemptionMeans, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Free capacity by one means; the victims count as removed from now on."""
        by_means: Mapping[
            PreemptionMeans, Callable[[FairTurn, AttemptRequest, Bools | None], PreemptionResult | None]
        ] = {
            PreemptionMeans.CONSOLIDATE: self._consolidate,
            PreemptionMeans.RECLAIM: self._reclaim,
            PreemptionMeans.PREEMPT: self._preempt,
        }
        equivalence = means, _equivalence_key(turn, allowed_nodes)
        if equivalence in self.failed:
            self.lacks_placement |= self.failed[equivalence]
            return None
        before, self.lacks_placement = self.lacks_placement, False
        result = by_means[means](turn, request, allowed_nodes)
        if result is not None:
            self._commit(turn, request, result)
        elif not turn.candidate.bound:
            self.failed[equivalence] = self.lacks_placement
        self.lacks_placement |= before
        return result

    def preempt_own_surplus(
        self, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Preempt surplus pods of the gang itself for those that its minimum lacks."""
        spec = turn.candidate.spec

        def try_victims(pods: Sequence[Pod]) -> PreemptionResult | None:
            pool = [fair_unit_of(spec, (pod,)) for pod in pods]
            return self._search(turn, request, pool, allowed_nodes, lambda _: True)

        result = preempt_surplus(self.context, turn.candidate, try_victims)
        if result is not None:
            self._commit(turn, request, result)
        return result

    @property
    def is_exhausted(self) -> bool:
        """Whether the attempts of this cycle are used up; the remaining gangs wait for the next cycle."""
        return self.tries <= 0

    @property
    def tries_each(self) -> int:
        """Attempts per gang while reprieving victims; fewer in large clusters."""
        return min(max(self.tries // 4, 12), 100)

    def protect(self, gang: Ref) -> None:
        """Protect a gang that got capacity from preemption in the same cycle."""
        self.protected.add(gang)
        if self._victim_pool is not None:
            self._victim_pool.drop(gang)

    def retry_for(self, gang: Ref) -> float | None:
        """When to try again a gang without victims: what got capacity in this cycle may be moved then."""
        retry_at = self.retry_at if self.retry_at < inf else None
        specs = (self.snapshot.specs.get(other) for other in self.protected if other != gang)
        if any(spec is not None and not spec.non_preemptible for spec in specs):
            return earliest(retry_at, self.now + RETRY_SECONDS)
        return retry_at

    @property
    def victim_pool(self) -> FairVictimPool:
        """All victim units, computed on first use."""
        if self._victim_pool is None:
            self._victim_pool = FairVictimPool(self.snapshot, self.accounts, self.context.terminating.keys)
            for gang in self.protected:
                self._victim_pool.drop(gang)
        return self._victim_pool

    def _commit(self, turn: FairTurn, request: AttemptRequest, result: PreemptionResult) -> None:
        spec = turn.candidate.spec
        self.failed.clear()
        self.protect(spec.source)
        self.context.commit(result)
        for gang in {pod.gang for pod, _ in result.pods if pod.gang is not None}:
            self.losing_pods.add(gang)
            self.victim_pool.rebuild(gang)
        for pod, _ in result.pods:
            if pod.key in result.moves:  # its replacement does not exist yet: reserve the node
                stand_in = PodKey(pod.key.namespace, f"{pod.key.name} (moved)")
                self.overlay.add_pod(stand_in, pod.spec.signature, result.moves[pod.key])
            else:
                self.accounts.take(self._queue_of(pod), pod.amounts, sign=-1)
        assigned = [pod for pod in request.pending if pod.key in result.rows]
        for pod in assigned:
            self.accounts.take(spec.queue, pod.amounts, lasting=spec.non_preemptible)

    def _consolidate(
        self, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Free capacity by moving running pods to other nodes: no gang stays pending for it."""
        spec = turn.candidate.spec
        if spec.non_preemptible or self.accounts.beyond_limit(turn.queue, turn.amounts) is not None:
            return None
        others = {
            name: [unit for unit in some if unit.gang != spec.source]
            for name, some in self.victim_pool.by_queue().items()
        }
        found = self.consolidation.search(request, allowed_nodes, FairVictims(self.accounts, others))
        self.tries -= self.consolidation.tries
        if found is None:
            return None
        rows, moves, pods = found
        moved = tuple(VictimUnit((pod,), pod.spec.priority, True, pod.started) for pod in pods)
        if self.context.budgets.broken(moved):
            return None
        return PreemptionResult(PreemptionSearchOutcome.FOUND, rows, moved, moves)

    # ── victims ────────────────────────────────────────────────────────────────────────────────────

    def _preempt(
        self, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Preempt gangs of lower priority in the same queue."""
        accounts, spec = self.accounts, turn.candidate.spec
        if spec.non_preemptible and accounts.beyond_quota(turn.queue, turn.amounts) is not None:
            return None
        priority = priority_of(turn.candidate)
        pool = [
            unit
            for unit in self.victim_pool.by_queue().get(turn.queue, ())
            if unit.priority < priority
            and unit.gang != spec.source
            and not self._is_protected(unit, reclaim=False)
        ]
        return self._search(turn, request, pool, allowed_nodes, lambda _: True)

    def _reclaim(
        self, turn: FairTurn, request: AttemptRequest, allowed_nodes: Bools | None
    ) -> PreemptionResult | None:
        """Reclaim from queues above their fair share or quota."""
        accounts, spec = self.accounts, turn.candidate.spec
        if not accounts.within_share(turn.queue, turn.amounts):
            return None
        if spec.non_preemptible and accounts.beyond_quota(turn.queue, turn.amounts) is not None:
            return None
        others = {name: some for name, some in self.victim_pool.by_queue().items() if name != turn.queue}
        pool: list[VictimUnit] = []
        left: dict[str, Use] = {}
        victims = FairVictims(accounts, others)
        for unit in victims:
            if not self._is_reclaimable(turn, unit.queue, left):
                victims.skip(unit.queue)  # its usage only decreases from here on
            elif not self._is_protected(unit):
                self._subtract(left, unit.queue, unit.amounts)
                pool.append(unit)
        result = self._search(turn, request, pool, allowed_nodes, lambda go: self._is_fair(turn, go))
        # victims of other queues may have to move, too
        if result is None and len(pool) < sum(map(len, others.values())):
            pool = [unit for unit in FairVictims(accounts, others) if not self._is_protected(unit)]
            result = self._search(turn, request, pool, allowed_nodes, lambda go: self._is_fair(turn, go))
        return result

    def _is_protected(self, unit: VictimUnit, *, reclaim: bool = True) -> bool:
        """Whether the gang is still within its guaranteed minimum runtime."""
        until = protected_until(self.accounts, unit, self.now, reclaim=reclaim) if unit.core else 0.0
        if self.now < until < self.retry_at:
            self.retry_at = until
        return until > self.now

    def _is_reclaimable(self, turn: FairTurn, queue: str, left: Mapping[str, Use]) -> bool:
        """Whether a queue is above its share, or above quota while the reclaiming queue is within its own."""
        accounts = self.accounts
        mine, theirs = accounts.diverging(turn.queue, queue)
        has = left.get(theirs, accounts.use[theirs])
        if not accounts.within_allowed(theirs, has):
            return True
        return accounts.within_quota(mine, turn.amounts) and not accounts.within_quota(theirs, {}, has)

    def _subtract(self, left: dict[str, Use], queue: str, amounts: Mapping[str, int]) -> None:
        for name in self.accounts.path_up(queue):
            use = left.setdefault(name, dict(self.accounts.use[name]))
            for resource in self.accounts.resources:
                use[resource] = use.get(resource, 0) - amounts.get(resource, 0)

    def _queue_of(self, pod: Pod) -> str:
        return self.snapshot.specs[pod.gang].queue if pod.gang is not None else ""

    def _is_fair(self, turn: FairTurn, victims: Iterable[VictimUnit]) -> bool:
        """Whether each victim was reclaimable in turn, and no reclaimer ends above a victim's share ratio."""
        accounts = self.accounts
        left: dict[str, Use] = {}
        involved: dict[str, set[str]] = {}
        for unit in victims:
            if not self._is_reclaimable(turn, unit.queue, left):
                return False
            self._subtract(left, unit.queue, unit.amounts)
            for name in accounts.path_up(unit.queue):
                involved.setdefault(name, set()).update(r for r, amount in unit.amounts.items() if amount)
        asks = {resource for resource, amount in turn.amounts.items() if amount}
        for name in accounts.path_up(turn.queue):
            use = left.get(name, accounts.use[name])
            then = {r: use.get(r, 0) + turn.amounts.get(r, 0) for r in accounts.resources}
            siblings = accounts.below[accounts.queues[name].parent]
            for other in siblings:
                if other == name or other not in left:
                    continue
                for resource in (involved[other] | asks) & set(accounts.resources):
                    theirs = accounts.shares[other].get(resource, 0)
                    ratio = share_ratio(then[resource], accounts.shares[name].get(resource, 0))
                    if theirs > 0 and EQUAL < ratio >= share_ratio(left[other][resource], theirs):
                        return False
        return True

    # ── search ─────────────────────────────────────────────────────────────────────────────────────

    def _search(
        self,
        turn: FairTurn,
        request: AttemptRequest,
        pool: Sequence[VictimUnit],
        allowed_nodes: Bools | None,
        fair: Callable[[Sequence[VictimUnit]], bool],
    ) -> PreemptionResult | None:
        """Preempt from a prefix of the pool: a few units first, then more and more."""
        size = POOL_FIRST
        while pool:
            result = self._search_pool(turn, request, pool[:size], allowed_nodes, fair)
            if result is not None or size >= len(pool):
                return result
            size *= 4
        return None

    def _search_pool(
        self,
        turn: FairTurn,
        request: AttemptRequest,
        pool: Sequence[VictimUnit],
        allowed_nodes: Bools | None,
        fair: Callable[[Sequence[VictimUnit]], bool],
    ) -> PreemptionResult | None:
        """Remove all units of the pool, then reprieve them by priority as long as the gang keeps its rows."""
        forced = self._forced(turn, pool)
        if forced is None:
            return None
        self.lacks_placement = True
        may_stay = [unit for unit in reversed(pool) if unit not in forced]
        breaking, others = self.context.budgets.split(may_stay)
        with self.overlay.tentative():
            self.overlay.remove_pods(pod.key for unit in forced for pod in unit.pods)
            trial = PreemptionTrial(
                self.context, request, [*breaking, *others], allowed_nodes, tries_max=self.tries_each
            )
            result = trial.run()
        self.tries -= trial.tries
        if result.outcome is not PreemptionSearchOutcome.FOUND:
            return None
        leaving = set(map(id, result.units))
        broken = {unit.gang for unit in result.units if unit.core}
        victims = [u for u in pool if u in forced or id(u) in leaving or u.gang in broken]
        over = {unit.gang for unit in forced}  # the queue is over its limit, wherever these pods run
        moves = self.consolidation.new_rows(
            [unit for unit in victims if unit.gang not in over], result.rows, request
        )
        if not fair([unit for unit in victims if any(pod.key not in moves for pod in unit.pods)]):
            return None
        return replace(result, units=tuple(victims), moves=moves)

    def _forced(self, turn: FairTurn, pool: Sequence[VictimUnit]) -> list[VictimUnit] | None:
        """Units to preempt so that every queue stays within its limit; None if all are not enough."""
        accounts, forced = self.accounts, list[VictimUnit]()
        try:
            while (excess := accounts.beyond_limit(turn.queue, turn.amounts)) is not None:
                helps = (
                    unit
                    for unit in pool
                    if unit not in forced and excess.queue in accounts.path_up(unit.queue)
                    and unit.amounts.get(excess.resource)
                )  # fmt: skip
                found = next(helps, None)
                if found is None:
                    return None
                for unit in pool:
                    same = unit is found or (found.core and unit.gang == found.gang)
                    if same and unit not in forced:
                        forced.append(unit)
                        accounts.take(unit.queue, unit.amounts, sign=-1)
        finally:
            for unit in forced:
                accounts.take(unit.queue, unit.amounts)
        return forced


def _equivalence_key(turn: FairTurn, allowed_nodes: Bools | None) -> object:
    """Equivalence key of gangs: if the search fails for one, it fails for the other."""
    spec = turn.candidate.spec
    tree = "" if spec.tree is None else repr(replace(spec.tree, name=""))
    request = tuple((pod.pod_set, pod.spec.signature) for pod in turn.pods)
    where = spec.locality, spec.topology, None if allowed_nodes is None else allowed_nodes.tobytes()
    return turn.queue, priority_of(turn.candidate), spec.non_preemptible, tree, where, request
