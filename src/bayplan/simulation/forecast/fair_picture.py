"""Fair-share queues in the picture that is run forward: what bounds their gangs, and whose turn is next.

A queue and every queue above it have limits for all gangs, and quotas for those that may not be preempted:
both are cells of a quota tree. The order is that of the scheduler, as if each gang started at its turn.
Shares are those of now; that gangs reclaim capacity from other queues is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from bayplan.model.gang import GangSpec
from bayplan.scheduling.fair_share.accounts import Accounts
from bayplan.scheduling.fair_share.order import FairTurn, Order, turn_of
from bayplan.scheduling.fair_share.shares import NOTHING_SAID
from bayplan.simulation.forecast.forward_run import NO_QUEUE, Ints
from bayplan.simulation.forecast.quota_room import NO_PARENT, UNLIMITED, QuotaLimits
from bayplan.state.scheduling.fair_usage import FairView
from bayplan.state.scheduling.snapshot import SchedulingCandidate


class FairPicture:
    """The queues of one moment. Gangs whose queue is missing never start: they ask for a cell of nothing."""

    def __init__(self, view: FairView | None) -> None:
        self.accounts = None if view is None else Accounts(view)
        self.numbers: dict[str, int] = {}
        self.leaves: frozenset[str] = frozenset()  # queues that gangs may belong to
        if self.accounts is not None:
            self.leaves = frozenset(one for one in self.accounts.queues if self.accounts.missing(one) is None)
            for leaf in sorted(self.leaves):
                for one in reversed([*self.accounts.path_up(leaf)]):  # parents first
                    self.numbers.setdefault(one, len(self.numbers))
        self.resources = () if self.accounts is None else self.accounts.resources
        self.lost = len(self.numbers)  # a queue without parent or quota, for gangs whose queue is missing

    @property
    def cells(self) -> int:
        """Limits, quotas, and one of which there is nothing."""
        return 2 * len(self.resources) + 1

    def limits(self) -> QuotaLimits:
        """The tree without usage: all of it is of running gangs, and what is there may be used in full."""
        queues = self.accounts.queues if self.accounts is not None else {}
        most: Ints = np.zeros((self.lost + 1, self.cells), np.int64)
        parents = [NO_PARENT] * (self.lost + 1)
        for name, at in self.numbers.items():
            parents[at] = self.numbers.get(queues[name].parent, NO_PARENT)
            said = [queues[name].entitlements.get(one, NOTHING_SAID) for one in self.resources]
            bounds = [*(one.limit for one in said), *(one.quota for one in said)]
            most[at, :-1] = [_whole(one) for one in bounds]
        none = np.zeros_like(most)
        return QuotaLimits(tuple(parents), most, none, none, none)

    def queue(self, spec: GangSpec | None) -> int:
        """The queue of a gang in the tree."""
        if spec is None or not spec.queue:
            return NO_QUEUE
        return self.numbers[spec.queue] if spec.queue in self.leaves else self.lost

    def quota(self, spec: GangSpec | None, amounts: Mapping[str, int]) -> Ints:
        """What a gang with these requests takes of its queue."""
        found: Ints = np.zeros(self.cells, np.int64)
        queue = self.queue(spec)
        if spec is None or queue == NO_QUEUE:
            return found
        if queue == self.lost:
            found[-1] = 1
            return found
        asked = [amounts.get(one, 0) for one in self.resources]
        found[: len(asked)] = asked
        if spec.non_preemptible:
            found[len(asked) : 2 * len(asked)] = asked
        return found

    def in_turn(self, candidates: Sequence[SchedulingCandidate]) -> list[SchedulingCandidate]:
        """Candidates in order of rank, those of queues by fair share in the places that these have."""
        if self.accounts is None:
            return list(candidates)
        numbered = list(enumerate(candidates))
        fair = [turn_of(one, at) for at, one in numbered if self.queue(one.spec) not in (NO_QUEUE, self.lost)]
        chosen = iter([candidates[at] for at in self._popped(fair)])
        places = {turn.number for turn in fair}
        return [next(chosen) if at in places else one for at, one in numbered]

    def _popped(self, turns: Iterable[FairTurn]) -> Iterator[int]:
        assert self.accounts is not None
        order = Order(self.accounts, turns)
        while (turn := order.pop()) is not None:
            self.accounts.take(turn.queue, turn.amounts, lasting=turn.candidate.spec.non_preemptible)
            yield turn.number


def _whole(bound: Fraction | None) -> int:
    return UNLIMITED if bound is None else min(int(bound), UNLIMITED)
