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
    candidate_order,
    fits,
    fits_quota,
    may_preempt,
    overlaps_request,
    reprieve,
    uses,
    within_quota,
)
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount

DOMAINS_MAX = 16
"""Other domains searched for a smaller set of victims, those with the fewest gangs first."""


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """A gang that may be preempted. One of another queue only while its part of the tree is above quota."""

    queued_gang: QueuedGang
    reason: EvictionReason
    below: QuotaAccount | None = None  # the ancestor below which every account must be above quota
    without_borrowing: bool = False


def victims_by_priority(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[Victim]:
    """The smallest set of gangs, lowest priority first, whose eviction makes the gang fit."""
    candidates = _candidates(simulation, request)
    for borrowing in _attempts(simulation, request, candidates):
        found = _smallest(simulation, request, candidates, borrowing)
        if found:
            return _in_one_domain(simulation, request, candidates, borrowing, found)
    return []


def _in_one_domain(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
    found: list[Victim],
) -> list[Victim]:
    """Fewer victims, none of higher priority, if another domain can be freed with less."""
    if request.level is None or len(found) < 2:
        return found
    worst = max(victim.queued_gang.gang.priority for victim in found)
    eligible = [c for c in candidates if c.queued_gang.gang.priority <= worst]
    places = {
        c.queued_gang.gang.source: [s.place for s in simulation.load_of(c.queued_gang).placed]
        for c in eligible
    }
    by_domain = simulation.overlay.by_domain(*request.level, places)
    for refs in sorted(by_domain.values(), key=len)[:DOMAINS_MAX]:
        fewer = _smallest(
            simulation, request, [c for c in eligible if c.queued_gang.gang.source in refs], borrowing
        )
        if fewer and len(fewer) < len(found):
            found = fewer
    return found


def _candidates(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[PreemptionCandidate]:
    """All preemption candidates, in order."""
    rule = request.queue.preemption.within
    own = [
        PreemptionCandidate(queued_gang, EvictionReason.PRIORITY)
        for queued_gang in simulation.gangs_of(request.queue.name)
        if uses(queued_gang, request.cells) and may_preempt(request.queued_gang, queued_gang, rule)
    ]
    in_nominal, by_priority = _from_elsewhere(simulation, request)
    ordered = [
        sorted(found, key=lambda c: candidate_order(c.queued_gang, request.queue.name))
        for found in (in_nominal, by_priority, own)
    ]
    leaving = [c for found in ordered for c in found if c.queued_gang.evicted]
    return leaving + [c for found in ordered for c in found if not c.queued_gang.evicted]


def _from_elsewhere(
    simulation: AdmissionSimulation, request: PreemptionRequest
) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
    """Candidates of other queues: those that use quota closer to our queue than to theirs, and the others."""
    in_nominal: list[PreemptionCandidate] = []
    by_priority: list[PreemptionCandidate] = []
    account = simulation.account(request.queue.name)
    if account.parent is None or request.queue.preemption.reclaim is VictimPolicy.NEVER:
        return in_nominal, by_priority
    advantage, left = _fits_in(account, request.quota)
    done: QuotaAccount | None = None
    for top in account.ancestors():
        into = in_nominal if advantage else by_priority
        for queue in _above_quota(top, done, account, request.cells):
            into += _of_queue(simulation, request, queue, top, advantage)
        fits, left = _fits_in(top, left)
        advantage, done = advantage or fits, top
    return in_nominal, by_priority


def _fits_in(account: QuotaAccount, amounts: Mapping[Cell, int]) -> tuple[bool, dict[Cell, int]]:
    """Whether the quota of an account covers the amounts, and the part its parent has to cover."""
    fits = not any(account.borrows(cell, amount) for cell, amount in amounts.items())
    return fits, {cell: max(0, amount - account.unlent_free(cell)) for cell, amount in amounts.items()}


def _above_quota(
    top: QuotaAccount, done: QuotaAccount | None, own: QuotaAccount, cells: frozenset[Cell]
) -> Iterator[QuotaAccount]:
    """Queues in the subtree that are above quota, reached only through nodes that are above quota as well."""
    for child in sorted(top.children, key=lambda c: (c.is_queue, c.name)):
        if child is done or child is own or within_quota(child, cells):
            continue
        if child.is_queue:
            yield child
        else:
            yield from _above_quota(child, done, own, cells)


def _of_queue(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    queue: QuotaAccount,
    top: QuotaAccount,
    advantage: bool,
) -> Iterator[PreemptionCandidate]:
    rules = request.queue.preemption
    for queued_gang in simulation.gangs_of(queue.name):
        if not uses(queued_gang, request.cells) or not may_preempt(
            request.queued_gang, queued_gang, rules.reclaim
        ):
            continue
        if advantage:
            yield PreemptionCandidate(queued_gang, EvictionReason.RECLAIM, top)
            continue
        other_priority = queued_gang.gang.priority
        allowed = rules.while_borrowing and other_priority < request.queued_gang.gang.priority
        if allowed and (rules.threshold is None or other_priority <= rules.threshold):
            yield PreemptionCandidate(queued_gang, EvictionReason.RECLAIM_WHILE_BORROWING, top)
        else:
            yield PreemptionCandidate(queued_gang, EvictionReason.RECLAIM, top, without_borrowing=True)


def _attempts(
    simulation: AdmissionSimulation, request: PreemptionRequest, candidates: list[PreemptionCandidate]
) -> tuple[bool, ...]:
    """Whether the gang may borrow in the first and second attempt: more gangs yield to one that does not."""
    others = [c for c in candidates if c.below is not None]
    forbidden = not request.queue.preemption.while_borrowing
    account = simulation.account(request.queue.name)
    under = all(account.quota(cell).nominal > account.usage.get(cell, 0) for cell in request.cells)
    if not others or (forbidden and not under):
        return (True,)
    in_nominal = any(c.reason is EvictionReason.RECLAIM and not c.without_borrowing for c in others)
    return (True, False) if in_nominal or not forbidden else (False, True)


def _smallest(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
) -> list[Victim]:
    """Remove candidates until the gang fits, then reprieve all that it fits beside."""
    removed = _enough(simulation, request, candidates, borrowing)
    if not removed:
        return []
    victims = reprieve(simulation, request, [c.queued_gang for c in removed], borrowing)
    simulation.restore(victims)
    why = {c.queued_gang.gang.source: c.reason for c in removed}
    return [Victim(queued_gang, why[queued_gang.gang.source]) for queued_gang in victims]


def _enough(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    candidates: list[PreemptionCandidate],
    borrowing: bool,
) -> list[PreemptionCandidate]:
    """The shortest prefix of candidates whose removal is enough; they stay removed. Empty if none is.

    Placement is tried after one, two, four, … removals, then by bisection. If quota already fits, only the
    gangs that overlap the placement are removed.
    """
    if fits_quota(simulation, request, borrowing):
        candidates = [c for c in candidates if overlaps_request(simulation, request, c.queued_gang)]
    removed: list[PreemptionCandidate] = []
    next_check, too_few, found = 1, 0, False
    for candidate in candidates:
        if not _may_go(simulation, request, candidate, borrowing):
            continue
        simulation.remove((candidate.queued_gang,))
        removed.append(candidate)
        if len(removed) >= next_check and fits_quota(simulation, request, borrowing):
            found = request.has_place()
            if found:
                break
            next_check, too_few = 2 * len(removed), len(removed)
    if not found and (len(removed) == too_few or not fits(simulation, request, borrowing)):
        simulation.restore([c.queued_gang for c in removed])
        return []
    while len(removed) - too_few > 1:
        middle = (too_few + len(removed)) // 2
        back = removed[middle:]
        simulation.restore([c.queued_gang for c in back])
        if fits(simulation, request, borrowing):
            removed = removed[:middle]
        else:
            simulation.remove([c.queued_gang for c in back])
            too_few = middle
    return removed


def _may_go(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    candidate: PreemptionCandidate,
    borrowing: bool,
) -> bool:
    """Whether a candidate still qualifies after the removals so far."""
    if candidate.below is None:
        return True
    if borrowing and candidate.without_borrowing:
        return False
    assert candidate.queued_gang.admission is not None
    account = simulation.account(candidate.queued_gang.admission.queue)
    if within_quota(account, request.cells):
        return False
    for above in account.ancestors():
        if above is candidate.below:
            break
        if within_quota(above, request.cells):
            return False
    return True
