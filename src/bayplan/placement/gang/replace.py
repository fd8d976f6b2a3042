"""Places the lost or missing pods of a running gang again, while the pods that still run stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit, Placement
from bayplan.model.gang import AUTO, Gang, Group, Locality, PodSet, Segment
from bayplan.model.profile import Profile, Remainder
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import group_locality, place_member, place_pod_set, pod_sets_of
from bayplan.placement.domains.request import resolve
from bayplan.placement.domains.scope import Located, PlacementScope, last_segment_last, merged, scope_of
from bayplan.placement.domains.scope import assignment as named

Area = tuple[int, int]
"""A range of leaves."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Lost pods to place together, with their remaining constraints, and areas to try (None: anywhere)."""

    pods: PodSet
    areas: tuple[Area | None, ...]


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
        kept_leaves: list[int] = []  # leaves of surviving pods that share the locality
        for pod_set in affected:
            kept_pods = _survivors(scope, pod_set, held[pod_set.name], failed)
            if isinstance(kept_pods, Misfit):
                return Placement(assignments, kept_pods)
            kept_leaves += kept_pods.leaves.tolist()
        if (
            isinstance(member, Group)
            and affected
            and not kept_leaves
            and len(affected) == len(pod_sets_of(member))
        ):
            together = place_member(scope, member)
            if isinstance(together, Misfit):
                return Placement(assignments, together)
            for pod_set in affected:
                assignments[pod_set.name] = named(snapshot, together[pod_set.name])
                scope = scope.after(together[pod_set.name], pod_set.requests)
            continue
        for pod_set in affected:
            locality = group_locality(member, pod_set) if isinstance(member, Group) else pod_set.locality
            answer = _replace_in(
                scope, replace(pod_set, locality=locality), held[pod_set.name], failed, kept_leaves
            )
            if isinstance(answer, Misfit):
                return Placement(assignments, answer)
            assignments[pod_set.name], scope = answer
    return Placement(assignments)


def _missing(snapshot: CapacitySnapshot, held: Mapping[str, Assignment]) -> Iterator[str]:
    for assignment in held.values():
        for share in assignment.shares:
            if snapshot.leaf(share.values, usable=False) is None:
                yield share.values[-1]


def _survivors(
    scope: PlacementScope, pod_set: PodSet, before: Assignment, failed: Collection[str]
) -> Located | Misfit:
    leaves, pods = [], []
    for share in before.shares:
        if share.values[-1] in failed:
            continue
        leaf = scope.snapshot.leaf(share.values, usable=False)  # pods on a cordoned node are not moved
        if leaf is None:
            return Misfit(Code.STALE_ASSIGNMENT, (pod_set.name,), domain=share.values[0])
        leaves.append(leaf)
        pods.append(share.count)
    return Located(np.array(leaves, np.int64), np.array(pods, np.int64))


def _replace_in(
    scope: PlacementScope,
    pod_set: PodSet,
    before: Assignment,
    failed: Collection[str],
    kept_leaves: Sequence[int],
) -> tuple[Assignment, PlacementScope] | Misfit:
    kept_pods = _survivors(scope, pod_set, before, failed)
    assert isinstance(kept_pods, Located)
    lost_shares = [share for share in before.shares if share.values[-1] in failed]
    if not lost_shares:
        return before, scope
    last_segment_leaf = scope.snapshot.leaf(before.shares[-1].values, usable=False)
    added = place_missing(
        scope, pod_set, kept_pods, [share.count for share in lost_shares], kept_leaves, last_segment_leaf
    )
    if isinstance(added, Misfit):
        if added.code is Code.NO_REPLACEMENT:
            return replace(added, domain=lost_shares[0].values[-1])
        return added
    for located in added:
        scope = scope.after(located, pod_set.requests)
    return named(
        scope.snapshot, in_rank_order(scope, pod_set, merged([kept_pods, *added]), last_segment_leaf)
    ), scope


def in_rank_order(
    scope: PlacementScope, pod_set: PodSet, located: Located, last_segment_leaf: int | None
) -> Located:
    """Order pods by topology, with the last, smaller segment at the end.

    `last_segment_leaf` is a leaf that segment was known to be on.
    """
    tree, total = scope.snapshot.tree, int(located.pods.sum())
    for layer in pod_set.segments:
        if scope.profile.remainder is Remainder.LEAVE_OUT or layer.size <= 0 or total % layer.size == 0:
            continue
        level, rest = tree.levels.index(layer.level), total % layer.size
        pods = _pods_by_domain(scope, located, level)
        able = [domain for domain, count in pods.items() if count % layer.size == rest]
        if able:
            known = (
                -1
                if last_segment_leaf is None
                else int(tree.ancestors(tree.lowest, np.array([last_segment_leaf]), level)[0])
            )
            domain = known if known in able else able[-1]
            located = last_segment_last(located, tree.leaf_range(level, domain), rest)
    return located


def place_missing(
    scope: PlacementScope, pod_set: PodSet, kept_pods: Located, lost: Sequence[int],
    kept_leaves: Sequence[int], last_segment_leaf: int | None = None, may_leave_out: bool = False,
) -> list[Located] | Misfit:  # fmt: skip
    """Place the missing pods of a pod set next to those it keeps; `lost` counts them by their old leaf.

    `last_segment_leaf` is a leaf that holds the last, smaller segment, if that is known.
    """
    asked = resolve(pod_set, pod_set.locality, scope.snapshot.tree.topology, scope.profile)
    if isinstance(asked, Misfit):
        return asked
    added: list[Located] = []
    for repair in _repairs(scope, pod_set, kept_pods, lost, kept_leaves, last_segment_leaf):
        located = _repaired(scope, repair)
        if isinstance(located, Misfit):
            return located
        if int(located.pods.sum()) < repair.pods.count and not may_leave_out:
            return Misfit(Code.NO_REPLACEMENT, (pod_set.name,))
        scope = scope.after(located, pod_set.requests)
        added.append(located)
    return added


def _repaired(scope: PlacementScope, repair: Repair) -> Located | Misfit:
    answer: dict[str, Located] | Misfit | None = None
    for area in repair.areas:
        answer = place_pod_set(replace(scope, leaf_range=area), repair.pods, repair.pods.locality)
        if not isinstance(answer, Misfit):
            return answer[repair.pods.name]
    assert isinstance(answer, Misfit), "there is always an area to try"
    return answer


def _repairs(
    scope: PlacementScope, pod_set: PodSet, kept_pods: Located, lost: Sequence[int],
    kept_leaves: Sequence[int], last_segment_leaf: int | None,
) -> Iterator[Repair]:  # fmt: skip
    """Repair broken segments from the innermost layer outwards, then place whole new ones.

    Pods of one failed node were in one domain, so they all go back to the one that lacks some.
    """
    tree, missing = scope.snapshot.tree, sum(lost)
    total = missing + int(kept_pods.pods.sum())
    layers = [s for s in pod_set.segments if s.size > 0 and s.level in tree.levels]
    for depth in reversed(range(len(layers))):
        level, size = tree.levels.index(layers[depth].level), layers[depth].size
        rest = total % size if scope.profile.remainder is Remainder.LAST_SEGMENT else 0
        pods = _pods_by_domain(scope, kept_pods, level)
        known = (
            -1
            if last_segment_leaf is None
            else int(tree.ancestors(tree.lowest, np.array([last_segment_leaf]), level)[0])
        )
        for domain, lacks in _lacking(pods, size, rest, missing, known):
            count = missing if len(lost) == 1 else lacks
            if count > missing or (len(lost) == 1 and (lacks - missing) % size):
                continue
            inner_layers = _layers_below(scope, layers, depth, count, single=len(lost) == 1)
            part = replace(pod_set, count=count, minimum=0, segments=inner_layers)
            yield Repair(part, (tree.leaf_range(level, domain),))
            missing -= count
            if not missing:
                return
            repaired_leaf = np.array([tree.leaf_range(level, domain)[0]])
            kept_pods = Located(
                np.concatenate((kept_pods.leaves, repaired_leaf)), np.concatenate((kept_pods.pods, [count]))
            )
    yield Repair(
        replace(pod_set, count=missing, minimum=0), required_areas(scope, pod_set.locality, kept_leaves)
    )


def _layers_below(
    scope: PlacementScope, layers: Sequence[Segment], depth: int, count: int, single: bool
) -> tuple[Segment, ...]:
    """The layers below, which still apply to part of a segment; without last segments only whole ones do."""
    below = layers[depth + 1 :]
    if single and scope.profile.remainder is Remainder.LEAVE_OUT:
        return tuple(layer for layer in below if count % layer.size == 0)
    return tuple(below)


def _pods_by_domain(scope: PlacementScope, kept_pods: Located, level: int) -> dict[int, int]:
    tree = scope.snapshot.tree
    pods: dict[int, int] = {}
    domains = tree.ancestors(tree.lowest, kept_pods.leaves, level)
    for domain, count in zip(domains.tolist(), kept_pods.pods.tolist(), strict=True):
        pods[domain] = pods.get(domain, 0) + count
    return pods


def _lacking(
    pods: Mapping[int, int], size: int, rest: int, missing: int, known: int
) -> list[tuple[int, int]]:
    """Domains whose segments are no longer whole, and how many pods each lacks.

    One domain may hold the last, smaller segment. If that segment lost pods itself, it is taken to be in the
    domain whose repair leaves only whole segments to place.
    """
    broken = {domain: size - held % size for domain, held in sorted(pods.items()) if held % size}
    able = [domain for domain in broken if rest and size - broken[domain] == rest]
    last_segment_leaf = known if known in able else next(iter(able), None)
    if last_segment_leaf is not None:
        del broken[last_segment_leaf]
    elif rest and (sum(broken.values()) - missing) % size:
        for domain, lacks in broken.items():
            missing_here = (rest - (size - lacks)) % size
            if (sum(broken.values()) - lacks + missing_here - missing) % size == 0:
                broken[domain] = missing_here
                break
    return [(domain, lacks) for domain, lacks in broken.items() if lacks <= missing]


def required_areas(
    scope: PlacementScope, locality: Locality, kept_leaves: Sequence[int]
) -> tuple[Area | None, ...]:
    """The leaves below the domain that the survivors are in, if they have to stay together."""
    tree = scope.snapshot.tree
    if not kept_leaves or (locality.required not in tree.levels and locality.required != AUTO):
        return (None,)
    leaves = np.array(kept_leaves)
    if locality.required != AUTO:
        level = tree.levels.index(locality.required)
        return (tree.leaf_range(level, int(tree.ancestors(tree.lowest, leaves[:1], level)[0])),)
    areas: list[Area | None] = []
    for level in range(tree.lowest, -1, -1):
        domains = np.unique(tree.ancestors(tree.lowest, leaves, level))
        if len(domains) == 1:
            areas.append(tree.leaf_range(level, int(domains[0])))
    return tuple(areas) or (None,)


def complete(
    scope: PlacementScope, gang: Gang, bound_nodes: Mapping[str, Sequence[str]], missing: Mapping[str, int]
) -> dict[str, Located] | Misfit:
    """Place `missing` pods per pod set; `bound_nodes` has the nodes of the pods that run or ran."""
    placed: dict[str, Located] = {}
    for member in gang.root.members:
        bound = {p.name: _located(scope, bound_nodes.get(p.name, ())) for p in pod_sets_of(member)}
        kept_leaves = [leaf for located in bound.values() for leaf in located.leaves.tolist()]
        for pod_set in pod_sets_of(member):
            locality = pod_set.locality if isinstance(member, PodSet) else group_locality(member, pod_set)
            lost = [1] * missing.get(pod_set.name, 0)
            asked = replace(pod_set, locality=locality)
            added = place_missing(scope, asked, bound[pod_set.name], lost, kept_leaves) if lost else []
            if isinstance(added, Misfit):
                return added
            for located in added:
                scope = scope.after(located, pod_set.requests)
            placed[pod_set.name] = _joined(added)
    return placed


def nodes_in_rank_order(scope: PlacementScope, found: Located) -> list[str]:
    """A node name per pod. Leaves must be hosts."""
    nodes = scope.snapshot.tree.nodes
    return [nodes[leaf].name for leaf in np.repeat(found.leaves, found.pods).tolist()]


def _located(scope: PlacementScope, names: Sequence[str]) -> Located:
    rows = [row for name in names if (row := scope.snapshot.row(name)) is not None]
    leaves, pods = np.unique(np.array(rows, np.int64), return_counts=True)
    return Located(leaves, pods)


def _joined(parts: Sequence[Located]) -> Located:
    none = np.zeros(0, np.int64)
    leaves = np.concatenate([none, *(part.leaves for part in parts)])
    return Located(leaves, np.concatenate([none, *(part.pods for part in parts)]))
