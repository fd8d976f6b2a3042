"""Preemption candidates of one admission cycle: their order, the policies that allow it, and the reprieve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bayplan.model.plan import EvictionReason
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue, VictimPolicy
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount
from bayplan.state.admission.usage import PlacedPods

REPRIEVE_MAX = 16
"""At most this many victims are reprieved one by one: each one takes a new placement search."""


@dataclass(frozen=True, slots=True)
class Victim:
    """An admitted gang to evict, and the reason."""

    queued_gang: QueuedGang
    reason: EvictionReason


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionRequest:
    """What a pending gang lacks: cells short of quota, all quota it requests, and its placement."""

    queued_gang: QueuedGang
    queue: Queue
    cells: frozenset[Cell]
    quota: Mapping[Cell, int]
    # the pods' placement in the simulation as it is now, or None
    find: Callable[[], Sequence[PlacedPods] | None]
    has_place: Callable[[], bool]  # whether any placement exists; cheaper than `find`
    level: tuple[str, str] | None = None  # a flavor, and the level at which one domain must hold all pods
    # a flavor, and the only leaf domains whose capacity matters
    leaf_domains: tuple[str, frozenset[int]] | None = None


def lowest_fit(account: QuotaAccount, cell: Cell, amount: int) -> tuple[int, bool]:
    """The height of the lowest subtree whose quota covers the amount, and whether it has a parent."""
    if account.parent is None or not account.borrows(cell, amount):
        return 0, account.parent is not None
    remaining = amount - account.unlent_free(cell)
    for above in account.ancestors():
        if not above.borrows(cell, remaining):
            return above.height(), above.parent is not None
        remaining -= above.unlent_free(cell)
    return account.root().height(), False


def may_preempt(preemptor: QueuedGang, other: QueuedGang, rule: VictimPolicy) -> bool:
    """Whether a policy allows the preemptor to preempt the other gang."""
    mine, other_priority = preemptor.gang.priority, other.gang.priority
    match rule:
        case VictimPolicy.LOWER:
            return other_priority < mine
        case VictimPolicy.LOWER_OR_NEWER:
            return other_priority < mine or (other_priority == mine and preemptor.queued < other.queued)
        case VictimPolicy.ANY:
            return True
        case _:
            return False


def uses(queued_gang: QueuedGang, cells: frozenset[Cell]) -> bool:
    """Whether evicting the gang would free any of the cells."""
    pod_sets = queued_gang.admission.pod_sets if queued_gang.admission else ()
    return any((flavor, name) in cells for part in pod_sets for name, flavor in part.flavors.items())


def candidate_order(queued_gang: QueuedGang, queue: str) -> tuple[bool, bool, int, float, str]:
    """Sort key of candidates: evicted gangs first, then other queues, low priority, newest, and identity."""
    own = queued_gang.admission is not None and queued_gang.admission.queue == queue
    identity = queued_gang.gang.uid or f"{queued_gang.gang.source.namespace}/{queued_gang.gang.source.name}"
    return (not queued_gang.evicted, own, queued_gang.gang.priority, -queued_gang.reserved, identity)


def overlaps_request(
    simulation: AdmissionSimulation, request: PreemptionRequest, queued_gang: QueuedGang
) -> bool:
    """Whether the gang uses leaf domains that the preemptor could use; if not, evicting it does not help."""
    if request.leaf_domains is None:
        return True
    flavor, leaves = request.leaf_domains
    return not leaves.isdisjoint(
        simulation.overlay.leaves(flavor, [s.place for s in simulation.load_of(queued_gang).placed])
    )


def within_quota(account: QuotaAccount, cells: frozenset[Cell]) -> bool:
    """Whether an account uses no more than its own quota of these cells."""
    return not any(account.borrows(cell) for cell in cells)


def fits(simulation: AdmissionSimulation, request: PreemptionRequest, borrowing: bool) -> bool:
    """Whether quota and placement of the gang fit in the simulation as it is now."""
    return fits_quota(simulation, request, borrowing) and request.has_place()


def fits_quota(simulation: AdmissionSimulation, request: PreemptionRequest, borrowing: bool) -> bool:
    """Whether the requested quota is available, with or without borrowing."""
    account = simulation.account(request.queue.name)
    for cell, amount in request.quota.items():
        if (not borrowing and account.borrows(cell, amount)) or amount > account.available(cell):
            return False
    return True


def reprieve(
    simulation: AdmissionSimulation,
    request: PreemptionRequest,
    removed: Sequence[QueuedGang],
    borrowing: bool,
) -> list[QueuedGang]:
    """Reprieve removed gangs that the preemptor fits beside; returns the victims.

    The gang removed last is always needed: without its removal the preemptor did not fit.
    """
    victims = list(removed)
    if len(victims) > REPRIEVE_MAX:
        victims = _reprieve_disjoint(simulation, request, victims, borrowing)
    if len(victims) > REPRIEVE_MAX:
        return victims
    return _reprieve_one_by_one(simulation, victims, lambda: fits(simulation, request, borrowing))


def _reprieve_disjoint(
    simulation: AdmissionSimulation, request: PreemptionRequest, victims: list[QueuedGang], borrowing: bool
) -> list[QueuedGang]:
    """Reprieve every gang that does not overlap the placement found now, without another placement search."""
    placed = request.find()
    assert placed is not None, "it was found before"
    mine = [(pods.flavor, simulation.overlay.leaves(pods.flavor, (pods.place,))) for pods in placed]
    disjoint = [queued_gang for queued_gang in victims[:-1] if _is_disjoint(simulation, queued_gang, mine)]
    simulation.restore(disjoint)
    if fits_quota(simulation, request, borrowing):
        reprieved = {queued_gang.gang.source for queued_gang in disjoint}
        victims = [queued_gang for queued_gang in victims if queued_gang.gang.source not in reprieved]
    else:
        simulation.remove(disjoint)
    return _reprieve_one_by_one(
        simulation,
        victims,
        lambda: fits_quota(simulation, request, borrowing) and simulation.fits_placed(placed),
    )


def _is_disjoint(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, mine: Sequence[tuple[str, frozenset[int]]]
) -> bool:
    """Whether no pod of the gang uses any of these leaf domains, which are given by flavor."""
    places = [pods.place for pods in simulation.load_of(queued_gang).placed]
    return all(leaves.isdisjoint(simulation.overlay.leaves(flavor, places)) for flavor, leaves in mine)


def _reprieve_one_by_one(
    simulation: AdmissionSimulation, victims: list[QueuedGang], still_fits: Callable[[], bool]
) -> list[QueuedGang]:
    for index in range(len(victims) - 2, -1, -1):
        queued_gang = victims[index]
        simulation.restore((queued_gang,))
        if still_fits():
            del victims[index]
        else:
            simulation.remove((queued_gang,))
    return victims
