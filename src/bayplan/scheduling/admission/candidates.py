"""Gangs that yield to others: in which order, on what grounds, and when enough of them have."""

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
"""So many victims are put back one by one, each time with a new search for a place."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that has to yield, and why."""

    demand: QueuedGang
    why: EvictionReason


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionRequest:
    """What the gang lacks: cells where quota is short, all it asks for, and whether a place is found."""

    demand: QueuedGang
    queue: Queue
    cells: frozenset[Cell]
    quota: Mapping[Cell, int]
    find: Callable[[], Sequence[PlacedPods] | None]  # where it would stand as things are
    has_place: Callable[[], bool]  # whether it would stand anywhere, which is known sooner
    level: tuple[str, str] | None = None  # a flavor, and the level of one domain of it that must hold all
    ground: tuple[str, frozenset[int]] | None = None  # a flavor, and the only leaves of it that matter


def lowest_fit(account: QuotaAccount, cell: Cell, amount: int) -> tuple[int, bool]:
    """The height of the lowest subtree whose own quota holds so much more; and whether that is not all."""
    if account.parent is None or not account.borrows(cell, amount):
        return 0, account.parent is not None
    left = amount - account.kept_free(cell)
    for above in account.ancestors():
        if not above.borrows(cell, left):
            return above.height(), above.parent is not None
        left -= above.kept_free(cell)
    return account.root().height(), False


def yields(preemptor: QueuedGang, other: QueuedGang, rule: VictimPolicy) -> bool:
    """Whether a rule lets one gang displace another."""
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
    """Whether a gang's going would free any of the cells."""
    given = demand.admission.given if demand.admission else ()
    return any((flavor, name) in cells for part in given for name, flavor in part.flavors.items())


def importance(demand: QueuedGang, queue: str) -> tuple[bool, bool, int, float, str]:
    """Order of yielding: those on their way out, other queues, low priority, newest, then by identity."""
    own = demand.admission is not None and demand.admission.queue == queue
    identity = demand.gang.uid or f"{demand.gang.source.namespace}/{demand.gang.source.name}"
    return (not demand.evicted, own, demand.gang.priority, -demand.reserved, identity)


def in_the_way(round_: AdmissionSimulation, need: PreemptionRequest, demand: QueuedGang) -> bool:
    """Whether a gang stands where the one in need could; if it does not, its going makes no room."""
    if need.ground is None:
        return True
    flavor, leaves = need.ground
    return not leaves.isdisjoint(round_.rooms.leaves(flavor, [s.place for s in round_.load_of(demand).spots]))


def is_within(account: QuotaAccount, cells: frozenset[Cell]) -> bool:
    """Whether a node uses no more than it brings in."""
    return not any(account.borrows(cell) for cell in cells)


def fits(round_: AdmissionSimulation, need: PreemptionRequest, borrowing: bool) -> bool:
    """Whether the gang could be admitted as things are."""
    return fits_quota(round_, need, borrowing) and need.has_place()


def fits_quota(round_: AdmissionSimulation, need: PreemptionRequest, borrowing: bool) -> bool:
    """Whether its quota is free."""
    account = round_.account(need.queue.name)
    for cell, amount in need.quota.items():
        if (not borrowing and account.borrows(cell, amount)) or amount > account.available(cell):
            return False
    return True


def put_back(
    round_: AdmissionSimulation, need: PreemptionRequest, removed: Sequence[QueuedGang], borrowing: bool
) -> list[QueuedGang]:
    """Of those removed, the ones that have to stay away. The last one removed was needed."""
    kept = list(removed)
    if len(kept) > TRIED_MAX:
        kept = _beside(round_, need, kept, borrowing)
    if len(kept) > TRIED_MAX:
        return kept
    return _returned(round_, kept, lambda: fits(round_, need, borrowing))


def _beside(
    round_: AdmissionSimulation, need: PreemptionRequest, kept: list[QueuedGang], borrowing: bool
) -> list[QueuedGang]:
    """Put back all that the place found now stands beside: no other place is sought."""
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
    """Whether no pod of a gang stands on any of the leaves, which are told by flavor."""
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
