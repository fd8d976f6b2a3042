"""Keeping what runs: replacing failed nodes under a gang, and growing or shrinking it in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit, Placement, Share
from bayplan.model.gang import Gang, Group, Locality, PodSet
from bayplan.model.profile import Profile, Remainder
from bayplan.placement.place import Located, Scope, leader_and_workers, place_member, place_pod_set, scope_of
from bayplan.placement.place import assignment as named
from bayplan.placement.supply import Supply
from bayplan.placement.tree import find


@dataclass(frozen=True, slots=True)
class Repair:
    """So many lost pods, where they have to go, and the segments that still bind them."""

    count: int
    within: tuple[int, int] | None  # a range of leaves
    pod_set: PodSet


def replace_nodes(
    supply: Supply, gang: Gang, held: Mapping[str, Assignment], failed: Collection[str], profile: Profile
) -> Placement:
    """Re-place only the pods that stood on failed nodes; survivors stay, in every locality they need."""
    scope = scope_of(supply, profile)
    found: dict[str, Assignment] = {}
    for pod_set in gang.root.pod_sets():
        before = held.get(pod_set.name)
        if before is None:
            continue
        answer = _replace_in(scope, pod_set, _locality(gang, pod_set), before, failed)
        if isinstance(answer, Misfit):
            return Placement(found, answer)
        found[pod_set.name], scope = answer
    return Placement(found)


def _locality(gang: Gang, pod_set: PodSet) -> Locality:
    for member in gang.root.members:
        if isinstance(member, Group) and pod_set in member.members and member.locality != Locality():
            return member.locality
    return pod_set.locality


def _replace_in(
    scope: Scope, pod_set: PodSet, locality: Locality, before: Assignment, failed: Collection[str]
) -> tuple[Assignment, Scope] | Misfit:
    survivors = tuple(share for share in before.shares if share.values[-1] not in failed)
    gone = [share for share in before.shares if share.values[-1] in failed]
    leaves = {share: scope.supply.leaf(share.values) for share in survivors}
    stale = next((share for share, leaf in leaves.items() if leaf is None), None)
    if stale is not None:
        return Misfit(Code.STALE_ASSIGNMENT, (pod_set.name,), domain=stale.values[0])
    if not gone:
        return before, scope
    kept = {share: leaf for share, leaf in leaves.items() if leaf is not None}
    scope = replace(scope, barred=scope.barred | _leaves_of(scope.supply, gone))
    added: list[Located] = []
    for repair in _repairs(scope, pod_set, locality, kept, gone):
        answer = place_pod_set(
            replace(scope, within=repair.within), repair.pod_set, repair.pod_set.locality
        )
        if isinstance(answer, Misfit):
            return answer
        located = answer[pod_set.name]
        if int(located.pods.sum()) < repair.count:
            return Misfit(Code.NO_REPLACEMENT, (pod_set.name,), domain=gone[0].values[-1])
        scope = scope.after(located, pod_set.requests)
        added.append(located)
    return _merged(scope.supply, kept, added), scope


def _leaves_of(supply: Supply, shares: Collection[Share]) -> frozenset[int]:
    return frozenset(leaf for share in shares if (leaf := supply.leaf(share.values)) is not None)


def _repairs(
    scope: Scope, pod_set: PodSet, locality: Locality, kept: Mapping[Share, int], gone: Collection[Share]
) -> Iterator[Repair]:
    """Mend broken segments from the innermost layer outwards, then place whole new segments.

    Pods of one failed node belong to one domain, so they all go back to the one that lacks some.
    """
    tree, missing = scope.supply.tree, sum(share.count for share in gone)
    levels = {name: level for level, name in enumerate(tree.levels)}
    layers = [s for s in pod_set.segments if s.size > 0 and s.level in levels]
    counts = {leaf: share.count for share, leaf in kept.items()}
    for depth in reversed(range(len(layers))):
        layer = layers[depth]
        bound = replace(pod_set, segments=pod_set.segments[depth + 1 :], locality=Locality())
        for domain, lacks in _lacking(scope, pod_set, levels[layer.level], layer.size, counts, missing):
            count = missing if len(gone) == 1 else lacks
            bound = _dividing(pod_set, count)
            area = tree.leaf_range(levels[layer.level], domain)
            missing -= count
            yield Repair(count, area, replace(bound, count=count, minimum=0, locality=Locality()))
            if not missing:
                return
    if missing:
        area = _required_area(scope, locality, kept)
        asked = replace(pod_set, count=missing, minimum=0, locality=locality)
        yield Repair(missing, area, asked)


def _dividing(pod_set: PodSet, count: int) -> PodSet:
    """The pod set bound only by the layers that a part of a segment can still fill."""
    inner = [s for s in reversed(pod_set.segments) if s.size > 0 and count % s.size == 0]
    return replace(pod_set, segments=tuple(inner[:1]))


def _lacking(
    scope: Scope, pod_set: PodSet, level: int, size: int, counts: Mapping[int, int], missing: int
) -> list[tuple[int, int]]:
    """Domains of a level whose pods make no whole segments any more, and how many each lacks."""
    if missing % size == 0 and len(counts) == 0:
        return []
    leaves = np.array(list(counts), np.int64)
    domains = scope.supply.tree.ancestors(scope.supply.tree.lowest, leaves, level)
    pods: dict[int, int] = {}
    for domain, leaf in zip(domains.tolist(), counts, strict=True):
        pods[domain] = pods.get(domain, 0) + counts[leaf]
    odd = 0 if scope.profile.remainder is Remainder.LEAVE_OUT else pod_set.count % size
    lacking = [(domain, size - held % size) for domain, held in sorted(pods.items()) if held % size]
    if odd:
        whole = next((domain for domain, held in sorted(pods.items()) if held % size == odd), None)
        lacking = [(domain, lacks) for domain, lacks in lacking if domain != whole]
    return [(domain, lacks) for domain, lacks in lacking if lacks <= missing]


def _required_area(
    scope: Scope, locality: Locality, kept: Mapping[Share, int]
) -> tuple[int, int] | None:
    """The leaves below the domain that the survivors are in, if they have to stay together."""
    tree = scope.supply.tree
    if locality.required is None or locality.required not in tree.levels or not kept:
        return None
    level = tree.levels.index(locality.required)
    first = np.array([next(iter(kept.values()))])
    return tree.leaf_range(level, int(tree.ancestors(tree.lowest, first, level)[0]))


def _merged(supply: Supply, kept: Mapping[Share, int], added: list[Located]) -> Assignment:
    pods: dict[int, int] = {}
    for share, leaf in kept.items():
        pods[leaf] = pods.get(leaf, 0) + share.count
    for located in added:
        for leaf, count in zip(located.leaves.tolist(), located.pods.tolist(), strict=True):
            pods[leaf] = pods.get(leaf, 0) + count
    order = sorted(pods)
    return named(supply, Located(np.array(order, np.int64), np.array([pods[leaf] for leaf in order], np.int64)))


def resize(
    supply: Supply, gang: Gang, held: Mapping[str, Assignment], profile: Profile
) -> Placement:
    """Place a gang whose pod sets grew or shrank: running pods keep their place."""
    scope = scope_of(supply, profile)
    found: dict[str, Assignment] = {}
    for member in gang.root.members:
        answer = _resize_member(scope, member, held)
        if isinstance(answer, Misfit):
            return Placement(found, answer)
        for pod_set in [member] if isinstance(member, PodSet) else member.pod_sets():
            found[pod_set.name] = answer[0][pod_set.name]
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
    locality = member.locality if isinstance(member, Group) and member.locality != Locality() else main.locality
    more = replace(main, count=main.count - before.count, minimum=0)
    answer = place_pod_set(scope, more, locality, None if leading else leader)
    if isinstance(answer, Misfit):
        return answer
    kept_leaves = {share: leaf for share in before.shares if (leaf := scope.supply.leaf(share.values)) is not None}
    found = {main.name: _merged(scope.supply, kept_leaves, [answer[main.name]])}
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
    for pod_set in [member] if isinstance(member, PodSet) else member.pod_sets():
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
    leaves = [scope.supply.leaf(share.values) for share in held.shares]
    pods = np.array([share.count for share in held.shares], np.int64)
    return scope.after(Located(np.array(leaves, np.int64), pods), pod_set.requests)


def _truncated(before: Assignment, count: int) -> Assignment:
    """The first `count` ranks."""
    shares, left = [], count
    for share in before.shares:
        if left > 0:
            shares.append(Share(share.values, min(share.count, left)))
            left -= share.count
    return replace(before, shares=tuple(shares))
