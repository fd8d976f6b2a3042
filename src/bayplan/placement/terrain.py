"""Rows in the order of a topology, with the room left on them for each kind of pod of one gang."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayplan.model.profile import Strategy
from bayplan.placement.fill import fill, ranked
from bayplan.placement.select import is_tight
from bayplan.placement.tree import Bools, Ints, Tree

Area = tuple[int, int]
"""A level and a domain of it."""
EVERYWHERE: Area = (-1, 0)
COUNT_MAX = 2**31 - 1


class Terrain:
    """Rows of the topology first, then those outside of it. What is taken is taken here only."""

    def __init__(
        self, tree: Tree, free: Ints, needs: Ints, allowed: Bools, names: tuple[str, ...] = ()
    ) -> None:
        """`free` is resource by row, `needs` kind by resource, `allowed` kind by row."""
        self.tree, self.inside, self.names = tree, tree.rows, names
        self.free, self.needs, self.allowed = free.copy(), needs, allowed
        self.size = free.shape[1]
        self.starts = (*tree.starts, np.arange(self.inside))  # below the lowest level are the rows
        self.caps = self._count(np.arange(self.size))

    @property
    def rows_level(self) -> int:
        """The level below all others, of single rows."""
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
        """The domain that a row is in."""
        if row >= self.inside:
            return None
        return int(np.searchsorted(self.starts[level], row, side="right")) - 1

    def above(self, level: int, domains: Ints, target: int) -> Ints:
        """For domains of a level, those of a level above that they are in."""
        return np.searchsorted(self.starts[target], self.starts[level][domains], side="right") - 1

    def summed(self, values: Ints, level: int) -> Ints:
        """Something by row as sums by domain: rows are the last axis."""
        if level < 0:
            everything: Ints = values.sum(axis=-1, keepdims=True)
            return everything
        if not len(self.starts[level]):
            return np.zeros((*values.shape[:-1], 0), np.int64)
        sums: Ints = np.add.reduceat(values[..., : self.inside], self.starts[level], axis=-1)
        return sums

    def gathered(self, values: Ints, level: int, target: int) -> Ints:
        """Something by domain of a level as sums by domain of a level above."""
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
        """Pods of a kind come to rows (each given once), or leave them if the number is negative."""
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

    # ── sharing out ────────────────────────────────────────────────────────────────────────────────

    def spread(
        self, kind: int, level: int, domains: Ints, pods: Ints, strategy: Strategy
    ) -> tuple[Ints, Ints]:
        """Rows, ascending, and pods on them, for so many pods in each of some domains; there is room.

        Going down level by level, as few domains as possible are used.
        """
        strategy = plain(strategy)
        if level < 0:
            return self._outside_first(kind, int(pods.sum()), strategy)
        for below in range(level + 1, self.rows_level + 1):
            units = self.summed(self.caps[kind], below)
            edges = np.searchsorted(self.starts[below], np.append(self.starts[below - 1], self.inside))
            first = edges[domains]
            spans = edges[domains + 1] - first
            owner = np.repeat(np.arange(len(domains)), spans)
            inner = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(spans) - spans, spans)
            inner = ranked(inner, units, units, strategy, None, owner)
            shared = fill(inner, owner, units, pods, is_tight(strategy), None)
            order = np.argsort(shared.domains)
            domains, pods = shared.domains[order], shared.units[order]
        return domains, pods

    def _outside_first(self, kind: int, pods: int, strategy: Strategy) -> tuple[Ints, Ints]:
        """Anywhere: rows outside of the topology are of no use to those who need it."""
        caps = self.caps[kind]
        outside = min(int(caps[self.inside :].sum()), pods)
        parts = ((np.arange(self.inside, self.size), outside), (np.arange(self.inside), pods - outside))
        found: list[tuple[Ints, Ints]] = []
        for rows, count in parts:
            rows = rows[caps[rows] > 0]
            if count:
                chosen = ranked(rows, caps, caps, strategy, None)
                nobody = np.zeros(len(chosen), np.int64)
                shared = fill(chosen, nobody, caps, np.array([count]), is_tight(strategy), None)
                found.append((shared.domains, shared.units))
        rows = np.concatenate([part[0] for part in found] or [np.zeros(0, np.int64)])
        counts = np.concatenate([part[1] for part in found] or [np.zeros(0, np.int64)])
        order = np.argsort(rows)
        return rows[order], counts[order]


def plain(strategy: Strategy) -> Strategy:
    """The strategy next of kin that goes one way only."""
    known = (Strategy.LEAST_FREE, Strategy.MOST_FREE, Strategy.BEST_FIT)
    return strategy if strategy in known else Strategy.BEST_FIT


def common_domain(terrain: Terrain, level: int, rows: Sequence[int]) -> int | None:
    """The domain of a level that all these rows are in, if it is one; domains are runs of rows."""
    first, last = terrain.at(level, min(rows)), terrain.at(level, max(rows))
    return first if first == last else None
