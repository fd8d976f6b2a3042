"""Places the pods of failed nodes again, while the other pods of the gang stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from bayplan.model.assignment import Assignment, Code, Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import locality_of, place_member, pod_sets_of
from bayplan.placement.domains.scope import Located, PlacementScope, scope_of
from bayplan.placement.domains.scope import assignment as named
from bayplan.placement.gang.beside import Survivors, kept_of, last_leaf, place_beside, whole_assignment


def replace_nodes(
    snapshot: CapacitySnapshot,
    gang: Gang,
    held: Mapping[str, Assignment],
    failed: Collection[str],
    profile: Profile,
) -> Placement:
    """Place the pods of failed nodes again, where required localities and segments demand it.

    Hosts that no longer exist count as failed too.
    """
    hosts: set[str] = set()
    if snapshot.tree.topology.ends_at_host:
        hosts = set(failed) | set(_missing(snapshot, held))
        failed = hosts
    excluded_leaves = frozenset(leaf for name in hosts if (leaf := snapshot.leaf((name,))) is not None)
    scope = replace(scope_of(snapshot, profile), excluded_leaves=excluded_leaves)
    assignments: dict[str, Assignment] = {}
    for member in gang.root.members:
        affected = [pod_set for pod_set in pod_sets_of(member) if pod_set.name in held]
        kept: dict[str, Located] = {}
        for pod_set in affected:
            before = held[pod_set.name]
            survivors = kept_of(scope, before, failed)
            if survivors is None:
                return Placement(assignments, _stale(scope, pod_set, before, failed))
            kept[pod_set.name] = survivors
        leaves = [leaf for survivors in kept.values() for leaf in survivors.leaves.tolist()]
        if isinstance(member, Group) and not leaves and 0 < len(affected) == len(pod_sets_of(member)):
            together = place_member(scope, member)
            if isinstance(together, Misfit):
                return Placement(assignments, together)
            for pod_set in affected:
                assignments[pod_set.name] = named(snapshot, together[pod_set.name])
                scope = scope.after(together[pod_set.name], pod_set.requests)
            continue
        for pod_set in affected:
            before = held[pod_set.name]
            survivors_here = Survivors(kept[pod_set.name], leaves, last_leaf(scope, before))
            asked = replace(pod_set, locality=locality_of(member, pod_set))
            answer = _replace_in(scope, asked, before, failed, survivors_here)
            if isinstance(answer, Misfit):
                return Placement(assignments, answer)
            assignments[pod_set.name], scope = answer
    return Placement(assignments)


def _missing(snapshot: CapacitySnapshot, held: Mapping[str, Assignment]) -> Iterator[str]:
    for assignment in held.values():
        for share in assignment.shares:
            if snapshot.leaf(share.values, usable=False) is None:
                yield share.values[-1]


def _stale(scope: PlacementScope, pod_set: PodSet, before: Assignment, failed: Collection[str]) -> Misfit:
    """The first domain of the assignment that no longer exists."""
    shares = (share for share in before.shares if share.values[-1] not in failed)
    gone = next(share for share in shares if scope.snapshot.leaf(share.values, usable=False) is None)
    return Misfit(Code.STALE_ASSIGNMENT, (pod_set.name,), domain=gone.values[0])


def _replace_in(
    scope: PlacementScope, pod_set: PodSet, before: Assignment, failed: Collection[str], kept: Survivors
) -> tuple[Assignment, PlacementScope] | Misfit:
    lost_shares = [share for share in before.shares if share.values[-1] in failed]
    if not lost_shares:
        return before, scope
    answer = place_beside(scope, pod_set, kept, [share.count for share in lost_shares])
    if isinstance(answer, Misfit):
        gone = lost_shares[0].values[-1]
        return replace(answer, domain=gone) if answer.code is Code.NO_REPLACEMENT else answer
    return whole_assignment(answer[1], pod_set, kept, answer[0]), answer[1]
