"""A gang's tree as the search for places sees it: who stays together, who is missing, and who stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import AUTO, Group, Locality, PodSet, Segment
from bayplan.model.node import Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.cluster.topology_tree import Ints


class LocalityStrength(Enum):
    """How strongly those below a knot stay together."""

    NONE = "none"
    MUST = "must"  # in one domain of its level
    SOME = "some"  # in one domain, of its level or of any above
    WISH = "wish"  # the same, if that is possible


@dataclass(slots=True, eq=False)
class ConstraintNode:
    """A group, a pod set or a segment of one."""

    part: str  # the pod set, or the group
    bond: LocalityStrength = LocalityStrength.NONE
    level: int = 0  # where a domain is looked for first
    segment: bool = False  # it is a share of the pod set above it
    size: int = 0  # pods that a segment nobody waits for has once all of them are there
    children: list[ConstraintNode] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)  # they have to have a place; only at leaves
    kinds: list[int] = field(default_factory=list)  # of the pods that have to
    extras: list[Pod] = field(default_factory=list)  # they may have one
    standing: list[int] = field(default_factory=list)  # rows, of all below
    need: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # by kind of pod, of all below

    @property
    def is_pinned(self) -> bool:
        """Whether those who stand say where the others belong."""
        return bool(self.standing) and self.bond in (LocalityStrength.MUST, LocalityStrength.SOME)


@dataclass(frozen=True, slots=True)
class GangPods:
    """Who waits, by pod set in the order of their ranks, and who stands: ranks and rows."""

    waiting: Mapping[str, Sequence[Pod]]
    standing: Mapping[str, Sequence[tuple[int, int]]]
    kinds: Mapping[PodKey, int]  # of those who wait
    whole: bool = False  # all who wait have to have a place


def knots_of(tree: Group, topology: Topology, roll: GangPods) -> ConstraintNode | Misfit:
    """The knots of a tree below one that asks for nothing, or the level that means nothing here."""
    tying = _Tying(topology, roll)
    try:
        return tying.over(ConstraintNode("", children=[tying.group(tree)]))
    except _UnknownError as unknown:
        return unknown.misfit


def lacking(pod_set: PodSet, waiting: Sequence[Pod], standing: Sequence[int]) -> int:
    """How many of a pod set's first pods in rank order have to have a place; `standing` are ranks.

    Of a pod set in segments these are all in the segments that its minimum reaches into.
    """
    if not pod_set.segments or pod_set.segments[0].size <= 0:
        return min(max(pod_set.minimum - len(standing), 0), len(waiting))
    bound = mandatory_ranks(pod_set)
    return sum(pod.rank < bound for pod in waiting)


def mandatory_ranks(pod_set: PodSet) -> int:
    """Of a pod set in segments, the ranks that it does not start without."""
    size = max(pod_set.segments[0].size, 1)
    return min(-(-pod_set.minimum // size) * size, pod_set.count)


class _UnknownError(Exception):
    def __init__(self, misfit: Misfit) -> None:
        super().__init__(misfit)
        self.misfit = misfit


class _Tying:
    """Builds the knots of one gang."""

    def __init__(self, topology: Topology, roll: GangPods) -> None:
        self.topology, self.roll = topology, roll
        self.kinds = max(roll.kinds.values(), default=-1) + 1
        self.optional_from = 0  # of the pod set being cut, the rank from which on nobody is waited for

    def group(self, group: Group) -> ConstraintNode:
        names = tuple(pod_set.name for pod_set in group.pod_sets())
        bond, level = self._bond(group.locality, names)
        children = [
            self.group(member) if isinstance(member, Group) else self.pod_set(member)
            for member in group.members
        ]
        return self.over(ConstraintNode(group.name, bond, level, children=children))

    def pod_set(self, pod_set: PodSet) -> ConstraintNode:
        waiting = list(self.roll.waiting.get(pod_set.name, ()))
        stands = list(self.roll.standing.get(pod_set.name, ()))
        bond, level = self._bond(pod_set.locality, (pod_set.name,))
        first = lacking(pod_set, waiting, [rank for rank, _ in stands])
        if self.roll.whole:
            first = len(waiting)
        if not pod_set.segments:
            return self._leaf(
                ConstraintNode(pod_set.name, bond, level), waiting[:first], waiting[first:], stands
            )
        if bond is LocalityStrength.NONE:
            bond, level = LocalityStrength.WISH, 0  # segments rather stay near each other
        needed = {pod.key for pod in waiting[:first]}
        self.optional_from = mandatory_ranks(pod_set)
        return self._cut(ConstraintNode(pod_set.name, bond, level), pod_set.segments, waiting, stands, needed)

    def _cut(
        self, knot: ConstraintNode, segments: Sequence[Segment], waiting: Sequence[Pod],
        stands: Sequence[tuple[int, int]], needed: set[PodKey],
    ) -> ConstraintNode:  # fmt: skip
        """A knot for each segment of which somebody is known, and for those inside them."""
        layer, inner = segments[0], segments[1:]
        if layer.size <= 0:
            raise _UnknownError(self._misfit(Code.SEGMENT_SIZE_MISSING, (knot.part,), layer.level))
        bond, level = self._bond(Locality(required=layer.level), (knot.part,), Code.UNKNOWN_SEGMENT_LEVEL)
        mine: dict[int, tuple[list[Pod], list[tuple[int, int]]]] = {}
        for pod in waiting:
            mine.setdefault(pod.rank // layer.size, ([], []))[0].append(pod)
        for rank, row in stands:
            mine.setdefault(rank // layer.size, ([], []))[1].append((rank, row))
        for number, (pods, there) in sorted(mine.items()):
            size = layer.size if number * layer.size >= self.optional_from else 0
            made = ConstraintNode(knot.part, bond, level, segment=True, size=size)
            if inner:
                knot.children.append(self._cut(made, inner, pods, there, needed))
                continue
            must = [pod for pod in pods if pod.key in needed]
            knot.children.append(self._leaf(made, must, [p for p in pods if p.key not in needed], there))
        return self.over(knot)

    def _leaf(
        self, knot: ConstraintNode, pods: list[Pod], extras: list[Pod], stands: Sequence[tuple[int, int]]
    ) -> ConstraintNode:
        knot.pods, knot.extras, knot.standing = pods, extras, [row for _, row in stands if row >= 0]
        knot.kinds = [self.roll.kinds[pod.key] for pod in pods]
        knot.need = np.bincount(np.array(knot.kinds, np.int64), minlength=self.kinds).astype(np.int64)
        return knot

    def over(self, knot: ConstraintNode) -> ConstraintNode:
        """A knot with what its children need, and where they stand."""
        knot.standing = [row for child in knot.children for row in child.standing]
        knot.need = sum((child.need for child in knot.children), np.zeros(self.kinds, np.int64))
        return knot

    def _bond(
        self, locality: Locality, names: tuple[str, ...], code: Code = Code.UNKNOWN_LEVEL
    ) -> tuple[LocalityStrength, int]:
        named, levels = locality.required or locality.preferred, self.topology.levels
        if named is None:
            return LocalityStrength.NONE, 0
        if named != AUTO and named not in levels:
            raise _UnknownError(self._misfit(code, names, named))
        level = len(levels) - 1 if named == AUTO else levels.index(named)
        if locality.required is None:
            return LocalityStrength.WISH, level
        return (LocalityStrength.SOME if named == AUTO else LocalityStrength.MUST), level

    def _misfit(self, code: Code, names: tuple[str, ...], level: str) -> Misfit:
        return Misfit(code, names, topology=self.topology.name, level=level)


def placed_whole(tree: Group) -> Group:
    """The same tree with every pod set's count as its minimum."""

    def whole(member: Group | PodSet) -> Group | PodSet:
        return placed_whole(member) if isinstance(member, Group) else replace(member, minimum=member.count)

    return replace(tree, members=tuple(whole(member) for member in tree.members))
