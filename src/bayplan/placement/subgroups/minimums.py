"""Assigns a gang whose pod sets have minimums: all minimums or nothing, then elastic pods that fit."""

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
from bayplan.placement.pods.batches import NodeAssignment, PodBatch, batch_pods
from bayplan.placement.subgroups.backtracking import DomainSearch, SearchOutcome
from bayplan.placement.subgroups.capacity import COUNT_MAX, TopologyCapacity
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, LocalityStrength
from bayplan.placement.subgroups.elastic import ElasticGrowth, first_to_grow
from bayplan.placement.subgroups.explain import TreeMisfit, explain_misfit
from bayplan.placement.subgroups.members import (
    GangMembers,
    GangWithMinimums,
    TopologyRows,
    layout,
    members_of,
    missing_in_gang,
)
from bayplan.placement.subgroups.packing import StepBudget
from bayplan.placement.subgroups.whole_gang import assign_rows, pod_caps

__all__ = ["GangWithMinimums", "assign_minimums", "missing_in_gang"]

STEPS_PER_SECOND = 2000  # of a search; counted, since placement reads no clock
PREFERENCE_STEPS = 500  # steps spent on preferred localities, besides some for each pod


def assign_minimums(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    gang: GangWithMinimums,
    *,
    profile: Profile,
    allowed_nodes: Bools | None = None,
) -> NodeAssignment | TreeMisfit:
    """Assign the pods that every pod set lacks to its minimum, or none; then elastic pods.

    Bound pods fix the domains of the others. If there are domains for all pending pods, those are taken, even
    if only some of the pods are assigned now.
    """
    places = layout(snapshot, overlay.filter_input.node_snapshot.node_index)
    members = members_of(overlay, snapshot, places, gang)
    capacity, kinds = _capacity(overlay, snapshot, places, members.batches, allowed_nodes)
    attempt = _Attempt(overlay, places, gang, members, capacity, kinds, profile)
    beyond = len(gang.pending) - sum(members.lacks().values())
    if beyond:
        assignment = attempt.all_pending(beyond)
        if assignment is not None:
            return assignment
    return attempt.minimums_first()


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One attempt to assign a gang."""

    overlay: NodeOverlay
    places: TopologyRows
    gang: GangWithMinimums
    members: GangMembers
    capacity: TopologyCapacity
    kinds: tuple[int, ...]  # of the batches
    profile: Profile

    @property
    def preference_steps(self) -> int:
        """Search steps that may be spent on preferred localities."""
        return PREFERENCE_STEPS + 4 * len(self.gang.pending)

    def all_pending(self, beyond: int) -> NodeAssignment | None:
        """Find domains for all pending pods, and assign those that are allowed now."""
        extra = self.gang.extra
        whole = self._search(self.members.constraint(self.kinds, whole=True), 0)
        if not isinstance(whole, DomainSearch):
            return None
        if extra is None or extra >= beyond:
            return self._assigned(whole.assigned, tried=True)
        root = self.members.constraint(self.kinds)
        assert isinstance(root, ConstraintNode), "the same tree was searched"
        allowed = first_to_grow(self.members.elastic_sets(root), extra) | {pod.key for pod in _needed(root)}
        return self._assigned([(pod, row) for pod, row in whole.assigned if pod.key in allowed], tried=False)

    def minimums_first(self) -> NodeAssignment | TreeMisfit:
        """Assign the minimums first, then as many elastic pods as fit."""
        members, extra = self.members, self.gang.extra
        steps = int(self.profile.exact_seconds * STEPS_PER_SECOND)
        search = self._search(members.constraint(self.kinds), max(steps, self.preference_steps))
        if not isinstance(search, DomainSearch):
            return search
        growth = ElasticGrowth(
            self.capacity, dict(search.places), members.gang_pods(self.kinds).kinds, self.profile
        )
        growth.grow(members.elastic_sets(search.root), extra)
        if not search.assigned and not growth.assigned:
            return explain_misfit(self.capacity, members.snapshot, self.gang.tree, search, among_extras=True)
        tried = extra is None or len(growth.assigned) < extra
        return self._assigned([*search.assigned, *growth.assigned], tried=tried)

    def _search(self, root: ConstraintNode | Misfit, steps: int) -> DomainSearch | TreeMisfit:
        """A successful search, or why it failed. Preferences are dropped if they take too many steps."""
        if isinstance(root, Misfit):
            return TreeMisfit(root)
        tree, snapshot = self.gang.tree, self.members.snapshot
        budgets = (
            ((True, self.preference_steps), (False, steps))
            if _has_preferences(root)
            else ((True, max(self.preference_steps, steps)),)
        )
        for with_preferences, steps_left in budgets:
            if not steps_left:
                continue
            search = DomainSearch(
                self.capacity, root, self.profile, StepBudget(steps_left), preferences=with_preferences
            )
            outcome = search.run()
            if outcome is SearchOutcome.FOUND:
                return search
            if outcome is SearchOutcome.NOT_FOUND:
                brief = self.gang.brief or not steps
                return (
                    TreeMisfit()
                    if brief
                    else self._labelled(explain_misfit(self.capacity, snapshot, tree, search))
                )
        return explain_misfit(self.capacity, snapshot, tree, search, unsure=True)

    def _labelled(self, misfit: TreeMisfit) -> TreeMisfit:
        """Add the labels that nodes would need, if no node is in the topology at all."""
        nodes = self.overlay.filter_input.node_snapshot.node_index.table.nodes
        if misfit.misfit is None or misfit.misfit.code is not Code.NO_DOMAINS or not len(nodes):
            return misfit
        levels = self.members.snapshot.tree.levels
        unlabelled = tuple(level for level in levels if not any(level in node.labels for node in nodes))
        return replace(misfit, misfit=replace(misfit.misfit, unlabelled=unlabelled))

    def _assigned(self, assigned: Sequence[tuple[Pod, int]], *, tried: bool) -> NodeAssignment:
        """Assign the rows; if all pending pods were tried, add why the others fit nowhere."""
        targets = [(pod, int(self.places.at[row])) for pod, row in assigned]
        assignment = assign_rows(self.overlay, [pod for pod, _ in targets], targets)
        if assignment.unsure or not tried:
            return assignment
        rows = assignment.rows
        rest = batch_pods(self.overlay, (pod for pod in self.gang.pending if pod.key not in rows))
        left = {key: self.overlay.run_filters(batch.shape).why for batch in rest for key in batch.keys}
        return NodeAssignment(rows, left)


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
    """The capacity of each row for each kind of pod, and the kind of each batch.

    Batches with equal requests and equal caps on every node are of one kind.
    """
    node_snapshot = overlay.filter_input.node_snapshot
    known: dict[object, int] = {}
    kinds: list[int] = []
    caps: list[Ints | None] = []
    amounts: list[Mapping[str, int]] = []
    for batch in batches:
        cap = pod_caps(overlay, (batch.shape,), (FilterReason.INSUFFICIENT,))
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
