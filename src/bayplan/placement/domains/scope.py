"""Where a gang is being placed, what was found for it so far, and how finds become assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import Profile
from bayplan.placement.cluster.capacity import AssumedUsage
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints


@dataclass(frozen=True, slots=True, eq=False)
class PlacementScope:
    """Where and on top of what a pod set is placed."""

    snapshot: CapacitySnapshot
    profile: Profile
    assumed: AssumedUsage
    leaf_range: tuple[int, int] | None = None  # a range of leaves
    excluded_leaves: frozenset[int] = frozenset()  # leaves not to use
    brief: bool = False  # nobody will read why there is no place
    check: Callable[[], None] = lambda: None  # raises when the time for this gang is used up

    def after(self, found: Located, requests: Mapping[str, int]) -> PlacementScope:
        """The same, with those pods in place."""
        return replace(self, assumed=self.assumed.plus(self.snapshot, found.leaves, found.pods, requests))

    def inside(self, leaves: tuple[int, int]) -> PlacementScope:
        """A range of leaves by itself, counted from its first; why there is no place is not told."""
        first, last = leaves
        kept = (self.assumed.leaves >= first) & (self.assumed.leaves < last)
        assumed = AssumedUsage(self.assumed.leaves[kept] - first, self.assumed.amounts[:, kept])
        excluded_leaves = frozenset(leaf - first for leaf in self.excluded_leaves if first <= leaf < last)
        return PlacementScope(
            self.snapshot.part(leaves), self.profile, assumed, None, excluded_leaves, True, self.check
        )


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Pods per leaf, leaves in rank order (a leaf may stand twice: the last segment comes last)."""

    leaves: Ints
    pods: Ints


def scope_of(snapshot: CapacitySnapshot, profile: Profile) -> PlacementScope:
    """An empty start: nothing taken yet."""
    return PlacementScope(snapshot, profile, AssumedUsage.nothing(snapshot))


def last_segment_last(found: Located, area: tuple[int, int], rest: int) -> Located:
    """Move the pods of the last, smaller segment behind all others, so that ranks match segments."""
    inside = (found.leaves >= area[0]) & (found.leaves < area[1])
    before = np.cumsum(np.where(inside, found.pods, 0)) - found.pods
    whole = int(found.pods[inside].sum()) - rest
    first = np.where(inside, np.clip(whole - before, 0, found.pods), found.pods)
    tail = found.pods - first
    leaves = np.concatenate((found.leaves[first > 0], found.leaves[tail > 0]))
    pods = np.concatenate((first[first > 0], tail[tail > 0]))
    opens = np.append(True, leaves[1:] != leaves[:-1])  # the tail may go on where the others end
    return Located(leaves[opens], np.add.reduceat(pods, np.flatnonzero(opens)))


def merged(parts: Sequence[Located]) -> Located:
    """Several finds as one, in topology order."""
    leaves, where = np.unique(np.concatenate([part.leaves for part in parts]), return_inverse=True)
    pods = np.zeros(len(leaves), np.int64)
    np.add.at(pods, where, np.concatenate([part.pods for part in parts]))
    return Located(leaves, pods)


def assignment(snapshot: CapacitySnapshot, found: Located) -> Assignment:
    """Shares in rank order. Hosts are named alone; other leaves by their whole path."""
    tree = snapshot.tree
    if tree.topology.ends_at_host:
        hosts = [node.labels[HOSTNAME] for node in tree.nodes[found.leaves].tolist()]
        return Assignment(
            tree.levels[-1:], tuple(map(DomainAssignment, zip(hosts, strict=True), found.pods.tolist()))
        )
    return Assignment(
        tree.levels,
        tuple(
            DomainAssignment(tree.path(tree.lowest, leaf), pods)
            for leaf, pods in zip(found.leaves.tolist(), found.pods.tolist(), strict=True)
        ),
    )
