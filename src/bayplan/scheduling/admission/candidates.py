"""Preemption candidates of one admission cycle: who may be evicted for a gang, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bayplan.model.plan import EvictionReason
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue, VictimPolicy
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount
from bayplan.state.admission.usage import PlacedPods


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """An admitted gang that is or may be evicted. One of another queue only while that is above its quota."""

    queued_gang: QueuedGang
    reason: EvictionReason
    below: QuotaAccount | None = None  # the ancestor below which every account must be above quota
    without_borrowing: bool = False  # only for a gang that does not borrow


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


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionPolicy:
    """Which gangs may be evicted for another one, as data for the search."""

    candidates: list[Victim]  # in order
    # those that still qualify, one after the other: the removals so far count
    draw: Callable[[Sequence[Victim]], Iterator[Victim]]
    borrowing: bool = True  # whether the gang may borrow quota
    # whether the search is repeated with the candidates of single domains; otherwise the gang is tried after
    # each removal, since the order of the others depends on it
    by_domain: bool = True


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


def fits_quota(simulation: AdmissionSimulation, request: PreemptionRequest, borrowing: bool) -> bool:
    """Whether the requested quota is available, with or without borrowing."""
    account = simulation.account(request.queue.name)
    for cell, amount in request.quota.items():
        if (not borrowing and account.borrows(cell, amount)) or amount > account.available(cell):
            return False
    return True
