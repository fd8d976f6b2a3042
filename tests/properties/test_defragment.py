"""Plans against trying everything: hardly dearer than the cheapest, and possible step by step."""

from __future__ import annotations

import pytest

from bayplan.model.profile import Profile
from bayplan.scheduling.defragment.problem import DefragmentPlan, NoPlan
from bayplan.scheduling.defragment.proof import find_proven_plan
from bayplan.scheduling.defragment.search import SearchLimits
from tests.properties.amounts import seeds
from tests.support.defragment_worlds import (
    GPUS,
    SmallWorld,
    TooManyStatesError,
    cheapest_cost,
    host_name,
    small_world,
)

SHARE_ABOVE = 1.2


def plan_of(world: SmallWorld, limits: SearchLimits | None = None) -> DefragmentPlan | NoPlan:
    snapshot = world.snapshot()
    return find_proven_plan(snapshot, Profile(), world.request(), world.movers(snapshot), limits)


def holds(world: SmallWorld, plan: DefragmentPlan) -> bool:
    """Whether every gang moves whole, to one rack if it needs that, to GPUs that are free at its turn."""
    free = {host_name(rack, host): GPUS for rack in range(world.racks) for host in range(world.hosts)}
    for where, gpus in world.fixed.items():
        free[host_name(*where)] -= gpus
    for gang in world.gangs:
        for where in gang.hosts:
            free[host_name(*where)] -= gang.gpus
    assert len({move.gang.ref for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        gang = world.gangs[int(move.gang.ref.name.removeprefix("gang"))]
        assert len(move.nodes) == len(gang.hosts)
        assert not gang.together or len({name[:3] for name in move.nodes}) == 1
        for name in move.nodes:
            free[name] -= gang.gpus
        if min(free.values()) < 0:
            return False
        for where in gang.hosts:
            free[host_name(*where)] += gang.gpus
    assert len(plan.nodes) == world.pods and len({name[:3] for name in plan.nodes}) == 1
    for name in plan.nodes:
        free[name] -= world.gpus
    return min(free.values()) >= 0


@pytest.mark.parametrize("seed", range(seeds(120, 1_500)))
def test_a_plan_is_at_most_a_fifth_above_the_cheapest_of_all(seed: int) -> None:
    world = small_world(seed)
    try:
        best = cheapest_cost(world)
    except TooManyStatesError:
        return
    found = plan_of(world)
    if best is None:
        assert isinstance(found, NoPlan)
    else:
        assert isinstance(found, DefragmentPlan)
        assert best <= found.cost <= SHARE_ABOVE * best
        assert holds(world, found)


@pytest.mark.parametrize("seed", range(seeds(60, 600)))
def test_what_a_short_search_finds_is_possible_step_by_step(seed: int) -> None:
    world = small_world(seed)
    found = plan_of(world, SearchLimits(tries=25, steps=200, places=2, depth=1, greedy=3))
    assert isinstance(found, NoPlan) or holds(world, found)


@pytest.mark.parametrize("seed", range(seeds(20, 100)))
def test_the_same_cluster_gives_the_same_plan(seed: int) -> None:
    one, two = plan_of(small_world(seed)), plan_of(small_world(seed))
    assert isinstance(one, NoPlan) == isinstance(two, NoPlan)
    if isinstance(one, DefragmentPlan) and isinstance(two, DefragmentPlan):
        assert [(move.gang.ref, move.nodes) for move in one.moves] == [
            (move.gang.ref, move.nodes) for move in two.moves
        ]
