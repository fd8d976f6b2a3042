"""Whose turn it is: gangs of different queues in the order in which they may take what is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bayplan.model.admission_rejection import AdmissionReason, AdmissionRemark
from bayplan.model.plan import Requeue
from bayplan.model.queued_gang import QueuedGang, Rank
from bayplan.scheduling.admission.evaluate import Assessment
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad
from bayplan.state.admission.quota_tree import QuotaAccount, share


@dataclass(slots=True)
class CycleEntry:
    """One gang of this round, and what becomes of it."""

    demand: QueuedGang
    queue: str
    found: Assessment
    alike: tuple[QueuedGang, ...] = ()
    tries: int = 0
    made_room: bool = False  # others left for its sake: nobody may come in between
    token: AdmissionReason | None = None
    remark: AdmissionRemark = AdmissionRemark.TRIED
    again: Requeue = Requeue.WHEN_IT_MAY_HELP
    keeps_progress: bool = True
    crowded: bool = False  # what is set aside for others may be all that is in its way
    outrun: bool = False  # gangs admitted in this round took its place
    victims: int = 0
    done: bool = False  # admitted or evicted: nothing is left to say

    @property
    def rank(self) -> Rank:
        """Among equals: more important first, then whoever waits longer."""
        return self.demand.rank


@dataclass(slots=True)
class _Standing:
    """The shares of a gang's side of the tree if it were admitted, and whether that side borrows for it."""

    by_parent: dict[int, tuple[bool, tuple[object, ...]]] = field(default_factory=dict)


def in_turn(
    round_: AdmissionSimulation, entries: list[CycleEntry], load_of: Callable[[CycleEntry], GangLoad]
) -> Iterator[CycleEntry]:
    """Those that have quota already, those that others made room for, then the rest."""
    holding = [entry for entry in entries if entry.demand.admission is not None]
    expected = [entry for entry in entries if entry.demand.admission is None and entry.made_room]
    asking = [entry for entry in entries if entry.demand.admission is None and not entry.made_room]
    yield from sorted(holding, key=lambda entry: entry.rank)
    yield from sorted(expected, key=lambda entry: entry.rank)
    if round_.profile.fair_sharing:
        yield from _by_share(round_, asking, load_of)
    else:
        yield from sorted(asking, key=lambda entry: (entry.found.offer.borrow, *entry.rank))


def _by_share(
    round_: AdmissionSimulation, entries: list[CycleEntry], load_of: Callable[[CycleEntry], GangLoad]
) -> Iterator[CycleEntry]:
    """In each tree of queues, whoever would have the smallest share; asked again after each one's turn."""
    left = {entry.queue: entry for entry in sorted(entries, key=lambda e: e.rank, reverse=True)}
    for first in sorted(left):
        if first not in left:
            continue
        root = round_.account(first).root()
        while any(queue.name in left for queue in root.queues()):
            standings = {
                name: _standing(round_, left[name], load_of(left[name]))
                for name in (queue.name for queue in root.queues())
                if name in left
            }
            winner = _winner(root, left, standings)
            assert winner is not None
            yield left.pop(winner.queue)


def _standing(round_: AdmissionSimulation, entry: CycleEntry, load: GangLoad) -> _Standing:
    """Shares on every level with the gang in."""
    account = round_.account(entry.queue)
    round_.books.use(entry.queue, load.quota)
    found, node = _Standing(), account
    for above in account.ancestors():
        borrows = any(amount > 0 and node.borrows(cell) for cell, amount in load.quota.items())
        found.by_parent[id(above)] = (borrows, share(node))
        node = above
    round_.books.use(entry.queue, load.quota, -1)
    return found


def _winner(
    node: QuotaAccount, left: dict[str, CycleEntry], standings: dict[str, _Standing]
) -> CycleEntry | None:
    """The best below a node: of each child its best, then the one with the smallest share of this node."""
    if node.is_queue:
        return left.get(node.name)
    best: CycleEntry | None = None
    best_key: tuple[object, ...] = ()
    for child in sorted(node.children, key=lambda c: (c.is_queue, c.name)):
        candidate = _winner(child, left, standings)
        if candidate is None:
            continue
        key = (*standings[candidate.queue].by_parent[id(node)], candidate.rank)
        if best is None or key < best_key:
            best, best_key = candidate, key
    return best
