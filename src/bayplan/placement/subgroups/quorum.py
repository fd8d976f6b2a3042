"""Assigns a gang that may start with some of its members: a quorum or nothing, then further members that fit.

A member of a group reaches its minimum or none of its pods is assigned. If all members fit, all are assigned.
Otherwise members that do not fit even alone are left out; then a quorum is searched, the smallest members
first, and further members are added as long as all of them fit together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, islice, product

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import Group, PodSet, has_minimum, part_below_minimum, pods_to_minimum
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.explain import TreeMisfit
from bayplan.placement.subgroups.members import GangWithMinimums
from bayplan.placement.subgroups.minimums import assign_minimums

NOWHERE = -1
TRIES_MAX = 64  # searches in one attempt
WAYS_FIRST = 4  # ways to complete a group that the groups above choose from at first
COMBINATIONS_MAX = 500
Parts = frozenset[str]
"""Names of pod sets."""


def assign_quorum(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    gang: GangWithMinimums,
    *,
    profile: Profile,
    allowed_nodes: Bools | None = None,
) -> NodeAssignment | TreeMisfit:
    """Assign the members that fit together if they are a quorum; else none."""
    ordered = replace(gang, pending=_easiest_first(overlay, gang.pending))
    return _QuorumSearch(overlay, snapshot, ordered, profile, allowed_nodes).run()


@dataclass(slots=True, eq=False)
class _QuorumSearch:
    """One attempt to assign a quorum."""

    overlay: NodeOverlay
    snapshot: CapacitySnapshot
    gang: GangWithMinimums
    profile: Profile
    allowed_nodes: Bools | None
    present: Counter[str] = field(default_factory=Counter)
    bound: Counter[str] = field(default_factory=Counter)
    pending: dict[str, list[Pod]] = field(default_factory=dict)
    ways: dict[int, list[Parts]] = field(default_factory=dict)  # by member (identity)
    ways_limit: int = WAYS_FIRST  # of each member
    maybe_more: bool = False  # some member may have more ways than were tried
    known: dict[object, bool] = field(default_factory=dict)  # whether equivalent sets of pod sets fit
    tries: int = 0
    cut_short: bool = False

    def __post_init__(self) -> None:
        for pod in self.gang.pending:
            self.pending.setdefault(pod.pod_set, []).append(pod)
        self.bound.update(pod.pod_set for pod in self.gang.bound)
        self.present.update(self.bound)
        self.present.update(pod.pod_set for pod in self.gang.pending)

    def run(self) -> NodeAssignment | TreeMisfit:
        tree = self.gang.tree
        misfit = self._split_member(tree)
        if misfit is not None:
            return TreeMisfit(misfit)
        able = frozenset(self._able(tree))
        if not any(name in able for name in self.pending):
            part = part_below_minimum(tree, self.present) or self._unable(tree)
            return TreeMisfit() if part is None else TreeMisfit(part=part.name, minimum=part.minimum)
        result = self._assign(able, brief=self.gang.brief)
        if isinstance(result, NodeAssignment) or self._cost(able) == pods_to_minimum(tree, self.bound):
            return result  # or no member can be left out
        way = self._first_way(tree)
        if way is None:
            return replace(result, unsure=result.unsure or self.cut_short)
        placeable = frozenset(self._placeable(tree))
        if placeable != able:
            better = self._assign(placeable, brief=self.gang.brief)
            if isinstance(better, NodeAssignment):
                return better
        final = self._assign(self._more(tree, way), brief=self.gang.brief)
        return final if isinstance(final, NodeAssignment) else replace(result, unsure=self.cut_short)

    def _split_member(self, member: Group | PodSet) -> Misfit | None:
        """The first member with a required domain whose bound pods are in several domains or in none."""
        names = (member.name,) if isinstance(member, PodSet) else tuple(p.name for p in member.pod_sets())
        level = member.locality.required
        if level is not None:
            nodes, rows = self.overlay.filter_input.node_snapshot.node_index.table.nodes, self._rows(names)
            values = {nodes[row].labels.get(level) if row != NOWHERE else None for row in rows}
            if len(values) > 1 or None in values:
                return Misfit(
                    Code.STALE_ASSIGNMENT, names, topology=self.snapshot.tree.topology.name, level=level
                )
        inner = () if isinstance(member, PodSet) else member.members
        return next(
            (misfit for inner_member in inner if (misfit := self._split_member(inner_member)) is not None),
            None,
        )

    def _rows(self, names: tuple[str, ...]) -> list[int]:
        """The rows of the bound pods of these pod sets."""
        mine = (pod for pod in self.gang.bound if pod.node and pod.pod_set in names)
        return [self.overlay.row(pod.node) for pod in mine]

    # ── members with enough pods ───────────────────────────────────────────────────────────────────

    def _able(self, member: Group | PodSet) -> Iterator[str]:
        """The pod sets of the members that have enough pods."""
        if not has_minimum(member, self.present):
            return
        if isinstance(member, PodSet):
            yield member.name
            return
        for inner in member.members:
            yield from self._able(inner)

    def _unable(self, member: Group | PodSet) -> Group | PodSet | None:
        """The first part whose pending pods lack other pods of the gang."""
        if isinstance(member, PodSet):
            return None
        for inner in member.members:
            parts = {inner.name} if isinstance(inner, PodSet) else {one.name for one in inner.pod_sets()}
            if parts & self.pending.keys():
                return part_below_minimum(inner, self.present) or self._unable(inner)
        return None

    # ── ways to a quorum ───────────────────────────────────────────────────────────────────────────

    def _first_way(self, tree: Group) -> Parts | None:
        """A quorum that fits. If a few ways of each member do not suffice, more of them are tried."""
        while True:
            quorum = next(self._ways_of(tree), None)
            if quorum is not None or self.cut_short or not self.maybe_more:
                self.ways[id(tree)] = [] if quorum is None else [quorum]
                return quorum
            self.ways.clear()
            self.ways_limit, self.maybe_more = 4 * self.ways_limit, False

    def _ways(self, member: Group | PodSet) -> list[Parts]:
        """A few sets of pod sets that complete a member and fit alone, the smallest first."""
        if id(member) not in self.ways:
            ways = self._ways_of_leaf(member) if isinstance(member, PodSet) else self._ways_of(member)
            self.ways[id(member)] = list(islice(ways, self.ways_limit))
            self.maybe_more |= len(self.ways[id(member)]) == self.ways_limit
        return self.ways[id(member)]

    def _ways_of_leaf(self, pod_set: PodSet) -> Iterator[Parts]:
        way = frozenset({pod_set.name})
        if self.present[pod_set.name] >= pod_set.minimum and self._fits(way):
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
        """The pod sets of the members that fit alone."""
        if not self._ways(member):
            return
        if isinstance(member, PodSet):
            yield member.name
            return
        for inner in member.members:
            yield from self._placeable(inner)

    def _more(self, member: Group | PodSet, chosen: Parts) -> Parts:
        """Add further members that fit, one after the other."""
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

    # ── attempts ───────────────────────────────────────────────────────────────────────────────────

    def _fits(self, parts: Parts) -> bool:
        """Whether these pod sets fit together, beside the bound pods."""
        if not self._cost(parts):
            return True
        key = self._equivalence(parts)
        if key not in self.known:
            if self.tries >= TRIES_MAX:
                self.cut_short = True
                return False
            self.tries += 1
            checkpoint = self.overlay.checkpoint()
            self.known[key] = isinstance(self._assign(parts, brief=True), NodeAssignment)
            self.overlay.rollback(checkpoint)
        return self.known[key]

    def _assign(self, parts: Parts, *, brief: bool) -> NodeAssignment | TreeMisfit:
        pending, reduced = self.gang.pending, self.gang
        if not parts >= self.pending.keys():
            pending = tuple(pod for pod in pending if pod.pod_set in parts)
        if not parts >= {one.name for one in reduced.tree.pod_sets()}:
            reduced = replace(reduced, tree=_only_parts(reduced.tree, parts))
        reduced = replace(reduced, pending=pending, brief=brief)
        checkpoint = self.overlay.checkpoint()
        assignment = assign_minimums(
            self.overlay, self.snapshot, reduced, profile=self.profile, allowed_nodes=self.allowed_nodes
        )
        if not isinstance(assignment, NodeAssignment):
            return assignment
        counts = self.bound + Counter(pod.pod_set for pod in pending if pod.key in assignment.rows)
        if not all(counts[one.name] >= one.minimum for one in reduced.tree.pod_sets()):
            self.overlay.rollback(checkpoint)  # their constraints conflict
            return TreeMisfit(pod=pending[0], unsure=True)
        left = {
            pod.key: self.overlay.run_filters(pod.spec.signature).why
            for pod in (() if brief else self.gang.pending)
            if pod.key not in assignment.rows and pod.key not in assignment.unassigned
        }
        return replace(assignment, unassigned={**assignment.unassigned, **left})

    def _cost(self, parts: Parts) -> int:
        """How many pods have to fit for these pod sets to reach their minimums."""
        minimums = {one.name: one.minimum for one in self.gang.tree.pod_sets()}
        return sum(max(minimums[name] - self.bound[name], 0) for name in parts)

    def _equivalence(self, parts: Parts) -> object:
        """A key that is equal for equivalent sets of pod sets: if one fits, so does the other."""
        return frozenset(Counter(map(self._kind, parts)).items())

    def _kind(self, name: str) -> object:
        if self.bound[name]:
            return name
        shapes = Counter(pod.spec.signature for pod in self.pending.get(name, ()))
        return self._home(self.gang.tree, name), frozenset(shapes.items())

    def _home(self, group: Group, name: str) -> object:
        """The group that a pod set is a member of, with the minimum and locality of the pod set."""
        for member in group.members:
            if isinstance(member, Group):
                home = self._home(member, name)
                if home is not None:
                    return home
            elif member.name == name:
                return id(group), member.minimum, member.locality
        return None


def _only_parts(group: Group, parts: Parts) -> Group:
    """The tree with the minimums of all other pod sets set to zero."""

    def reduced(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return _only_parts(member, parts)
        return member if member.name in parts else replace(member, minimum=0)

    return replace(group, members=tuple(reduced(member) for member in group.members))


def _easiest_first(overlay: NodeOverlay, pending: Sequence[Pod]) -> tuple[Pod, ...]:
    """Pods of each pod set in order, but among different signatures the easiest to place first.

    Those fit most nodes and request least. Any pods of a pod set count towards its minimum.
    """
    shapes = {pod.spec.signature for pod in pending}
    if len(shapes) < 2:
        return tuple(pending)
    ease = {shape: (-int(overlay.run_filters(shape).fits.sum()), _share(overlay, shape)) for shape in shapes}
    return tuple(sorted(pending, key=lambda pod: (pod.pod_set, *ease[pod.spec.signature])))


def _share(overlay: NodeOverlay, shape: PodSignature) -> Fraction:
    """The dominant share of a pod: its largest request relative to the total."""
    node_snapshot = overlay.filter_input.node_snapshot
    totals = {
        name: int(node_snapshot.allocatable[row].sum()) for name, row in node_snapshot.resources.items()
    }
    asked = ((amount, totals.get(name, 0)) for name, amount in shape.amounts)
    return max((Fraction(amount, total) for amount, total in asked if total), default=Fraction(0))
