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
from bayplan.placement.subgroups.explain import TreeMisfit, explain_misfit
from bayplan.placement.subgroups.members import (
    GangMembers,
    GangWithMinimums,
    TopologyRows,
    lacking_in,
    layout,
    members_of,
)
from bayplan.placement.subgroups.packing import StepBudget
from bayplan.placement.subgroups.whole_gang import assign_rows, pod_caps

__all__ = ["GangWithMinimums", "lacking_in", "minima_seats"]

STEPS_PER_SECOND = 2000  # of a search, since no clock is read here
PREFERENCE_STEPS = 500  # steps, besides one for each pod, that are spent on what is merely nice to have


def minima_seats(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    wanted: GangWithMinimums,
    *,
    profile: Profile,
    within: Bools | None = None,
) -> NodeAssignment | TreeMisfit:
    """Seat what every pod set lacks of its minimum, or nobody; then more.

    Those who stand say where those who come belong. If there are domains for all who wait, those are taken,
    even if not everybody may come yet.
    """
    places = layout(snapshot, overlay.scene.ground.land)
    members = members_of(overlay, snapshot, places, wanted)
    capacity, kinds = _capacity(overlay, snapshot, places, members.batches, within)
    attempt = _Attempt(overlay, places, wanted, members, capacity, kinds, profile)
    beyond = len(wanted.pending) - sum(members.lacks().values())
    if beyond:
        found = attempt.together(beyond)
        if found is not None:
            return found
    return attempt.least_first()


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One attempt to seat a gang."""

    overlay: NodeOverlay
    places: TopologyRows
    wanted: GangWithMinimums
    members: GangMembers
    capacity: TopologyCapacity
    kinds: tuple[int, ...]  # of the parties
    profile: Profile

    @property
    def preference_steps(self) -> int:
        """So many steps may be spent on wishes."""
        return PREFERENCE_STEPS + 4 * len(self.wanted.pending)

    def together(self, beyond: int) -> NodeAssignment | None:
        """All who wait have to fit; of them, those sit who may come now."""
        extra = self.wanted.extra
        whole = self._search(self.members.constraint(self.kinds, whole=True), 0)
        if not isinstance(whole, DomainSearch):
            return None
        if extra is None or extra >= beyond:
            return self._assigned(whole.assigned, tried=True)
        root = self.members.constraint(self.kinds)
        assert isinstance(root, ConstraintNode), "the same tree was searched"
        coming = neediest(self.members.elastic_sets(root), extra) | {pod.key for pod in _needed(root)}
        return self._assigned([(pod, row) for pod, row in whole.assigned if pod.key in coming], tried=False)

    def least_first(self) -> NodeAssignment | TreeMisfit:
        """What it cannot do without, then as many more as there is room for."""
        members, extra = self.members, self.wanted.extra
        many = int(self.profile.exact_seconds * STEPS_PER_SECOND)
        found = self._search(members.constraint(self.kinds), max(many, self.preference_steps))
        if not isinstance(found, DomainSearch):
            return found
        growth = ElasticGrowth(
            self.capacity, dict(found.places), members.gang_pods(self.kinds).kinds, self.profile
        )
        growth.grow(members.elastic_sets(found.root), extra)
        if not found.assigned and not growth.assigned:
            return explain_misfit(self.capacity, members.snapshot, self.wanted.tree, found, among_extras=True)
        tried = extra is None or len(growth.assigned) < extra
        return self._assigned([*found.assigned, *growth.assigned], tried=tried)

    def _search(self, root: ConstraintNode | Misfit, many: int) -> DomainSearch | TreeMisfit:
        """A search that found something. Wishes are given up if it takes too many steps to grant them."""
        if isinstance(root, Misfit):
            return TreeMisfit(root)
        tree, snapshot = self.wanted.tree, self.members.snapshot
        budgets = (
            ((True, self.preference_steps), (False, many))
            if _has_preferences(root)
            else ((True, max(self.preference_steps, many)),)
        )
        for granted, left in budgets:
            if not left:
                continue
            search = DomainSearch(self.capacity, root, self.profile, StepBudget(left), preferences=granted)
            found = search.run()
            if found is SearchOutcome.YES:
                return search
            if found is SearchOutcome.NO:
                brief = self.wanted.brief or not many
                return (
                    TreeMisfit()
                    if brief
                    else self._labelled(explain_misfit(self.capacity, snapshot, tree, search))
                )
        return explain_misfit(self.capacity, snapshot, tree, search, unsure=True)

    def _labelled(self, found: TreeMisfit) -> TreeMisfit:
        """With the labels that nodes would need, if none of them is in the topology at all."""
        nodes = self.overlay.scene.ground.land.table.nodes
        if found.misfit is None or found.misfit.code is not Code.NO_DOMAINS or not len(nodes):
            return found
        levels = self.members.snapshot.tree.levels
        lacking = tuple(level for level in levels if not any(level in node.labels for node in nodes))
        return replace(found, misfit=replace(found.misfit, unlabelled=lacking))

    def _assigned(self, assigned: Sequence[tuple[Pod, int]], *, tried: bool) -> NodeAssignment:
        """Take the seats; if nobody was kept from coming, the others hear why there is none for them."""
        wanted = [(pod, int(self.places.at[row])) for pod, row in assigned]
        seated = assign_rows(self.overlay, [pod for pod, _ in wanted], wanted)
        if seated.unsure or not tried:
            return seated
        there = seated.seats
        rest = parties_of(self.overlay, (one for one in self.wanted.pending if one.key not in there))
        left = {key: self.overlay.judge(batch.shape).why for batch in rest for key in batch.keys}
        return NodeAssignment(there, left)


def _needed(constraint: ConstraintNode) -> list[Pod]:
    return constraint.pods + [pod for child in constraint.children for pod in _needed(child)]


def _has_preferences(constraint: ConstraintNode) -> bool:
    return constraint.strength is LocalityStrength.PREFERRED or any(
        map(_has_preferences, constraint.children)
    )


def _capacity(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    places: TopologyRows,
    batches: Sequence[PodBatch],
    allowed_nodes: Bools | None,
) -> tuple[TopologyCapacity, tuple[int, ...]]:
    """The room on each row for each kind of pod, and the kind of each party.

    Pods that ask for the same and are refused by the same are of one kind.
    """
    node_snapshot = overlay.scene.ground
    known: dict[object, int] = {}
    kinds: list[int] = []
    caps: list[Ints | None] = []
    amounts: list[Mapping[str, int]] = []
    for batch in batches:
        cap = pod_caps(overlay, (batch.shape,), (FilterReason.LACKING,))
        key = (batch.shape.amounts, None if cap is None else cap.tobytes())
        if key not in known:
            known[key] = len(known)
            caps.append(cap)
            amounts.append(dict(batch.shape.amounts))
        kinds.append(known[key])
    names = sorted({name for one in amounts for name, amount in one.items() if amount})
    free = np.zeros((len(names) + len(caps), len(places.at)), np.int64)
    needs = np.zeros((len(caps), len(free)), np.int64)
    for row, name in enumerate(names):
        if name in node_snapshot.resources:
            free[row] = node_snapshot.free[node_snapshot.resources[name]][places.at]
        needs[:, row] = [one.get(name, 0) for one in amounts]
    allowed = np.zeros((len(caps), len(places.at)), bool)
    usable = (
        places.at != ABSENT if allowed_nodes is None else (places.at != ABSENT) & allowed_nodes[places.at]
    )
    for kind, cap in enumerate(caps):
        room = np.full(len(places.at), COUNT_MAX) if cap is None else cap[places.at]
        allowed[kind] = usable & (room > 0)
        if cap is not None and (room[allowed[kind]] < COUNT_MAX).any():
            free[len(names) + kind], needs[kind, len(names) + kind] = room, 1
    return TopologyCapacity(snapshot.tree, free, needs, allowed, tuple(names)), tuple(kinds)
