"""Pods beyond what a gang cannot do without: as many as have a place, the neediest pod set first."""

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
    """A pod set of which more may come, leaf by leaf: its segments, or itself."""

    minimum: int
    placed: int
    leaves: list[tuple[Path, list[Pod]]]  # the next one last; of each, the pods that may come

    @property
    def ratio(self) -> Fraction:
        """What it has of what it needs."""
        return Fraction(self.placed, max(self.minimum, 1))


def share_out(
    elastic_sets: Sequence[ElasticPodSet], limit: int | None, seat: Callable[[Path, list[Pod], int], int]
) -> None:
    """Up to so many pods more, each time for the pod set that has least of what it needs.

    `seat` is given the first pods of a leaf, and how many may ever come there; it tells how many it seated.
    """
    left = sum(len(pods) for one in elastic_sets for _, pods in one.leaves)
    left = left if limit is None else min(left, limit)
    line = [(one.ratio, at, one) for at, one in enumerate(elastic_sets) if one.leaves]
    heapify(line)
    while line and left > 0:
        _, at, elastic_set = heappop(line)
        path, pods = elastic_set.leaves[-1]
        together = not line or path[-1].segment
        tried = pods[: left if together else 1]
        seated = seat(path, tried, max(len(pods), path[-1].size))
        elastic_set.placed += seated
        left -= seated
        del pods[:seated]
        if seated < len(tried) or not pods:
            elastic_set.leaves.pop()
        if elastic_set.leaves:
            heappush(line, (elastic_set.ratio, at, elastic_set))


def neediest(elastic_sets: Sequence[ElasticPodSet], limit: int | None) -> set[PodKey]:
    """Who comes first, if there is room for everybody."""
    found: set[PodKey] = set()

    def seat(_: Path, pods: list[Pod], __: int) -> int:
        found.update(pod.key for pod in pods)
        return len(pods)

    share_out(elastic_sets, limit, seat)
    return found


@dataclass(slots=True, eq=False)
class ElasticGrowth:
    """Goes on where a search ended: on its terrain, with what each knot has chosen."""

    capacity: TopologyCapacity
    places: dict[int, Area]
    kinds: Mapping[PodKey, int]
    profile: Profile
    assigned: list[tuple[Pod, int]] = field(default_factory=list)

    def grow(self, elastic_sets: Sequence[ElasticPodSet], limit: int | None) -> None:
        """Seat up to so many pods more."""
        share_out(elastic_sets, limit, self._assign)

    def _assign(self, path: Path, pods: list[Pod], coming: int) -> int:
        """Seat the first of these pods of one leaf, as many as there is room for. How many?

        `coming` are all that may ever come, some of them perhaps later: a domain is chosen for them.
        """
        seated = 0
        for kind, alike in groupby(pods, key=lambda pod: self.kinds[pod.key]):
            mine = list(alike)
            areas = self._areas(path, kind, max(coming - seated, len(mine)))
            done = 0
            for area in areas:
                done += self._put(kind, area, mine[done:])
            seated += done
            if done < len(mine):
                break
        return seated

    def _put(self, kind: int, area: Area, pods: Sequence[Pod]) -> int:
        count = min(len(pods), self.capacity.room(kind, area))
        if count:
            strategy = self.profile.unconstrained if area[0] < 0 else self.profile.required
            domain, asked = np.array([area[1]]), np.array([count])
            rows, many = self.capacity.spread(kind, area[0], domain, asked, strategy)
            self.capacity.take(kind, rows, many)
            self.assigned += zip(pods, np.repeat(rows, many).tolist(), strict=False)
        return count

    # ── where they belong ──────────────────────────────────────────────────────────────────────────

    def _areas(self, path: Path, kind: int, count: int) -> list[Area]:
        """The areas that pods of a leaf may be in, the best one first; the choices it takes are made."""
        area, wished = EVERYWHERE, EVERYWHERE
        for depth, constraint in enumerate(path):
            if constraint.strength is LocalityStrength.NONE:
                continue
            known = self.places.get(id(constraint)) or self._where_it_stands(constraint, area)
            if known is None and constraint.strength is not LocalityStrength.PREFERRED:
                if constraint.bound_rows:
                    return []  # they are apart already: nobody can be with all of them
                known = self._choose(path[depth:], area, wished, kind, count)
                if known is None:
                    return []
                self.places[id(constraint)] = known
            elif known is None and not constraint.bound_rows:
                known = self._choose((constraint,), area, wished, kind, count, whole=True)
            if known is None:
                continue
            if (
                constraint.strength is LocalityStrength.REQUIRED and known[0] > constraint.level
            ):  # a wish around it was narrower
                known = (
                    constraint.level,
                    int(self.capacity.above(known[0], np.array([known[1]]), constraint.level)[0]),
                )
            if constraint.strength is not LocalityStrength.PREFERRED and known[0] > area[0]:
                area = known
            if known[0] > wished[0] or not self._is_inside(wished, area):
                wished = known
        return [area] if wished[0] <= area[0] else [wished, area]

    def _is_inside(self, inner: Area, outer: Area) -> bool:
        first, last = self.capacity.span(inner)
        low, high = self.capacity.span(outer)
        return low <= first and last <= high

    def _where_it_stands(self, constraint: ConstraintNode, area: Area) -> Area | None:
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
        self, path: Path, area: Area, wished: Area, kind: int, count: int, *, whole: bool = False
    ) -> Area | None:
        """A domain for a knot that has none: the tightest that holds all, else the one that holds most."""
        level = path[0].level
        if level <= area[0]:
            return area
        deepest = max(
            constraint.level for constraint in path if constraint.strength is not LocalityStrength.NONE
        )
        room = self._room(kind, level, max(deepest, level))
        for around in (wished, area) if wished[0] > area[0] else (area,):
            first, last = self.capacity.domains(level, around)
            here = room[first:last]
            if (here >= count).any():
                return level, first + int(np.argmin(np.where(here >= count, here, np.iinfo(np.int64).max)))
        first, last = self.capacity.domains(level, area)
        here = room[first:last]
        if whole or not len(here) or not here.max():
            return None
        return level, first + int(np.argmax(here))

    def _room(self, kind: int, level: int, deepest: int) -> Ints:
        """By domain of a level: the most pods that one domain of a deeper level in it holds."""
        room = self.capacity.summed(self.capacity.caps[kind], deepest)
        if deepest == level:
            return room
        starts = np.searchsorted(self.capacity.starts[deepest], self.capacity.starts[level])
        most: Ints = np.maximum.reduceat(room, starts)
        return most
