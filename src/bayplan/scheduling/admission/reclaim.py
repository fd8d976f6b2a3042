"""Preemption by priority within a queue, and reclaim of quota that other queues borrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bayplan.model.plan import EvictionReason
from bayplan.model.quota import Cell, VictimPolicy
from bayplan.scheduling.admission.candidates import (
    PreemptionPolicy,
    PreemptionRequest,
    Victim,
    candidate_order,
    fits_quota,
    may_preempt,
    overlaps_request,
    uses,
    within_quota,
)
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount


def by_priority(simulation: AdmissionSimulation, request: PreemptionRequest) -> Iterator[PreemptionPolicy]:
    """Evict gangs of the lowest priority first: if the gang borrows and if it does not, in turn."""
    candidates = _candidates(simulation, request)
    for borrowing in _attempts(simulation, request, candidates):
        draw = partial(_draw, simulation, request, borrowing)
        yield PreemptionPolicy(candidates, draw, borrowing)


def _draw(
    simulation: AdmissionSimulation, request: PreemptionRequest, borrowing: bool, candidates: Sequence[Victim]
) -> Iterator[Victim]:
    """If quota already fits, only gangs that overlap the placement have to go."""
    if fits_quota(simulation, request, borrowing):
        candidates = [c for c in candidates if overlaps_request(simulation, request, c.queued_gang)]
    for candidate in candidates:
        if _may_go(simulation, request, candidate, borrowing):
            yield candidate


def _candidates(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[Victim]:
    """All preemption candidates, in order."""
    rule = request.queue.preemption.within
    own = [
        Victim(queued_gang, EvictionReason.PRIORITY)
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
) -> tuple[list[Victim], list[Victim]]:
    """Candidates of other queues: those that use quota closer to our queue than to theirs, and the others."""
    in_nominal: list[Victim] = []
    by_priority: list[Victim] = []
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
) -> Iterator[Victim]:
    rules = request.queue.preemption
    for queued_gang in simulation.gangs_of(queue.name):
        if not uses(queued_gang, request.cells) or not may_preempt(
            request.queued_gang, queued_gang, rules.reclaim
        ):
            continue
        if advantage:
            yield Victim(queued_gang, EvictionReason.RECLAIM, top)
            continue
        other_priority = queued_gang.gang.priority
        allowed = rules.while_borrowing and other_priority < request.queued_gang.gang.priority
        if allowed and (rules.threshold is None or other_priority <= rules.threshold):
            yield Victim(queued_gang, EvictionReason.RECLAIM_WHILE_BORROWING, top)
        else:
            yield Victim(queued_gang, EvictionReason.RECLAIM, top, without_borrowing=True)


def _attempts(
    simulation: AdmissionSimulation, request: PreemptionRequest, candidates: list[Victim]
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


def _may_go(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    candidate: Victim,
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
