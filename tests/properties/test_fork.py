"""A fork of the state of admission: it decides as the original would, and leaves the original alone."""

from __future__ import annotations

from random import Random

import pytest

from bayplan.model.change import NodeLost
from bayplan.model.plan import Action
from bayplan.state.admission.fork import fork
from tests.admission.world import World
from tests.properties.admission_worlds import gangs, ledger, nodes, queues_of, random_world

WORLDS = 60


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_fork_decides_as_the_original_would_and_leaves_it_alone(seed: int) -> None:
    random = Random(seed)
    world = random_world(random, topology=True, fair=seed % 2, flavors=1 + seed % 2)
    for _ in range(random.randint(0, 4)):
        world.round()
    counted, heads, generation = ledger(world.state), world.state.heads(world.now), world.state.generation
    other = forked_world(world)
    in_the_fork = future(other, Random(seed))
    assert ledger(world.state) == counted
    assert (world.state.heads(world.now), world.state.generation) == (heads, generation)
    assert future(world, Random(seed)) == in_the_fork
    assert ledger(world.state) == ledger(other.state)


def forked_world(world: World) -> World:
    """The same world, whose state is a fork."""
    other = World(profile=world.profile)
    other.state, other.now = fork(world.state), world.now
    other.objects, other.going = dict(world.objects), dict(world.going)
    return other


def future(world: World, random: Random) -> list[tuple[Action, ...]]:
    """What is decided from now on, while gangs come and go and nodes change."""
    before = len(world.plans)
    world.round()
    world.draw(gangs(random, queues_of(world), 4, start=100, topology=True))
    world.draw(nodes(random))
    world.round()
    world.see(NodeLost("n0"))
    world.finish("g1")
    for _ in range(4):
        world.now += 1.0
        world.round()
    return [tuple(plan.actions) for plan in world.plans[before:]]
