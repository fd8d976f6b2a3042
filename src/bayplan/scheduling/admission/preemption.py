"""Preemption in the admission cycle: the gangs to evict, and the prospect of preemption for one cell."""

from __future__ import annotations

from bayplan.model.admission_rejection import FlavorMode
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue
from bayplan.scheduling.admission.candidates import PreemptionRequest, Victim, lowest_fit
from bayplan.scheduling.admission.fair_preemption import victims_by_share
from bayplan.scheduling.admission.reclaim import victims_by_priority
from bayplan.scheduling.admission.simulation import AdmissionSimulation


def find_victims(round_: AdmissionSimulation, need: PreemptionRequest) -> list[Victim]:
    """The gangs to evict, or none if no set of them makes the gang fit."""
    return (victims_by_share if round_.profile.fair_sharing else victims_by_priority)(round_, need)


def chance_of(
    round_: AdmissionSimulation, demand: QueuedGang, queue: Queue, cell: Cell, amount: int
) -> tuple[FlavorMode, int]:
    """Whether preemption could free the amount of one cell, and at which height of the tree."""
    need = PreemptionRequest(demand, queue, frozenset((cell,)), {cell: amount}, lambda: (), lambda: True)
    victims, account = find_victims(round_, need), round_.account(queue.name)
    if not victims:
        return FlavorMode.NO_VICTIMS, lowest_fit(account, cell, amount)[0]
    demands = [victim.demand for victim in victims]
    round_.remove(demands)
    borrow = lowest_fit(account, cell, amount)[0]
    round_.restore(demands)
    own = any(demand.admission and demand.admission.queue == queue.name for demand in demands)
    return (FlavorMode.PREEMPT if own else FlavorMode.RECLAIM), borrow
