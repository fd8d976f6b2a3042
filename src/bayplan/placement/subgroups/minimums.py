"""Seats for a gang whose pod sets have minima: every minimum or nobody, then more where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod import Pod
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, PodBatch, parties_of
from bayplan.placement.subgroups.backtracking import DomainSearch, SearchOutcome
from bayplan.placement.subgroups.capacity import COUNT_MAX, TopologyCapacity
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, LocalityStrength
from bayplan.placement.subgroups.elastic import ElasticGrowth, neediest
from bayplan.placement.subgroups.explain import TreeMisfit, shortage
from bayplan.placement.subgroups.members import (
    GangMembers,
    GangWithMinimums,
    TopologyRows,
    lacking_in,
    layout,
    members_of,
)
from bayplan.placement.subgroups.packing import StepBudget
from bayplan.placement.subgroups.whole_gang import cap_beside, take_seats

__all__ = ["GangWithMinimums", "lacking_in", "minima_seats"]

STEPS_PER_SECOND = 2000  # of a search, since no clock is read here
FEW = 500  # steps, besides one for each pod, that are spent on what is merely nice to have


def minima_seats(
    floor: NodeOverlay,
    supply: CapacitySnapshot,
    wanted: GangWithMinimums,
    *,
    profile: Profile,
    within: Bools | None = None,
) -> NodeAssignment | TreeMisfit:
    """Seat what every pod set lacks of its minimum, or nobody; then more.

    Those who stand say where those who come belong. If there are domains for all who wait, those are taken,
    even if not everybody may come yet.
    """
    places = layout(supply, floor.scene.ground.land)
    members = members_of(floor, supply, places, wanted)
    terrain, kinds = _terrain(floor, supply, places, members.parties, within)
    attempt = _Attempt(floor, places, wanted, members, terrain, kinds, profile)
    beyond = len(wanted.waiting) - sum(members.lacks().values())
    if beyond:
        found = attempt.together(beyond)
        if found is not None:
            return found
    return attempt.least_first()


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One attempt to seat a gang."""

    floor: NodeOverlay
    places: TopologyRows
    wanted: GangWithMinimums
    members: GangMembers
    terrain: TopologyCapacity
    kinds: tuple[int, ...]  # of the parties
    profile: Profile

    @property
    def few(self) -> int:
        """So many steps may be spent on wishes."""
        return FEW + 4 * len(self.wanted.waiting)

    def together(self, beyond: int) -> NodeAssignment | None:
        """All who wait have to fit; of them, those sit who may come now."""
        extra = self.wanted.extra
        whole = self._search(self.members.knot(self.kinds, whole=True), 0)
        if not isinstance(whole, DomainSearch):
            return None
        if extra is None or extra >= beyond:
            return self._seated(whole.seats, tried=True)
        root = self.members.knot(self.kinds)
        assert isinstance(root, ConstraintNode), "the same tree was searched"
        coming = neediest(self.members.growers(root), extra) | {pod.key for pod in _needed(root)}
        return self._seated([(pod, row) for pod, row in whole.seats if pod.key in coming], tried=False)

    def least_first(self) -> NodeAssignment | TreeMisfit:
        """What it cannot do without, then as many more as there is room for."""
        members, extra = self.members, self.wanted.extra
        many = int(self.profile.exact_seconds * STEPS_PER_SECOND)
        found = self._search(members.knot(self.kinds), max(many, self.few))
        if not isinstance(found, DomainSearch):
            return found
        growth = ElasticGrowth(self.terrain, dict(found.places), members.roll(self.kinds).kinds, self.profile)
        growth.grow(members.growers(found.root), extra)
        if not found.seats and not growth.seats:
            return shortage(self.terrain, members.supply, self.wanted.tree, found, among_extras=True)
        tried = extra is None or len(growth.seats) < extra
        return self._seated([*found.seats, *growth.seats], tried=tried)

    def _search(self, root: ConstraintNode | Misfit, many: int) -> DomainSearch | TreeMisfit:
        """A search that found something. Wishes are given up if it takes too many steps to grant them."""
        if isinstance(root, Misfit):
            return TreeMisfit(root)
        tree, supply = self.wanted.tree, self.members.supply
        budgets = ((True, self.few), (False, many)) if _wishes(root) else ((True, max(self.few, many)),)
        for granted, left in budgets:
            if not left:
                continue
            search = DomainSearch(self.terrain, root, self.profile, StepBudget(left), wishes=granted)
            found = search.run()
            if found is SearchOutcome.YES:
                return search
            if found is SearchOutcome.NO:
                brief = self.wanted.brief or not many
                return TreeMisfit() if brief else self._labelled(shortage(self.terrain, supply, tree, search))
        return shortage(self.terrain, supply, tree, search, unsure=True)

    def _labelled(self, found: TreeMisfit) -> TreeMisfit:
        """With the labels that nodes would need, if none of them is in the topology at all."""
        nodes = self.floor.scene.ground.land.table.nodes
        if found.misfit is None or found.misfit.code is not Code.NO_DOMAINS or not len(nodes):
            return found
        levels = self.members.supply.tree.levels
        lacking = tuple(level for level in levels if not any(level in node.labels for node in nodes))
        return replace(found, misfit=replace(found.misfit, unlabelled=lacking))

    def _seated(self, seats: Sequence[tuple[Pod, int]], *, tried: bool) -> NodeAssignment:
        """Take the seats; if nobody was kept from coming, the others hear why there is none for them."""
        wanted = [(pod, int(self.places.at[row])) for pod, row in seats]
        seated = take_seats(self.floor, [pod for pod, _ in wanted], wanted)
        if seated.unsure or not tried:
            return seated
        there = seated.seats
        rest = parties_of(self.floor, (one for one in self.wanted.waiting if one.key not in there))
        left = {key: self.floor.judge(party.shape).why for party in rest for key in party.keys}
        return NodeAssignment(there, left)


def _needed(knot: ConstraintNode) -> list[Pod]:
    return knot.pods + [pod for child in knot.children for pod in _needed(child)]


def _wishes(knot: ConstraintNode) -> bool:
    return knot.bond is LocalityStrength.WISH or any(map(_wishes, knot.children))


def _terrain(
    floor: NodeOverlay,
    supply: CapacitySnapshot,
    places: TopologyRows,
    parties: Sequence[PodBatch],
    within: Bools | None,
) -> tuple[TopologyCapacity, tuple[int, ...]]:
    """The room on each row for each kind of pod, and the kind of each party.

    Pods that ask for the same and are refused by the same are of one kind.
    """
    ground = floor.scene.ground
    known: dict[object, int] = {}
    kinds: list[int] = []
    caps: list[Ints | None] = []
    amounts: list[Mapping[str, int]] = []
    for party in parties:
        cap = cap_beside(floor, (party.shape,), (FilterReason.LACKING,))
        key = (party.shape.amounts, None if cap is None else cap.tobytes())
        if key not in known:
            known[key] = len(known)
            caps.append(cap)
            amounts.append(dict(party.shape.amounts))
        kinds.append(known[key])
    names = sorted({name for one in amounts for name, amount in one.items() if amount})
    free = np.zeros((len(names) + len(caps), len(places.at)), np.int64)
    needs = np.zeros((len(caps), len(free)), np.int64)
    for row, name in enumerate(names):
        if name in ground.resources:
            free[row] = ground.free[ground.resources[name]][places.at]
        needs[:, row] = [one.get(name, 0) for one in amounts]
    allowed = np.zeros((len(caps), len(places.at)), bool)
    usable = places.at != ABSENT if within is None else (places.at != ABSENT) & within[places.at]
    for kind, cap in enumerate(caps):
        room = np.full(len(places.at), COUNT_MAX) if cap is None else cap[places.at]
        allowed[kind] = usable & (room > 0)
        if cap is not None and (room[allowed[kind]] < COUNT_MAX).any():
            free[len(names) + kind], needs[kind, len(names) + kind] = room, 1
    return TopologyCapacity(supply.tree, free, needs, allowed, tuple(names)), tuple(kinds)
