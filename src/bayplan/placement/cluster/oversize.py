"""Whether a pod is larger than every node, so that no room that others leave would help it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.model.assignment import Oversized
from bayplan.model.node import Node
from bayplan.placement.cluster.capacity import with_slot


def oversized(nodes: Iterable[Node], pod_set: str, requests: Mapping[str, int]) -> Oversized | None:
    """What the largest node lacks even if it is empty; None if a node is large enough, or there is none."""
    asked = {name: amount for name, amount in with_slot(requests).items() if amount}
    best: tuple[tuple[int, float, str], Oversized] | None = None
    for node in _first_of_each_model(nodes):
        has = node.allocatable
        lacks = [
            (name, amount, has.get(name, 0)) for name, amount in asked.items() if has.get(name, 0) < amount
        ]
        if not lacks:
            return None
        share = min(there / amount for _, amount, there in lacks)
        rank = (len(lacks), -share, node.name)
        if best is None or rank < best[0]:
            best = rank, Oversized(pod_set, node.name, tuple(lacks))
    return None if best is None else best[1]


def _first_of_each_model(nodes: Iterable[Node]) -> Iterable[Node]:
    """Of nodes that share what they offer the first by name; it stands for all of them."""
    found: dict[int, Node] = {}
    for node in nodes:
        known = found.setdefault(id(node.allocatable), node)
        if node.name < known.name:
            found[id(node.allocatable)] = node
    return found.values()
