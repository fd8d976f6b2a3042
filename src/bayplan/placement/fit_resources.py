"""Whether a pod's amounts fit each node, and how well the node would be used then."""

from __future__ import annotations

import numpy as np

from bayplan.model.node import PODS
from bayplan.model.wants import Shape
from bayplan.placement.fit_index import PodIndex
from bayplan.placement.fit_nodes import Ground
from bayplan.placement.tree import Bools, Ints

CPU, MEMORY = "cpu", "memory"
BEST = 100


def lacking(ground: Ground, shape: Shape) -> dict[str, Bools]:
    """The nodes that have too little of each resource that any node has too little of."""
    found = {}
    for resource, amount in shape.amounts:
        if amount > 0:
            short = amount > _free(ground, resource)
            if short.any():
                found[resource] = short
    return found


def hopeless(ground: Ground, shape: Shape) -> Bools:
    """Nodes too small for the pod even if they were empty. A full list of pods is never hopeless."""
    found = np.zeros(len(ground.land), dtype=bool)
    for resource, amount in shape.amounts:
        if amount > 0 and resource != PODS:
            found |= amount > _all(ground, resource)
    return found


def emptiest(ground: Ground, index: PodIndex, shape: Shape) -> Ints:
    """How much of CPU and memory would be left, in hundredths, pods that ask for nothing counting too."""
    slots = ground.land.slots
    weight = np.zeros((2, len(slots)), dtype=np.int64)
    known = slots < index.weight.shape[1]
    weight[:, known] = index.weight[:, slots[known]]
    total = np.zeros(len(slots), dtype=np.int64)
    count = np.zeros(len(slots), dtype=np.int64)
    for at, resource in enumerate((CPU, MEMORY)):
        room = _all(ground, resource)
        left = room - (weight[at] + shape.weighs[at])
        share = np.where(left < 0, 0, left) * BEST // np.maximum(room, 1)
        total += np.where(room > 0, share, 0)
        count += room > 0
    return np.where(count > 0, total // np.maximum(count, 1), 0)


def balanced(ground: Ground, shape: Shape) -> Ints:
    """How alike the used shares of CPU and memory would be, in hundredths."""
    amounts = dict(shape.amounts)
    asked = (amounts.get(CPU, 0), amounts.get(MEMORY, 0))
    if not any(asked):
        return np.zeros(len(ground.land), dtype=np.int64)
    shares, both = [], np.ones(len(ground.land), dtype=bool)
    for resource, amount in zip((CPU, MEMORY), asked, strict=True):
        room = _all(ground, resource)
        both &= room > 0
        used = (room - _free(ground, resource) + amount).astype(np.float64)
        shares.append(np.minimum(used / np.maximum(room, 1), 1.0))
    apart = np.where(both, np.abs((shares[0] - shares[1]) / 2), 0.0)
    return ((1 - apart) * BEST).astype(np.int64)


def _free(ground: Ground, resource: str) -> Ints:
    at = ground.resources.get(resource)
    return ground.free[at] if at is not None else np.zeros(len(ground.land), dtype=np.int64)


def _all(ground: Ground, resource: str) -> Ints:
    at = ground.resources.get(resource)
    return ground.allocatable[at] if at is not None else np.zeros(len(ground.land), dtype=np.int64)
