"""The cluster and the requests that are timed: made once, written to a file, read by both sides."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.profile import Profile, Strategy

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
TOPOLOGY = Topology("bench", LEVELS)
NODES_PER_RACK = 32
RACKS_PER_BLOCK = 32
GPU = "nvidia.com/gpu"
GI = 1 << 30
SEED = 28  # all shapes but the one meant to fail find a place at each of the usual sizes

Amounts = Mapping[str, int]

ALLOCATABLE: Amounts = {GPU: 8, "cpu": 96_000, "memory": 1536 * GI, PODS: 110}
REDUCED: Amounts = {GPU: 7, "cpu": 84_000, "memory": 1344 * GI, PODS: 110}
OCCUPANT: Amounts = {GPU: 1, "cpu": 12_000, "memory": 192 * GI}
WHOLE: Amounts = {GPU: 8, "cpu": 64_000, "memory": 768 * GI}
SINGLE: Amounts = {GPU: 1, "cpu": 8_000, "memory": 96 * GI}


@dataclass(frozen=True, slots=True)
class Ask:
    """One pod set of a shape."""

    name: str
    count: int
    requests: Amounts


@dataclass(frozen=True, slots=True)
class Shape:
    """One request. Two pod sets are workers and their leader, who stay together."""

    name: str
    pod_sets: tuple[Ask, ...] = (Ask("main", 256, WHOLE),)
    required: str = ""
    preferred: str = ""
    segment_level: str = ""
    segment_size: int = 0
    balanced: bool = False


SHAPES = (
    Shape("required block", required=BLOCK),
    Shape("preferred block", preferred=BLOCK),
    Shape("preferred rack", preferred=RACK),
    Shape("unconstrained"),
    Shape("required block, segments of 16", required=BLOCK, segment_level=RACK, segment_size=16),
    Shape("segments of 16", segment_level=RACK, segment_size=16),
    Shape("leader + 255 workers", (Ask("workers", 255, WHOLE), Ask("leader", 1, WHOLE)), required=BLOCK),
    Shape("required rack, 8 pods", (Ask("main", 8, WHOLE),), required=RACK),
    Shape("no fit: required rack", required=RACK),
    Shape("balanced, preferred rack", preferred=RACK, balanced=True),
    Shape("1,024 pods of one GPU", (Ask("main", 1024, SINGLE),), required=BLOCK),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, half used, and what is asked of it. `used` counts the occupants of each node."""

    used: tuple[int, ...]
    changed: int  # index of the node that changes
    removed: int  # index of the node that goes
    shapes: tuple[Shape, ...] = SHAPES


def make(nodes: int, seed: int = SEED) -> Scenario:
    """Each rack has a load of its own; a tenth of the nodes in use is used only partly."""
    chance = random.Random(seed)
    used: list[int] = []
    while len(used) < nodes:
        load = chance.random()
        used += [_occupants(chance, load) for _ in range(NODES_PER_RACK)]
    del used[nodes:]
    used[-1] = 0  # one node at least is idle, whatever the size
    idle = [index for index, count in enumerate(used) if count == 0]
    middle = min(idle, key=lambda index: abs(index - nodes // 2))
    return Scenario(tuple(used), changed=middle, removed=idle[-1])


def _occupants(chance: random.Random, load: float) -> int:
    if chance.random() >= load:
        return 0
    return chance.randint(1, 7) if chance.random() < 0.1 else 8


def write(scenario: Scenario, path: Path) -> None:
    """Write all that either side needs to build the same cluster and ask for the same."""
    whole = asdict(scenario) | {
        "levels": LEVELS,
        "nodes_per_rack": NODES_PER_RACK,
        "racks_per_block": RACKS_PER_BLOCK,
        "allocatable": ALLOCATABLE,
        "reduced": REDUCED,
        "occupant": OCCUPANT,
    }
    path.write_text(json.dumps(whole), encoding="utf-8")


def read(path: Path) -> Scenario:
    """The scenario in a file; amounts and levels are this module's own."""
    found = json.loads(path.read_text(encoding="utf-8"))
    shapes = tuple(
        Shape(**(shape | {"pod_sets": tuple(Ask(**ask) for ask in shape["pod_sets"])}))
        for shape in found["shapes"]
    )
    return Scenario(tuple(found["used"]), found["changed"], found["removed"], shapes)


def hostname(index: int) -> str:
    """The node's name, the same on both sides."""
    return f"n{index:06d}"


def node_at(index: int, allocatable: Amounts = ALLOCATABLE) -> Node:
    """A node with dictionaries of its own, as decoding would make it."""
    rack, name = index // NODES_PER_RACK, hostname(index)
    block, place = divmod(rack, RACKS_PER_BLOCK)
    return Node(name, {BLOCK: f"b{block:03d}", RACK: f"r{place:02d}", HOSTNAME: name}, dict(allocatable))


def occupied(count: int) -> dict[str, int]:
    """What so many occupants of one node use, their pod slots included."""
    return {name: amount * count for name, amount in OCCUPANT.items()} | {PODS: count}


def gang_of(shape: Shape, variant: int = 0) -> Gang:
    """The shape as a gang. Variants ask for a few bytes less: new to any cache, with the same answer."""
    locality = Locality(shape.required or None, shape.preferred or None)
    segments = (Segment(shape.segment_size, shape.segment_level),) if shape.segment_size else ()
    pod_sets = tuple(
        PodSet(ask.name, ask.count, ask.count, _less(ask.requests, variant), locality, segments)
        for ask in shape.pod_sets
    )
    member = pod_sets[0] if len(pod_sets) == 1 else Group("pair", pod_sets, len(pod_sets), locality)
    return Gang(Ref("bench", "Gang", "bench", f"gang-{variant}"), Group("gang", (member,), 1))


def _less(requests: Amounts, variant: int) -> dict[str, int]:
    return dict(requests) | {"memory": requests["memory"] - variant}


def profile(shape: Shape) -> Profile:
    """The default profile, or the one that balances."""
    return replace(Profile(), preferred=Strategy.BALANCED) if shape.balanced else Profile()


def size_of(scenario: Scenario) -> int:
    """How many nodes the cluster has."""
    return len(scenario.used)


def nodes(scenario: Scenario) -> Iterable[Node]:
    """All nodes of the cluster."""
    return (node_at(index) for index in range(size_of(scenario)))
