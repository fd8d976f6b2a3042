"""Which gangs have to leave a domain so that a request fits there, by counts of pods: cheapest sets first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bayplan.placement.pods.room_counts import RoomCounts

Usage = Mapping[int, Mapping[str, int]]
"""By row: what the pods of a gang use there."""

GangNumbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClearingSet:
    """Gangs of a domain, by number, after whose departure the request fits by counts; and their cost."""

    cost: int
    gangs: GangNumbers


class DomainClearing:
    """The sets of gangs whose departure makes the request fit in one domain."""

    def __init__(
        self, counts: RoomCounts, number: int, usages: Mapping[int, Usage], costs: Mapping[int, int]
    ) -> None:
        """`usages` and `costs` are of the gangs with pods in the domain, by their numbers."""
        self.counts, self.number, self.usages = counts, number, usages
        self.order = sorted(usages, key=lambda gang: (costs[gang], gang))
        self.costs, self.cut = costs, False
        self.short = counts.need - int(counts.totals[number])
        self.most = counts.need - self.short + self._gained(self.order)

    @property
    def possible(self) -> bool:
        """Whether the request fits by counts once every movable gang has left."""
        return self.most >= self.counts.need

    def _gained(self, gangs: Sequence[int]) -> int:
        """How many more pods fit once these gangs have left."""
        freed: dict[int, dict[str, int]] = {}
        for gang in gangs:
            for row, amounts in self.usages[gang].items():
                at = freed.setdefault(row, {})
                for name, amount in amounts.items():
                    at[name] = at.get(name, 0) + amount
        return sum(self.counts.gain(row, amounts) for row, amounts in freed.items())

    def clears(self, gangs: Sequence[int]) -> bool:
        """Whether the request fits by counts once these gangs have left."""
        return self._gained(gangs) >= self.short

    def bound(self) -> int:
        """A lower bound of the cost: what is missing of each resource, taken where it is cheapest."""
        best = 0
        for name, each in self.counts.each.items():
            missing = self.counts.need * each - self.counts.free_in(self.number, name)
            offers = []
            for gang in self.order:
                given = sum(amounts.get(name, 0) for amounts in self.usages[gang].values())
                if given:
                    offers.append((self.costs[gang] / given, given))
            cost = 0.0
            for price, given in sorted(offers):
                if missing <= 0:
                    break
                cost += price * min(given, missing)
                missing -= given
            best = max(best, int(cost))
        return best

    def greedy(self) -> ClearingSet | None:
        """A cheap set: gangs that give most for their cost, then without those that need not leave."""
        if not self.possible:
            return None
        alone = {gang: self._gained((gang,)) for gang in self.order}
        size = {gang: sum(sum(one.values()) for one in self.usages[gang].values()) for gang in self.order}
        found = []
        for rank in (
            lambda gang: (-alone[gang] / self.costs[gang], self.costs[gang], gang),
            lambda gang: (-size[gang] / self.costs[gang], self.costs[gang], gang),
        ):
            chosen: list[int] = []
            for gang in sorted(self.order, key=rank):
                chosen.append(gang)
                if self.clears(chosen):
                    break
            for gang in sorted(chosen, key=lambda gang: (-self.costs[gang], gang)):
                less = [other for other in chosen if other != gang]
                if self.clears(less):
                    chosen = less
            found.append(ClearingSet(self._cost(chosen), tuple(sorted(chosen))))
        return min(found, key=lambda one: (one.cost, one.gangs))

    def sets(self, steps: int, accepts: Callable[[GangNumbers], bool]) -> Iterator[ClearingSet]:
        """All minimal sets in order of cost. A step without a set yields the cost reached and no gangs.

        `accepts` is asked about sets that suffice by counts. Ends after so many steps; then `cut` is true.
        """
        order, costs = self.order, [self.costs[gang] for gang in self.order]
        heap: list[tuple[int, GangNumbers]] = [(costs[0], (0,))] if order else []
        yielded: list[frozenset[int]] = []
        while heap and steps:
            steps -= 1
            cost, places = heapq.heappop(heap)
            last = places[-1]
            gangs = tuple(order[at] for at in places)
            chosen = frozenset(gangs)
            known = any(one <= chosen for one in yielded)
            clears = known or (self.clears(gangs) and accepts(gangs))
            if last + 1 < len(order):
                later = order[last + 1 :]
                if not clears and self.clears((*gangs, *later)):
                    heapq.heappush(heap, (cost + costs[last + 1], (*places, last + 1)))
                if self.clears((*gangs[:-1], *later)):
                    heapq.heappush(heap, (cost - costs[last] + costs[last + 1], (*places[:-1], last + 1)))
            if clears and not known:
                yielded.append(chosen)
                yield ClearingSet(cost, tuple(sorted(gangs)))
            else:
                yield ClearingSet(cost, ())
        self.cut = bool(heap)

    def _cost(self, gangs: Sequence[int]) -> int:
        return sum(self.costs[gang] for gang in gangs)
