"""How much each node is worth to a pod that fits it: eight views, each in hundredths, weighed and summed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.images import fetched
from bayplan.placement.cluster.node_index import NodeSnapshot, aversions, preference
from bayplan.placement.cluster.resource_fit import balanced, emptiest
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.filters.pod_affinity import liking
from bayplan.placement.filters.topology_spread import evenness
from bayplan.placement.numa.snapshot import scored

BEST = 100
WEIGHTS = {
    "taints": 3,
    "affinity": 2,
    "emptiest": 1,
    "spread": 2,
    "neighbours": 2,
    "balanced": 1,
    "images": 1,
    "zones": 1,
}


def rank(scene: FilterInput, shape: PodSignature, fitting: Bools) -> Ints:
    """The worth of each fitting node. Some views compare nodes, so it depends on which others fit."""
    weight = scene.index.weight_of(scene.ground.land.slots)
    total = room_worth(scene.ground, weight, shape) + other_worth(scene, shape, fitting)
    return np.where(fitting, total, -1)


def room_worth(ground: NodeSnapshot, weight: Ints, shape: PodSignature) -> Ints:
    """The part of the worth that only looks at the room on each node, and what its pods weigh, by itself."""
    return weighed(room_views(ground, weight, shape), len(ground.land))


def other_worth(scene: FilterInput, shape: PodSignature, fitting: Bools) -> Ints:
    """The rest of it."""
    return weighed(other_views(scene, shape, fitting), len(fitting))


def weighed(views: Mapping[str, Ints], size: int) -> Ints:
    """Views summed up."""
    total = np.zeros(size, dtype=np.int64)
    for name, worth in views.items():
        total += WEIGHTS[name] * worth
    return total


def views(scene: FilterInput, shape: PodSignature, fitting: Bools) -> dict[str, Ints]:
    """Each view of the nodes by itself, by name; only fitting nodes have a say."""
    weight = scene.index.weight_of(scene.ground.land.slots)
    return room_views(scene.ground, weight, shape) | other_views(scene, shape, fitting)


def room_views(ground: NodeSnapshot, weight: Ints, shape: PodSignature) -> dict[str, Ints]:
    """Those that only look at the room on each node by itself."""
    return {"emptiest": emptiest(ground, weight, shape), "balanced": balanced(ground, shape)}


def other_views(scene: FilterInput, shape: PodSignature, fitting: Bools) -> dict[str, Ints]:
    """The others."""
    index, land = scene.index, scene.ground.land
    found = {"taints": _reversed(_share_of_most(aversions(land, shape.rules.tolerations), fitting))}
    if shape.rules.preferred:
        found["affinity"] = _share_of_most(preference(land, shape.rules), fitting)
    even = evenness(land, index, shape, fitting)
    if even is not None:
        found["spread"] = even
    if shape.neighbours or next(index.stances_towards(shape), None) is not None:
        found["neighbours"] = _between(liking(land, index, shape), fitting)
    if scene.images is not None:
        found["images"] = fetched(land, scene.images, shape)
    if scene.zones is not None and shape.zones is not None:
        found["zones"] = scored(scene.zones, shape.zones)
    return found


def best(worth: Ints, fitting: Bools) -> Bools:
    """The nodes that are worth most."""
    if not fitting.any():
        return fitting
    return fitting & np.equal(worth, int(worth[fitting].max()))


def _share_of_most(figures: Ints, fitting: Bools) -> Ints:
    most = int(figures[fitting].max()) if fitting.any() else 0
    return BEST * figures // most if most else np.zeros(len(figures), dtype=np.int64)


def _reversed(shares: Ints) -> Ints:
    return BEST - shares


def _between(figures: Ints, fitting: Bools) -> Ints:
    """The lowest is worth nothing, the highest everything."""
    if not fitting.any():
        return np.zeros(len(figures), dtype=np.int64)
    least, most = int(figures[fitting].min()), int(figures[fitting].max())
    if most == least:
        return np.zeros(len(figures), dtype=np.int64)
    return (BEST * ((figures - least) / (most - least))).astype(np.int64)
