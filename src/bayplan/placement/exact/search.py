"""Exact placement: a complete search that finds a place whenever one exists, and the best of them.

The gang goes into one domain if any holds it, the lowest and tightest, else into as few as possible
from the top level down. Domains that cannot hold it by a plain count are never looked into; the
others are searched in order of how good an answer in them could be, until none can be better.
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
from bayplan.placement.exact.bounds import grid_of, top_level
from bayplan.placement.exact.branch_and_bound import (
    LevelSearch,
    SearchBudget,
    SearchResult,
    best_at,
    is_within_one,
)
from bayplan.placement.exact.problem import (
    ExactProblem,
    LocalityGroup,
    ask_of,
    exceeds_all_room,
    holds,
    located,
    score,
)
from bayplan.placement.exact.solver import solver


def place_exactly(scope: PlacementScope, gang: Gang) -> tuple[dict[str, Located], bool] | Misfit:
    """Where every pod set goes, and whether that was proven best; or the facts of a refusal."""
    names = tuple(pod_set.name for pod_set in gang.root.pod_sets())
    if solver() is None:
        return Misfit(Code.NOT_INSTALLED, names, topology=scope.supply.tree.topology.name)
    if not names:
        return {}, True
    greedy = _greedy(scope, gang)
    if isinstance(greedy, Misfit) and greedy.code is not Code.NO_ROOM:
        return greedy
    ask = ask_of(scope, gang)
    if isinstance(ask, Misfit):
        return ask
    if isinstance(greedy, Misfit) and exceeds_all_room(ask):
        return greedy
    hint = None if isinstance(greedy, Misfit) else _as_array(ask, greedy)
    answer = _search(ask, hint, SearchBudget(scope.profile.exact_seconds))
    if answer.pods is not None:
        return {name: located(ask, p, answer.pods[p]) for p, name in enumerate(ask.names)}, answer.proven
    if not answer.proven:
        return Misfit(Code.NOT_DECIDED, names, topology=scope.supply.tree.topology.name)
    return greedy if isinstance(greedy, Misfit) else _together_impossible(ask)


def _greedy(scope: PlacementScope, gang: Gang) -> dict[str, Located] | Misfit:
    """What the strategy next of kin says: an answer to start from, or the facts of a refusal."""
    scope = replace(scope, profile=_without_exact(scope.profile))
    if not scope.supply.active.any():
        return place_member(scope, next(gang.root.pod_sets()))
    if gang.root.locality != Locality():
        return place_member(scope, gang.root)
    placed: dict[str, Located] = {}
    for member in gang.root.members:
        found = place_member(scope, member)
        if isinstance(found, Misfit):
            return found
        placed |= found
        for pod_set in pod_sets_of(member):
            scope = scope.after(found[pod_set.name], pod_set.requests)
    return placed


def _without_exact(profile: Profile) -> Profile:
    kin = {Strategy.EXACT: Strategy.BEST_FIT}
    return replace(
        profile,
        required=kin.get(profile.required, profile.required),
        preferred=kin.get(profile.preferred, profile.preferred),
        unconstrained=kin.get(profile.unconstrained, profile.unconstrained),
    )


def _as_array(ask: ExactProblem, found: dict[str, Located]) -> Ints:
    pods = np.zeros(ask.allowed.shape, np.int64)
    for position, name in enumerate(ask.names):
        np.add.at(pods[position], found[name].leaves, found[name].pods)
    return pods


def _together_impossible(ask: ExactProblem) -> Misfit:
    """Each pod set has a place by itself, but not all at once: the last one is left over."""
    tree = ask.scope.supply.tree
    level = tree.levels[max((unit.level for unit in ask.units if unit.required), default=tree.lowest)]
    return Misfit(
        Code.NO_ROOM, ask.names[-1:], topology=tree.topology.name, level=level, asked=int(ask.counts[-1])
    )


def _search(ask: ExactProblem, hint: Ints | None, budget: SearchBudget) -> SearchResult:
    """Find how close together units can be, one unit after the other; then the best with them so close."""
    levels = tuple(unit.loosest for unit in ask.units)
    climbing = [index for index, unit in enumerate(ask.units) if unit.climbs]
    if climbing and _is_everyone(ask, ask.units[climbing[-1]]):
        climbing.pop()  # few domains from the top down is just what such a unit wants
    proven = True
    if climbing:
        first = _best(ask, levels, hint, budget, any_will_do=True)
        if first.pods is None:
            return first
        hint = first.pods
    for index in climbing:
        for level in range(ask.units[index].level, levels[index], -1):
            closer = (*levels[:index], level, *levels[index + 1 :])
            found = _best(ask, closer, hint, budget, any_will_do=True)
            if found.pods is not None:
                levels, hint = closer, found.pods
                break
            proven = proven and found.proven
    answer = _best(ask, levels, hint, budget, any_will_do=False)
    return replace(answer, proven=proven and answer.proven)


def _is_everyone(ask: ExactProblem, unit: LocalityGroup) -> bool:
    return set(np.flatnonzero(ask.counts).tolist()) <= set(unit.pod_sets)


def _best(
    ask: ExactProblem, levels: tuple[int, ...], hint: Ints | None, budget: SearchBudget, any_will_do: bool
) -> SearchResult:
    """The best answer with every unit in one domain of its level: from single leaves up to the whole tree."""
    best = SearchResult(None)
    if hint is not None and holds(ask, levels, hint):
        best = SearchResult(hint, score(ask, hint))
    if best.pods is not None and any_will_do:
        return best
    grid = grid_of(ask, levels)
    top, proven = top_level(grid), True
    later = budget.left / 2 if any_will_do else 0.0  # for the questions that follow
    for level in range(ask.lowest, top - 1, -1):
        higher = (budget.left - later) / 2 if level > top else 0.0  # for the levels above
        search = LevelSearch(grid, level, budget, later, higher, any_will_do)
        best, settled = best_at(search, best)
        proven = proven and settled
        if best.pods is not None and (any_will_do or is_within_one(best, level)):
            break
    return replace(best, proven=proven)
