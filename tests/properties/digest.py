"""Prints a digest of many answers: two processes that hash strings differently must print the same."""

from __future__ import annotations

import hashlib
import random
import sys

from bayplan.model.profile import Profile, Strategy
from bayplan.placement.gang.place import place
from tests.properties.worlds import (
    AFFINITY,
    REQUESTS,
    SELECT,
    SHAPES,
    cluster_of,
    gang_of,
    layerings,
    numbered_node,
)

ROUNDS = 150


def answers(seed: int) -> str:
    """What the engine says to gangs that the seed makes up, as text."""
    chance = random.Random(seed)
    lines = []
    for _ in range(ROUNDS):
        levels = chance.choice(SHAPES)
        nodes = [numbered_node(chance.randrange(10**6), f"n{at}") for at in range(chance.randint(1, 8))]
        ask = {
            "name": "set",
            "count": chance.randint(1, 8),
            "requests": chance.choice(REQUESTS),
            "how": chance.choice(("", "required", "preferred")),
            "level": levels[0],
            "segments": chance.choice(layerings(tuple(levels), 2)),
            "select": chance.choice(SELECT),
            "affinity": chance.choice(AFFINITY),
            "tolerates": ("t",),
        }
        strategy = chance.choice((Strategy.BEST_FIT, Strategy.LEAST_FREE, Strategy.BALANCED))
        profile = Profile(strategy, strategy, strategy)
        supply = cluster_of({"levels": levels, "nodes": nodes}).snapshot()
        lines.append(repr(place(supply, gang_of(ask), profile)))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(hashlib.sha256(answers(7).encode()).hexdigest())
