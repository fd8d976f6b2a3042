"""The scope of a placement (nodes, assumed usage) and its results: pods per leaf, and assignments."""

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
    """The snapshot, usage and limits that a pod set is placed with."""

    snapshot: CapacitySnapshot
    profile: Profile
    assumed: AssumedUsage
    leaf_range: tuple[int, int] | None = None  # a range of leaves
    excluded_leaves: frozenset[int] = frozenset()  # leaves not to use
    brief: bool = False  # no explanation is needed on a misfit
    check: Callable[[], None] = lambda: None  # raises when the time for this gang is used up

    def after(self, located: Located, requests: Mapping[str, int]) -> PlacementScope:
        """The scope with those pods placed."""
        return replace(self, assumed=self.assumed.plus(self.snapshot, located.leaves, located.pods, requests))

    def inside(self, leaves: tuple[int, int]) -> PlacementScope:
        """The scope of a range of leaves alone, with indices from its first; without explanations."""
        first, last = leaves
        selected = (self.assumed.leaves >= first) & (self.assumed.leaves < last)
        assumed = AssumedUsage(self.assumed.leaves[selected] - first, self.assumed.amounts[:, selected])
        excluded_leaves = frozenset(leaf - first for leaf in self.excluded_leaves if first <= leaf < last)
        return PlacementScope(
            self.snapshot.part(leaves), self.profile, assumed, None, excluded_leaves, True, self.check
        )


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Pods per leaf, leaves in rank order (a leaf may occur twice, as the last segment comes last)."""

    leaves: Ints
    pods: Ints


def scope_of(snapshot: CapacitySnapshot, profile: Profile) -> PlacementScope:
    """A scope without assumed usage."""
    return PlacementScope(snapshot, profile, AssumedUsage.nothing(snapshot))


def last_segment_last(located: Located, area: tuple[int, int], rest: int) -> Located:
    """Move the pods of the last, smaller segment behind all others, so that ranks match segments."""
    inside = (located.leaves >= area[0]) & (located.leaves < area[1])
    before = np.cumsum(np.where(inside, located.pods, 0)) - located.pods
    whole = int(located.pods[inside].sum()) - rest
    first = np.where(inside, np.clip(whole - before, 0, located.pods), located.pods)
    tail = located.pods - first
    leaves = np.concatenate((located.leaves[first > 0], located.leaves[tail > 0]))
    pods = np.concatenate((first[first > 0], tail[tail > 0]))
    starts = np.append(True, leaves[1:] != leaves[:-1])  # the tail may start on the leaf where the others end
    return Located(leaves[starts], np.add.reduceat(pods, np.flatnonzero(starts)))


def merged(parts: Sequence[Located]) -> Located:
    """Merge several results into one, in topology order."""
    leaves, where = np.unique(np.concatenate([part.leaves for part in parts]), return_inverse=True)
    pods = np.zeros(len(leaves), np.int64)
    np.add.at(pods, where, np.concatenate([part.pods for part in parts]))
    return Located(leaves, pods)


def assignment(snapshot: CapacitySnapshot, located: Located) -> Assignment:
    """The assignment in rank order. Hosts are given by name; other leaves by their whole path."""
    tree = snapshot.tree
    if tree.topology.ends_at_host:
        hosts = [node.labels[HOSTNAME] for node in tree.nodes[located.leaves].tolist()]
        return Assignment(
            tree.levels[-1:], tuple(map(DomainAssignment, zip(hosts, strict=True), located.pods.tolist()))
        )
    return Assignment(
        tree.levels,
        tuple(
            DomainAssignment(tree.path(tree.lowest, leaf), pods)
            for leaf, pods in zip(located.leaves.tolist(), located.pods.tolist(), strict=True)
        ),
    )
