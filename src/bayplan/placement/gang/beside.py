"""Places the missing pods of a gang beside those it keeps: after lost nodes, growth, or a partial start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit
from bayplan.model.gang import AUTO, Gang, Locality, PodSet, Segment
from bayplan.model.profile import Remainder
from bayplan.placement.domains.greedy import locality_of, place_pod_set, pod_sets_of
from bayplan.placement.domains.request import resolve
from bayplan.placement.domains.scope import Located, PlacementScope, last_segment_last, merged
from bayplan.placement.domains.scope import assignment as named

Area = tuple[int, int]
"""A range of leaves."""
NO_PODS = Located(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """What a gang keeps: pods of one pod set, and the leaves of all pods that share its locality."""

    pods: Located = NO_PODS
    leaves: Sequence[int] = ()
    last_segment_leaf: int | None = None  # a leaf that holds the last, smaller segment, if that is known


@dataclass(frozen=True, slots=True)
class Repair:
    """Missing pods to place together, with their remaining constraints, and areas to try (None: anywhere)."""

    pods: PodSet
    areas: tuple[Area | None, ...]


def place_beside(
    scope: PlacementScope, pod_set: PodSet, kept: Survivors, lost: Sequence[int], *, leave_out: bool = False
) -> tuple[list[Located], PlacementScope] | Misfit:
    """Place the missing pods of a pod set beside those it keeps; `lost` counts them by their old leaf.

    Returns the added pods, and the scope with them. With `leave_out`, not all of them have to fit.
    """
    asked = resolve(pod_set, pod_set.locality, scope.snapshot.tree.topology, scope.profile)
    if isinstance(asked, Misfit):
        return asked
    added: list[Located] = []
    for repair in _repairs(scope, pod_set, kept, lost):
        located = _repaired(scope, repair)
        if isinstance(located, Misfit):
            return located
        if int(located.pods.sum()) < repair.pods.count and not leave_out:
            return Misfit(Code.NO_REPLACEMENT, (pod_set.name,))
        scope = scope.after(located, pod_set.requests)
        added.append(located)
    return added, scope


def complete(
    scope: PlacementScope, gang: Gang, bound_nodes: Mapping[str, Sequence[str]], missing: Mapping[str, int]
) -> dict[str, Located] | Misfit:
    """Place `missing` pods per pod set; `bound_nodes` has the nodes of the pods that run or ran."""
    placed: dict[str, Located] = {}
    for member in gang.root.members:
        bound = {p.name: _on_nodes(scope, bound_nodes.get(p.name, ())) for p in pod_sets_of(member)}
        leaves = [leaf for located in bound.values() for leaf in located.leaves.tolist()]
        for pod_set in pod_sets_of(member):
            placed[pod_set.name] = NO_PODS
            lost = [1] * missing.get(pod_set.name, 0)
            if not lost:
                continue
            asked = replace(pod_set, locality=locality_of(member, pod_set))
            answer = place_beside(scope, asked, Survivors(bound[pod_set.name], leaves), lost)
            if isinstance(answer, Misfit):
                return answer
            added, scope = answer
            placed[pod_set.name] = Located(
                np.concatenate([part.leaves for part in added]), np.concatenate([part.pods for part in added])
            )
    return placed


def _on_nodes(scope: PlacementScope, names: Sequence[str]) -> Located:
    rows = [row for name in names if (row := scope.snapshot.row(name)) is not None]
    leaves, pods = np.unique(np.array(rows, np.int64), return_counts=True)
    return Located(leaves, pods)


def kept_of(scope: PlacementScope, before: Assignment, failed: Collection[str] = ()) -> Located | None:
    """The pods of an assignment that are not on failed nodes; None if a domain of theirs no longer exists.

    Pods on a cordoned node are not moved.
    """
    shares = [share for share in before.shares if share.values[-1] not in failed]
    leaves = [scope.snapshot.leaf(share.values, usable=False) for share in shares]
    if None in leaves:
        return None
    return Located(np.array(leaves, np.int64), np.array([share.count for share in shares], np.int64))


def last_leaf(scope: PlacementScope, before: Assignment) -> int | None:
    """The leaf of the last pods, which are those of the last segment."""
    return scope.snapshot.leaf(before.shares[-1].values, usable=False) if before.shares else None


def whole_assignment(
    scope: PlacementScope, pod_set: PodSet, kept: Survivors, added: Sequence[Located]
) -> Assignment:
    """The assignment of kept and added pods together, in rank order."""
    located = _in_rank_order(scope, pod_set, merged([kept.pods, *added]), kept.last_segment_leaf)
    return named(scope.snapshot, located)


def _in_rank_order(
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
            known = _domain_of(scope, last_segment_leaf, level)
            domain = known if known in able else able[-1]
            located = last_segment_last(located, tree.leaf_range(level, domain), rest)
    return located


def _domain_of(scope: PlacementScope, leaf: int | None, level: int) -> int:
    """The domain of a level that a leaf is in; -1 if the leaf is unknown."""
    tree = scope.snapshot.tree
    return -1 if leaf is None else int(tree.ancestors(tree.lowest, np.array([leaf]), level)[0])


def _repaired(scope: PlacementScope, repair: Repair) -> Located | Misfit:
    answer: dict[str, Located] | Misfit | None = None
    for area in repair.areas:
        answer = place_pod_set(replace(scope, leaf_range=area), repair.pods, repair.pods.locality)
        if not isinstance(answer, Misfit):
            return answer[repair.pods.name]
    assert isinstance(answer, Misfit), "there is always an area to try"
    return answer


def _repairs(
    scope: PlacementScope, pod_set: PodSet, kept: Survivors, lost: Sequence[int]
) -> Iterator[Repair]:
    """Repair broken segments from the innermost layer outwards, then place whole new ones.

    Pods of one failed node were in one domain, so they all go back to the one that lacks some.
    """
    tree, missing, kept_pods = scope.snapshot.tree, sum(lost), kept.pods
    total = missing + int(kept_pods.pods.sum())
    layers = [s for s in pod_set.segments if s.size > 0 and s.level in tree.levels]
    for depth in reversed(range(len(layers))):
        level, size = tree.levels.index(layers[depth].level), layers[depth].size
        rest = total % size if scope.profile.remainder is Remainder.LAST_SEGMENT else 0
        pods = _pods_by_domain(scope, kept_pods, level)
        known = _domain_of(scope, kept.last_segment_leaf, level)
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
        replace(pod_set, count=missing, minimum=0), required_areas(scope, pod_set.locality, kept.leaves)
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
