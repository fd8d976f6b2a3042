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
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, GangPods, knots_of, lacking
from bayplan.placement.subgroups.elastic import ElasticPodSet, Path
from bayplan.placement.subgroups.whole_gang import rows_in


@dataclass(frozen=True, slots=True)
class GangWithMinimums:
    """A gang with minima, and who of it is there."""

    tree: Group
    waiting: Sequence[Pod]  # in the order of pod sets and ranks
    standing: Sequence[Pod] = ()
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
    supply: CapacitySnapshot
    labels: frozenset[str]  # that anybody looks at
    parties: tuple[PodBatch, ...]
    standing: Mapping[str, Sequence[tuple[int, int]]]
    by_set: Mapping[str, Sequence[Pod]]
    rolls: dict[tuple[int, ...], GangPods] = field(default_factory=dict)
    knots: dict[tuple[tuple[int, ...], bool], ConstraintNode | Misfit] = field(default_factory=dict)

    def roll(self, kinds: tuple[int, ...]) -> GangPods:
        """Who is there, given the kind of each party."""
        if kinds not in self.rolls:
            of_pod: dict[PodKey, int] = {}
            for party, kind in zip(self.parties, kinds, strict=True):
                of_pod |= dict.fromkeys(party.keys, kind)
            self.rolls[kinds] = GangPods(self.by_set, self.standing, of_pod)
        return self.rolls[kinds]

    def knot(self, kinds: tuple[int, ...], *, whole: bool = False) -> ConstraintNode | Misfit:
        """The same as knots; if it is to be whole, with everybody as one it cannot do without."""
        if (kinds, whole) not in self.knots:
            roll = replace(self.roll(kinds), whole=whole)
            self.knots[kinds, whole] = knots_of(self.wanted.tree, self.supply.tree.topology, roll)
        return self.knots[kinds, whole]

    def lacks(self) -> dict[str, int]:
        """By pod set, how many of those who wait have to have a place."""
        return _lacks(self.wanted.tree, self.by_set, self.standing)

    def growers(self, root: ConstraintNode) -> list[ElasticPodSet]:
        """The pod sets of which more may come."""
        lacks = self.lacks()
        leaves: dict[str, list[tuple[Path, list[Pod]]]] = {}
        _leaves(root, (), leaves)
        return [
            ElasticPodSet(
                one.minimum,
                len(self.standing.get(one.name, ())) + lacks[one.name],
                leaves.get(one.name, [])[::-1],
            )
            for one in self.wanted.tree.pod_sets()
        ]


def members_of(
    floor: NodeOverlay, supply: CapacitySnapshot, places: TopologyRows, wanted: GangWithMinimums
) -> GangMembers:
    """Those of this very gang that were worked out before on this floor, or else now."""
    key = ("members", id(wanted.waiting), id(wanted.standing))
    known: GangMembers | None = floor.remembered.get(key)
    labels = frozenset(floor.scene.index.keys)
    if (
        known is not None
        and known.labels == labels
        and known.supply is supply
        and _same(known.wanted, wanted)
    ):
        return known
    by_set: dict[str, list[Pod]] = {}
    for pod in wanted.waiting:
        by_set.setdefault(pod.pod_set, []).append(pod)
    stands: dict[str, list[tuple[int, int]]] = {}
    for pod in wanted.standing:
        row = int(places.back[floor.row(pod.node)]) if pod.node else ABSENT
        stands.setdefault(pod.pod_set, []).append((pod.rank, row))
    made = GangMembers(wanted, supply, labels, parties_of(floor, wanted.waiting), stands, by_set)
    floor.remembered[key] = made
    return made


def _same(one: GangWithMinimums, other: GangWithMinimums) -> bool:
    """Whether they are about the very same pods; objects are kept alive by being remembered."""
    return one.waiting is other.waiting and one.standing is other.standing and one.tree is other.tree


def lacking_in(tree: Group, waiting: Sequence[Pod], standing: Sequence[Pod]) -> int:
    """How many of those who wait have to have a place."""
    by_set: dict[str, list[Pod]] = {}
    for pod in waiting:
        by_set.setdefault(pod.pod_set, []).append(pod)
    stands: dict[str, list[tuple[int, int]]] = {}
    for pod in standing:
        stands.setdefault(pod.pod_set, []).append((pod.rank, ABSENT))
    return sum(_lacks(tree, by_set, stands).values())


def layout(supply: CapacitySnapshot, land: NodeIndex) -> TopologyRows:
    """Where the rows of a topology are on the floor."""
    return land.remember(("places of", supply.tree), lambda: _laid_out(supply, land))


def _laid_out(supply: CapacitySnapshot, land: NodeIndex) -> TopologyRows:
    inside = rows_in(supply, land)
    others = np.ones(len(land), bool)
    others[inside[inside != ABSENT]] = False
    at = np.concatenate((inside, np.flatnonzero(others)))
    back = np.full(len(land) + 1, ABSENT, np.int64)  # the last is for rows that are not there
    back[at] = np.arange(len(at))
    back[ABSENT] = ABSENT
    return TopologyRows(at, back)


def _lacks(
    tree: Group, waiting: Mapping[str, Sequence[Pod]], standing: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, int]:
    return {
        one.name: lacking(one, waiting.get(one.name, ()), [rank for rank, _ in standing.get(one.name, ())])
        for one in tree.pod_sets()
    }


def _leaves(knot: ConstraintNode, above: Path, found: dict[str, list[tuple[Path, list[Pod]]]]) -> None:
    path = (*above, knot)
    if knot.extras:
        found.setdefault(knot.part, []).append((path, list(knot.extras)))
    for child in knot.children:
        _leaves(child, path, found)
