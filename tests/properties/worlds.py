"""Small clusters and gangs as plain dicts, how to draw them at random, and what the engine makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration
from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.state.cluster.topology_state import TopologyState

World = dict[str, Any]  # levels: names from the top, nodes: dicts as `node` makes them
Ask = dict[str, Any]  # one pod set, as `asks` draws it

GREEDY = (Strategy.BEST_FIT, Strategy.LEAST_FREE, Strategy.PACK_RACKS, Strategy.MOST_FREE)
THREE = ("block", "rack", HOSTNAME)
SHAPES = (THREE, ("rack", HOSTNAME), (HOSTNAME,), ("block", "rack"))

# What a node may be like. Entries that stand more than once are drawn more often.
PLACES = tuple((block, rack) for block in "AB" for rack in "xyz")
GPUS = (2, 4, 1, 3, 5, 0)
SPARE: tuple[dict[str, int], ...] = (
    *({},) * 6,
    {"cpu": 2},
    {"cpu": 1},
    {"pods": 3},
    {"pods": 1},
    {"pods": 2, "cpu": 3},
)
KINDS = ("", "", "a", "a", "b")
TAINTS = (*((),) * 6, ("t",), ("u",), ("t", "u"))
ORDER = (*("in order",) * 8, "not ready", "cordoned", "no rack")

# What a pod set may ask for.
REQUESTS: tuple[dict[str, int], ...] = (
    {"gpu": 1},
    {"gpu": 1},
    {"gpu": 2},
    {"gpu": 1, "cpu": 1},
    {"cpu": 2},
    {},
)
SELECT: tuple[dict[str, str], ...] = (*({},) * 6, {"kind": "a"}, {"kind": "b"})
AFFINITY = (*((),) * 6, ("a",), ("a", "b"))  # values of kind
TOLERATES = ((), (), ("t",), ("t", "u"))
HOW = ("required", "preferred")
SIZES = (2, 3, 4, 1, 6)


def unpacked(number: int, *tables: Sequence[Any]) -> Iterator[Any]:
    """One entry of each table, all from one number: hypothesis draws once, and 0 is the simplest."""
    for table in tables:
        number, at = divmod(number, len(table))
        yield table[at]


def packed(*tables: Sequence[Any]) -> st.SearchStrategy[int]:
    return st.integers(0, math.prod(map(len, tables)) - 1)


NODE = (GPUS, PLACES, KINDS, TAINTS, SPARE, ORDER)


def numbered_node(number: int, name: str) -> dict[str, Any]:
    """A node; most are in order."""
    gpu, (block, rack), kind, taints, spare, order = unpacked(number, *NODE)
    labels = {"block": block, "rack": rack, HOSTNAME: name, "kind": kind}
    return {
        "name": name,
        "labels": {k: v for k, v in labels.items() if v and (k, order) != ("rack", "no rack")},
        "free": {"gpu": gpu, "cpu": 9, "pods": 9, **spare},
        "taints": taints,
        "ready": order != "not ready",
        "schedulable": order != "cordoned",
    }


@st.composite
def worlds(draw: st.DrawFn, levels: Sequence[str], hosts: int = 8) -> World:
    """A cluster of up to three levels; rack names repeat from block to block."""
    numbers = draw(st.lists(packed(*NODE), min_size=1, max_size=hosts))
    return {
        "levels": tuple(levels),
        "nodes": [numbered_node(number, f"n{at}") for at, number in enumerate(numbers)],
    }


@st.composite
def asks(draw: st.DrawFn, levels: Sequence[str], name: str = "set", pods: int = 8, layers: int = 1) -> Ask:
    """A pod set with up to `layers` layers of segments that nest."""
    localities = (("", ""), *((how, level) for how in HOW for level in (*levels, "auto")))
    tables = (range(1, pods + 1), REQUESTS, localities, SELECT, AFFINITY, TOLERATES)
    count, requests, locality, select, affinity, tolerates = unpacked(draw(packed(*tables)), *tables)
    start = levels.index(locality[1]) if locality[1] in levels else 0
    return {
        "name": name,
        "count": count,
        "requests": requests,
        "how": locality[0],
        "level": locality[1],
        "segments": draw(st.sampled_from(layerings(tuple(levels[start:]), layers))),
        "select": select,
        "affinity": affinity,
        "tolerates": tolerates,
    }


@cache
def layerings(levels: tuple[str, ...], most: int, parent: int = 0) -> list[tuple[tuple[int, str], ...]]:
    """Every way to lay segments, (size, level) from the outermost in; a size divides the one before."""
    found: list[tuple[tuple[int, str], ...]] = [()]
    for at, level in enumerate(levels if most else ()):
        for size in SIZES:
            if not parent or parent % size == 0:
                inner = layerings(levels[at + 1 :], most - 1, size)
                found += [((size, level), *rest) for rest in inner]
    return found


@st.composite
def profiles(draw: st.DrawFn, strategies: Sequence[Strategy] = GREEDY) -> Profile:
    """One strategy for everything, and either way to treat a rest."""
    chosen = draw(st.sampled_from(strategies))
    return Profile(chosen, chosen, chosen, draw(st.sampled_from(tuple(Remainder))))


def node_of(given: dict[str, Any]) -> Node:
    taints = tuple(Taint(key, "v", "NoSchedule") for key in given["taints"])
    return Node(
        given["name"],
        dict(given["labels"]),
        dict(given["free"]),
        taints,
        given["ready"],
        given["schedulable"],
    )


def cluster_of(world: World) -> TopologyState:
    cluster = TopologyState(Topology("world", world["levels"]))
    cluster.load(node_of(node) for node in world["nodes"])
    return cluster


def pod_set_of(ask: Ask) -> PodSet:
    required = ask["level"] if ask["how"] == "required" else None
    preferred = ask["level"] if ask["how"] == "preferred" else None
    wanted = Requirement("kind", "In", tuple(ask["affinity"]))
    rules = NodeRules(
        tuple(ask["select"].items()),
        (NodeSelectorTerm((wanted,)),) if ask["affinity"] else None,
        (),
        tuple(Toleration(key, "Exists") for key in ask["tolerates"]),
    )
    layers = tuple(Segment(size, level) for size, level in ask["segments"])
    return PodSet(
        ask["name"], ask["count"], ask["count"], ask["requests"], Locality(required, preferred), layers, rules
    )


def gang_of(*members: Ask) -> Gang:
    """Pod sets placed in turn."""
    return Gang(Ref("", "", "", "gang"), Group("gang", tuple(map(pod_set_of, members)), len(members)))


def led_gang(leader: Ask, workers: Ask) -> Gang:
    """A leader with its workers; the locality is that of the workers."""
    pair = (pod_set_of(leader), pod_set_of(workers))
    group = Group("pair", pair, 2, pair[1].locality)
    return Gang(Ref("", "", "", "gang"), Group("gang", (group,), 1))


def placed_leaves(world: World, shares: Any) -> list[tuple[str, ...]]:
    """The full path of every pod's leaf, in rank order."""
    homes = {
        node["name"]: tuple(node["labels"].get(level, "") for level in world["levels"])
        for node in world["nodes"]
    }
    by_host = world["levels"][-1] == HOSTNAME
    return [
        homes[share.values[0]] if by_host else share.values for share in shares for _ in range(share.count)
    ]
