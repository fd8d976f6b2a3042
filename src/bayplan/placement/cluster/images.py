"""Which images lie on which nodes, so that a pod may go where less has to be fetched."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.counters import NodeCounter, NodeIds
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.topology_tree import Ints

MEBIBYTE = 1 << 20
LEAST, MOST_EACH = 23 * MEBIBYTE, 1000 * MEBIBYTE
BEST = 100


class ImageIndex:
    """Images by name, with their size and the nodes that have them."""

    def __init__(self, slots: NodeIds) -> None:
        self.slots = slots
        self.sizes: dict[str, int] = {}
        self.places: dict[str, NodeCounter] = {}
        self.nodes: dict[str, frozenset[str]] = {}
        self.version = 0
        slots.users.append(self.nodes.__contains__)

    def note(self, node: str, images: Mapping[str, int]) -> None:
        """A node has exactly these images, by name and size; none at all if it is gone."""
        before, now = self.nodes.get(node, frozenset()), frozenset(images)
        if before == now:
            return
        slot = self.slots.number(node)
        self.version += 1
        for name in now - before:
            self.sizes.setdefault(name, images[name])
            self.places.setdefault(name, NodeCounter()).add(slot)
        for name in before - now:
            self.places[name].add(slot, -1)
            if not self.places[name]:
                del self.places[name], self.sizes[name]
        if now:
            self.nodes[node] = now
        else:
            self.nodes.pop(node, None)
            self.slots.drop(node)


def fetched(land: NodeIndex, images: ImageIndex, shape: PodSignature) -> Ints:
    """How much of the pod's images each node has, in hundredths; what few nodes have counts for less."""
    key: Hashable = ("images", images, images.version, shape.images)
    return land.remember(key, lambda: _fetched(land, images, shape.images))


def _fetched(land: NodeIndex, images: ImageIndex, names: tuple[str, ...]) -> Ints:
    total = np.zeros(len(land), dtype=np.int64)
    if not names or not len(land):
        return total
    for name in names:
        tally = images.places.get(name)
        if tally is not None:
            share = len(tally.few) / len(land)
            there = tally.dense(len(images.slots))[land.slots] > 0
            total += there * int(images.sizes[name] * share)
    most = MOST_EACH * len(names)
    return BEST * (np.clip(total, LEAST, most) - LEAST) // (most - LEAST)
