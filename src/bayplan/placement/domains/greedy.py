"""Greedy placement: pod sets one after the other, each into the best capacity left by the earlier ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FILTERED
from bayplan.model.gang import AUTO, Group, Locality, PodSet
from bayplan.model.numa import ALIGNED
from bayplan.model.profile import LeaderRules, Strategy
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.capacity import free_after_usage, pods_per_leaf, with_slot
from bayplan.placement.cluster.resource_fit import leading
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains import misfit
from bayplan.placement.domains.balanced import place_evenly
from bayplan.placement.domains.counts import DomainCounts, LeafCounts, count_up
from bayplan.placement.domains.descend import descend
from bayplan.placement.domains.fill import NOWHERE
from bayplan.placement.domains.request import PlacementRequest, resolve
from bayplan.placement.domains.scope import Located, PlacementScope, last_segment_last
from bayplan.placement.domains.select import Chosen, Shortfall, choose

SUM_MAX = 2**44  # of a resource on one leaf; larger amounts are capped so that no sum overflows


def place_members(
    scope: PlacementScope, members: tuple[Group | PodSet, ...]
) -> tuple[dict[str, Located], Misfit | None]:
    """Place each member in turn; on a misfit, the placements found before it are returned too."""
    located: dict[str, Located] = {}
    for position, member in enumerate(members):
        placed = place_member(scope, member)
        if isinstance(placed, Misfit):
            return located, placed
        located |= placed
        if position + 1 < len(members):
            for pod_set in pod_sets_of(member):
                scope = scope.after(placed[pod_set.name], pod_set.requests)
    return located, None


def place_member(scope: PlacementScope, member: Group | PodSet) -> dict[str, Located] | Misfit:
    """Place a pod set, a leader with its workers, or any other group."""
    if isinstance(member, PodSet):
        return place_pod_set(scope, member, member.locality)
    pair = leader_and_workers(member)
    if pair is not None:
        leader, workers = pair
        return place_pod_set(scope, workers, group_locality(member, workers), leader)
    return _place_group(scope, member)


def pod_sets_of(member: Group | PodSet) -> tuple[PodSet, ...]:
    """The pod sets of a member, in order."""
    return (member,) if isinstance(member, PodSet) else tuple(member.pod_sets())


def group_locality(group: Group, pod_set: PodSet) -> Locality:
    """The locality of the group; some APIs state it on the pod sets instead."""
    return group.locality if group.locality != Locality() else pod_set.locality


def locality_of(member: Group | PodSet, pod_set: PodSet) -> Locality:
    """The locality that a pod set has as a part of a member."""
    return pod_set.locality if isinstance(member, PodSet) else group_locality(member, pod_set)


def leader_and_workers(group: Group) -> tuple[PodSet, PodSet] | None:
    """The leader (a single pod) and its workers, if the group is such a pair; of two the second leads."""
    members = group.members
    if len(members) != 2 or not (isinstance(members[0], PodSet) and isinstance(members[1], PodSet)):
        return None
    workers, leader = (members[0], members[1]) if members[1].count <= members[0].count else members[::-1]
    assert isinstance(leader, PodSet) and isinstance(workers, PodSet)
    return (leader, workers) if leader.count == 1 else None


def place_pod_set(
    scope: PlacementScope, pod_set: PodSet, locality: Locality, leader: PodSet | None = None
) -> dict[str, Located] | Misfit:
    """Place one pod set, with its leader if it has one."""
    snapshot = scope.snapshot
    request = resolve(pod_set, locality, snapshot.tree.topology, scope.profile)
    names = (pod_set.name,) if leader is None else (pod_set.name, leader.name)
    if isinstance(request, Misfit):
        return replace(request, pod_sets=names)
    if not snapshot.active.any():
        level = snapshot.tree.levels[request.level]
        return Misfit(Code.NO_DOMAINS, names, topology=snapshot.tree.topology.name, level=level)
    if leader is not None and request.remainder:
        return _with_rest(scope, pod_set, locality, request, leader)
    request = replace(request, leader=leader is not None)
    query = _query(scope, pod_set, names)
    counts = _counted(scope, query, request, leader)
    chosen = None
    spreads = not (request.required or request.unconstrained or request.remainder)
    if request.strategy is Strategy.BALANCED and spreads:
        chosen = place_evenly(snapshot.tree, counts, request)
    if chosen is None:
        picked = choose(snapshot.tree, counts, request)
        if isinstance(picked, Shortfall):
            looser = _with_rest(scope, pod_set, locality, request) if _is_strict(request) else picked
            if isinstance(looser, dict):
                return looser
            if scope.brief:
                return Misfit(Code.NO_ROOM, names)
            return misfit.no_room(query, request, counts, picked, leader)
        chosen = descend(snapshot.tree, counts, request, picked)
    return _located(snapshot, request, pod_set, leader, chosen)


def _is_strict(request: PlacementRequest) -> bool:
    """Whether the last segment was counted in whole multiples of inner layers, and so larger than it is."""
    return bool(request.inner and request.remainder)


def _with_rest(
    scope: PlacementScope,
    pod_set: PodSet,
    locality: Locality,
    request: PlacementRequest,
    leader: PodSet | None = None,
) -> dict[str, Located] | Misfit:
    """Place whole segments (and a leader) first, then the last, smaller segment in the capacity left."""
    tree, rest = scope.snapshot.tree, request.remainder
    whole_segments = replace(pod_set, count=pod_set.count - rest, minimum=0)
    placed = place_pod_set(scope, whole_segments, locality, leader)
    if isinstance(placed, Misfit):
        return placed
    scope = scope.after(placed[pod_set.name], pod_set.requests)
    if leader is not None:
        scope = scope.after(placed[leader.name], leader.requests)
    leaves = np.concatenate([part.leaves for part in placed.values()])
    if request.required and len(leaves):
        top = tree.ancestors(tree.lowest, leaves[:1], request.level)
        scope = replace(scope, leaf_range=tree.leaf_range(request.level, int(top[0])))
    together = Locality(required=tree.levels[request.segment_level])
    last_one = replace(pod_set, count=rest, minimum=0, segments=pod_set.segments[1:])
    last = place_pod_set(scope, last_one, together)
    if isinstance(last, Misfit):
        return replace(last, pod_sets=(pod_set.name, *([leader.name] if leader else [])))
    first, tail = placed[pod_set.name], last[pod_set.name]
    joined = Located(np.concatenate((first.leaves, tail.leaves)), np.concatenate((first.pods, tail.pods)))
    return placed | {pod_set.name: joined}


def _counted(
    scope: PlacementScope, query: misfit.PlacementQuery, request: PlacementRequest, leader: PodSet | None
) -> DomainCounts:
    """Capacity of every domain, cached for an unchanged snapshot."""
    packs = request.strategy is Strategy.PACK_RACKS

    def work_out() -> DomainCounts:
        leaf = _leaf_counts(scope, query, request.affinity, leader)
        if packs:
            leaf = replace(leaf, free=_leading_free(scope, query))
        return count_up(scope.snapshot.tree, request, leaf)

    if len(scope.assumed.leaves) or scope.leaf_range is not None or scope.excluded_leaves:
        return work_out()
    pods = [query.pod_set] if leader is None else [query.pod_set, leader]
    shapes = tuple((tuple(sorted(pod.requests.items())), pod.rules) for pod in pods)
    cut = (request.segment_level, request.size, tuple(request.inner.items()), request.remainder)
    return scope.snapshot.remember((shapes, cut, request.affinity, packs, scope.profile), work_out)


def _leading_free(scope: PlacementScope, query: misfit.PlacementQuery) -> Ints:
    """What is free on each leaf of the resource that tells how full a host is."""
    asked = (name for name, amount in query.pod_set.requests.items() if amount > 0)
    name = leading(name for name in asked if not name.startswith((FILTERED, ALIGNED)))
    left = free_after_usage(scope.snapshot, query.rows, name, scope.assumed)
    within = left.min(initial=0) >= -SUM_MAX and left.max(initial=0) <= SUM_MAX
    return left if within else left.clip(-SUM_MAX, SUM_MAX)


def _query(scope: PlacementScope, pod_set: PodSet, names: tuple[str, ...]) -> misfit.PlacementQuery:
    rows = _allowed_rows(scope, pod_set)
    leaves = _leaves_with(scope.snapshot, rows)
    if scope.excluded_leaves:
        leaves = leaves.copy()
        leaves[list(scope.excluded_leaves)] = False
    return misfit.PlacementQuery(
        scope.snapshot, pod_set, names, scope.assumed, rows, leaves, scope.leaf_range
    )


def _leaves_with(snapshot: CapacitySnapshot, rows: Bools) -> Bools:
    """Leaves with at least one of the nodes."""
    if snapshot.tree.topology.ends_at_host:
        return rows
    return np.logical_or.reduceat(rows, snapshot.tree.starts[snapshot.tree.lowest])


def _allowed_rows(scope: PlacementScope, pod_set: PodSet) -> Bools:
    snapshot = scope.snapshot
    if not snapshot.tree.topology.ends_at_host and not scope.profile.rules_below_leaf:
        return snapshot.active
    return snapshot.active & node_table.mask(snapshot.table, pod_set.rules)


def _leaf_counts(
    scope: PlacementScope, query: misfit.PlacementQuery, by_affinity: bool, leader: PodSet | None
) -> LeafCounts:
    snapshot, pod = scope.snapshot, with_slot(query.pod_set.requests)
    allowed = _clip(query.leaves, scope.leaf_range)
    affinity = _affinity(query, by_affinity, allowed)
    pods = _only(allowed, pods_per_leaf(snapshot, query.rows, pod, {}, scope.assumed))
    if leader is None:
        return LeafCounts(pods, pods, np.zeros(len(pods), bool), affinity)
    lead, head = with_slot(leader.requests), query
    own_rules = scope.profile.leader_rules is LeaderRules.OWN and leader.rules != query.pod_set.rules
    if lead == pod and not own_rules:  # a leader equal to its workers takes the place of one of them
        return LeafCounts(pods, pods - (pods > 0), pods > 0, affinity)
    if scope.profile.leader_rules is LeaderRules.OWN:
        head = _query(scope, leader, ())
    leads = _clip(head.leaves, scope.leaf_range).copy()
    for name, amount in lead.items():
        if amount:
            leads &= free_after_usage(snapshot, head.rows, name, scope.assumed) >= amount
    # Beside a leader only the resources that it requests can run out sooner.
    contested = {name: amount for name, amount in pod.items() if lead.get(name)}
    beside = np.minimum(
        pods, pods_per_leaf(snapshot, query.rows, contested, lead, scope.assumed, int(pods.max()))
    )
    shares = _leaves_with(snapshot, query.rows & head.rows)  # elsewhere the two do not compete
    np.copyto(beside, pods, where=~(leads & shares))
    return LeafCounts(pods, beside, leads, affinity)


def _affinity(query: misfit.PlacementQuery, wanted: bool, allowed: Bools) -> Ints | None:
    if not wanted or not query.snapshot.tree.topology.ends_at_host:
        return None
    return np.where(allowed, node_table.scores(query.snapshot.table, query.pod_set.rules), 0)


def _only(allowed: Bools, counts: Ints) -> Ints:
    return counts if allowed.all() else np.where(allowed, counts, 0)


def _clip(leaves: Bools, leaf_range: tuple[int, int] | None) -> Bools:
    if leaf_range is None:
        return leaves
    inside = np.zeros(len(leaves), dtype=bool)
    inside[slice(*leaf_range)] = leaves[slice(*leaf_range)]
    return inside


def _located(
    snapshot: CapacitySnapshot,
    request: PlacementRequest,
    pod_set: PodSet,
    leader: PodSet | None,
    chosen: Chosen,
) -> dict[str, Located]:
    order = np.argsort(chosen.domains, kind="stable")
    leaves, pods = chosen.domains[order], chosen.pods[order]
    used = pods > 0
    located = {pod_set.name: Located(leaves[used], pods[used])}
    if chosen.last != NOWHERE:
        area = snapshot.tree.leaf_range(request.segment_level, chosen.last)
        located[pod_set.name] = last_segment_last(located[pod_set.name], area, request.remainder)
    if leader is not None:
        located[leader.name] = Located(np.array([chosen.leader]), np.array([1]))
    return located


def _place_group(scope: PlacementScope, group: Group) -> dict[str, Located] | Misfit:
    """Place any other group: all members in one domain, the tightest that holds them."""
    locality, levels = group.locality, scope.snapshot.tree.levels
    if not scope.snapshot.active.any():
        names = tuple(pod_set.name for pod_set in group.pod_sets())
        topology = scope.snapshot.tree.topology
        wanted = locality.required or locality.preferred
        shown = wanted if wanted in levels else levels[-1]
        return Misfit(Code.NO_DOMAINS, names, topology=topology.name, level=shown or "")
    named = locality.required or locality.preferred
    if named is None:
        located, misfit_of_member = place_members(scope, group.members)
        return located if misfit_of_member is None else misfit_of_member
    names = tuple(pod_set.name for pod_set in group.pod_sets())
    if named != AUTO and named not in levels:
        return Misfit(Code.UNKNOWN_LEVEL, names, topology=scope.snapshot.tree.topology.name, level=named)
    start = len(levels) - 1 if named == AUTO else levels.index(named)
    climbs = locality.required is None or named == AUTO
    answer: dict[str, Located] | Misfit | None = None
    for level in range(start, -1 if climbs else start - 1, -1):
        answer = _group_within(scope, group, level)
        if not isinstance(answer, Misfit):
            return answer
    if locality.required is None:
        return _place_group(scope, replace(group, locality=Locality()))
    assert answer is not None
    return answer


def _group_within(scope: PlacementScope, group: Group, level: int) -> dict[str, Located] | Misfit:
    """Try the domains of a level that may hold each member and the sum of all, the tightest first.

    The first is tried in full, for the misfit it reports; each of the others at a cost that depends only on
    its own size.
    """
    tree = scope.snapshot.tree
    room = np.full(tree.size(level), np.iinfo(np.int64).max)
    spare = np.zeros(tree.size(level), np.int64)
    for pod_set in group.pod_sets():
        query = _query(scope, pod_set, ())
        pods = _leaf_counts(scope, query, False, None).pods
        total = np.add.reduceat(pods, tree.first_leaves(level, np.arange(tree.size(level))))
        room = np.minimum(room, total - pod_set.count)
        spare += total
    room = np.where(_holds_in_sum(scope, group, level), room, -1)
    misfit_found: Misfit | None = None
    for domain in np.lexsort((spare, room < 0)).tolist():
        area = _both(tree.leaf_range(level, domain), scope.leaf_range)
        if area is None:
            continue
        scope.check()
        if misfit_found is not None and room[domain] >= 0:
            located, misfit_here = place_members(scope.inside(area), group.members)
            if misfit_here is None:
                return {name: replace(part, leaves=part.leaves + area[0]) for name, part in located.items()}
            continue
        located, misfit_here = place_members(replace(scope, leaf_range=area), group.members)
        if misfit_here is None:
            return located
        misfit_found = replace(misfit_here, pod_sets=tuple(p.name for p in group.pod_sets()))
        if room[domain] < 0 or misfit_found.code is not Code.NO_ROOM:
            break  # from here on not even one member fits, or the request is invalid everywhere
    assert misfit_found is not None
    return misfit_found


def _holds_in_sum(scope: PlacementScope, group: Group, level: int) -> Bools:
    """Domains of a level with enough of every resource for all members, summed over their leaves.

    Pods are also counted with the smallest request of all: what remains on a leaf below that request fits no
    pod.
    """
    snapshot, tree = scope.snapshot, scope.snapshot.tree
    shapes = [(with_slot(pod_set.requests), pod_set.count) for pod_set in group.pod_sets()]
    first = tree.first_leaves(level, np.arange(tree.size(level)))
    holds = np.ones(tree.size(level), dtype=bool)
    for resource in {name: None for shape, _ in shapes for name in shape}:
        asking = [(shape[resource], count) for shape, count in shapes if shape.get(resource)]
        if not asking:
            continue
        left = free_after_usage(snapshot, snapshot.active, resource, scope.assumed)
        usable = np.where(_clip(snapshot.active_leaves(), scope.leaf_range), left.clip(0, SUM_MAX), 0)
        amount, pods = sum(each * count for each, count in asking), sum(count for _, count in asking)
        holds &= np.add.reduceat(usable, first) >= min(amount, SUM_MAX)
        smallest = min(each for each, _ in asking)
        holds &= np.add.reduceat(usable // smallest, first) >= pods
    return holds


def _both(area: tuple[int, int], outer: tuple[int, int] | None) -> tuple[int, int] | None:
    """The leaves that two ranges share, if any."""
    first, last = area if outer is None else (max(area[0], outer[0]), min(area[1], outer[1]))
    return (first, last) if first < last else None
