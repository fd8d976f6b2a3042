"""Preemption by priority within a queue, and reclaim of quota that other queues borrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bayplan.model.plan import EvictionReason
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, VictimPolicy
from bayplan.scheduling.admission.candidates import (
    PreemptionRequest,
    Victim,
    fits,
    fits_quota,
    importance,
    in_the_way,
    is_within,
    put_back,
    uses,
    yields,
)
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount

DOMAINS_MAX = 16
"""Other domains searched for a smaller set of victims, those with the fewest gangs first."""


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """A gang that may be preempted. One of another queue only while its part of the tree is above quota."""

    demand: QueuedGang
    why: EvictionReason
    below: QuotaAccount | None = None  # the ancestor below which every account must be above quota
    without_borrowing: bool = False


def victims_by_priority(round_: AdmissionSimulation, need: PreemptionRequest) -> list[Victim]:
    """The smallest set of gangs, lowest priority first, whose eviction makes the gang fit."""
    candidates = _candidates(round_, need)
    for borrowing in _attempts(round_, need, candidates):
        found = _smallest(round_, need, candidates, borrowing)
        if found:
            return _in_one_domain(round_, need, candidates, borrowing, found)
    return []


def _in_one_domain(
    round_: AdmissionSimulation,
    need: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
    found: list[Victim],
) -> list[Victim]:
    """Fewer victims, none of higher priority, if another domain can be freed with less."""
    if need.level is None or len(found) < 2:
        return found
    worst = max(victim.demand.gang.priority for victim in found)
    humble = [c for c in candidates if c.demand.gang.priority <= worst]
    places = {c.demand.gang.source: [s.place for s in round_.load_of(c.demand).spots] for c in humble}
    by_domain = round_.rooms.by_domain(*need.level, places)
    for refs in sorted(by_domain.values(), key=len)[:DOMAINS_MAX]:
        fewer = _smallest(round_, need, [c for c in humble if c.demand.gang.source in refs], borrowing)
        if fewer and len(fewer) < len(found):
            found = fewer
    return found


def _candidates(round_: AdmissionSimulation, need: PreemptionRequest) -> list[PreemptionCandidate]:
    """All preemption candidates, in order."""
    rule = need.queue.preemption.within
    own = [
        PreemptionCandidate(demand, EvictionReason.PRIORITY)
        for demand in round_.gangs_of(need.queue.name)
        if uses(demand, need.cells) and yields(need.demand, demand, rule)
    ]
    by_right, by_priority = _from_elsewhere(round_, need)
    ordered = [
        sorted(found, key=lambda c: importance(c.demand, need.queue.name))
        for found in (by_right, by_priority, own)
    ]
    leaving = [c for found in ordered for c in found if c.demand.evicted]
    return leaving + [c for found in ordered for c in found if not c.demand.evicted]


def _from_elsewhere(
    round_: AdmissionSimulation, need: PreemptionRequest
) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
    """Candidates of other queues: those that use quota closer to our queue than to theirs, and the others."""
    by_right: list[PreemptionCandidate] = []
    by_priority: list[PreemptionCandidate] = []
    account = round_.account(need.queue.name)
    if account.parent is None or need.queue.preemption.reclaim is VictimPolicy.NEVER:
        return by_right, by_priority
    advantage, left = _fits_in(account, need.quota)
    done: QuotaAccount | None = None
    for top in account.ancestors():
        into = by_right if advantage else by_priority
        for queue in _above_quota(top, done, account, need.cells):
            into += _of_queue(round_, need, queue, top, advantage)
        fits, left = _fits_in(top, left)
        advantage, done = advantage or fits, top
    return by_right, by_priority


def _fits_in(account: QuotaAccount, amounts: Mapping[Cell, int]) -> tuple[bool, dict[Cell, int]]:
    """Whether the quota of an account covers the amounts, and the part its parent has to cover."""
    fits = not any(account.borrows(cell, amount) for cell, amount in amounts.items())
    return fits, {cell: max(0, amount - account.kept_free(cell)) for cell, amount in amounts.items()}


def _above_quota(
    top: QuotaAccount, done: QuotaAccount | None, own: QuotaAccount, cells: frozenset[Cell]
) -> Iterator[QuotaAccount]:
    """Queues in the subtree that are above quota, reached only through nodes that are above quota as well."""
    for child in sorted(top.children, key=lambda c: (c.is_queue, c.name)):
        if child is done or child is own or is_within(child, cells):
            continue
        if child.is_queue:
            yield child
        else:
            yield from _above_quota(child, done, own, cells)


def _of_queue(
    round_: AdmissionSimulation,
    need: PreemptionRequest,
    queue: QuotaAccount,
    top: QuotaAccount,
    advantage: bool,
) -> Iterator[PreemptionCandidate]:
    rules = need.queue.preemption
    for demand in round_.gangs_of(queue.name):
        if not uses(demand, need.cells) or not yields(need.demand, demand, rules.reclaim):
            continue
        if advantage:
            yield PreemptionCandidate(demand, EvictionReason.RECLAIM, top)
            continue
        theirs = demand.gang.priority
        allowed = rules.while_borrowing and theirs < need.demand.gang.priority
        if allowed and (rules.threshold is None or theirs <= rules.threshold):
            yield PreemptionCandidate(demand, EvictionReason.RECLAIM_WHILE_BORROWING, top)
        else:
            yield PreemptionCandidate(demand, EvictionReason.RECLAIM, top, without_borrowing=True)


def _attempts(
    round_: AdmissionSimulation, need: PreemptionRequest, candidates: list[PreemptionCandidate]
) -> tuple[bool, ...]:
    """Whether the gang may borrow in the first and second attempt: more gangs yield to one that does not."""
    others = [c for c in candidates if c.below is not None]
    forbidden = not need.queue.preemption.while_borrowing
    account = round_.account(need.queue.name)
    under = all(account.quota(cell).nominal > account.usage.get(cell, 0) for cell in need.cells)
    if not others or (forbidden and not under):
        return (True,)
    by_right = any(c.why is EvictionReason.RECLAIM and not c.without_borrowing for c in others)
    return (True, False) if by_right or not forbidden else (False, True)


def _smallest(
    round_: AdmissionSimulation,
    need: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
) -> list[Victim]:
    """Remove candidates until the gang fits, then reprieve all that it fits beside."""
    removed = _enough(round_, need, candidates, borrowing)
    if not removed:
        return []
    kept = put_back(round_, need, [c.demand for c in removed], borrowing)
    round_.restore(kept)
    why = {c.demand.gang.source: c.why for c in removed}
    return [Victim(demand, why[demand.gang.source]) for demand in kept]


def _enough(
    round_: AdmissionSimulation,
    need: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
) -> list[PreemptionCandidate]:
    """The shortest prefix of candidates whose removal is enough; they stay removed. Empty if none is.

    Placement is tried after one, two, four, … removals, then by bisection. If quota already fits, only the
    gangs that overlap the placement are removed.
    """
    if fits_quota(round_, need, borrowing):
        candidates = [c for c in candidates if in_the_way(round_, need, c.demand)]
    removed: list[PreemptionCandidate] = []
    look, too_few, found = 1, 0, False
    for candidate in candidates:
        if not _may_go(round_, need, candidate, borrowing):
            continue
        round_.remove((candidate.demand,))
        removed.append(candidate)
        if len(removed) >= look and fits_quota(round_, need, borrowing):
            found = need.has_place()
            if found:
                break
            look, too_few = 2 * len(removed), len(removed)
    if not found and (len(removed) == too_few or not fits(round_, need, borrowing)):
        round_.restore([c.demand for c in removed])
        return []
    while len(removed) - too_few > 1:
        middle = (too_few + len(removed)) // 2
        back = removed[middle:]
        round_.restore([c.demand for c in back])
        if fits(round_, need, borrowing):
            removed = removed[:middle]
        else:
            round_.remove([c.demand for c in back])
            too_few = middle
    return removed


def _may_go(
    round_: AdmissionSimulation, need: PreemptionRequest, candidate: PreemptionCandidate, borrowing: bool
) -> bool:
    """Whether a candidate still qualifies after the removals so far."""
    if candidate.below is None:
        return True
    if borrowing and candidate.without_borrowing:
        return False
    assert candidate.demand.admission is not None
    account = round_.account(candidate.demand.admission.queue)
    if is_within(account, need.cells):
        return False
    for above in account.ancestors():
        if above is candidate.below:
            break
        if is_within(above, need.cells):
            return False
    return True
