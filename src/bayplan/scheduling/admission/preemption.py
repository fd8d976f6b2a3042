"""Preemption in the admission cycle: the gangs to evict, and the prospect of preemption for one cell."""

from __future__ import annotations

from bayplan.model.admission_rejection import FlavorMode
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue
from bayplan.scheduling.admission.candidates import PreemptionRequest, Victim, lowest_fit
from bayplan.scheduling.admission.fair_preemption import victims_by_share
from bayplan.scheduling.admission.reclaim import victims_by_priority
from bayplan.scheduling.admission.simulation import AdmissionSimulation


def find_victims(simulation: AdmissionSimulation, request: PreemptionRequest) -> list[Victim]:
    """The gangs to evict, or none if no set of them makes the gang fit."""
    return (victims_by_share if simulation.profile.fair_sharing else victims_by_priority)(simulation, request)


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
    simulation.remove(queued_gangs)
    borrow = lowest_fit(account, cell, amount)[0]
    simulation.restore(queued_gangs)
    own = any(
        queued_gang.admission and queued_gang.admission.queue == queue.name for queued_gang in queued_gangs
    )
    return (FlavorMode.PREEMPT if own else FlavorMode.RECLAIM), borrow
