"""Fair-sharing preemption: evict from the queue furthest above its share while that makes shares fairer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bayplan.model.plan import EvictionReason
from bayplan.model.profile import FairRule
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import VictimPolicy
from bayplan.scheduling.admission.candidates import (
    PreemptionPolicy,
    PreemptionRequest,
    Victim,
    candidate_order,
    may_preempt,
    uses,
)
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad, is_over
from bayplan.state.admission.quota_tree import QuotaAccount, dominant_share


def by_share(simulation: AdmissionSimulation, request: PreemptionRequest) -> Iterator[PreemptionPolicy]:
    """Evict from the largest share while the gang's own share stays smaller."""
    candidates = _candidates(simulation, request)
    if candidates:
        yield PreemptionPolicy(candidates, _FairSearch(simulation, request).draw, by_domain=False)


def _candidates(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[Victim]:
    rules, account = request.queue.preemption, simulation.account(request.queue.name)
    found: list[Victim] = []

    def collect(queue: str, rule: VictimPolicy, reason: EvictionReason) -> None:
        found.extend(
            Victim(queued_gang, reason)
            for queued_gang in simulation.gangs_of(queue)
            if uses(queued_gang, request.cells) and may_preempt(request.queued_gang, queued_gang, rule)
        )

    collect(request.queue.name, rules.within, EvictionReason.PRIORITY)
    if account.parent is not None and rules.reclaim is not VictimPolicy.NEVER:
        for other in account.root().queues():
            if other is not account and any(other.borrows(cell) for cell in request.cells):
                collect(other.name, rules.reclaim, EvictionReason.FAIR_SHARE)
    return sorted(found, key=lambda victim: candidate_order(victim.queued_gang, request.queue.name))


class _FairSearch:
    """Descends from the root to the queue with the largest share, repeatedly."""

    def __init__(self, simulation: AdmissionSimulation, request: PreemptionRequest) -> None:
        self.simulation, self.request, self.load = simulation, request, GangLoad(request.quota)
        self.own = simulation.account(request.queue.name)
        self.retry: list[Victim] = []
        self.left: dict[str, list[Victim]] = {}
        self.dropped: set[int] = set()

    def draw(self, candidates: Sequence[Victim]) -> Iterator[Victim]:
        """The candidates in turn; the removals so far count, and the gang itself counts as admitted."""
        self.simulation.apply(self.request.queue.name, self.load)
        rules = self.simulation.profile.fair_rules
        yield from self._first(candidates, rules[0])
        if len(rules) > 1:
            yield from self._second()
        self.simulation.apply(self.request.queue.name, self.load, -1)

    def _first(self, candidates: Sequence[Victim], rule: FairRule) -> Iterator[Victim]:
        """First strategy: evict while the gang's share is at most the share left to the victim's side."""
        self._begin(candidates)
        entitled = not any(self.own.borrows(cell) for cell in self.request.cells)
        for queue in self._largest():
            if queue is self.own or entitled:
                victim = self.left[queue.name].pop(0)
                reclaim = replace(victim, reason=EvictionReason.RECLAIM)
                yield from self._offer(victim if queue is self.own else reclaim)
                continue
            mine, victim_side = self._sides(queue)
            while self.left[queue.name]:
                victim = self.left[queue.name].pop(0)
                after = self._share_without(victim.queued_gang, victim_side)
                fair = (
                    dominant_share(mine) <= after
                    if rule is FairRule.FINAL_SHARE
                    else dominant_share(mine) < dominant_share(victim_side)
                )
                if fair:
                    yield from self._offer(victim)
                    break  # the shares have changed: choose the queue again
                self.retry.append(victim)

    def _second(self) -> Iterator[Victim]:
        """Second strategy, once per queue: evict if the gang's share is below the victim side's share now."""
        self._begin(self.retry)
        for queue in self._largest():
            mine, victim_side = self._sides(queue)
            victim = self.left[queue.name].pop(0)
            if dominant_share(mine) < dominant_share(victim_side):
                yield from self._offer(victim)
            self.dropped.add(id(queue))

    def _begin(self, candidates: Sequence[Victim]) -> None:
        self.left, self.dropped = {}, set()
        for victim in candidates:
            assert victim.queued_gang.admission is not None
            self.left.setdefault(victim.queued_gang.admission.queue, []).append(victim)

    def _offer(self, victim: Victim) -> Iterator[Victim]:
        """While the gang is tried, it does not count as admitted."""
        self.simulation.apply(self.request.queue.name, self.load, -1)
        yield victim
        self.simulation.apply(self.request.queue.name, self.load)

    def _share_without(self, queued_gang: QueuedGang, side: QuotaAccount) -> tuple[bool, object, object]:
        self.simulation.remove((queued_gang,))
        after = dominant_share(side)
        self.simulation.restore((queued_gang,))
        return after

    def _sides(self, queue: QuotaAccount) -> tuple[QuotaAccount, QuotaAccount]:
        """The children of the lowest common ancestor on the paths to the gang's queue and to the other."""
        above = list(self.own.ancestors())
        victim_side = queue
        for common in queue.ancestors():
            if common in above:
                break
            victim_side = common
        position = above.index(common)
        return (above[position - 1] if position else self.own), victim_side

    def _largest(self) -> Iterator[QuotaAccount]:
        """Queues that have candidates, largest share first; computed again after every change."""
        if self.own.parent is None:
            while self.left.get(self.own.name) and id(self.own) not in self.dropped:
                yield self.own
            return
        root = self.own.root()
        while id(root) not in self.dropped:
            found = self._below(root)
            if found is not None:
                yield found

    def _below(self, top: QuotaAccount) -> QuotaAccount | None:
        """The queue to evict from next; None if this descent only reached exhausted nodes."""
        queues = [q for q in top.children if q.is_queue and self._has_victims(q)]
        nodes = [n for n in top.children if not n.is_queue and self._is_open(n)]
        if not queues and not nodes:
            self.dropped.add(id(top))
            return None
        nodes.sort(key=lambda node: (dominant_share(node), node.name))
        best = max((dominant_share(queue) for queue in queues), default=None)
        if nodes and (best is None or dominant_share(nodes[-1]) >= best):
            return self._below(nodes[-1])
        tied = [queue for queue in queues if dominant_share(queue) == best]
        return min(tied, key=lambda q: self._order(self.left[q.name][0]))

    def _order(self, victim: Victim) -> tuple[object, ...]:
        return candidate_order(victim.queued_gang, self.request.queue.name)

    def _has_victims(self, queue: QuotaAccount) -> bool:
        if id(queue) in self.dropped:
            return False
        if (queue is not self.own and not is_over(queue)) or not self.left.get(queue.name):
            self.dropped.add(id(queue))
            return False
        return True

    def _is_open(self, node: QuotaAccount) -> bool:
        if id(node) in self.dropped:
            return False
        if not is_over(node) and node not in self.own.ancestors():
            self.dropped.add(id(node))
            return False
        return True
