"""The pods of a gang with minimums, by kind and as a constraint tree; built once for many attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Group
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch, batch_pods
from bayplan.placement.subgroups.constraint_tree import (
    ConstraintNode,
    GangPods,
    build_constraints,
    missing_pods,
)
from bayplan.placement.subgroups.elastic import ElasticPodSet, Path
from bayplan.placement.subgroups.whole_gang import rows_in


@dataclass(frozen=True, slots=True)
class GangWithMinimums:
    """A gang with minimums, and its pending and bound pods."""

    tree: Group
    pending: Sequence[Pod]  # in the order of pod sets and ranks
    bound: Sequence[Pod] = ()
    extra: int | None = None  # elastic pods to assign beyond the minimums; None: as many as fit
    brief: bool = False  # no explanation is needed if the gang does not fit


@dataclass(frozen=True, slots=True, eq=False)
class TopologyRows:
    """Maps rows of a topology, then all other rows, to rows of the overlay; and back."""

    at: Ints
    back: Ints


@dataclass(slots=True, eq=False)
class GangMembers:
    """The pods of a gang in one overlay. The kind of each batch may differ from attempt to attempt."""

    gang: GangWithMinimums
    snapshot: CapacitySnapshot
    labels: frozenset[str]  # used by selectors
    batches: tuple[PodBatch, ...]
    bound: Mapping[str, Sequence[tuple[int, int]]]
    by_set: Mapping[str, Sequence[Pod]]
    gang_pods_by_kinds: dict[tuple[int, ...], GangPods] = field(default_factory=dict)
    constraints: dict[tuple[tuple[int, ...], bool], ConstraintNode | Misfit] = field(default_factory=dict)

    def gang_pods(self, kinds: tuple[int, ...]) -> GangPods:
        """The pods of the gang, given the kind of each batch."""
        if kinds not in self.gang_pods_by_kinds:
            of_pod: dict[PodKey, int] = {}
            for batch, kind in zip(self.batches, kinds, strict=True):
                of_pod |= dict.fromkeys(batch.keys, kind)
            self.gang_pods_by_kinds[kinds] = GangPods(self.by_set, self.bound, of_pod)
        return self.gang_pods_by_kinds[kinds]

    def constraint(self, kinds: tuple[int, ...], *, whole: bool = False) -> ConstraintNode | Misfit:
        """The constraint tree; if `whole`, all pending pods have to fit."""
        if (kinds, whole) not in self.constraints:
            gang_pods = replace(self.gang_pods(kinds), whole=whole)
            self.constraints[kinds, whole] = build_constraints(
                self.gang.tree, self.snapshot.tree.topology, gang_pods
            )
        return self.constraints[kinds, whole]

    def lacks(self) -> dict[str, int]:
        """By pod set: how many pending pods have to fit."""
        return _lacks(self.gang.tree, self.by_set, self.bound)

    def elastic_sets(self, root: ConstraintNode) -> list[ElasticPodSet]:
        """The pod sets that may grow beyond their minimum."""
        lacks = self.lacks()
        leaves: dict[str, list[tuple[Path, list[Pod]]]] = {}
        _leaves(root, (), leaves)
        return [
            ElasticPodSet(
                pod_set.minimum,
                len(self.bound.get(pod_set.name, ())) + lacks[pod_set.name],
                leaves.get(pod_set.name, [])[::-1],
            )
            for pod_set in self.gang.tree.pod_sets()
        ]


def members_of(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, places: TopologyRows, gang: GangWithMinimums
) -> GangMembers:
    """The members of this gang, from the cache of the overlay if it has them."""
    key = ("members", id(gang.pending), id(gang.bound))
    cached: GangMembers | None = overlay.cache.get(key)
    labels = frozenset(overlay.filter_input.index.keys)
    if (
        cached is not None
        and cached.labels == labels
        and cached.snapshot is snapshot
        and _same(cached.gang, gang)
    ):
        return cached
    by_set: dict[str, list[Pod]] = {}
    for pod in gang.pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    bound_by_set: dict[str, list[tuple[int, int]]] = {}
    for pod in gang.bound:
        row = int(places.back[overlay.row(pod.node)]) if pod.node else ABSENT
        bound_by_set.setdefault(pod.pod_set, []).append((pod.rank, row))
    members = GangMembers(gang, snapshot, labels, batch_pods(overlay, gang.pending), bound_by_set, by_set)
    overlay.cache[key] = members
    return members


def _same(one: GangWithMinimums, other: GangWithMinimums) -> bool:
    """Whether both hold the very same pod objects; the cache keeps these alive, so identity is enough."""
    return one.pending is other.pending and one.bound is other.bound and one.tree is other.tree


def missing_in_gang(tree: Group, pending: Sequence[Pod], bound: Sequence[Pod]) -> int:
    """How many pending pods of a gang have to fit."""
    by_set: dict[str, list[Pod]] = {}
    for pod in pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    bound_by_set: dict[str, list[tuple[int, int]]] = {}
    for pod in bound:
        bound_by_set.setdefault(pod.pod_set, []).append((pod.rank, ABSENT))
    return sum(_lacks(tree, by_set, bound_by_set).values())


def layout(snapshot: CapacitySnapshot, node_index: NodeIndex) -> TopologyRows:
    """The mapping between rows of a topology and rows of the overlay."""
    return node_index.remember(("places of", snapshot.tree), lambda: _layout(snapshot, node_index))


def _layout(snapshot: CapacitySnapshot, node_index: NodeIndex) -> TopologyRows:
    inside = rows_in(snapshot, node_index)
    others = np.ones(len(node_index), bool)
    others[inside[inside != ABSENT]] = False
    at = np.concatenate((inside, np.flatnonzero(others)))
    back = np.full(len(node_index) + 1, ABSENT, np.int64)  # the last entry is for ABSENT
    back[at] = np.arange(len(at))
    back[ABSENT] = ABSENT
    return TopologyRows(at, back)


def _lacks(
    tree: Group, pending: Mapping[str, Sequence[Pod]], bound: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, int]:
    return {
        pod_set.name: missing_pods(
            pod_set, pending.get(pod_set.name, ()), [rank for rank, _ in bound.get(pod_set.name, ())]
        )
        for pod_set in tree.pod_sets()
    }


def _leaves(
    constraint: ConstraintNode, above: Path, by_pod_set: dict[str, list[tuple[Path, list[Pod]]]]
) -> None:
    path = (*above, constraint)
    if constraint.extras:
        by_pod_set.setdefault(constraint.part, []).append((path, list(constraint.extras)))
    for child in constraint.children:
        _leaves(child, path, by_pod_set)
