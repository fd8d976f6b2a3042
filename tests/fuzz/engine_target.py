"""The placement engine against its own checks: random worlds and gangs, all strategies."""

from __future__ import annotations

from random import Random
from typing import Any

from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.placement.gang.place import gang_fits, place
from tests.fuzz.target import Broken, Case
from tests.properties import oracle
from tests.properties.worlds import (
    AFFINITY,
    GREEDY,
    HOW,
    NODE,
    REQUESTS,
    SELECT,
    SHAPES,
    TOLERATES,
    Ask,
    World,
    cluster_of,
    gang_of,
    layerings,
    led_gang,
    numbered_node,
    placed_leaves,
)

STRATEGIES = (*GREEDY, Strategy.BALANCED)
NODES_MAX = 8
PODS_MAX = 12
NODE_TABLE = tuple(map(len, NODE))
EXACT_SHARE = 0.05  # a complete search takes long


class EngineTarget:
    """A case is a world, pod sets, whether the first leads, a strategy and a way to treat a rest."""

    name = "engine"

    def reset(self) -> None:
        """Placing leaves nothing behind."""

    def sizes(self) -> dict[str, int]:
        return {}

    def draw(self, rng: Random) -> Case:
        levels = rng.choice(SHAPES)
        nodes = [
            [rng.randrange(_product(NODE_TABLE)), f"n{at}"] for at in range(rng.randrange(1, NODES_MAX + 1))
        ]
        led = rng.random() < 0.3
        names = ["leader", "workers"] if led else ["one", "two", "three"][: rng.choice((1, 1, 1, 2, 3))]
        members = [_ask(rng, levels, name) for name in names]
        if led:
            members[0] |= {"count": 1, "how": "", "level": "", "segments": []}
            members[1]["count"] += 1
        exact = rng.random() < EXACT_SHARE
        strategy = Strategy.EXACT if exact and not led else rng.choice(STRATEGIES)
        return [list(levels), nodes, members, led, strategy.value, rng.choice(tuple(Remainder)).value]

    def run(self, case: Case) -> int:
        """What is placed fits whole; what one strategy places, the complete search places as well."""
        levels, nodes, members, led, strategy, remainder = case
        world: World = {
            "levels": tuple(levels),
            "nodes": [numbered_node(number, name) for number, name in nodes],
        }
        chosen = Strategy(strategy)
        profile = Profile(chosen, chosen, chosen, Remainder(remainder))
        gang = led_gang(*members) if led else gang_of(*members)
        supply = cluster_of(world).snapshot()
        answer = place(supply, gang, profile)
        if answer.ok == (answer.misfit is not None):
            raise Broken("an answer is a place or a refusal")
        if gang_fits(supply, gang, profile) is not answer.ok:
            raise Broken("whether there is a place depends on who asks")
        done = [
            (ask, placed_leaves(world, answer.assignments[ask["name"]].shares))
            for ask in members
            if ask["name"] in answer.assignments
        ]
        if answer.ok and len(done) != len(members):
            raise Broken("a part of the gang has no place")
        leave_out = profile.remainder is Remainder.LEAVE_OUT
        wrong = [*oracle.overcommitted(world, done)]
        for ask, leaves in done:
            if not (led and ask["name"] == "leader"):
                wrong += oracle.wrongs(world, ask, leaves, leave_out)
        if wrong:
            raise Broken(f"{wrong}")
        if chosen is Strategy.EXACT and not answer.ok:
            self._compare(supply, gang, profile)
        return 1

    def _compare(self, supply: Any, gang: Any, profile: Profile) -> None:
        greedy = place(supply, gang, Profile(remainder=profile.remainder))
        if greedy.ok:
            raise Broken("the complete search missed what the default strategy finds")


def _ask(rng: Random, levels: tuple[str, ...], name: str) -> Ask:
    how, level = rng.choice((("", ""), *((how, level) for how in HOW for level in (*levels, "auto"))))
    start = levels.index(level) if level in levels else 0
    return {
        "name": name,
        "count": rng.randrange(1, PODS_MAX),
        "requests": rng.choice(REQUESTS),
        "how": how,
        "level": level,
        "segments": [list(one) for one in rng.choice(layerings(tuple(levels[start:]), 3))],
        "select": rng.choice(SELECT),
        "affinity": list(rng.choice(AFFINITY)),
        "tolerates": list(rng.choice(TOLERATES)),
    }


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found
