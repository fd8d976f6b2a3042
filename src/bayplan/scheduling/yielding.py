"""Gangs that yield to others: in which order, on what grounds, and when enough of them have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bayplan.model.demand import Demand
from bayplan.model.plan import Why
from bayplan.model.quota import Cell, Queue, Victims
from bayplan.scheduling.round import Round
from bayplan.state.quotas import Account


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that has to yield, and why."""

    demand: Demand
    why: Why


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What the gang lacks: cells where quota is short, all it asks for, and whether a place is found."""

    demand: Demand
    queue: Queue
    cells: frozenset[Cell]
    quota: Mapping[Cell, int]
    has_place: Callable[[], bool]


def lowest_fit(account: Account, cell: Cell, amount: int) -> tuple[int, bool]:
    """The height of the lowest subtree whose own quota holds so much more; and whether that is not all."""
    if account.parent is None or not account.borrows(cell, amount):
        return 0, account.parent is not None
    left = amount - account.kept_free(cell)
    for above in account.ancestors():
        if not above.borrows(cell, left):
            return above.height(), above.parent is not None
        left -= above.kept_free(cell)
    return account.root().height(), False


def yields(preemptor: Demand, other: Demand, rule: Victims) -> bool:
    """Whether a rule lets one gang displace another."""
    mine, theirs = preemptor.gang.priority, other.gang.priority
    match rule:
        case Victims.LOWER:
            return theirs < mine
        case Victims.LOWER_OR_NEWER:
            return theirs < mine or (theirs == mine and preemptor.queued < other.queued)
        case Victims.ANY:
            return True
        case _:
            return False


def uses(demand: Demand, cells: frozenset[Cell]) -> bool:
    """Whether a gang's going would free any of the cells."""
    given = demand.admission.given if demand.admission else ()
    return any((flavor, name) in cells for part in given for name, flavor in part.flavors.items())


def importance(demand: Demand, queue: str) -> tuple[bool, bool, int, float, str]:
    """Order of yielding: those on their way out, other queues, low priority, newest, then by identity."""
    own = demand.admission is not None and demand.admission.queue == queue
    identity = demand.gang.uid or f"{demand.gang.source.namespace}/{demand.gang.source.name}"
    return (not demand.evicted, own, demand.gang.priority, -demand.reserved, identity)


def is_within(account: Account, cells: frozenset[Cell]) -> bool:
    """Whether a node uses no more than it brings in."""
    return not any(account.borrows(cell) for cell in cells)


def fits(round_: Round, need: Need, borrowing: bool) -> bool:
    """Whether the gang could be admitted as things are."""
    account = round_.account(need.queue.name)
    for cell, amount in need.quota.items():
        if (not borrowing and account.borrows(cell, amount)) or amount > account.available(cell):
            return False
    return need.has_place()


def put_back(round_: Round, need: Need, removed: list[Demand], borrowing: bool) -> list[Demand]:
    """Of those removed, the ones that have to stay away. The last one removed was needed."""
    kept = list(removed)
    for index in range(len(kept) - 2, -1, -1):
        demand = kept[index]
        round_.restore((demand,))
        if fits(round_, need, borrowing):
            del kept[index]
        else:
            round_.remove((demand,))
    return kept
