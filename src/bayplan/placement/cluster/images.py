"""Which container images are present on which nodes, and the image locality score."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.counters import NodeCounter, NodeIds
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.topology_tree import Ints

MEBIBYTE = 1 << 20
SIZE_MIN, SIZE_MAX_EACH = 23 * MEBIBYTE, 1000 * MEBIBYTE
BEST = 100


class ImageIndex:
    """Images by name, with their sizes and the nodes that have them."""

    def __init__(self, slots: NodeIds) -> None:
        self.slots = slots
        self.sizes: dict[str, int] = {}
        self.places: dict[str, NodeCounter] = {}
        self.nodes: dict[str, frozenset[str]] = {}
        self.version = 0
        slots.users.append(self.nodes.__contains__)

    def note(self, node: str, images: Mapping[str, int]) -> None:
        """Set the images of a node, by name and size; empty if the node was removed."""
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


def image_locality(node_index: NodeIndex, images: ImageIndex, shape: PodSignature) -> Ints:
    """The image locality score of each node, 0 to 100; an image that few nodes have counts for less."""
    key: Hashable = ("images", images, images.version, shape.images)
    return node_index.remember(key, lambda: _image_locality(node_index, images, shape.images))


def _image_locality(node_index: NodeIndex, images: ImageIndex, names: tuple[str, ...]) -> Ints:
    total = np.zeros(len(node_index), dtype=np.int64)
    if not names or not len(node_index):
        return total
    for name in names:
        counter = images.places.get(name)
        if counter is not None:
            share = len(counter.sparse) / len(node_index)
            present = counter.dense(len(images.slots))[node_index.slots] > 0
            total += present * int(images.sizes[name] * share)
    size_max = SIZE_MAX_EACH * len(names)
    return BEST * (np.clip(total, SIZE_MIN, size_max) - SIZE_MIN) // (size_max - SIZE_MIN)
