"""Branch and bound over the domains of a level: the domain with the best bound is refined first."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.exact.bounds import Grid, candidates, room_around, single_leaf
from bayplan.placement.exact.milp import Model, build_model, pods_of, stages_of
from bayplan.placement.exact.problem import FREE, holds, score
from bayplan.placement.exact.solver import Floats, SolverStatus, solve


@dataclass(slots=True)
class SearchBudget:
    """Seconds of search that are left."""

    left: float


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The best placement so far (pods by pod set and leaf), and whether it is proven best."""

    pods: Ints | None
    score: tuple[int, ...] = ()
    proven: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class LevelSearch:
    """The search of one level, and the time to reserve for other searches."""

    grid: Grid
    level: int
    budget: SearchBudget
    later: float  # seconds to reserve in any case
    higher: float  # seconds to reserve for higher levels until this level has a result
    any_will_do: bool


@dataclass(slots=True, eq=False)
class DomainBound:
    """A domain under search: an objective per stage, how many are optimised, and the solution so far."""

    model: Model
    stages: list[Floats]
    around: int  # free capacity of the domain and its ancestors, the same for all solutions
    done: int = 0
    solution: Ints | None = None


def best_at(search: LevelSearch, best: SearchResult) -> tuple[SearchResult, bool]:
    """The best result in one domain of the level, or `best` if better; and whether that is proven."""
    grid, level, budget = search.grid, search.level, search.budget
    if level == grid.problem.lowest:
        return _on_one_leaf(grid, best), True
    queue = [(least, 0, domain) for least, domain in candidates(grid, level)]
    heapify(queue)
    candidates_tried: dict[int, DomainBound] = {}
    proven = True
    while queue:
        least, _, domain = heappop(queue)
        if best.pods is not None and (search.any_will_do or least >= best.score):
            break
        reserve = search.later + (0.0 if is_in_one_domain(best, level) else search.higher)
        if budget.left <= reserve:
            return best, False
        candidate = candidates_tried.get(domain) or _open_domain(search, domain)
        candidates_tried[domain] = candidate
        rivals = bool(queue) and (best.pods is None or queue[0][0] < best.score)
        more_work = rivals or candidate.done + 1 < len(candidate.stages)
        seconds = (budget.left - reserve) / (2 if more_work else 1)
        refined, is_proven = _advance(search, candidate, least, best, seconds)
        proven = proven and is_proven
        if refined is None:
            continue
        assert candidate.solution is not None
        pods = pods_of(candidate.model, candidate.solution)
        if not holds(grid.problem, grid.levels, pods):  # amounts too far apart for the solver's tolerance
            proven = False
            continue
        result = SearchResult(pods, score(grid.problem, pods))
        best = result if best.pods is None or result.score < best.score else best
        if candidate.done < len(candidate.stages):
            heappush(queue, (refined, -candidate.done, domain))
    return best, proven


def is_in_one_domain(result: SearchResult, level: int) -> bool:
    """Whether one domain of the level holds the result; no higher level can be better then."""
    return result.pods is not None and level != FREE and result.score[level] == 1


def _on_one_leaf(grid: Grid, best: SearchResult) -> SearchResult:
    leaf = single_leaf(grid)
    if leaf is None:
        return best
    pods = np.zeros(grid.problem.allowed.shape, np.int64)
    pods[:, leaf] = grid.problem.counts
    result = SearchResult(pods, score(grid.problem, pods))
    return result if best.pods is None or result.score < best.score else best


def _open_domain(search: LevelSearch, domain: int) -> DomainBound:
    model = build_model(search.grid, search.level, domain)
    stages = [np.zeros(len(model.program.most))] if search.any_will_do else stages_of(model)
    return DomainBound(model, stages, room_around(search.grid, search.level, domain))


def _advance(
    search: LevelSearch, candidate: DomainBound, least: tuple[int, ...], best: SearchResult, seconds: float
) -> tuple[tuple[int, ...] | None, bool]:
    """Optimise one more stage: the new bound of the domain (None: not better); and whether it is proven."""
    cost, program = candidate.stages[candidate.done], candidate.model.program
    last = candidate.done + 1 == len(candidate.stages)
    stage = search.level + 1 + candidate.done
    around = candidate.around if last else 0
    entries = [(column, int(cost[column])) for column in np.flatnonzero(cost).tolist()]
    start, is_proven = candidate.solution, True
    if best.pods is not None and least[:stage] == best.score[:stage]:
        limit = best.score[stage] - around - last  # no worse in this stage, and better in the last
        program.at_most(entries, limit)
        start = None if start is None or cost @ start > limit else start
    if start is None or cost @ start > least[stage] - around:
        solved = solve(program, cost, start, seconds)
        search.budget.left -= solved.seconds
        is_proven = solved.status in (SolverStatus.BEST, SolverStatus.NONE)
        start = start if solved.solution is None else solved.solution
        if solved.status is SolverStatus.NONE or start is None:
            return None, is_proven
    value = round(float(cost @ start))
    program.at_most(entries, value)
    candidate.solution, candidate.done = start, candidate.done + 1
    return (*least[:stage], value + around, *least[stage + 1 :]), is_proven
