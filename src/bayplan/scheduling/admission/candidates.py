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

TRIED_MAX = 16
"""At most this many victims are reprieved one by one: each one takes a new placement search."""


@dataclass(frozen=True, slots=True)
class Victim:
    """An admitted gang to evict, and the reason."""

    demand: QueuedGang
    why: EvictionReason


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionRequest:
    """What a pending gang lacks: cells short of quota, all quota it requests, and its placement."""

    demand: QueuedGang
    queue: Queue
    cells: frozenset[Cell]
    quota: Mapping[Cell, int]
    # the pods' placement in the simulation as it is now, or None
    find: Callable[[], Sequence[PlacedPods] | None]
    has_place: Callable[[], bool]  # whether any placement exists; cheaper than `find`
    level: tuple[str, str] | None = None  # a flavor, and the level at which one domain must hold all pods
    # a flavor, and the only leaf domains whose capacity matters
    ground: tuple[str, frozenset[int]] | None = None


def lowest_fit(account: QuotaAccount, cell: Cell, amount: int) -> tuple[int, bool]:
    """The height of the lowest subtree whose quota covers the amount, and whether it has a parent."""
    if account.parent is None or not account.borrows(cell, amount):
        return 0, account.parent is not None
    left = amount - account.kept_free(cell)
    for above in account.ancestors():
        if not above.borrows(cell, left):
            return above.height(), above.parent is not None
        left -= above.kept_free(cell)
    return account.root().height(), False


def yields(preemptor: QueuedGang, other: QueuedGang, rule: VictimPolicy) -> bool:
    """Whether a policy allows the preemptor to preempt the other gang."""
    mine, theirs = preemptor.gang.priority, other.gang.priority
    match rule:
        case VictimPolicy.LOWER:
            return theirs < mine
        case VictimPolicy.LOWER_OR_NEWER:
            return theirs < mine or (theirs == mine and preemptor.queued < other.queued)
        case VictimPolicy.ANY:
            return True
        case _:
            return False


def uses(demand: QueuedGang, cells: frozenset[Cell]) -> bool:
    """Whether evicting the gang would free any of the cells."""
    given = demand.admission.given if demand.admission else ()
    return any((flavor, name) in cells for part in given for name, flavor in part.flavors.items())


def importance(demand: QueuedGang, queue: str) -> tuple[bool, bool, int, float, str]:
    """Sort key of candidates: evicted gangs first, then other queues, low priority, newest, and identity."""
    own = demand.admission is not None and demand.admission.queue == queue
    identity = demand.gang.uid or f"{demand.gang.source.namespace}/{demand.gang.source.name}"
    return (not demand.evicted, own, demand.gang.priority, -demand.reserved, identity)


def in_the_way(round_: AdmissionSimulation, need: PreemptionRequest, demand: QueuedGang) -> bool:
    """Whether the gang uses leaf domains that the preemptor could use; if not, evicting it does not help."""
    if need.ground is None:
        return True
    flavor, leaves = need.ground
    return not leaves.isdisjoint(round_.rooms.leaves(flavor, [s.place for s in round_.load_of(demand).spots]))


def is_within(account: QuotaAccount, cells: frozenset[Cell]) -> bool:
    """Whether an account uses no more than its own quota of these cells."""
    return not any(account.borrows(cell) for cell in cells)


def fits(round_: AdmissionSimulation, need: PreemptionRequest, borrowing: bool) -> bool:
    """Whether quota and placement of the gang fit in the simulation as it is now."""
    return fits_quota(round_, need, borrowing) and need.has_place()


def fits_quota(round_: AdmissionSimulation, need: PreemptionRequest, borrowing: bool) -> bool:
    """Whether the requested quota is available, with or without borrowing."""
    account = round_.account(need.queue.name)
    for cell, amount in need.quota.items():
        if (not borrowing and account.borrows(cell, amount)) or amount > account.available(cell):
            return False
    return True


def put_back(
    round_: AdmissionSimulation, need: PreemptionRequest, removed: Sequence[QueuedGang], borrowing: bool
) -> list[QueuedGang]:
    """Reprieve removed gangs that the preemptor fits beside; returns the victims.

    The gang removed last is always needed: without its removal the preemptor did not fit.
    """
    kept = list(removed)
    if len(kept) > TRIED_MAX:
        kept = _beside(round_, need, kept, borrowing)
    if len(kept) > TRIED_MAX:
        return kept
    return _returned(round_, kept, lambda: fits(round_, need, borrowing))


def _beside(
    round_: AdmissionSimulation, need: PreemptionRequest, kept: list[QueuedGang], borrowing: bool
) -> list[QueuedGang]:
    """Reprieve every gang that does not overlap the placement found now, without another placement search."""
    spots = need.find()
    assert spots is not None, "it was found before"
    mine = [(spot.flavor, round_.rooms.leaves(spot.flavor, (spot.place,))) for spot in spots]
    apart = [demand for demand in kept[:-1] if _stands_apart(round_, demand, mine)]
    round_.restore(apart)
    if fits_quota(round_, need, borrowing):
        beside = {demand.gang.source for demand in apart}
        kept = [demand for demand in kept if demand.gang.source not in beside]
    else:
        round_.remove(apart)
    return _returned(round_, kept, lambda: fits_quota(round_, need, borrowing) and round_.fits_spots(spots))


def _stands_apart(
    round_: AdmissionSimulation, demand: QueuedGang, mine: Sequence[tuple[str, frozenset[int]]]
) -> bool:
    """Whether no pod of the gang uses any of these leaf domains, which are given by flavor."""
    places = [spot.place for spot in round_.load_of(demand).spots]
    return all(leaves.isdisjoint(round_.rooms.leaves(flavor, places)) for flavor, leaves in mine)


def _returned(
    round_: AdmissionSimulation, kept: list[QueuedGang], still_fits: Callable[[], bool]
) -> list[QueuedGang]:
    for index in range(len(kept) - 2, -1, -1):
        demand = kept[index]
        round_.restore((demand,))
        if still_fits():
            del kept[index]
        else:
            round_.remove((demand,))
    return kept
