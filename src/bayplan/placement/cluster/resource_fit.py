"""Whether a pod's amounts fit each node, and how well the node would be used then."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayplan.model.node import PODS
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints

CPU, MEMORY = "cpu", "memory"
COMMON = (MEMORY, "ephemeral-storage", PODS)
BEST = 100
EXACT = 1 << 46


def leading(resources: Iterable[str]) -> str:
    """Of all that a pod asks for, what tells how full a node is: a device if it asks for one, else CPU."""
    return next(iter(by_weight(resources)), "")


def by_weight(resources: Iterable[str]) -> list[str]:
    """Devices first, then CPU, then what there is plenty of."""
    return sorted(resources, key=lambda name: (name in COMMON, name == CPU, name))


def lacking(ground: NodeSnapshot, shape: PodSignature) -> dict[str, Bools]:
    """The nodes that have too little of each resource that any node has too little of."""
    found = {}
    for resource, amount in shape.amounts:
        if amount > 0:
            short = amount > _free(ground, resource)
            if short.any():
                found[resource] = short
    return found


def hopeless(ground: NodeSnapshot, shape: PodSignature) -> Bools:
    """Nodes too small for the pod even if they were empty. A full list of pods is never hopeless."""
    found = np.zeros(len(ground.land), dtype=bool)
    for resource, amount in shape.amounts:
        if amount > 0 and resource != PODS:
            found |= amount > _all(ground, resource)
    return found


def emptiest(ground: NodeSnapshot, weight: Ints, shape: PodSignature) -> Ints:
    """How much of CPU and memory would be left, in hundredths, pods that ask for nothing counting too.

    `weight` is what the pods on each node weigh: CPU, then memory.
    """
    land = ground.land
    total = np.zeros(len(land), dtype=np.int64)
    count = np.zeros(len(land), dtype=np.int64)
    for at, resource in enumerate((CPU, MEMORY)):
        room = _all(ground, resource)
        left = np.maximum(room - weight[at] - shape.weighs[at], 0)
        total += _hundredths(left, room)
        count += room > 0
    return np.where(count == 2, total >> 1, total)


def _hundredths(part: Ints, whole: Ints) -> Ints:
    """The share in whole hundredths, rounded down; of nothing it is nothing.

    Floats divide much faster, and below this limit they cannot round up across a whole number.
    """
    if len(whole) and int(whole.max()) < EXACT:
        return (part * float(BEST) / np.where(whole > 0, whole, np.inf)).astype(np.int64)
    return np.where(whole > 0, part * BEST // np.maximum(whole, 1), 0)


def balanced(ground: NodeSnapshot, shape: PodSignature) -> Ints:
    """How alike the used shares of CPU and memory would be, in hundredths."""
    amounts = dict(shape.amounts)
    asked = (amounts.get(CPU, 0), amounts.get(MEMORY, 0))
    if not any(asked):
        return np.zeros(len(ground.land), dtype=np.int64)
    shares, both = [], np.ones(len(ground.land), dtype=bool)
    for resource, amount in zip((CPU, MEMORY), asked, strict=True):
        room = _all(ground, resource)
        both &= room > 0
        used = room - _free(ground, resource) + amount
        shares.append(np.minimum(used / np.maximum(room, 1), 1.0))
    apart = np.abs((shares[0] - shares[1]) / 2)
    if not both.all():
        apart[~both] = 0.0
    return ((1 - apart) * BEST).astype(np.int64)


def _free(ground: NodeSnapshot, resource: str) -> Ints:
    at = ground.resources.get(resource)
    return ground.free[at] if at is not None else np.zeros(len(ground.land), dtype=np.int64)


def _all(ground: NodeSnapshot, resource: str) -> Ints:
    at = ground.resources.get(resource)
    return ground.allocatable[at] if at is not None else np.zeros(len(ground.land), dtype=np.int64)
