"""Resizes a running gang: running pods keep their domains, only the difference is placed or removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bayplan.model.assignment import Assignment, DomainAssignment, Misfit, Placement
from bayplan.model.gang import Gang, Group, Locality, PodSet
from bayplan.model.profile import Profile, Remainder
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import (
    leader_and_workers,
    locality_of,
    place_member,
    place_pod_set,
    pod_sets_of,
)
from bayplan.placement.domains.scope import Located, PlacementScope, scope_of
from bayplan.placement.domains.scope import assignment as named
from bayplan.placement.gang.beside import (
    Survivors,
    kept_of,
    last_leaf,
    place_beside,
    required_areas,
    whole_assignment,
)


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
    held_here = [held[pod_set.name] for pod_set in pod_sets_of(member) if pod_set.name in held]
    if main.name not in held or any(kept_of(scope, assignment) is None for assignment in held_here):
        return _place_anew(scope, member)
    kept: dict[str, Assignment] = {}
    located: dict[str, Located] = {}
    for pod_set in pod_sets_of(member):
        if pod_set.name in held:
            kept[pod_set.name] = _truncated(held[pod_set.name], pod_set.count)
            survivors = kept_of(scope, kept[pod_set.name])
            assert survivors is not None, "a stale assignment is not kept"
            located[pod_set.name] = survivors
            scope = scope.after(survivors, pod_set.requests)
    leaves = [leaf for survivors in located.values() for leaf in survivors.leaves.tolist()]
    pair = leader_and_workers(member) if isinstance(member, Group) else None
    if pair is not None and pair[0].name not in kept and pair[1].count > kept[main.name].count:
        survivors_of_workers = Survivors(located[main.name], leaves)
        return _grown_with_leader(scope, pair, locality_of(member, main), survivors_of_workers)
    found: dict[str, Assignment] = {}
    for pod_set in sorted(pod_sets_of(member), key=lambda p: p.name != main.name):
        before = kept.get(pod_set.name)
        if before is not None and before.shares:
            if before.count == pod_set.count:
                found[pod_set.name] = before
                continue
            beside = Survivors(located[pod_set.name], leaves, last_leaf(scope, before))
        else:
            beside = Survivors(leaves=leaves)
        answer = _grown(scope, replace(pod_set, locality=locality_of(member, pod_set)), beside)
        if isinstance(answer, Misfit):
            return answer
        found[pod_set.name], scope = answer
    return found, scope


def _grown_with_leader(
    scope: PlacementScope,
    pair: tuple[PodSet, PodSet],
    locality: Locality,
    kept: Survivors,
) -> tuple[dict[str, Assignment], PlacementScope] | Misfit:
    """Place a new leader and additional workers together."""
    leader, workers = pair
    more = replace(workers, count=workers.count - int(kept.pods.pods.sum()), minimum=0)
    answer: dict[str, Located] | Misfit | None = None
    for area in required_areas(scope, locality, kept.leaves):
        answer = place_pod_set(replace(scope, leaf_range=area), more, locality, leader)
        if not isinstance(answer, Misfit):
            break
    assert answer is not None
    if isinstance(answer, Misfit):
        return answer
    for pod_set in pair:
        scope = scope.after(answer[pod_set.name], pod_set.requests)
    return {
        workers.name: whole_assignment(scope, workers, kept, [answer[workers.name]]),
        leader.name: named(scope.snapshot, answer[leader.name]),
    }, scope


def _main(member: Group | PodSet, held: Mapping[str, Assignment]) -> PodSet:
    """The pod set itself, or the workers of a pair: the pod set that is, or was, larger."""
    if isinstance(member, PodSet):
        return member
    most = {p.name: max(p.count, held[p.name].count if p.name in held else 0) for p in member.pod_sets()}
    return max(member.pod_sets(), key=lambda p: most[p.name])


def _grown(
    scope: PlacementScope, pod_set: PodSet, kept: Survivors
) -> tuple[Assignment, PlacementScope] | Misfit:
    missing = pod_set.count - int(kept.pods.pods.sum())
    added: list[Located] = []
    if missing:
        leave_out = scope.profile.remainder is Remainder.LEAVE_OUT
        answer = place_beside(scope, pod_set, kept, [1] * missing, leave_out=leave_out)
        if isinstance(answer, Misfit):
            return answer
        added, scope = answer
    return whole_assignment(scope, pod_set, kept, added), scope


def _place_anew(
    scope: PlacementScope, member: Group | PodSet
) -> tuple[dict[str, Assignment], PlacementScope] | Misfit:
    answer = place_member(scope, member)
    if isinstance(answer, Misfit):
        return answer
    for pod_set in pod_sets_of(member):
        scope = scope.after(answer[pod_set.name], pod_set.requests)
    return {name: named(scope.snapshot, located) for name, located in answer.items()}, scope


def _truncated(before: Assignment, count: int) -> Assignment:
    """The part of an assignment for the first `count` ranks."""
    shares, left = [], count
    for share in before.shares:
        if left > 0:
            shares.append(DomainAssignment(share.values, min(share.count, left)))
            left -= share.count
    return replace(before, shares=tuple(shares))
