"""Resource filters and scores: which nodes lack a resource, least allocated, balanced allocation."""

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
    """The dominant resource of a pod: a device if it requests one, else CPU."""
    return next(iter(by_weight(resources)), "")


def by_weight(resources: Iterable[str]) -> list[str]:
    """Resources by scarcity: devices, then CPU, then the common ones."""
    return sorted(resources, key=lambda name: (name in COMMON, name == CPU, name))


def lacking(node_snapshot: NodeSnapshot, shape: PodSignature) -> dict[str, Bools]:
    """By resource, the nodes with too little of it; only resources that some node lacks."""
    short_by_resource = {}
    for resource, amount in shape.amounts:
        if amount > 0:
            short = amount > _free(node_snapshot, resource)
            if short.any():
                short_by_resource[resource] = short
    return short_by_resource


def too_small(node_snapshot: NodeSnapshot, shape: PodSignature) -> Bools:
    """Nodes too small for the pod even when empty. The pod limit of a node does not count."""
    nodes = np.zeros(len(node_snapshot.node_index), dtype=bool)
    for resource, amount in shape.amounts:
        if amount > 0 and resource != PODS:
            nodes |= amount > _allocatable(node_snapshot, resource)
    return nodes


def emptiest(node_snapshot: NodeSnapshot, weight: Ints, shape: PodSignature) -> Ints:
    """The least-allocated score of CPU and memory, 0 to 100.

    `weight` is what the pods on each node request, CPU then memory, with defaults for pods without requests.
    """
    node_index = node_snapshot.node_index
    total = np.zeros(len(node_index), dtype=np.int64)
    count = np.zeros(len(node_index), dtype=np.int64)
    for at, resource in enumerate((CPU, MEMORY)):
        allocatable = _allocatable(node_snapshot, resource)
        left = np.maximum(allocatable - weight[at] - shape.score_requests[at], 0)
        total += _percent(left, allocatable)
        count += allocatable > 0
    return np.where(count == 2, total >> 1, total)


def _percent(part: Ints, whole: Ints) -> Ints:
    """The share in whole percent, rounded down; zero where the whole is zero.

    Float division is much faster, and below EXACT it never rounds up to the next integer.
    """
    if len(whole) and int(whole.max()) < EXACT:
        return (part * float(BEST) / np.where(whole > 0, whole, np.inf)).astype(np.int64)
    return np.where(whole > 0, part * BEST // np.maximum(whole, 1), 0)


def balanced(node_snapshot: NodeSnapshot, shape: PodSignature) -> Ints:
    """The balanced-allocation score, 0 to 100: how close the used shares of CPU and memory would be."""
    amounts = dict(shape.amounts)
    requested = (amounts.get(CPU, 0), amounts.get(MEMORY, 0))
    if not any(requested):
        return np.zeros(len(node_snapshot.node_index), dtype=np.int64)
    shares, both = [], np.ones(len(node_snapshot.node_index), dtype=bool)
    for resource, amount in zip((CPU, MEMORY), requested, strict=True):
        allocatable = _allocatable(node_snapshot, resource)
        both &= allocatable > 0
        used = allocatable - _free(node_snapshot, resource) + amount
        shares.append(np.minimum(used / np.maximum(allocatable, 1), 1.0))
    difference = np.abs((shares[0] - shares[1]) / 2)
    if not both.all():
        difference[~both] = 0.0
    return ((1 - difference) * BEST).astype(np.int64)


def _free(node_snapshot: NodeSnapshot, resource: str) -> Ints:
    row = node_snapshot.resources.get(resource)
    return (
        node_snapshot.free[row]
        if row is not None
        else np.zeros(len(node_snapshot.node_index), dtype=np.int64)
    )


def _allocatable(node_snapshot: NodeSnapshot, resource: str) -> Ints:
    row = node_snapshot.resources.get(resource)
    return (
        node_snapshot.allocatable[row]
        if row is not None
        else np.zeros(len(node_snapshot.node_index), dtype=np.int64)
    )
