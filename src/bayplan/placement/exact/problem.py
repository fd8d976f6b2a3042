"""The input of an exact search: pod sets, the resources they compete for, and locality groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import AUTO, Gang, Group, Locality, PodSet
from bayplan.model.profile import LeaderRules
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.capacity import free_after_usage, with_slot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.greedy import group_locality, leader_and_workers
from bayplan.placement.domains.request import resolve
from bayplan.placement.domains.scope import Located, PlacementScope

MIXED_RULES_MAX = 4  # different node rules whose combinations inside one leaf are modelled
FREE = -1
"""The level of a locality group that may spread over the whole tree."""


@dataclass(frozen=True, slots=True)
class LocalityGroup:
    """Pod sets, by position, that stay in one domain of `level`, or with `climbs` of a level above."""

    pod_sets: tuple[int, ...]
    level: int
    required: bool
    climbs: bool

    @property
    def loosest(self) -> int:
        """The highest level that the group may use."""
        if not self.required:
            return FREE
        return 0 if self.climbs else self.level


@dataclass(frozen=True, slots=True)
class SegmentLayer:
    """Domains of `level` hold whole multiples of `size`, except one that holds `rest` more."""

    level: int
    size: int
    rest: int


@dataclass(frozen=True, slots=True, eq=False)
class ExactProblem:
    """A gang as arrays. A row is a resource, or on leaves of several nodes a resource of some of them."""

    scope: PlacementScope
    names: tuple[str, ...]
    counts: Ints  # pods to place, by pod set
    layers: tuple[tuple[SegmentLayer, ...], ...]  # by pod set, outermost first
    groups: tuple[LocalityGroup, ...]
    allowed: Bools  # pod set by leaf
    needs: Ints  # pod set by row, for one pod
    rooms: Ints  # row by leaf, never negative
    largest: int  # the pod set in whose pods free capacity is measured
    free: tuple[Ints, ...]  # by level: pods of the largest shape that fit in each domain
    firsts: tuple[Ints, ...]  # by level: each domain's first leaf

    @property
    def lowest(self) -> int:
        return len(self.firsts) - 1


def problem_of(scope: PlacementScope, gang: Gang) -> ExactProblem | Misfit:
    """Build the problem; a misfit for a level that the topology lacks."""
    members = list(_members(gang.root.members))
    positions = {pod_set.name: position for position, (pod_set, _, _) in enumerate(members)}
    counts, layers = [], []
    for pod_set, locality, names in members:
        request = resolve(pod_set, locality, scope.snapshot.tree.topology, scope.profile)
        if isinstance(request, Misfit):
            return replace(request, pod_sets=names)
        counts.append(request.count + request.remainder)
        layers.append(_layers(pod_set, scope.snapshot.tree.levels, request.remainder))
    groups = _groups(scope, gang.root, positions)
    if isinstance(groups, Misfit):
        return groups
    masks = _masks(scope, gang.root, [pod_set for pod_set, _, _ in members])
    needs, rooms = _rows(scope, [with_slot(pod_set.requests) for pod_set, _, _ in members], masks)
    allowed = np.array([_leaves(scope, mask) for mask in masks])
    largest = _largest(needs, rooms, counts)
    tree = scope.snapshot.tree
    firsts = tuple(np.searchsorted(tree.starts[tree.lowest], starts) for starts in tree.starts)
    free = fits(needs[largest], rooms, allowed[largest])
    return ExactProblem(
        scope, tuple(positions), np.array(counts, np.int64), tuple(layers), groups, allowed, needs, rooms,
        largest, tuple(np.add.reduceat(free, first) for first in firsts), firsts,
    )  # fmt: skip


def fits(need: Ints, rooms: Ints, allowed: Bools) -> Ints:
    """How many times a need fits into each leaf."""
    rows = np.flatnonzero(need)
    most: Ints = (rooms[rows] // need[rows, None]).min(axis=0)
    return np.where(allowed, most, 0)


def exceeds_total_capacity(problem: ExactProblem) -> bool:
    """Whether the pods together request more of a resource than all leaves have; exact for any amounts."""
    counts, rooms = problem.counts.tolist(), problem.rooms.tolist()
    return any(
        sum(count * need for count, need in zip(counts, needs, strict=True)) > sum(room)
        for needs, room in zip(problem.needs.T.tolist(), rooms, strict=True)
    )


def holds(problem: ExactProblem, levels: tuple[int, ...], pods: Ints) -> bool:
    """Whether pods (by pod set and leaf) satisfy all constraints, with these levels of the groups."""
    if (pods.sum(axis=1) != problem.counts).any() or (pods[~problem.allowed] > 0).any():
        return False
    if (problem.needs.T @ pods > problem.rooms).any():
        return False
    for group, level in zip(problem.groups, levels, strict=True):
        together = pods[list(group.pod_sets)].sum(axis=0)
        if level != FREE and (np.add.reduceat(together, problem.firsts[level]) > 0).sum() > 1:
            return False
    for row, layers in zip(pods, problem.layers, strict=True):
        for layer in layers:
            rest = np.add.reduceat(row, problem.firsts[layer.level]) % layer.size
            if rest[rest > 0].tolist() != ([layer.rest] if layer.rest else []):
                return False
    return True


def score(problem: ExactProblem, pods: Ints) -> tuple[int, ...]:
    """Domains used, by level from the top; then the free capacity of those domains. Less is better."""
    total = pods.sum(axis=0)
    used = [np.add.reduceat(total, first) > 0 for first in problem.firsts]
    room = sum(int(free[mark].sum()) for free, mark in zip(problem.free, used, strict=True))
    return (*(int(mark.sum()) for mark in used), room)


def located(problem: ExactProblem, position: int, pods: Ints) -> Located:
    """A pod set in rank order: leaves ascending, then the last, smaller segment, its odd pods at the end."""
    left, tails = pods.copy(), []
    inner = 0
    for layer in reversed(problem.layers[position]):
        if layer.rest > inner:
            rest = np.add.reduceat(pods, problem.firsts[layer.level]) % layer.size
            area = slice(*problem.scope.snapshot.tree.leaf_range(layer.level, int(np.argmax(rest > 0))))
            tail = np.zeros_like(left)
            behind = np.cumsum(left[area][::-1])[::-1] - left[area]
            tail[area] = np.clip(layer.rest - inner - behind, 0, left[area])
            left, inner = left - tail, layer.rest
            tails.append(tail)
    parts = [left, *reversed(tails)]
    leaves = [np.flatnonzero(part) for part in parts]
    shares = [part[there] for part, there in zip(parts, leaves, strict=True)]
    return Located(np.concatenate(leaves), np.concatenate(shares))


def _members(members: tuple[Group | PodSet, ...]) -> Iterator[tuple[PodSet, Locality, tuple[str, ...]]]:
    """Every pod set, the locality to resolve it with, and the pod sets that its misfit names."""
    for member in members:
        if isinstance(member, PodSet):
            yield member, member.locality, (member.name,)
            continue
        pair = leader_and_workers(member)
        if pair is None:
            yield from _members(member.members)
            continue
        leader, workers = pair
        names = (workers.name, leader.name)
        for pod_set in member.pod_sets():
            if pod_set is workers:
                yield workers, group_locality(member, workers), names
            else:
                yield replace(leader, segments=()), Locality(), names


def _layers(pod_set: PodSet, levels: tuple[str, ...], remainder: int) -> tuple[SegmentLayer, ...]:
    return tuple(
        SegmentLayer(levels.index(segment.level), segment.size, remainder % segment.size)
        for segment in pod_set.segments
        if segment.size > 1
    )


def _groups(
    scope: PlacementScope, root: Group, positions: Mapping[str, int]
) -> tuple[LocalityGroup, ...] | Misfit:
    levels = scope.snapshot.tree.levels
    groups: list[LocalityGroup] = []
    root_group = (tuple(positions), root.locality, "")
    inner = chain.from_iterable(_localities(member) for member in root.members)
    for names, locality, segments in (root_group, *inner):
        named = locality.required or locality.preferred
        if named is None or not names:
            continue
        if named != AUTO and named not in levels:
            topology = scope.snapshot.tree.topology.name
            return Misfit(Code.UNKNOWN_LEVEL, names, topology=topology, level=named)
        start = segments if named == AUTO else named
        level = levels.index(start) if start in levels else len(levels) - 1
        required = locality.required is not None
        climbs = not required or named == AUTO
        groups.append(LocalityGroup(tuple(positions[name] for name in names), level, required, climbs))
    return tuple(groups)


def _localities(member: Group | PodSet) -> Iterator[tuple[tuple[str, ...], Locality, str]]:
    """The names, locality and segment level of every group and pod set, outer groups first."""
    if isinstance(member, PodSet):
        segments = member.segments[0].level if member.segments else ""
        yield (member.name,), member.locality, segments
        return
    names = tuple(pod_set.name for pod_set in member.pod_sets())
    pair = leader_and_workers(member)
    locality = member.locality if pair is None else group_locality(member, pair[1])
    yield names, locality, pair[1].segments[0].level if pair and pair[1].segments else ""
    for inner in member.members:
        yield from _localities(inner)


def _masks(scope: PlacementScope, root: Group, pod_sets: list[PodSet]) -> list[Bools]:
    """Node rows that each pod set may use."""
    snapshot = scope.snapshot
    if not snapshot.tree.topology.ends_at_host and not scope.profile.rules_below_leaf:
        return [snapshot.active] * len(pod_sets)
    rules = {pod_set.name: pod_set.rules for pod_set in pod_sets}
    if scope.profile.leader_rules is LeaderRules.WORKERS:
        for leader, workers in _pairs(root.members):
            rules[leader.name] = workers.rules
    return [snapshot.active & node_table.mask(snapshot.table, rules[pod_set.name]) for pod_set in pod_sets]


def _pairs(members: tuple[Group | PodSet, ...]) -> Iterator[tuple[PodSet, PodSet]]:
    for member in members:
        if isinstance(member, Group):
            pair = leader_and_workers(member)
            if pair is None:
                yield from _pairs(member.members)
            else:
                yield pair


def _leaves(scope: PlacementScope, mask: Bools) -> Bools:
    tree = scope.snapshot.tree
    if tree.topology.ends_at_host:
        leaves = mask.copy()
    else:
        leaves = np.logical_or.reduceat(mask, tree.starts[tree.lowest])
    leaves[list(scope.excluded_leaves)] = False
    if scope.leaf_range is not None:
        leaves[: scope.leaf_range[0]] = False
        leaves[scope.leaf_range[1] :] = False
    return leaves


def _rows(scope: PlacementScope, wants: list[dict[str, int]], masks: list[Bools]) -> tuple[Ints, Ints]:
    """Needs and free amounts. On leaves of several nodes, pods compete only for the nodes they share."""
    by_mask: dict[bytes, list[int]] = {}
    for position, mask in enumerate(masks):
        key = b"" if scope.snapshot.claimed is None else mask.tobytes()
        by_mask.setdefault(key, []).append(position)
    sizes = range(1, len(by_mask) + 1) if len(by_mask) <= MIXED_RULES_MAX else (1, len(by_mask))
    needs, rooms = [], []
    for chosen in (chosen for size in sizes for chosen in combinations(by_mask.values(), size)):
        among = sorted(position for positions in chosen for position in positions)
        mask = np.logical_or.reduce([masks[position] for position in among])
        for name in sorted({name for p in among for name, amount in wants[p].items() if amount}):
            needs.append([wants[p].get(name, 0) if p in among else 0 for p in range(len(wants))])
            rooms.append(np.maximum(free_after_usage(scope.snapshot, mask, name, scope.assumed), 0))
    return np.array(needs, np.int64).T, np.array(rooms, np.int64)


def _largest(needs: Ints, rooms: Ints, counts: list[int]) -> int:
    """The pod set whose pod takes the largest share of any one resource."""
    totals = np.maximum(rooms.sum(axis=1), 1).tolist()
    shares = [
        max(Fraction(need, total) for need, total in zip(row, totals, strict=True)) for row in needs.tolist()
    ]
    return max(range(len(counts)), key=lambda position: (counts[position] > 0, shares[position], -position))
