"""The constraint tree of a gang: for each group, pod set and segment its locality, pending and bound pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import AUTO, Group, Locality, PodSet, Segment
from bayplan.model.node import Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.cluster.topology_tree import Ints


class LocalityStrength(Enum):
    """How strongly the pods below a constraint are kept in one domain."""

    NONE = "none"
    REQUIRED = "required"  # in one domain of its level
    AUTO = "auto"  # in one domain, of its level or of any level above
    PREFERRED = "preferred"  # as AUTO, if possible


@dataclass(slots=True, eq=False)
class ConstraintNode:
    """A group, a pod set or a segment of a pod set."""

    part: str  # the pod set, or the group
    strength: LocalityStrength = LocalityStrength.NONE
    level: int = 0  # where the search for a domain starts
    segment: bool = False  # it is a segment of the pod set above it
    size: int = 0  # of an elastic segment: its pods once it is complete
    children: list[ConstraintNode] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)  # pods that have to fit; only at leaves
    kinds: list[int] = field(default_factory=list)  # by pod in `pods`
    extras: list[Pod] = field(default_factory=list)  # elastic pods beyond the minimum
    bound_rows: list[int] = field(default_factory=list)  # rows of the pods below that have a node
    need: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # pods that have to fit below, by kind

    @property
    def is_pinned(self) -> bool:
        """Whether bound pods fix the domain of the others."""
        return bool(self.bound_rows) and self.strength in (LocalityStrength.REQUIRED, LocalityStrength.AUTO)


@dataclass(frozen=True, slots=True)
class GangPods:
    """The pending pods by pod set in rank order, and the bound ones as (rank, row)."""

    pending: Mapping[str, Sequence[Pod]]
    bound: Mapping[str, Sequence[tuple[int, int]]]
    kinds: Mapping[PodKey, int]  # of the pending pods
    whole: bool = False  # all pending pods have to fit


def build_constraints(tree: Group, topology: Topology, gang_pods: GangPods) -> ConstraintNode | Misfit:
    """The constraint tree of a gang below an unconstrained root, or the level that the topology lacks."""
    builder = _TreeBuilder(topology, gang_pods)
    try:
        return builder.over(ConstraintNode("", children=[builder.group(tree)]))
    except _UnknownError as unknown:
        return unknown.misfit


def missing_pods(pod_set: PodSet, pending: Sequence[Pod], bound: Sequence[int]) -> int:
    """How many of the first pending pods of a pod set have to fit; `bound` are the ranks of bound pods.

    For a pod set with segments these are all pods of the segments that its minimum reaches into.
    """
    if not pod_set.segments or pod_set.segments[0].size <= 0:
        return min(max(pod_set.minimum - len(bound), 0), len(pending))
    rank_limit = mandatory_ranks(pod_set)
    return sum(pod.rank < rank_limit for pod in pending)


def mandatory_ranks(pod_set: PodSet) -> int:
    """How many ranks of a pod set with segments have to fit for it to start."""
    size = max(pod_set.segments[0].size, 1)
    return min(-(-pod_set.minimum // size) * size, pod_set.count)


class _UnknownError(Exception):
    def __init__(self, misfit: Misfit) -> None:
        super().__init__(misfit)
        self.misfit = misfit


class _TreeBuilder:
    """Builds the constraint tree of one gang."""

    def __init__(self, topology: Topology, gang_pods: GangPods) -> None:
        self.topology, self.gang_pods = topology, gang_pods
        self.kinds = max(gang_pods.kinds.values(), default=-1) + 1
        self.optional_from = 0  # of the pod set being split: the first rank that is not needed to start

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
        bound = list(self.gang_pods.bound.get(pod_set.name, ()))
        strength, level = self._strength(pod_set.locality, (pod_set.name,))
        first = missing_pods(pod_set, pending, [rank for rank, _ in bound])
        if self.gang_pods.whole:
            first = len(pending)
        if not pod_set.segments:
            return self._leaf(
                ConstraintNode(pod_set.name, strength, level), pending[:first], pending[first:], bound
            )
        if strength is LocalityStrength.NONE:
            strength, level = LocalityStrength.PREFERRED, 0  # segments prefer to be near each other
        needed = {pod.key for pod in pending[:first]}
        self.optional_from = mandatory_ranks(pod_set)
        return self._split(
            ConstraintNode(pod_set.name, strength, level), pod_set.segments, pending, bound, needed
        )

    def _split(
        self, constraint: ConstraintNode, segments: Sequence[Segment], pending: Sequence[Pod],
        bound_by_set: Sequence[tuple[int, int]], needed: set[PodKey],
    ) -> ConstraintNode:  # fmt: skip
        """Add a constraint for each segment that has pods, and for the segments inside."""
        layer, inner = segments[0], segments[1:]
        if layer.size <= 0:
            raise _UnknownError(self._misfit(Code.SEGMENT_SIZE_MISSING, (constraint.part,), layer.level))
        strength, level = self._strength(
            Locality(required=layer.level), (constraint.part,), Code.UNKNOWN_SEGMENT_LEVEL
        )
        by_segment: dict[int, tuple[list[Pod], list[tuple[int, int]]]] = {}
        for pod in pending:
            by_segment.setdefault(pod.rank // layer.size, ([], []))[0].append(pod)
        for rank, row in bound_by_set:
            by_segment.setdefault(rank // layer.size, ([], []))[1].append((rank, row))
        for number, (pods, bound_here) in sorted(by_segment.items()):
            size = layer.size if number * layer.size >= self.optional_from else 0
            child = ConstraintNode(constraint.part, strength, level, segment=True, size=size)
            if inner:
                constraint.children.append(self._split(child, inner, pods, bound_here, needed))
                continue
            required = [pod for pod in pods if pod.key in needed]
            constraint.children.append(
                self._leaf(child, required, [p for p in pods if p.key not in needed], bound_here)
            )
        return self.over(constraint)

    def _leaf(
        self,
        constraint: ConstraintNode,
        pods: list[Pod],
        extras: list[Pod],
        bound: Sequence[tuple[int, int]],
    ) -> ConstraintNode:
        constraint.pods, constraint.extras, constraint.bound_rows = (
            pods,
            extras,
            [row for _, row in bound if row >= 0],
        )
        constraint.kinds = [self.gang_pods.kinds[pod.key] for pod in pods]
        constraint.need = np.bincount(np.array(constraint.kinds, np.int64), minlength=self.kinds).astype(
            np.int64
        )
        return constraint

    def over(self, constraint: ConstraintNode) -> ConstraintNode:
        """Sum up the needs and bound rows of the children."""
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
