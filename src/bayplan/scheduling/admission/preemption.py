"""Preemption in the admission cycle: the gangs to evict, and the prospect of preemption for one cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue
from bayplan.model.rejection import FlavorMode
from bayplan.placement.preemption.victim_search import remove_until_fits, reprieve_removed
from bayplan.scheduling.admission.candidates import (
    PreemptionPolicy,
    PreemptionRequest,
    Victim,
    fits_quota,
    lowest_fit,
)
from bayplan.scheduling.admission.fair_preemption import by_share
from bayplan.scheduling.admission.reclaim import by_priority
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.usage import PlacedPods

DOMAINS_MAX = 16
"""Other domains searched for a smaller set of victims, those with the fewest gangs first."""
REPRIEVE_MAX = 16
"""At most this many victims are reprieved one by one: each one takes a new placement search."""


def find_victims(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[Victim]:
    """The gangs to evict, or none if no set of them makes the gang fit."""
    policies = by_share if simulation.profile.fair_sharing else by_priority
    for policy in policies(simulation, request):
        found = _search(simulation, request, policy, policy.candidates)
        if found:
            return _in_one_domain(simulation, request, policy, found)
    return []


def preemption_prospect(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, queue: Queue, cell: Cell, amount: int
) -> tuple[FlavorMode, int]:
    """Whether preemption could free the amount of one cell, and at which height of the tree."""
    request = PreemptionRequest(
        queued_gang, queue, frozenset((cell,)), {cell: amount}, lambda: (), lambda: True
    )
    victims, account = find_victims(simulation, request), simulation.account(queue.name)
    if not victims:
        return FlavorMode.NO_VICTIMS, lowest_fit(account, cell, amount)[0]
    queued_gangs = [victim.queued_gang for victim in victims]
    with simulation.tentative():
        simulation.remove(queued_gangs)
        borrow = lowest_fit(account, cell, amount)[0]
    own = any(
        queued_gang.admission and queued_gang.admission.queue == queue.name for queued_gang in queued_gangs
    )
    return (FlavorMode.PREEMPT if own else FlavorMode.RECLAIM), borrow


@dataclass(frozen=True, slots=True, eq=False)
class _GangRemoval:
    """Admitted gangs are removed from the simulation and restored, for one pending gang."""

    simulation: AdmissionSimulation
    request: PreemptionRequest
    borrowing: bool
    placed: Sequence[PlacedPods] | None = None  # the placement of the gang, if no other is searched

    def remove(self, candidates: Sequence[Victim]) -> None:
        self.simulation.remove(victim.queued_gang for victim in candidates)

    def restore(self, candidates: Sequence[Victim]) -> None:
        self.simulation.restore(victim.queued_gang for victim in candidates)

    def may_fit(self) -> bool:
        return fits_quota(self.simulation, self.request, self.borrowing)

    def fits(self) -> bool:
        if not self.may_fit():
            return False
        return self.request.has_place() if self.placed is None else self.simulation.fits_placed(self.placed)


def _search(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    policy: PreemptionPolicy,
    candidates: Sequence[Victim],
) -> list[Victim]:
    """Remove candidates until the gang fits, then reprieve all that it fits beside."""
    with simulation.tentative():
        trial = _GangRemoval(simulation, request, policy.borrowing)
        victims = remove_until_fits(trial, policy.draw(candidates), check_each=not policy.by_domain)
        if len(victims) > REPRIEVE_MAX:
            victims = _reprieve_disjoint(trial, victims)
        return victims if len(victims) > REPRIEVE_MAX else reprieve_removed(trial, victims)


def _reprieve_disjoint(trial: _GangRemoval, victims: list[Victim]) -> list[Victim]:
    """Reprieve every gang that does not overlap the placement found now, without another placement search."""
    simulation, placed = trial.simulation, trial.request.find()
    assert placed is not None, "it was found before"
    mine = [(pods.flavor, simulation.overlay.leaves(pods.flavor, (pods.place,))) for pods in placed]
    disjoint = [victim for victim in victims[:-1] if _is_disjoint(simulation, victim.queued_gang, mine)]
    trial.restore(disjoint)
    if trial.may_fit():
        staying = set(map(id, disjoint))
        victims = [victim for victim in victims if id(victim) not in staying]
    else:
        trial.remove(disjoint)
    return reprieve_removed(replace(trial, placed=placed), victims)


def _is_disjoint(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, mine: Sequence[tuple[str, frozenset[int]]]
) -> bool:
    """Whether no pod of the gang uses any of these leaf domains, which are given by flavor."""
    places = [pods.place for pods in simulation.load_of(queued_gang).placed]
    return all(leaves.isdisjoint(simulation.overlay.leaves(flavor, places)) for flavor, leaves in mine)


def _fewest(simulation: AdmissionSimulation, request: PreemptionRequest, policy: PreemptionPolicy) -> int:
    """At least so many candidates have to leave: as many as the missing quota takes if the largest leave."""
    account, fewest = simulation.account(request.queue.name), 1
    for cell, amount in request.quota.items():
        missing, count = amount - account.available(cell), 0
        held = (simulation.load_of(victim.queued_gang).quota.get(cell, 0) for victim in policy.candidates)
        for freed in sorted(held, reverse=True) if missing > 0 else ():
            missing, count = missing - freed, count + 1
            if missing <= 0:
                break
        fewest = max(fewest, count)
    return fewest


def _in_one_domain(
    simulation: AdmissionSimulation, request: PreemptionRequest, policy: PreemptionPolicy, found: list[Victim]
) -> list[Victim]:
    """Fewer victims, none of higher priority, if another domain can be freed with less."""
    if not policy.by_domain or request.level is None or len(found) <= _fewest(simulation, request, policy):
        return found
    worst = max(victim.queued_gang.gang.priority for victim in found)
    eligible = [c for c in policy.candidates if c.queued_gang.gang.priority <= worst]
    places = {
        c.queued_gang.gang.source: [s.place for s in simulation.load_of(c.queued_gang).placed]
        for c in eligible
    }
    by_domain = simulation.overlay.by_domain(*request.level, places)
    for refs in sorted(by_domain.values(), key=len)[:DOMAINS_MAX]:
        inside = [c for c in eligible if c.queued_gang.gang.source in refs]
        fewer = _search(simulation, request, policy, inside)
        if fewer and len(fewer) < len(found):
            found = fewer
    return found
