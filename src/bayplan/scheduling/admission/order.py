"""The order in which gangs of different queues take free quota and capacity in one admission cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bayplan.model.plan import Requeue
from bayplan.model.queued_gang import QueuedGang, Rank
from bayplan.model.rejection import AdmissionRemark, RejectionReason
from bayplan.scheduling.admission.evaluate import Assessment
from bayplan.scheduling.admission.simulation import AdmissionSimulation, GangLoad
from bayplan.state.admission.quota_tree import QuotaAccount, dominant_share


@dataclass(slots=True)
class CycleEntry:
    """One gang in this cycle, and the outcome so far."""

    queued_gang: QueuedGang
    queue: str
    assessment: Assessment
    alike: tuple[QueuedGang, ...] = ()
    tries: int = 0
    has_preempted: bool = False  # gangs were preempted for it: no other gang may take that capacity
    reason: RejectionReason | None = None
    remark: AdmissionRemark = AdmissionRemark.TRIED
    requeue: Requeue = Requeue.ON_EVENT
    keeps_progress: bool = True
    blocked_by_set_aside: bool = False  # quota set aside for other gangs may be its only obstacle
    overtaken: bool = False  # gangs admitted earlier in this cycle took its capacity
    taken: bool = False  # other pods use hosts of its placement
    may_hold: bool = False  # other gangs end just now, so that it need not preempt yet
    held: bool = False  # it was held before, when there were victims
    # for a gang that follows another one of its queue: what it is offered, found when it is its turn
    evaluate: Callable[[], Assessment] | None = None
    victims: int = 0
    done: bool = False  # admitted or evicted: no rejection is reported

    @property
    def rank(self) -> Rank:
        """Sort key among equals: higher priority first, then the longer wait."""
        return self.queued_gang.rank


@dataclass(slots=True)
class _PathShares:
    """The shares on the gang's path through the tree if it were admitted, and whether that path borrows."""

    by_parent: dict[int, tuple[bool, tuple[object, ...]]] = field(default_factory=dict)


def in_order(
    simulation: AdmissionSimulation, entries: list[CycleEntry], load_of: Callable[[CycleEntry], GangLoad]
) -> Iterator[CycleEntry]:
    """Gangs that hold quota first, then those whose victims were preempted, then the rest.

    The last ones are those that follow another gang of their queue.
    """
    holding = [entry for entry in entries if entry.queued_gang.admission is not None]
    others = [entry for entry in entries if entry.queued_gang.admission is None]
    expected = [entry for entry in others if entry.has_preempted]
    asking = [entry for entry in others if not entry.has_preempted and entry.evaluate is None]
    following = [entry for entry in others if not entry.has_preempted and entry.evaluate is not None]
    yield from sorted(holding, key=lambda entry: entry.rank)
    yield from sorted(expected, key=lambda entry: entry.rank)
    if simulation.profile.fair_sharing:
        yield from _by_share(simulation, asking, load_of)
    else:
        yield from sorted(asking, key=lambda entry: (entry.assessment.offer.borrow, *entry.rank))
    yield from sorted(following, key=lambda entry: entry.rank)


def _by_share(
    simulation: AdmissionSimulation, entries: list[CycleEntry], load_of: Callable[[CycleEntry], GangLoad]
) -> Iterator[CycleEntry]:
    """In each cohort tree the gang with the smallest share; computed again after every gang."""
    left = {entry.queue: entry for entry in sorted(entries, key=lambda e: e.rank, reverse=True)}
    for first in sorted(left):
        if first not in left:
            continue
        root = simulation.account(first).root()
        while any(queue.name in left for queue in root.queues()):
            standings = {
                name: _shares_with(simulation, left[name], load_of(left[name]))
                for name in (queue.name for queue in root.queues())
                if name in left
            }
            winner = _winner(root, left, standings)
            assert winner is not None
            yield left.pop(winner.queue)


def _shares_with(simulation: AdmissionSimulation, entry: CycleEntry, load: GangLoad) -> _PathShares:
    """The shares on every level with the gang included."""
    account = simulation.account(entry.queue)
    simulation.quota_tree.use(entry.queue, load.quota)
    found, node = _PathShares(), account
    for above in account.ancestors():
        borrows = any(amount > 0 and node.borrows(cell) for cell, amount in load.quota.items())
        found.by_parent[id(above)] = (borrows, dominant_share(node))
        node = above
    simulation.quota_tree.use(entry.queue, load.quota, -1)
    return found


def _winner(
    node: QuotaAccount, left: dict[str, CycleEntry], standings: dict[str, _PathShares]
) -> CycleEntry | None:
    """The best gang below a node: the best of each child, then the smallest share of this node."""
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
