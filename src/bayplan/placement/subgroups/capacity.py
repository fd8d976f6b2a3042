"""Free capacity by row, in topology order, for each kind of pod of one gang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.model.profile import Strategy
from bayplan.placement.cluster.resource_fit import leading
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.fill import Shared, fill, ranked
from bayplan.placement.domains.select import is_tight

Area = tuple[int, int]
"""A level and a domain of it."""
EVERYWHERE: Area = (-1, 0)
COUNT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AffinityPull:
    """A preferred locality that no single domain satisfies: the pods use as few domains as possible."""

    level: int
    placed_peers: tuple[int, ...] = ()  # rows of bound pods of the same preference; their domains come first


class TopologyCapacity:
    """Free amounts and pod counts by row: rows of the topology first, then the rows outside of it.

    A working copy: `take` does not change the overlay.
    """

    def __init__(
        self, tree: Tree, free: Ints, needs: Ints, allowed: Bools, names: tuple[str, ...] = ()
    ) -> None:
        """`free` is resource by row, `needs` kind by resource, `allowed` kind by row."""
        self.tree, self.inside, self.names = tree, tree.rows, names
        self.free, self.needs, self.allowed = free.copy(), needs, allowed
        self.size = free.shape[1]
        self.starts = (*tree.starts, np.arange(self.inside))  # below the lowest level are the rows
        self.caps = self._count(np.arange(self.size))
        self.leads = [_lead(need, names) for need in needs]

    def amount(self, kind: int) -> Ints:
        """By row: the free amount of the leading resource of a kind."""
        free: Ints = np.maximum(self.free[self.leads[kind]], 0)
        return free

    @property
    def rows_level(self) -> int:
        """The level of single rows, below all levels of the topology."""
        return len(self.starts) - 1

    def span(self, area: Area) -> tuple[int, int]:
        """The rows of an area."""
        level, domain = area
        if level < 0:
            return 0, self.size
        starts = self.starts[level]
        return int(starts[domain]), int(starts[domain + 1]) if domain + 1 < len(starts) else self.inside

    def domains(self, level: int, area: Area) -> tuple[int, int]:
        """The domains of a level inside an area."""
        if area[0] < 0:
            return 0, len(self.starts[level])
        low, high = np.searchsorted(self.starts[level], self.span(area)).tolist()
        return low, high

    def at(self, level: int, row: int) -> int | None:
        """The domain of a level that a row is in."""
        if row >= self.inside:
            return None
        return int(np.searchsorted(self.starts[level], row, side="right")) - 1

    def above(self, level: int, domains: Ints, target: int) -> Ints:
        """The domains of a higher level that contain these domains."""
        return np.searchsorted(self.starts[target], self.starts[level][domains], side="right") - 1

    def summed(self, values: Ints, level: int) -> Ints:
        """Sum values by row (the last axis) over the domains of a level."""
        if level < 0:
            everything: Ints = values.sum(axis=-1, keepdims=True)
            return everything
        if not len(self.starts[level]):
            return np.zeros((*values.shape[:-1], 0), np.int64)
        sums: Ints = np.add.reduceat(values[..., : self.inside], self.starts[level], axis=-1)
        return sums

    def gathered(self, values: Ints, level: int, target: int) -> Ints:
        """Sum values by domain of a level over the domains of a higher level."""
        if target < 0:
            everything: Ints = values.sum(keepdims=True)
            return everything
        sums: Ints = np.add.reduceat(values, np.searchsorted(self.starts[level], self.starts[target]))
        return sums

    def room(self, kind: int, area: Area) -> int:
        """How many pods of a kind an area holds."""
        low, high = self.span(area)
        return int(self.caps[kind, low:high].sum())

    def take(self, kind: int, rows: Ints, pods: Ints | int = 1) -> None:
        """Subtract pods of a kind from rows (each given once), or add them back if the number is negative."""
        self.free[:, rows] -= self.needs[kind][:, None] * pods
        self.caps[:, rows] = self._count(rows)

    def _count(self, rows: Ints) -> Ints:
        counts = np.full((len(self.needs), len(rows)), COUNT_MAX, np.int64)
        for kind, need in enumerate(self.needs):
            for resource in np.flatnonzero(need).tolist():
                left = self.free[resource, rows]
                amount = int(need[resource])
                np.minimum(counts[kind], left // amount if amount > 1 else left, out=counts[kind])
        return np.where(self.allowed[:, rows], np.maximum(counts, 0), 0)

    # ── distribution ───────────────────────────────────────────────────────────────────────────────

    def spread(
        self,
        kind: int,
        level: int,
        domains: Ints,
        pods: Ints,
        strategy: Strategy,
        affinity: AffinityPull | None = None,
    ) -> tuple[Ints, Ints]:
        """Distribute so many pods over the rows of each of some domains; they must fit.

        Each level uses as few domains as possible. Rows are returned in topology order, or with an affinity
        in the order in which its domains are filled, so that consecutive ranks are near each other; among
        hosts of one domain the fullest come first.
        """
        strategy = single_pass(strategy)
        if level >= 0:
            return self._down(kind, level, domains, pods, strategy, affinity)
        asked = int(pods.sum())
        if affinity is None:
            return self._anywhere(kind, asked, strategy)
        near = min(int(self.caps[kind, : self.inside].sum()), asked)
        rows, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if near:
            rows, counts = self._down(
                kind, level, np.zeros(1, np.int64), np.array([near]), strategy, affinity
            )
        outside_rows, outside_counts = self._among(
            kind, np.arange(self.inside, self.size), asked - near, strategy
        )
        return np.concatenate((rows, outside_rows)), np.concatenate((counts, outside_counts))

    def _down(
        self,
        kind: int,
        level: int,
        domains: Ints,
        pods: Ints,
        strategy: Strategy,
        affinity: AffinityPull | None,
    ) -> tuple[Ints, Ints]:
        """Distribute pods from the domains of a level down to rows."""
        for below in range(level + 1, self.rows_level + 1):
            units, amounts = self.summed(self.caps[kind], below), self.summed(self.amount(kind), below)
            edges = self._edges(below)
            first = edges[domains]
            spans = edges[domains + 1] - first
            owner = np.repeat(np.arange(len(domains)), spans)
            inner = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(spans) - spans, spans)
            if affinity is not None and below <= affinity.level:
                placed_peers = self._peers(below, affinity)
                last = inner[::-1], units, -amounts  # ties: the last one
                inner = ranked(*last, strategy, placed_peers, owner[::-1])
                shared = fill(inner, owner, units, pods, is_tight(strategy), placed_peers)
                domains, pods = shared.domains, shared.units
                continue
            shared = _fewest_and_fullest(inner, owner, units, amounts, pods, strategy)
            hosts = len(self.starts[below]) == self.inside
            order = self._by_owner(below, shared, domains, amounts if hosts else None)
            domains, pods = shared.domains[order], shared.units[order]
        return domains, pods

    def _edges(self, level: int) -> Ints:
        """The first domain of a level in each domain of the level above; and the end of the last."""
        if level == 0:
            return np.array([0, len(self.starts[0])])
        return np.searchsorted(self.starts[level], np.append(self.starts[level - 1], self.inside))

    def _peers(self, level: int, affinity: AffinityPull) -> Ints | None:
        """By domain of a level: how many bound peers it has."""
        rows = np.array([row for row in affinity.placed_peers if row < self.inside], np.int64)
        if not len(rows):
            return None
        owners = np.searchsorted(self.starts[level], rows, side="right") - 1
        return np.bincount(owners, minlength=len(self.starts[level])).astype(np.int64)

    def _by_owner(self, level: int, shared: Shared, owners: Ints, amounts: Ints | None) -> Ints:
        """Positions ordered by the domains above, as given, and inside each by free amount or path."""
        rank = np.zeros(len(self._edges(level)) - 1, np.int64)
        rank[owners] = np.arange(len(owners))
        above = self.above(level, shared.domains, level - 1) if level else np.zeros_like(shared.domains)
        first = shared.domains if amounts is None else amounts[shared.domains]
        return np.lexsort((shared.domains, first, rank[above]))

    def _anywhere(self, kind: int, pods: int, strategy: Strategy) -> tuple[Ints, Ints]:
        """Distribute pods over all rows, first those outside of the topology, which localities cannot use."""
        outside = min(int(self.caps[kind, self.inside :].sum()), pods)
        rows, counts = self._among(kind, np.arange(self.inside), pods - outside, strategy)
        outside_rows, outside_counts = self._among(kind, np.arange(self.inside, self.size), outside, strategy)
        return np.concatenate((rows, outside_rows)), np.concatenate((counts, outside_counts))

    def _among(self, kind: int, rows: Ints, pods: int, strategy: Strategy) -> tuple[Ints, Ints]:
        """Distribute so many pods over some ascending rows."""
        if not pods:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        caps = self.caps[kind]
        chosen = ranked(rows[caps[rows] > 0], caps, self.amount(kind), strategy, None)
        owner = np.zeros(len(chosen), np.int64)
        shared = fill(chosen, owner, caps, np.array([pods]), is_tight(strategy), None)
        return shared.domains, shared.units


def _lead(need: Ints, names: tuple[str, ...]) -> int:
    """The leading resource of a kind of pod."""
    asked = [names[at] for at in np.flatnonzero(need).tolist() if at < len(names)]
    return names.index(leading(asked)) if asked else 0


def _fewest_and_fullest(
    inner: Ints, owner: Ints, units: Ints, amounts: Ints, need: Ints, strategy: Strategy
) -> Shared:
    """Fill as the strategy says; among ways with equally few domains take the one with the fullest."""
    shared = fill(ranked(inner, units, amounts, strategy, None, owner), owner, units, need,
                 is_tight(strategy), None)  # fmt: skip
    if not is_tight(strategy):
        return shared
    full = ranked(inner, units, amounts, Strategy.LEAST_FREE, None, owner)
    fuller = fill(full, owner, units, need, False, None)
    owners = np.zeros(len(units), np.int64)
    owners[inner] = owner
    shared_owners, fuller_owners = owners[shared.domains], owners[fuller.domains]
    as_few = np.bincount(fuller_owners, minlength=len(need)) <= np.bincount(
        shared_owners, minlength=len(need)
    )
    keep, take = ~as_few[shared_owners], as_few[fuller_owners]
    return Shared(
        np.concatenate((shared.domains[keep], fuller.domains[take])),
        np.concatenate((shared.units[keep], fuller.units[take])),
    )


def single_pass(strategy: Strategy) -> Strategy:
    """The nearest strategy that a single pass can follow."""
    if strategy is Strategy.PACK_RACKS:
        return Strategy.LEAST_FREE
    known = (Strategy.LEAST_FREE, Strategy.MOST_FREE, Strategy.BEST_FIT)
    return strategy if strategy in known else Strategy.BEST_FIT


def common_domain(capacity: TopologyCapacity, level: int, rows: Sequence[int]) -> int | None:
    """The one domain of a level that contains all these rows, if there is one."""
    first, last = capacity.at(level, min(rows)), capacity.at(level, max(rows))
    return first if first == last else None
