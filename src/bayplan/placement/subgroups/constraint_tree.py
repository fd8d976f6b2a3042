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
    REQUIRED = "must"  # in one domain of its level
    AUTO = "some"  # in one domain, of its level or of any above
    PREFERRED = "wish"  # the same, if that is possible


@dataclass(slots=True, eq=False)
class ConstraintNode:
    """A group, a pod set or a segment of one."""

    part: str  # the pod set, or the group
    strength: LocalityStrength = LocalityStrength.NONE
    level: int = 0  # where a domain is looked for first
    segment: bool = False  # it is a share of the pod set above it
    size: int = 0  # pods that a segment nobody waits for has once all of them are there
    children: list[ConstraintNode] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)  # they have to have a place; only at leaves
    kinds: list[int] = field(default_factory=list)  # of the pods that have to
    extras: list[Pod] = field(default_factory=list)  # they may have one
    bound_rows: list[int] = field(default_factory=list)  # rows of the pods below that have a node
    need: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # by kind of pod, of all below

    @property
    def is_pinned(self) -> bool:
        """Whether those who stand say where the others belong."""
        return bool(self.bound_rows) and self.strength in (LocalityStrength.REQUIRED, LocalityStrength.AUTO)


@dataclass(frozen=True, slots=True)
class GangPods:
    """Who waits, by pod set in the order of their ranks, and who stands: ranks and rows."""

    pending: Mapping[str, Sequence[Pod]]
    bound: Mapping[str, Sequence[tuple[int, int]]]
    kinds: Mapping[PodKey, int]  # of those who wait
    whole: bool = False  # all who wait have to have a place


def build_constraints(tree: Group, topology: Topology, gang_pods: GangPods) -> ConstraintNode | Misfit:
    """The knots of a tree below one that asks for nothing, or the level that means nothing here."""
    builder = _TreeBuilder(topology, gang_pods)
    try:
        return builder.over(ConstraintNode("", children=[builder.group(tree)]))
    except _UnknownError as unknown:
        return unknown.misfit


def lacking(pod_set: PodSet, pending: Sequence[Pod], bound: Sequence[int]) -> int:
    """How many of a pod set's first pods in rank order have to have a place; `bound` are ranks.

    Of a pod set in segments these are all in the segments that its minimum reaches into.
    """
    if not pod_set.segments or pod_set.segments[0].size <= 0:
        return min(max(pod_set.minimum - len(bound), 0), len(pending))
    rank_limit = mandatory_ranks(pod_set)
    return sum(pod.rank < rank_limit for pod in pending)


def mandatory_ranks(pod_set: PodSet) -> int:
    """Of a pod set in segments, the ranks that it does not start without."""
    size = max(pod_set.segments[0].size, 1)
    return min(-(-pod_set.minimum // size) * size, pod_set.count)


class _UnknownError(Exception):
    def __init__(self, misfit: Misfit) -> None:
        super().__init__(misfit)
        self.misfit = misfit


class _TreeBuilder:
    """Builds the knots of one gang."""

    def __init__(self, topology: Topology, gang_pods: GangPods) -> None:
        self.topology, self.gang_pods = topology, gang_pods
        self.kinds = max(gang_pods.kinds.values(), default=-1) + 1
        self.optional_from = 0  # of the pod set being cut, the rank from which on nobody is waited for

    def group(self, group: Group) -> ConstraintNode:
        names = tuple(pod_set.name for pod_set in group.pod_sets())
        strength, level = self._strength(group.locality, names)
        children = [
            self.group(member) if isinstance(member, Group) else self.pod_set(member)
            for member in group.members
        ]
        return self.over(ConstraintNode(group.name, strength, level, children=children))

    def pod_set(self, pod_set: PodSet) -> ConstraintNode:
        pending = list(self.gang_pods.pending.get(pod_set.name, ()))
        bound_by_set = list(self.gang_pods.bound.get(pod_set.name, ()))
        strength, level = self._strength(pod_set.locality, (pod_set.name,))
        first = lacking(pod_set, pending, [rank for rank, _ in bound_by_set])
        if self.gang_pods.whole:
            first = len(pending)
        if not pod_set.segments:
            return self._leaf(
                ConstraintNode(pod_set.name, strength, level), pending[:first], pending[first:], bound_by_set
            )
        if strength is LocalityStrength.NONE:
            strength, level = LocalityStrength.PREFERRED, 0  # segments rather stay near each other
        needed = {pod.key for pod in pending[:first]}
        self.optional_from = mandatory_ranks(pod_set)
        return self._cut(
            ConstraintNode(pod_set.name, strength, level), pod_set.segments, pending, bound_by_set, needed
        )

    def _cut(
        self, constraint: ConstraintNode, segments: Sequence[Segment], pending: Sequence[Pod],
        bound_by_set: Sequence[tuple[int, int]], needed: set[PodKey],
    ) -> ConstraintNode:  # fmt: skip
        """A knot for each segment of which somebody is known, and for those inside them."""
        layer, inner = segments[0], segments[1:]
        if layer.size <= 0:
            raise _UnknownError(self._misfit(Code.SEGMENT_SIZE_MISSING, (constraint.part,), layer.level))
        strength, level = self._strength(
            Locality(required=layer.level), (constraint.part,), Code.UNKNOWN_SEGMENT_LEVEL
        )
        mine: dict[int, tuple[list[Pod], list[tuple[int, int]]]] = {}
        for pod in pending:
            mine.setdefault(pod.rank // layer.size, ([], []))[0].append(pod)
        for rank, row in bound_by_set:
            mine.setdefault(rank // layer.size, ([], []))[1].append((rank, row))
        for number, (pods, there) in sorted(mine.items()):
            size = layer.size if number * layer.size >= self.optional_from else 0
            made = ConstraintNode(constraint.part, strength, level, segment=True, size=size)
            if inner:
                constraint.children.append(self._cut(made, inner, pods, there, needed))
                continue
            must = [pod for pod in pods if pod.key in needed]
            constraint.children.append(
                self._leaf(made, must, [p for p in pods if p.key not in needed], there)
            )
        return self.over(constraint)

    def _leaf(
        self,
        constraint: ConstraintNode,
        pods: list[Pod],
        extras: list[Pod],
        bound_by_set: Sequence[tuple[int, int]],
    ) -> ConstraintNode:
        constraint.pods, constraint.extras, constraint.bound_rows = (
            pods,
            extras,
            [row for _, row in bound_by_set if row >= 0],
        )
        constraint.kinds = [self.gang_pods.kinds[pod.key] for pod in pods]
        constraint.need = np.bincount(np.array(constraint.kinds, np.int64), minlength=self.kinds).astype(
            np.int64
        )
        return constraint

    def over(self, constraint: ConstraintNode) -> ConstraintNode:
        """A knot with what its children need, and where they stand."""
        constraint.bound_rows = [row for child in constraint.children for row in child.bound_rows]
        constraint.need = sum((child.need for child in constraint.children), np.zeros(self.kinds, np.int64))
        return constraint

    def _strength(
        self, locality: Locality, names: tuple[str, ...], code: Code = Code.UNKNOWN_LEVEL
    ) -> tuple[LocalityStrength, int]:
        named, levels = locality.required or locality.preferred, self.topology.levels
        if named is None:
            return LocalityStrength.NONE, 0
        if named != AUTO and named not in levels:
            raise _UnknownError(self._misfit(code, names, named))
        level = len(levels) - 1 if named == AUTO else levels.index(named)
        if locality.required is None:
            return LocalityStrength.PREFERRED, level
        return (LocalityStrength.AUTO if named == AUTO else LocalityStrength.REQUIRED), level

    def _misfit(self, code: Code, names: tuple[str, ...], level: str) -> Misfit:
        return Misfit(code, names, topology=self.topology.name, level=level)


def with_full_minimums(tree: Group) -> Group:
    """The same tree with every pod set's count as its minimum."""

    def whole(member: Group | PodSet) -> Group | PodSet:
        return (
            with_full_minimums(member) if isinstance(member, Group) else replace(member, minimum=member.count)
        )

    return replace(tree, members=tuple(whole(member) for member in tree.members))
