"""A small random cluster and the jobs that come to it, by one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, Object, job, node
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes at a moment."""

    when: float
    job: Object


def nodes(rng: Random) -> list[Object]:
    """One to three blocks of one to three racks of two to four hosts."""
    found: list[Object] = []
    for block in range(rng.randint(1, 3)):
        for rack in range(rng.randint(1, 3)):
            for _ in range(rng.randint(2, 4)):
                found.append(node(f"n{len(found):03d}", f"b{block}", f"r{rack}", rng.choice((4, 8))))
    return found


def arrivals(rng: Random, until: float) -> list[Arrival]:
    """Jobs of all kinds of wishes, spread over the time."""
    found = []
    for number in range(rng.randint(4, 12)):
        pods, gpus = rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 2, 4))
        wish = job(
            f"job-{number}", pods, gpus, _wishes(rng, pods), rng.choice((5, 20, 60)), rng.random() < 0.05
        )
        found.append(Arrival(rng.uniform(0, until), wish))
    return sorted(found, key=lambda arrival: arrival.when)


def _wishes(rng: Random, pods: int) -> dict[str, str]:
    kind = rng.random()
    level = rng.choice((BLOCK, RACK))
    notes: dict[str, str] = {}
    if kind < 0.3:
        notes[REQUIRED] = level
    elif kind < 0.6:
        notes[PREFERRED] = level
    if pods >= 4 and rng.random() < 0.3:
        notes |= {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: str(rng.choice((2, pods // 2)))}
        if notes.get(REQUIRED) == RACK or notes.get(PREFERRED) == RACK:
            notes = {REQUIRED: BLOCK} | {k: v for k, v in notes.items() if k not in (REQUIRED, PREFERRED)}
    return notes
