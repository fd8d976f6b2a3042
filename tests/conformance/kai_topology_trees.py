"""Calls of kai/topology_plugin* about trees: which domains there are, and in which order they are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from bayplan.dialects.kai.api.wire import KaiTopologyWire, topology
from bayplan.model.node import PODS, Node, Topology
from bayplan.model.profile import Strategy
from bayplan.placement.cluster.topology_tree import Tree
from bayplan.placement.subgroups.capacity import AffinityPull, TopologyCapacity
from bayplan.state.cluster.topology_state import TopologyState

Object = dict[str, Any]

ROOT = "root"


def is_part(case: Object) -> list[str]:
    found = _tree([_level(one) for one in case["levels"]], {"n": case["nodeLabels"]})
    return same(case["expected"], len(found.nodes) == 1)


def initialised(case: Object) -> list[str]:
    made = topology(msgspec.convert(case["topologyResource"], KaiTopologyWire))
    assert made is not None
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in case["nodes"]}
    tree = _tree(made.levels, labels)
    wrong: list[str] = []
    for depth, level in enumerate(made.levels):
        wanted = case["observed"]["domainsByLevel"][level]
        wrong += same(sorted(wanted), sorted(_id(tree, depth, one) for one in range(tree.size(depth))))
        for domain in range(tree.size(depth)):
            inner = wanted[_id(tree, depth, domain)]["children"]
            if inner:
                run = range(*tree.below(depth, (domain, domain + 1), depth + 1))
                wrong += same(sorted(inner), sorted(_id(tree, depth + 1, one) for one in run))
    return wrong


def level_domains(case: Object) -> list[str]:
    """The domains of a level below another, in a topology made of the hand-written one."""
    nodes: dict[str, dict[str, str]] = {}

    def walk(domain: Object, labels: dict[str, str]) -> None:
        labels = {**labels, domain["level"]: domain["id"]}
        for child in domain["children"]:
            walk(child, labels)
        if not domain["children"]:
            nodes[f"node-{len(nodes)}"] = labels

    walk(case["root"], {})
    levels = list(next(iter(nodes.values())))
    found: list[str] = []
    if case["level"] in levels:
        tree, depth = _tree(levels, nodes), levels.index(case["level"])
        found = [tree.path(depth, one)[-1] for one in range(*tree.below(0, (0, 1), depth))]
    return same(sorted(case["expected"]["ids"] or []), sorted(found))


def bottom_up(case: Object) -> list[str]:
    """Every domain after all inside it: the levels of a tree from the lowest up, as counts are added up."""
    levels = ["zone", "spine", "rack"]
    nodes: dict[str, dict[str, str]] = {}

    def walk(domain: Object, path: tuple[str, ...]) -> None:
        path = (*path, domain["id"])
        for child in domain["children"]:
            walk(child, path)
        if not domain["children"]:  # a node has a label for every level
            labels = [*path, *[""] * (len(levels) - len(path))]
            nodes[f"node-{len(nodes)}"] = dict(zip(levels, labels, strict=True))

    if case["root"]:
        walk(case["root"], ())
    tree = _tree(levels, nodes)
    depths = reversed(range(len(levels)))
    names = (tree.path(depth, one)[-1] for depth in depths for one in range(tree.size(depth)))
    return same(case["expected"], [name for name in names if name])


def fill_order(case: Object) -> list[str]:
    """Domains stand from least to most free; which nodes pods are sent to first, equal ones together."""
    wish, domain = case["preferredLevel"], case["domain"]
    inner = domain["children"] or [domain]
    labels = {name: {"around": "all", wish: one["id"]} for one in inner for name in one["nodes"]}
    room = {name: more for more, one in enumerate(inner, 1) for name in one["nodes"]}
    tree = _tree(("around", wish), labels)
    names = [node.name for node in tree.nodes]
    free = np.array([[room[name] for name in names]])
    terrain = TopologyCapacity(tree, free, np.ones((1, 1), np.int64), np.ones_like(free, bool))
    rows, _ = terrain.spread(0, 0, np.array([0]), np.array([free.sum()]), Strategy.BEST_FIT, AffinityPull(1))
    points = sorted(set(case["expected"].values()), reverse=True)
    wanted = [sorted(node for node, own in case["expected"].items() if own == one) for one in points]
    return same([name for equal in wanted for name in equal], [names[row] for row in rows.tolist()])


def common_domain(case: Object) -> list[str]:
    """The lowest domain that all nodes share, no lower than the level that is preferred, else required."""
    levels = [_level(one) for one in case["levels"]]
    tree = _tree(levels, case["nodeLabels"])
    wish = case["constraint"]["preferredLevel"] or case["constraint"]["requiredLevel"]
    lowest = levels.index(wish) if wish else tree.lowest
    rows, found = np.arange(tree.rows), {"id": ROOT, "level": ROOT}
    for depth in range(lowest + 1):
        owners = np.unique(np.searchsorted(tree.starts[depth], rows, side="right") - 1)
        if len(owners) == 1:
            found = {"id": _id(tree, depth, int(owners[0])), "level": levels[depth]}
    names = sorted(node.name for node in tree.nodes)
    return same(case["expected"] | {"validNodes": sorted(case["expected"]["validNodes"] or [])},
                 found | {"validNodes": names})  # fmt: skip


def _tree(levels: Iterable[str], labels: Mapping[str, Mapping[str, str]]) -> Tree:
    cluster = TopologyState(Topology("t", tuple(levels)))
    cluster.load(Node(name, dict(own), {PODS: 1}) for name, own in labels.items())
    return cluster.snapshot().tree


def _id(tree: Tree, depth: int, domain: int) -> str:
    return ".".join(tree.path(depth, domain))


def _level(one: Object) -> str:
    return str(one["nodeLabel"])


def same(wanted: object, got: object) -> list[str]:
    return [] if (wanted or "") == (got or "") else [f"want {wanted!r}, got {got!r}"]
