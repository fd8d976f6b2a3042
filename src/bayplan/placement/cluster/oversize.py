"""Whether a pod is larger than every node, so that no preemption can make it fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.model.assignment import Oversized
from bayplan.model.node import Node
from bayplan.placement.cluster.capacity import with_slot


def oversized(nodes: Iterable[Node], pod_set: str, requests: Mapping[str, int]) -> Oversized | None:
    """What the best node lacks even when empty; None if some node is large enough or there are no nodes."""
    requested = {name: amount for name, amount in with_slot(requests).items() if amount}
    best: tuple[tuple[int, float, str], Oversized] | None = None
    for node in _first_of_each_model(nodes):
        allocatable = node.allocatable
        lacks = [
            (name, amount, allocatable.get(name, 0))
            for name, amount in requested.items()
            if allocatable.get(name, 0) < amount
        ]
        if not lacks:
            return None
        share = min(available / amount for _, amount, available in lacks)
        rank = (len(lacks), -share, node.name)
        if best is None or rank < best[0]:
            best = rank, Oversized(pod_set, node.name, tuple(lacks))
    return None if best is None else best[1]


def _first_of_each_model(nodes: Iterable[Node]) -> Iterable[Node]:
    """The first node by name of each group that shares one allocatable mapping."""
    first: dict[int, Node] = {}
    for node in nodes:
        current = first.setdefault(id(node.allocatable), node)
        if node.name < current.name:
            first[id(node.allocatable)] = node
    return first.values()
