"""Exact placement: a complete search that finds a placement whenever one exists, and the best of them.

The gang goes into one domain if any holds it, the lowest and tightest, else into as few as possible
from the top level down. Domains that cannot hold it by count are skipped; the others are searched in order
of their bounds, until none can be better than the best placement.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import Gang, Locality
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.domains.greedy import place_member, pod_sets_of
from bayplan.placement.domains.scope import Located, PlacementScope
from bayplan.placement.exact.bounds import build_grid, top_level
from bayplan.placement.exact.branch_and_bound import (
    LevelSearch,
    SearchBudget,
    SearchResult,
    best_at,
    is_in_one_domain,
)
from bayplan.placement.exact.problem import (
    ExactProblem,
    LocalityGroup,
    exceeds_total_capacity,
    holds,
    located,
    problem_of,
    score,
)
from bayplan.placement.exact.solver import solver


def place_exactly(scope: PlacementScope, gang: Gang) -> tuple[dict[str, Located], bool] | Misfit:
    """The placement of every pod set and whether it is proven best; or the misfit."""
    names = tuple(pod_set.name for pod_set in gang.root.pod_sets())
    if solver() is None:
        return Misfit(Code.NOT_INSTALLED, names, topology=scope.snapshot.tree.topology.name)
    if not names:
        return {}, True
    greedy = _greedy(scope, gang)
    if isinstance(greedy, Misfit) and greedy.code is not Code.NO_ROOM:
        return greedy
    problem = problem_of(scope, gang)
    if isinstance(problem, Misfit):
        return problem
    if isinstance(greedy, Misfit) and exceeds_total_capacity(problem):
        return greedy
    hint = None if isinstance(greedy, Misfit) else _as_array(problem, greedy)
    result = _search(problem, hint, SearchBudget(scope.profile.exact_seconds))
    if result.pods is not None:
        return {
            name: located(problem, p, result.pods[p]) for p, name in enumerate(problem.names)
        }, result.proven
    if not result.proven:
        return Misfit(Code.NOT_DECIDED, names, topology=scope.snapshot.tree.topology.name)
    return greedy if isinstance(greedy, Misfit) else _together_impossible(problem)


def _greedy(scope: PlacementScope, gang: Gang) -> dict[str, Located] | Misfit:
    """The placement of the nearest greedy strategy, to start from, or its misfit."""
    scope = replace(scope, profile=_without_exact(scope.profile))
    if not scope.snapshot.active.any():
        return place_member(scope, next(gang.root.pod_sets()))
    if gang.root.locality != Locality():
        return place_member(scope, gang.root)
    placed: dict[str, Located] = {}
    for member in gang.root.members:
        located_by_set = place_member(scope, member)
        if isinstance(located_by_set, Misfit):
            return located_by_set
        placed |= located_by_set
        for pod_set in pod_sets_of(member):
            scope = scope.after(located_by_set[pod_set.name], pod_set.requests)
    return placed


def _without_exact(profile: Profile) -> Profile:
    without_exact = {Strategy.EXACT: Strategy.BEST_FIT}
    return replace(
        profile,
        required=without_exact.get(profile.required, profile.required),
        preferred=without_exact.get(profile.preferred, profile.preferred),
        unconstrained=without_exact.get(profile.unconstrained, profile.unconstrained),
    )


def _as_array(problem: ExactProblem, located_by_set: dict[str, Located]) -> Ints:
    pods = np.zeros(problem.allowed.shape, np.int64)
    for position, name in enumerate(problem.names):
        np.add.at(pods[position], located_by_set[name].leaves, located_by_set[name].pods)
    return pods


def _together_impossible(problem: ExactProblem) -> Misfit:
    """The misfit of pod sets that fit one by one but not together; it names the last one."""
    tree = problem.scope.snapshot.tree
    level = tree.levels[max((group.level for group in problem.groups if group.required), default=tree.lowest)]
    return Misfit(
        Code.NO_ROOM,
        problem.names[-1:],
        topology=tree.topology.name,
        level=level,
        asked=int(problem.counts[-1]),
    )


def _search(problem: ExactProblem, hint: Ints | None, budget: SearchBudget) -> SearchResult:
    """Find the lowest level for each locality group in turn; then the best placement at those levels."""
    levels = tuple(group.loosest for group in problem.groups)
    climbing = [index for index, group in enumerate(problem.groups) if group.climbs]
    if climbing and _is_whole_gang(problem, problem.groups[climbing[-1]]):
        climbing.pop()  # the score already minimises the domains of the whole gang from the top down
    proven = True
    if climbing:
        loosest = _best(problem, levels, hint, budget, any_will_do=True)
        if loosest.pods is None:
            return loosest
        hint = loosest.pods
    for index in climbing:
        for level in range(problem.groups[index].level, levels[index], -1):
            closer = (*levels[:index], level, *levels[index + 1 :])
            result = _best(problem, closer, hint, budget, any_will_do=True)
            if result.pods is not None:
                levels, hint = closer, result.pods
                break
            proven = proven and result.proven
    best = _best(problem, levels, hint, budget, any_will_do=False)
    return replace(best, proven=proven and best.proven)


def _is_whole_gang(problem: ExactProblem, group: LocalityGroup) -> bool:
    return set(np.flatnonzero(problem.counts).tolist()) <= set(group.pod_sets)


def _best(
    problem: ExactProblem, levels: tuple[int, ...], hint: Ints | None, budget: SearchBudget, any_will_do: bool
) -> SearchResult:
    """The best result with every group in one domain of its level: from single leaves to the whole tree."""
    best = SearchResult(None)
    if hint is not None and holds(problem, levels, hint):
        best = SearchResult(hint, score(problem, hint))
    if best.pods is not None and any_will_do:
        return best
    grid = build_grid(problem, levels)
    top, proven = top_level(grid), True
    later = budget.left / 2 if any_will_do else 0.0  # for the searches that follow
    for level in range(problem.lowest, top - 1, -1):
        higher = (budget.left - later) / 2 if level > top else 0.0  # for the levels above
        search = LevelSearch(grid, level, budget, later, higher, any_will_do)
        best, settled = best_at(search, best)
        proven = proven and settled
        if best.pods is not None and (any_will_do or is_in_one_domain(best, level)):
            break
    return replace(best, proven=proven)
