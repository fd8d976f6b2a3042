"""How much each node is worth to a pod that fits it: seven views, each in hundredths, weighed and summed."""

from __future__ import annotations

import numpy as np

from bayplan.model.wants import Shape
from bayplan.placement.fit_filters import Scene
from bayplan.placement.fit_images import fetched
from bayplan.placement.fit_neighbours import liking
from bayplan.placement.fit_nodes import aversions, preference
from bayplan.placement.fit_resources import balanced, emptiest
from bayplan.placement.fit_spread import evenness
from bayplan.placement.tree import Bools, Ints

BEST = 100
WEIGHTS = {
    "taints": 3,
    "affinity": 2,
    "emptiest": 1,
    "spread": 2,
    "neighbours": 2,
    "balanced": 1,
    "images": 1,
}


def rank(scene: Scene, shape: Shape, fitting: Bools) -> Ints:
    """The worth of each fitting node. Some views compare nodes, so it depends on which others fit."""
    total = np.zeros(len(fitting), dtype=np.int64)
    for name, worth in views(scene, shape, fitting).items():
        total += WEIGHTS[name] * worth
    return np.where(fitting, total, -1)


def views(scene: Scene, shape: Shape, fitting: Bools) -> dict[str, Ints]:
    """Each view of the nodes by itself, by name; only fitting nodes have a say."""
    ground, index, land = scene.ground, scene.index, scene.ground.land
    found = {
        "taints": _reversed(_share_of_most(aversions(land, shape.rules.tolerations), fitting)),
        "emptiest": emptiest(ground, index, shape),
        "balanced": balanced(ground, shape),
    }
    if shape.rules.preferred:
        found["affinity"] = _share_of_most(preference(land, shape.rules), fitting)
    even = evenness(land, index, shape, fitting)
    if even is not None:
        found["spread"] = even
    found["neighbours"] = _between(liking(land, index, shape), fitting)
    if scene.images is not None:
        found["images"] = fetched(land, scene.images, shape)
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
