"""Fair-share order: first the queue furthest below its share, then the gangs of a queue by priority."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from bayplan.model.gang import PodSet
from bayplan.model.pod import Pod
from bayplan.placement.subgroups.constraint_tree import missing_pods
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.fair_share.accounts import NONE, Accounts, amounts_of
from bayplan.state.scheduling.snapshot import SchedulingCandidate

STEPS = 32  # steps in which a gang grows, at most


@dataclass(frozen=True, slots=True)
class FairTurn:
    """The next request of a gang: all pods that its minimum lacks, or one more pod."""

    candidate: SchedulingCandidate
    pods: tuple[Pod, ...]
    amounts: Mapping[str, int] = field(compare=False)
    grows: bool  # the gang has its minimum
    number: int  # order of arrival; breaks ties

    @property
    def queue(self) -> str:
        return self.candidate.spec.queue

    def rank(self) -> tuple[object, ...]:
        """Sort key within its queue."""
        spec = self.candidate.spec
        return -priority_of(self.candidate), self._stage(), spec.created, self.number

    def _stage(self) -> int:
        """0 below the minimum, 1 at the minimum, 2 beyond."""
        if not self.grows:
            return 0
        return 1 if len(self.candidate.bound) <= self.candidate.spec.minimum else 2


def turn_of(candidate: SchedulingCandidate, number: int) -> FairTurn:
    """The next request of a candidate."""
    first = _lacking(candidate)
    pods = first or _one_more(candidate)
    return FairTurn(candidate, pods, amounts_of(pods), not first, number)


def _lacking(candidate: SchedulingCandidate) -> tuple[Pod, ...]:
    """The pending pods that complete the minimum, or the minimum of every pod set."""
    spec, waiting = candidate.spec, candidate.pending
    if spec.tree is None:
        return waiting[: max(spec.minimum - len(candidate.bound), 0)]
    selected: list[Pod] = []
    for pod_set in spec.tree.pod_sets():
        mine = [pod for pod in waiting if pod.pod_set == pod_set.name]
        ranks = [pod.rank for pod in candidate.bound if pod.pod_set == pod_set.name]
        selected += mine[: missing_pods(pod_set, mine, ranks)]
    return tuple(selected)


def _one_more(candidate: SchedulingCandidate) -> tuple[Pod, ...]:
    """The first pod of the pod set that has grown least; several pods at once if very many are pending."""
    spec, waiting = candidate.spec, candidate.pending
    more = max(len(waiting) // STEPS, 1)
    if spec.tree is None or len({pod.pod_set for pod in waiting}) == 1:
        return waiting[:more]
    grown = {
        pod_set.name: Fraction(_standing_in(candidate, pod_set), max(pod_set.minimum, 1))
        for pod_set in spec.tree.pod_sets()
    }
    return tuple(sorted(waiting, key=lambda pod: grown.get(pod.pod_set, 0))[:more])


def _standing_in(candidate: SchedulingCandidate, pod_set: PodSet) -> int:
    return sum(pod.pod_set == pod_set.name for pod in candidate.bound)


class Order:
    """Pending turns by queue. The next one is computed at each pop, as usage changes in between."""

    def __init__(self, accounts: Accounts, turns: Iterable[FairTurn] = ()) -> None:
        self.accounts = accounts
        self.turns: dict[str, list[tuple[tuple[object, ...], FairTurn]]] = {}
        self.pending_below: dict[str, int] = {}  # pending turns by queue, including descendants
        for turn in turns:
            self.push(turn)

    def __len__(self) -> int:
        return sum(map(len, self.turns.values()))

    def push(self, turn: FairTurn) -> None:
        """Add a turn of an existing queue."""
        insort(self.turns.setdefault(turn.queue, []), (turn.rank(), turn), key=lambda entry: entry[0])
        self._count(turn.queue, 1)

    def pop(self) -> FairTurn | None:
        """Remove and return the next turn."""
        selected = self._first(self.accounts.below.get("", ()))
        if selected is None:
            return None
        self.turns[selected.queue].pop(0)
        self._count(selected.queue, -1)
        return selected

    def _first(self, names: Iterable[str]) -> FairTurn | None:
        """The best turn of some siblings; a queue ranks by its own best turn."""
        best: tuple[tuple[object, ...], FairTurn] | None = None
        some = [name for name in names if self.pending_below.get(name)]
        for name in some:
            below = self.accounts.below.get(name)
            turn = self._first(below) if below else self.turns[name][0][1]
            if turn is None or len(some) == 1:
                return turn
            rank = self.accounts.rank(name, ("turn", turn.number, turn.pods[0].key), turn.amounts, NONE)
            if best is None or rank < best[0]:
                best = rank, turn
        return None if best is None else best[1]

    def _count(self, queue: str, more: int) -> None:
        for name in self.accounts.path_up(queue):
            self.pending_below[name] = self.pending_below.get(name, 0) + more
