"""A small random cluster and the jobs that arrive there, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, Object, job, node
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time of its creation."""

    when: float
    job: Object


def nodes(rng: Random) -> list[Object]:
    """One to three blocks of one to three racks of two to four hosts."""
    hosts: list[Object] = []
    for block in range(rng.randint(1, 3)):
        for rack in range(rng.randint(1, 3)):
            for _ in range(rng.randint(2, 4)):
                hosts.append(node(f"n{len(hosts):03d}", f"b{block}", f"r{rack}", rng.choice((4, 8))))
    return hosts


def arrivals(rng: Random, until: float) -> list[Arrival]:
    """Jobs with random topology requests at random times."""
    jobs = []
    for number in range(rng.randint(4, 12)):
        pods, gpus = rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 2, 4))
        submitted = job(
            f"job-{number}",
            pods,
            gpus,
            _topology_annotations(rng, pods),
            rng.choice((5, 20, 60)),
            rng.random() < 0.05,
        )
        jobs.append(Arrival(rng.uniform(0, until), submitted))
    return sorted(jobs, key=lambda arrival: arrival.when)


def _topology_annotations(rng: Random, pods: int) -> dict[str, str]:
    kind = rng.random()
    level = rng.choice((BLOCK, RACK))
    annotations: dict[str, str] = {}
    if kind < 0.3:
        annotations[REQUIRED] = level
    elif kind < 0.6:
        annotations[PREFERRED] = level
    if pods >= 4 and rng.random() < 0.3:
        annotations |= {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: str(rng.choice((2, pods // 2)))}
        if annotations.get(REQUIRED) == RACK or annotations.get(PREFERRED) == RACK:
            annotations = {REQUIRED: BLOCK} | {
                k: v for k, v in annotations.items() if k not in (REQUIRED, PREFERRED)
            }
    return annotations
