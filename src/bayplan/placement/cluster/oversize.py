"""Whether a pod is larger than every node, so that no preemption can make it fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.model.assignment import Oversized
from bayplan.model.node import Node
from bayplan.placement.cluster.capacity import with_slot


def oversized(nodes: Iterable[Node], pod_set: str, requests: Mapping[str, int]) -> Oversized | None:
    """What the best node lacks even when empty; None if some node is large enough or there are no nodes.

    Nodes of one model share one allocatable mapping, which is compared once. The first node that is large
    enough ends the search, so only pods that really are too large cost a pass over all nodes.
    """
    requested = {name: amount for name, amount in with_slot(requests).items() if amount}
    models: dict[int, tuple[str, tuple[tuple[str, int, int], ...]]] = {}  # first node by name, what it lacks
    for node in nodes:
        model = id(node.allocatable)
        if model not in models:
            lacks = _lacks(node.allocatable, requested)
            if not lacks:
                return None
            models[model] = node.name, lacks
        elif node.name < models[model][0]:
            models[model] = node.name, models[model][1]
    if not models:
        return None
    name, lacks = min(models.values(), key=_rank)
    return Oversized(pod_set, name, lacks)


def _lacks(allocatable: Mapping[str, int], requested: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
    """Resources of which a node has too little: name, requested amount, allocatable amount."""
    return tuple(
        (name, amount, allocatable.get(name, 0))
        for name, amount in requested.items()
        if allocatable.get(name, 0) < amount
    )


def _rank(model: tuple[str, tuple[tuple[str, int, int], ...]]) -> tuple[int, float, str]:
    """The best node lacks the fewest resources, then the smallest part, then is the first by name."""
    name, lacks = model
    return len(lacks), -min(available / amount for _, amount, available in lacks), name
