"""Resizes a running gang: running pods keep their domains, only the difference is placed or removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Assignment, DomainAssignment, Misfit, Placement
from bayplan.model.gang import Gang, Group, Locality, PodSet
from bayplan.model.profile import Profile, Remainder
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import (
    group_locality,
    leader_and_workers,
    place_member,
    place_pod_set,
    pod_sets_of,
)
from bayplan.placement.domains.scope import Located, PlacementScope, merged, scope_of
from bayplan.placement.domains.scope import assignment as named
from bayplan.placement.gang.replace import in_rank_order, place_missing, required_areas


def resize(
    snapshot: CapacitySnapshot, gang: Gang, held: Mapping[str, Assignment], profile: Profile
) -> Placement:
    """Place a gang whose pod sets grew or shrank; running pods keep their domains."""
    scope = scope_of(snapshot, profile)
    assignments: dict[str, Assignment] = {}
    for member in gang.root.members:
        answer = _resize_member(scope, member, held)
        if isinstance(answer, Misfit):
            return Placement(assignments, answer)
        assignments |= answer[0]
        scope = answer[1]
    return Placement(assignments)


def _resize_member(
    scope: PlacementScope, member: Group | PodSet, held: Mapping[str, Assignment]
) -> tuple[dict[str, Assignment], PlacementScope] | Misfit:
    """Keep the running pods, then place the missing ones next to them; place all if none are kept."""
    main = _main(member, held)
    if main.name not in held or _is_stale(scope, *(held.get(p.name) for p in pod_sets_of(member))):
        return _place_anew(scope, member)
    kept: dict[str, Assignment] = {}
    for pod_set in pod_sets_of(member):
        if pod_set.name in held:
            kept[pod_set.name] = _truncated(held[pod_set.name], pod_set.count)
            scope = scope.after(_located(scope, kept[pod_set.name]), pod_set.requests)
    kept_leaves = [leaf for found in kept.values() for leaf in _located(scope, found).leaves.tolist()]
    pair = leader_and_workers(member) if isinstance(member, Group) else None
    if pair is not None and pair[0].name not in kept and pair[1].count > kept[main.name].count:
        assert isinstance(member, Group)
        return _grown_with_leader(scope, pair, group_locality(member, main), kept[main.name], kept_leaves)
    found: dict[str, Assignment] = {}
    for pod_set in sorted(pod_sets_of(member), key=lambda p: p.name != main.name):
        locality = group_locality(member, pod_set) if isinstance(member, Group) else pod_set.locality
        answer = _grown(scope, replace(pod_set, locality=locality), kept.get(pod_set.name), kept_leaves)
        if isinstance(answer, Misfit):
            return answer
        found[pod_set.name], scope = answer
    return found, scope


def _grown_with_leader(
    scope: PlacementScope,
    pair: tuple[PodSet, PodSet],
    locality: Locality,
    kept: Assignment,
    kept_leaves: Sequence[int],
) -> tuple[dict[str, Assignment], PlacementScope] | Misfit:
    """Place a new leader and additional workers together."""
    leader, workers = pair
    more = replace(workers, count=workers.count - kept.count, minimum=0)
    answer: dict[str, Located] | Misfit | None = None
    for area in required_areas(scope, locality, kept_leaves):
        answer = place_pod_set(replace(scope, leaf_range=area), more, locality, leader)
        if not isinstance(answer, Misfit):
            break
    assert answer is not None
    if isinstance(answer, Misfit):
        return answer
    for pod_set in pair:
        scope = scope.after(answer[pod_set.name], pod_set.requests)
    whole = merged([_located(scope, kept), answer[workers.name]])
    return {
        workers.name: named(scope.snapshot, in_rank_order(scope, workers, whole, None)),
        leader.name: named(scope.snapshot, answer[leader.name]),
    }, scope


def _main(member: Group | PodSet, held: Mapping[str, Assignment]) -> PodSet:
    """The pod set itself, or the workers of a pair: the pod set that is, or was, larger."""
    if isinstance(member, PodSet):
        return member
    most = {p.name: max(p.count, held[p.name].count if p.name in held else 0) for p in member.pod_sets()}
    return max(member.pod_sets(), key=lambda p: most[p.name])


def _grown(
    scope: PlacementScope, pod_set: PodSet, kept: Assignment | None, kept_leaves: Sequence[int]
) -> tuple[Assignment, PlacementScope] | Misfit:
    kept_pods = Located(np.zeros(0, np.int64), np.zeros(0, np.int64))
    last_segment_leaf = None
    if kept is not None and kept.shares:
        if kept.count == pod_set.count:
            return kept, scope
        last_segment_leaf = scope.snapshot.leaf(kept.shares[-1].values, usable=False)
        kept_pods = _located(scope, kept)
    missing = pod_set.count - int(kept_pods.pods.sum())
    leave_out = scope.profile.remainder is Remainder.LEAVE_OUT
    added = (
        place_missing(scope, pod_set, kept_pods, [1] * missing, kept_leaves, last_segment_leaf, leave_out)
        if missing
        else []
    )
    if isinstance(added, Misfit):
        return added
    for located in added:
        scope = scope.after(located, pod_set.requests)
    whole = in_rank_order(scope, pod_set, merged([kept_pods, *added]), last_segment_leaf)
    return named(scope.snapshot, whole), scope


def _place_anew(
    scope: PlacementScope, member: Group | PodSet
) -> tuple[dict[str, Assignment], PlacementScope] | Misfit:
    answer = place_member(scope, member)
    if isinstance(answer, Misfit):
        return answer
    for pod_set in pod_sets_of(member):
        scope = scope.after(answer[pod_set.name], pod_set.requests)
    return {name: named(scope.snapshot, located) for name, located in answer.items()}, scope


def _is_stale(scope: PlacementScope, *assignments: Assignment | None) -> bool:
    return any(
        scope.snapshot.leaf(share.values, usable=False) is None
        for assignment in assignments
        if assignment
        for share in assignment.shares
    )


def _located(scope: PlacementScope, held: Assignment) -> Located:
    leaves = [scope.snapshot.leaf(share.values, usable=False) for share in held.shares]
    return Located(np.array(leaves, np.int64), np.array([share.count for share in held.shares], np.int64))


def _truncated(before: Assignment, count: int) -> Assignment:
    """The part of an assignment for the first `count` ranks."""
    shares, left = [], count
    for share in before.shares:
        if left > 0:
            shares.append(DomainAssignment(share.values, min(share.count, left)))
            left -= share.count
    return replace(before, shares=tuple(shares))
