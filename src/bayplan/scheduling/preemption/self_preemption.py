"""Self-preemption: a gang preempts its own surplus pods for pods that its minimum lacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from bayplan.model.assignment import Path
from bayplan.model.gang import AUTO, Group, PodSet
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.subgroups.constraint_tree import mandatory_ranks
from bayplan.placement.subgroups.minimums import missing_in_gang
from bayplan.scheduling.attempt.gang import capacity_of, levels_of
from bayplan.scheduling.preemption.context import PreemptionContext, PreemptionResult
from bayplan.state.scheduling.snapshot import SchedulingCandidate

DOMAINS_MAX = 16  # domains whose pods are tried by themselves


def surplus_pods(candidate: SchedulingCandidate, removed: Collection[PodKey]) -> list[Pod]:
    """The surplus pods of a partly bound gang, first victim first.

    Empty if the minimum is complete, or pods of the gang are preempted already.
    """
    spec, bound = candidate.spec, candidate.bound
    tree = spec.tree
    if tree is None or not spec.is_strict or spec.quorum or spec.disrupt_together:
        return []
    if not missing_in_gang(tree, candidate.pending, bound) or any(pod.key in removed for pod in bound):
        return []
    found: list[Pod] = []
    for pod_set in reversed(list(tree.pod_sets())):
        mine = [pod for pod in bound if pod.pod_set == pod_set.name]
        found += reversed(_surplus(pod_set, mine))
    optional = {one.name for one in tree.pod_sets() if one.segments or not one.minimum}
    # the other pod sets have to share a domain with the pods that stay
    found.sort(key=lambda pod: pod.pod_set not in optional)
    return [pod for pod in found if pod.uses_capacity and not pod.terminating]


def _surplus(pod_set: PodSet, bound: Sequence[Pod]) -> list[Pod]:
    """The pods of the highest ranks; pods in mandatory segments are never surplus."""
    ordered = sorted(bound, key=lambda pod: (pod.rank, pod.created, pod.key.namespace, pod.key.name))
    if pod_set.segments:
        mandatory = mandatory_ranks(pod_set)
        return [pod for pod in ordered if pod.rank >= mandatory]
    return ordered[pod_set.minimum :]


def preempt_surplus(
    context: PreemptionContext,
    candidate: SchedulingCandidate,
    try_victims: Callable[[Sequence[Pod]], PreemptionResult | None],
) -> PreemptionResult | None:
    """The smallest result when preempting some of all surplus pods, or some of those of one domain.

    Reprieve in rank order keeps the first ranks but not always the most pods: losing one domain entirely may
    free another one, and it matters which.
    """
    surplus, tree = surplus_pods(candidate, context.terminating.keys), candidate.spec.tree
    best = try_victims(surplus) if surplus else None
    if best is None or tree is None:
        return None
    for some in _by_domain(capacity_of(context.snapshot, candidate, tree), tree, surplus):
        if len(best.pods) < 2:
            break
        limit = len(best.pods) - 1
        found = try_victims(some[:limit]) or (try_victims(some) if len(some) > limit else None)
        if found is not None and len(found.pods) <= limit:
            best = found
    return best


def _by_domain(capacity: CapacitySnapshot, tree: Group, surplus: Sequence[Pod]) -> Iterator[list[Pod]]:
    """The pods of each domain, at each level that the gang or a part of it is constrained to.

    Domains are distinguished by their full path: racks in two blocks may have the same name.
    """
    levels = capacity.tree.levels
    tried: list[list[Pod]] = [list(surplus)]
    named = set(levels_of(tree))
    for depth in (depth for depth, level in enumerate(levels, 1) if level in named or AUTO in named):
        domains: dict[Path, list[Pod]] = {}
        for pod in surplus:
            path = capacity.paths.get(pod.node)
            if path is not None:
                domains.setdefault(path[:depth], []).append(pod)
        for some in domains.values():
            if some not in tried and len(tried) <= DOMAINS_MAX:
                tried.append(some)
                yield some
