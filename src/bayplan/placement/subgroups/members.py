"""The pods of a gang with minima, by kind and tied into knots: worked out once for many attempts."""

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
from bayplan.placement.pods.batches import PodBatch, parties_of
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, GangPods, build_constraints, lacking
from bayplan.placement.subgroups.elastic import ElasticPodSet, Path
from bayplan.placement.subgroups.whole_gang import rows_in


@dataclass(frozen=True, slots=True)
class GangWithMinimums:
    """A gang with minima, and who of it is there."""

    tree: Group
    pending: Sequence[Pod]  # in the order of pod sets and ranks
    bound: Sequence[Pod] = ()
    extra: int | None = None  # how many more than it lacks of its minima; None: as many as fit
    brief: bool = False  # nobody will read why there is no place


@dataclass(frozen=True, slots=True, eq=False)
class TopologyRows:
    """Rows of a topology, then all others, as rows of the floor; and the other way round."""

    at: Ints
    back: Ints


@dataclass(slots=True, eq=False)
class GangMembers:
    """The pods of a gang on one floor. What kind each party is may change from attempt to attempt."""

    wanted: GangWithMinimums
    snapshot: CapacitySnapshot
    labels: frozenset[str]  # that anybody looks at
    batches: tuple[PodBatch, ...]
    bound: Mapping[str, Sequence[tuple[int, int]]]
    by_set: Mapping[str, Sequence[Pod]]
    gang_pods_by_kinds: dict[tuple[int, ...], GangPods] = field(default_factory=dict)
    constraints: dict[tuple[tuple[int, ...], bool], ConstraintNode | Misfit] = field(default_factory=dict)

    def gang_pods(self, kinds: tuple[int, ...]) -> GangPods:
        """Who is there, given the kind of each party."""
        if kinds not in self.gang_pods_by_kinds:
            of_pod: dict[PodKey, int] = {}
            for batch, kind in zip(self.batches, kinds, strict=True):
                of_pod |= dict.fromkeys(batch.keys, kind)
            self.gang_pods_by_kinds[kinds] = GangPods(self.by_set, self.bound, of_pod)
        return self.gang_pods_by_kinds[kinds]

    def constraint(self, kinds: tuple[int, ...], *, whole: bool = False) -> ConstraintNode | Misfit:
        """The same as knots; if it is to be whole, with everybody as one it cannot do without."""
        if (kinds, whole) not in self.constraints:
            gang_pods = replace(self.gang_pods(kinds), whole=whole)
            self.constraints[kinds, whole] = build_constraints(
                self.wanted.tree, self.snapshot.tree.topology, gang_pods
            )
        return self.constraints[kinds, whole]

    def lacks(self) -> dict[str, int]:
        """By pod set, how many of those who wait have to have a place."""
        return _lacks(self.wanted.tree, self.by_set, self.bound)

    def elastic_sets(self, root: ConstraintNode) -> list[ElasticPodSet]:
        """The pod sets of which more may come."""
        lacks = self.lacks()
        leaves: dict[str, list[tuple[Path, list[Pod]]]] = {}
        _leaves(root, (), leaves)
        return [
            ElasticPodSet(
                one.minimum,
                len(self.bound.get(one.name, ())) + lacks[one.name],
                leaves.get(one.name, [])[::-1],
            )
            for one in self.wanted.tree.pod_sets()
        ]


def members_of(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, places: TopologyRows, wanted: GangWithMinimums
) -> GangMembers:
    """Those of this very gang that were worked out before on this floor, or else now."""
    key = ("members", id(wanted.pending), id(wanted.bound))
    known: GangMembers | None = overlay.remembered.get(key)
    labels = frozenset(overlay.scene.index.keys)
    if (
        known is not None
        and known.labels == labels
        and known.snapshot is snapshot
        and _same(known.wanted, wanted)
    ):
        return known
    by_set: dict[str, list[Pod]] = {}
    for pod in wanted.pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    bound_by_set: dict[str, list[tuple[int, int]]] = {}
    for pod in wanted.bound:
        row = int(places.back[overlay.row(pod.node)]) if pod.node else ABSENT
        bound_by_set.setdefault(pod.pod_set, []).append((pod.rank, row))
    made = GangMembers(wanted, snapshot, labels, parties_of(overlay, wanted.pending), bound_by_set, by_set)
    overlay.remembered[key] = made
    return made


def _same(one: GangWithMinimums, other: GangWithMinimums) -> bool:
    """Whether they are about the very same pods; objects are kept alive by being remembered."""
    return one.pending is other.pending and one.bound is other.bound and one.tree is other.tree


def lacking_in(tree: Group, pending: Sequence[Pod], bound: Sequence[Pod]) -> int:
    """How many of those who wait have to have a place."""
    by_set: dict[str, list[Pod]] = {}
    for pod in pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    bound_by_set: dict[str, list[tuple[int, int]]] = {}
    for pod in bound:
        bound_by_set.setdefault(pod.pod_set, []).append((pod.rank, ABSENT))
    return sum(_lacks(tree, by_set, bound_by_set).values())


def layout(snapshot: CapacitySnapshot, node_index: NodeIndex) -> TopologyRows:
    """Where the rows of a topology are on the floor."""
    return node_index.remember(("places of", snapshot.tree), lambda: _laid_out(snapshot, node_index))


def _laid_out(snapshot: CapacitySnapshot, node_index: NodeIndex) -> TopologyRows:
    inside = rows_in(snapshot, node_index)
    others = np.ones(len(node_index), bool)
    others[inside[inside != ABSENT]] = False
    at = np.concatenate((inside, np.flatnonzero(others)))
    back = np.full(len(node_index) + 1, ABSENT, np.int64)  # the last is for rows that are not there
    back[at] = np.arange(len(at))
    back[ABSENT] = ABSENT
    return TopologyRows(at, back)


def _lacks(
    tree: Group, pending: Mapping[str, Sequence[Pod]], bound: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, int]:
    return {
        one.name: lacking(one, pending.get(one.name, ()), [rank for rank, _ in bound.get(one.name, ())])
        for one in tree.pod_sets()
    }


def _leaves(constraint: ConstraintNode, above: Path, found: dict[str, list[tuple[Path, list[Pod]]]]) -> None:
    path = (*above, constraint)
    if constraint.extras:
        found.setdefault(constraint.part, []).append((path, list(constraint.extras)))
    for child in constraint.children:
        _leaves(child, path, found)
