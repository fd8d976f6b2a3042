"""Seats for a gang that does with some of its members: a quorum or nobody, then whoever else has a place.

A member of a group is whole or stays behind with all of its pods. If there are places for all members, they
all come. Otherwise those are left out that would have no place even if they came alone; then a quorum is
sought, the smallest members first, and others are added as long as everybody keeps a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, islice, product

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import Group, PodSet
from bayplan.model.gang_minimum import fewest_more, is_whole, short_part
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.explain import TreeMisfit
from bayplan.placement.subgroups.members import GangWithMinimums
from bayplan.placement.subgroups.minimums import minima_seats

NOWHERE = -1
TRIES_MAX = 64  # searches for places, in one attempt
WAYS_FIRST = 4  # in which a group may be whole, that those above it choose from at first
COMBINATIONS_MAX = 500
Parts = frozenset[str]
"""Pod sets."""


def quorum_seats(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    wanted: GangWithMinimums,
    *,
    profile: Profile,
    within: Bools | None = None,
) -> NodeAssignment | TreeMisfit:
    """Seat the members that have a place together, if they are enough; else nobody."""
    ordered = replace(wanted, pending=_easiest_first(overlay, wanted.pending))
    return _QuorumSearch(overlay, snapshot, ordered, profile, within).run()


@dataclass(slots=True, eq=False)
class _QuorumSearch:
    """One attempt."""

    overlay: NodeOverlay
    snapshot: CapacitySnapshot
    wanted: GangWithMinimums
    profile: Profile
    allowed_nodes: Bools | None
    there: Counter[str] = field(default_factory=Counter)
    bound: Counter[str] = field(default_factory=Counter)
    pending: dict[str, list[Pod]] = field(default_factory=dict)
    ways: dict[int, list[Parts]] = field(default_factory=dict)  # by member (identity)
    ways_most: int = WAYS_FIRST  # of each member
    maybe_more: bool = False  # some member may have more ways than were looked at
    known: dict[object, bool] = field(default_factory=dict)  # of what is alike, whether it has a place
    tries: int = 0
    cut_short: bool = False

    def __post_init__(self) -> None:
        for pod in self.wanted.pending:
            self.pending.setdefault(pod.pod_set, []).append(pod)
        self.bound.update(pod.pod_set for pod in self.wanted.bound)
        self.there.update(self.bound)
        self.there.update(pod.pod_set for pod in self.wanted.pending)

    def run(self) -> NodeAssignment | TreeMisfit:
        tree = self.wanted.tree
        torn = self._torn(tree)
        if torn is not None:
            return TreeMisfit(torn)
        able = frozenset(self._able(tree))
        if not any(name in able for name in self.pending):
            part = short_part(tree, self.there) or self._unable(tree)
            return TreeMisfit() if part is None else TreeMisfit(part=part.name, minimum=part.minimum)
        found = self._assign(able, brief=self.wanted.brief)
        if isinstance(found, NodeAssignment) or self._cost(able) == fewest_more(tree, self.bound):
            return found  # or nobody can be left out
        way = self._first_way(tree)
        if way is None:
            return replace(found, unsure=found.unsure or self.cut_short)
        some = frozenset(self._placeable(tree))
        if some != able:
            better = self._assign(some, brief=self.wanted.brief)
            if isinstance(better, NodeAssignment):
                return better
        final = self._assign(self._more(tree, way), brief=self.wanted.brief)
        return final if isinstance(final, NodeAssignment) else replace(found, unsure=self.cut_short)

    def _torn(self, member: Group | PodSet) -> Misfit | None:
        """The first that should be in one domain, and stands in several or outside of all."""
        names = (member.name,) if isinstance(member, PodSet) else tuple(p.name for p in member.pod_sets())
        level = member.locality.required
        if level is not None:
            nodes, rows = self.overlay.scene.ground.land.table.nodes, self._rows(names)
            values = {nodes[row].labels.get(level) if row != NOWHERE else None for row in rows}
            if len(values) > 1 or None in values:
                return Misfit(
                    Code.STALE_ASSIGNMENT, names, topology=self.snapshot.tree.topology.name, level=level
                )
        inner = () if isinstance(member, PodSet) else member.members
        return next((found for one in inner if (found := self._torn(one)) is not None), None)

    def _rows(self, names: tuple[str, ...]) -> list[int]:
        """Where pods of these pod sets stand."""
        mine = (pod for pod in self.wanted.bound if pod.node and pod.pod_set in names)
        return [self.overlay.row(pod.node) for pod in mine]

    # ── who could come at all ──────────────────────────────────────────────────────────────────────

    def _able(self, member: Group | PodSet) -> Iterator[str]:
        """Pod sets of members that have as many pods as it takes."""
        if not is_whole(member, self.there):
            return
        if isinstance(member, PodSet):
            yield member.name
            return
        for inner in member.members:
            yield from self._able(inner)

    def _unable(self, member: Group | PodSet) -> Group | PodSet | None:
        """The first part with pods that wait in vain, for others that are not there."""
        if isinstance(member, PodSet):
            return None
        for inner in member.members:
            parts = {inner.name} if isinstance(inner, PodSet) else {one.name for one in inner.pod_sets()}
            if parts & self.pending.keys():
                return short_part(inner, self.there) or self._unable(inner)
        return None

    # ── ways to be whole ───────────────────────────────────────────────────────────────────────────

    def _first_way(self, tree: Group) -> Parts | None:
        """A quorum. If none is found among a few ways of each member, more and more of them are looked at."""
        while True:
            found = next(self._ways_of(tree), None)
            if found is not None or self.cut_short or not self.maybe_more:
                self.ways[id(tree)] = [] if found is None else [found]
                return found
            self.ways.clear()
            self.ways_most, self.maybe_more = 4 * self.ways_most, False

    def _ways(self, member: Group | PodSet) -> list[Parts]:
        """A few sets of pod sets with which a member is whole, if nobody else comes; the smallest first."""
        if id(member) not in self.ways:
            found = self._ways_of_leaf(member) if isinstance(member, PodSet) else self._ways_of(member)
            self.ways[id(member)] = list(islice(found, self.ways_most))
            self.maybe_more |= len(self.ways[id(member)]) == self.ways_most
        return self.ways[id(member)]

    def _ways_of_leaf(self, pod_set: PodSet) -> Iterator[Parts]:
        way = frozenset({pod_set.name})
        if self.there[pod_set.name] >= pod_set.minimum and self._fits(way):
            yield way

    def _ways_of(self, group: Group) -> Iterator[Parts]:
        inner = [ways for member in group.members if (ways := self._ways(member))]
        inner.sort(key=lambda ways: self._cost(ways[0]))
        seen = 0
        for members in combinations(inner, group.minimum):
            for choice in product(*members):
                seen += 1
                if seen > COMBINATIONS_MAX:
                    self.cut_short = True
                    return
                way: Parts = frozenset().union(*choice)
                if self._fits(way):
                    yield way

    def _placeable(self, member: Group | PodSet) -> Iterator[str]:
        """Pod sets of members that would have a place if nobody else came."""
        if not self._ways(member):
            return
        if isinstance(member, PodSet):
            yield member.name
            return
        for inner in member.members:
            yield from self._placeable(inner)

    def _more(self, member: Group | PodSet, chosen: Parts) -> Parts:
        """With others that may come besides, one after the other."""
        if isinstance(member, PodSet):
            return chosen
        for inner in member.members:
            mine = {inner.name} if isinstance(inner, PodSet) else {one.name for one in inner.pod_sets()}
            if not mine & chosen:
                more = (chosen | way for way in self._ways(inner) if self._fits(chosen | way))
                chosen = next(more, chosen)
            if mine & chosen:
                chosen = self._more(inner, chosen)
        return chosen

    # ── trying ─────────────────────────────────────────────────────────────────────────────────────

    def _fits(self, parts: Parts) -> bool:
        """Whether these have places together, with whoever stands."""
        if not self._cost(parts):
            return True
        key = self._likeness(parts)
        if key not in self.known:
            if self.tries >= TRIES_MAX:
                self.cut_short = True
                return False
            self.tries += 1
            checkpoint = self.overlay.mark()
            self.known[key] = isinstance(self._assign(parts, brief=True), NodeAssignment)
            self.overlay.undo(checkpoint)
        return self.known[key]

    def _assign(self, parts: Parts, *, brief: bool) -> NodeAssignment | TreeMisfit:
        pending, cut = self.wanted.pending, self.wanted
        if not parts >= self.pending.keys():
            pending = tuple(pod for pod in pending if pod.pod_set in parts)
        if not parts >= {one.name for one in cut.tree.pod_sets()}:
            cut = replace(cut, tree=_cut(cut.tree, parts))
        cut = replace(cut, pending=pending, brief=brief)
        checkpoint = self.overlay.mark()
        found = minima_seats(
            self.overlay, self.snapshot, cut, profile=self.profile, within=self.allowed_nodes
        )
        if not isinstance(found, NodeAssignment):
            return found
        counts = self.bound + Counter(pod.pod_set for pod in pending if pod.key in found.seats)
        if not all(counts[one.name] >= one.minimum for one in cut.tree.pod_sets()):
            self.overlay.undo(checkpoint)  # they are in each other's way
            return TreeMisfit(pod=pending[0], unsure=True)
        left = {
            pod.key: self.overlay.judge(pod.wants.shape).why
            for pod in (() if brief else self.wanted.pending)
            if pod.key not in found.seats and pod.key not in found.left
        }
        return replace(found, left={**found.left, **left})

    def _cost(self, parts: Parts) -> int:
        """How many pods have to have a place for these to be whole."""
        minima = {one.name: one.minimum for one in self.wanted.tree.pod_sets()}
        return sum(max(minima[name] - self.bound[name], 0) for name in parts)

    def _likeness(self, parts: Parts) -> object:
        """What sets of pod sets have in common of which one has places if the other has."""
        return frozenset(Counter(map(self._kind, parts)).items())

    def _kind(self, name: str) -> object:
        if self.bound[name]:
            return name
        shapes = Counter(pod.wants.shape for pod in self.pending.get(name, ()))
        return self._home(self.wanted.tree, name), frozenset(shapes.items())

    def _home(self, group: Group, name: str) -> object:
        """The group that a pod set is a member of, with what is asked of the pod set."""
        for member in group.members:
            if isinstance(member, Group):
                found = self._home(member, name)
                if found is not None:
                    return found
            elif member.name == name:
                return id(group), member.minimum, member.locality
        return None


def _cut(group: Group, parts: Parts) -> Group:
    """The same tree, where nothing is asked for other pod sets than these."""

    def cut(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return _cut(member, parts)
        return member if member.name in parts else replace(member, minimum=0)

    return replace(group, members=tuple(cut(member) for member in group.members))


def _easiest_first(overlay: NodeOverlay, pending: Sequence[Pod]) -> tuple[Pod, ...]:
    """Pods of each pod set in the order in which they come, but of unlike ones the easiest to place first.

    Those have most nodes to choose from, and take least. A pod set needs so many, whichever they are.
    """
    shapes = {pod.wants.shape for pod in pending}
    if len(shapes) < 2:
        return tuple(pending)
    ease = {shape: (-int(overlay.judge(shape).fits.sum()), _share(overlay, shape)) for shape in shapes}
    return tuple(sorted(pending, key=lambda pod: (pod.pod_set, *ease[pod.wants.shape])))


def _share(overlay: NodeOverlay, shape: PodSignature) -> Fraction:
    """What a pod takes of the resource that it takes most of, as a share of all there is."""
    node_snapshot = overlay.scene.ground
    totals = {
        name: int(node_snapshot.allocatable[row].sum()) for name, row in node_snapshot.resources.items()
    }
    asked = ((amount, totals.get(name, 0)) for name, amount in shape.amounts)
    return max((Fraction(amount, total) for amount, total in asked if total), default=Fraction(0))
