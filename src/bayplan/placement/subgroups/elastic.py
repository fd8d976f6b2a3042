"""Elastic pods beyond the minimums: assigns as many as fit, to the pod set furthest below its share first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import groupby

import numpy as np

from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.subgroups.capacity import EVERYWHERE, Area, TopologyCapacity, common_domain
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, LocalityStrength

Path = tuple[ConstraintNode, ...]
"""From the root down to a leaf."""


@dataclass(slots=True, eq=False)
class ElasticPodSet:
    """A pod set that may grow, leaf by leaf: its segments, or the pod set itself."""

    minimum: int
    placed: int
    leaves: list[tuple[Path, list[Pod]]]  # the next leaf last; each with the pods that may be added

    @property
    def ratio(self) -> Fraction:
        """Assigned pods relative to the minimum."""
        return Fraction(self.placed, max(self.minimum, 1))


def grow_evenly(
    elastic_sets: Sequence[ElasticPodSet], limit: int | None, assign: Callable[[Path, list[Pod], int], int]
) -> None:
    """Assign up to `limit` more pods, each time to the pod set with the lowest ratio to its minimum.

    `assign` gets the first pods of a leaf and the most that the leaf may ever have; it returns how many it
    assigned.
    """
    left = sum(len(pods) for elastic_set in elastic_sets for _, pods in elastic_set.leaves)
    left = left if limit is None else min(left, limit)
    queue = [
        (elastic_set.ratio, at, elastic_set)
        for at, elastic_set in enumerate(elastic_sets)
        if elastic_set.leaves
    ]
    heapify(queue)
    while queue and left > 0:
        _, at, elastic_set = heappop(queue)
        path, pods = elastic_set.leaves[-1]
        together = not queue or path[-1].segment
        tried = pods[: left if together else 1]
        placed = assign(path, tried, max(len(pods), path[-1].size))
        elastic_set.placed += placed
        left -= placed
        del pods[:placed]
        if placed < len(tried) or not pods:
            elastic_set.leaves.pop()
        if elastic_set.leaves:
            heappush(queue, (elastic_set.ratio, at, elastic_set))


def first_to_grow(elastic_sets: Sequence[ElasticPodSet], limit: int | None) -> set[PodKey]:
    """The pods that would be assigned first if all fitted."""
    keys: set[PodKey] = set()

    def assign(_: Path, pods: list[Pod], __: int) -> int:
        keys.update(pod.key for pod in pods)
        return len(pods)

    grow_evenly(elastic_sets, limit, assign)
    return keys


@dataclass(slots=True, eq=False)
class ElasticGrowth:
    """Adds elastic pods after a search, with its capacity and the areas that it chose."""

    capacity: TopologyCapacity
    places: dict[int, Area]
    kinds: Mapping[PodKey, int]
    profile: Profile
    assigned: list[tuple[Pod, int]] = field(default_factory=list)

    def grow(self, elastic_sets: Sequence[ElasticPodSet], limit: int | None) -> None:
        """Assign up to `limit` more pods."""
        grow_evenly(elastic_sets, limit, self._assign)

    def _assign(self, path: Path, pods: list[Pod], coming: int) -> int:
        """Assign as many of these pods of one leaf as fit, in order; returns how many.

        `coming` is the most that the leaf may ever have: the domain is chosen to hold that many.
        """
        placed = 0
        for kind, group in groupby(pods, key=lambda pod: self.kinds[pod.key]):
            identical = list(group)
            areas = self._areas(path, kind, max(coming - placed, len(identical)))
            placed_here = 0
            for area in areas:
                placed_here += self._assign_in(kind, area, identical[placed_here:])
            placed += placed_here
            if placed_here < len(identical):
                break
        return placed

    def _assign_in(self, kind: int, area: Area, pods: Sequence[Pod]) -> int:
        count = min(len(pods), self.capacity.room(kind, area))
        if count:
            strategy = self.profile.unconstrained if area[0] < 0 else self.profile.required
            domain, asked = np.array([area[1]]), np.array([count])
            rows, counts = self.capacity.spread(kind, area[0], domain, asked, strategy)
            self.capacity.take(kind, rows, counts)
            self.assigned += zip(pods, np.repeat(rows, counts).tolist(), strict=False)
        return count

    # ── areas ──────────────────────────────────────────────────────────────────────────────────────

    def _areas(self, path: Path, kind: int, count: int) -> list[Area]:
        """The areas for pods of a leaf, the best first; domains not chosen yet are chosen."""
        area, preferred = EVERYWHERE, EVERYWHERE
        for depth, constraint in enumerate(path):
            if constraint.strength is LocalityStrength.NONE:
                continue
            chosen = self.places.get(id(constraint)) or self._bound_area(constraint, area)
            if chosen is None and constraint.strength is not LocalityStrength.PREFERRED:
                if constraint.bound_rows:
                    return []  # the bound pods are in several domains: no pod can join all of them
                chosen = self._choose(path[depth:], area, preferred, kind, count)
                if chosen is None:
                    return []
                self.places[id(constraint)] = chosen
            elif chosen is None and not constraint.bound_rows:
                chosen = self._choose((constraint,), area, preferred, kind, count, whole=True)
            if chosen is None:
                continue
            if constraint.strength is LocalityStrength.REQUIRED and chosen[0] > constraint.level:
                # A preference around it was narrower.
                domains = self.capacity.above(chosen[0], np.array([chosen[1]]), constraint.level)
                chosen = constraint.level, int(domains[0])
            if constraint.strength is not LocalityStrength.PREFERRED and chosen[0] > area[0]:
                area = chosen
            if chosen[0] > preferred[0] or not self._is_inside(preferred, area):
                preferred = chosen
        return [area] if preferred[0] <= area[0] else [preferred, area]

    def _is_inside(self, inner: Area, outer: Area) -> bool:
        first, last = self.capacity.span(inner)
        low, high = self.capacity.span(outer)
        return low <= first and last <= high

    def _bound_area(self, constraint: ConstraintNode, area: Area) -> Area | None:
        if not constraint.bound_rows:
            return None
        levels = (
            (constraint.level,)
            if constraint.strength is LocalityStrength.REQUIRED
            else range(constraint.level, area[0], -1)
        )
        for level in levels:
            if level <= area[0]:
                return area
            domain = common_domain(self.capacity, level, constraint.bound_rows)
            if domain is not None:
                return level, domain
        return None

    def _choose(
        self, path: Path, area: Area, preferred: Area, kind: int, count: int, *, whole: bool = False
    ) -> Area | None:
        """A domain for a constraint without one: the tightest that holds all pods, else the largest."""
        level = path[0].level
        if level <= area[0]:
            return area
        deepest = max(
            constraint.level for constraint in path if constraint.strength is not LocalityStrength.NONE
        )
        room = self._room(kind, level, max(deepest, level))
        for around in (preferred, area) if preferred[0] > area[0] else (area,):
            first, last = self.capacity.domains(level, around)
            capacity_here = room[first:last]
            if (capacity_here >= count).any():
                return level, first + int(
                    np.argmin(np.where(capacity_here >= count, capacity_here, np.iinfo(np.int64).max))
                )
        first, last = self.capacity.domains(level, area)
        capacity_here = room[first:last]
        if whole or not len(capacity_here) or not capacity_here.max():
            return None
        return level, first + int(np.argmax(capacity_here))

    def _room(self, kind: int, level: int, deepest: int) -> Ints:
        """By domain of a level: the most pods that one domain of a deeper level inside it holds."""
        room = self.capacity.summed(self.capacity.caps[kind], deepest)
        if deepest == level:
            return room
        starts = np.searchsorted(self.capacity.starts[deepest], self.capacity.starts[level])
        most: Ints = np.maximum.reduceat(room, starts)
        return most
