"""A gang that grew or shrank: running pods keep their place, only the difference moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Assignment, Misfit, Placement, Share
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.profile import Profile
from bayplan.placement.place import (
    Located,
    Scope,
    group_locality,
    leader_and_workers,
    merged,
    place_member,
    place_pod_set,
    pod_sets_of,
    scope_of,
)  # fmt: skip
from bayplan.placement.place import assignment as named
from bayplan.placement.supply import Supply


def resize(supply: Supply, gang: Gang, held: Mapping[str, Assignment], profile: Profile) -> Placement:
    """Place a gang whose pod sets grew or shrank: running pods keep their place."""
    scope = scope_of(supply, profile)
    found: dict[str, Assignment] = {}
    for member in gang.root.members:
        answer = _resize_member(scope, member, held)
        if isinstance(answer, Misfit):
            return Placement(found, answer)
        found |= answer[0]
        scope = answer[1]
    return Placement(found)


def _resize_member(
    scope: Scope, member: Group | PodSet, held: Mapping[str, Assignment]
) -> tuple[dict[str, Assignment], Scope] | Misfit:
    pair = leader_and_workers(member) if isinstance(member, Group) else None
    leader, main = pair if pair else (None, member)
    before = held.get(main.name) if isinstance(main, PodSet) else None
    leading = held.get(leader.name) if leader else None
    if not isinstance(main, PodSet) or before is None or _is_stale(scope, before, leading):
        return _afresh(scope, member)
    if main.count <= before.count:
        kept = _truncated(before, main.count)
        scope = _holding(scope, main, kept)
        found = {main.name: kept}
        if leader and leading:
            scope, found[leader.name] = _holding(scope, leader, leading), leading
        return found, scope
    scope = _holding(scope, main, before)
    if leader and leading:
        scope = _holding(scope, leader, leading)
    locality = group_locality(member, main) if isinstance(member, Group) else main.locality
    more = replace(main, count=main.count - before.count, minimum=0)
    answer = place_pod_set(scope, more, locality, None if leading else leader)
    if isinstance(answer, Misfit):
        return answer
    found = {main.name: merged(scope.supply, [_standing(scope, before), answer[main.name]])}
    scope = scope.after(answer[main.name], main.requests)
    if leader:
        found[leader.name] = leading or named(scope.supply, answer[leader.name])
        if not leading:
            scope = scope.after(answer[leader.name], leader.requests)
    return found, scope


def _afresh(scope: Scope, member: Group | PodSet) -> tuple[dict[str, Assignment], Scope] | Misfit:
    answer = place_member(scope, member)
    if isinstance(answer, Misfit):
        return answer
    for pod_set in pod_sets_of(member):
        scope = scope.after(answer[pod_set.name], pod_set.requests)
    return {name: named(scope.supply, located) for name, located in answer.items()}, scope


def _is_stale(scope: Scope, *assignments: Assignment | None) -> bool:
    return any(
        scope.supply.leaf(share.values) is None
        for assignment in assignments
        if assignment
        for share in assignment.shares
    )


def _holding(scope: Scope, pod_set: PodSet, held: Assignment) -> Scope:
    return scope.after(_standing(scope, held), pod_set.requests)


def _standing(scope: Scope, held: Assignment) -> Located:
    leaves = [scope.supply.leaf(share.values) for share in held.shares]
    return Located(np.array(leaves, np.int64), np.array([share.count for share in held.shares], np.int64))


def _truncated(before: Assignment, count: int) -> Assignment:
    """The first `count` ranks."""
    shares, left = [], count
    for share in before.shares:
        if left > 0:
            shares.append(Share(share.values, min(share.count, left)))
            left -= share.count
    return replace(before, shares=tuple(shares))
