"""How pods of one shape get in each other's way, and how many of them nodes hold by a plain count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.snapshot import copies_of, minds
from bayplan.placement.overlay.node_overlay import NodeOverlay

COUNT_MAX = 2**31 - 1
CURED_BY_PEERS = (FilterReason.NOT_NEAR, FilterReason.SPREAD)
"""Causes that other pods of the same gang may remove by coming."""


def is_plain(shape: PodSignature) -> bool:
    """Whether nodes that take a pod, and how well it is there, change only by the room that others take."""
    return not (shape.ports or shape.claims or shape.disks or shape.neighbours or shape.spread)


def is_free(shape: PodSignature) -> bool:
    """The same, but only as to whether they take it."""
    neighbours = shape.neighbours
    if shape.ports or shape.claims or shape.disks or neighbours.near or neighbours.apart:
        return False
    return not any(spread.must for spread in shape.spread)


def repels_itself(filter_input: FilterInput, shape: PodSignature) -> tuple[str, ...] | None:
    """The labels within whose value one pod keeps all others of its shape away; "" means the node.

    None if they get in each other's way otherwise, too.
    """
    neighbours = shape.neighbours
    others = shape.claims or shape.disks or neighbours.near
    if others or any(spread.must for spread in shape.spread):
        return None
    keys = [""] if shape.ports else []
    about, labels = filter_input.index.namespaces.get(shape.namespace, {}), dict(shape.labels)
    keys += [term.key for term in neighbours.apart if term.means(shape.namespace, about, labels)]
    return tuple(dict.fromkeys(keys))


def follows_first_pod(filter_input: FilterInput, shape: PodSignature) -> bool:
    """Whether, once one such pod sits, the nodes open to the next change only by the room that they take.

    They must be near somebody, perhaps each other, and keep nobody of their own away.
    """
    if not shape.neighbours.near or shape.neighbours.rather_near or shape.neighbours.rather_apart:
        return False
    bare = replace(shape, neighbours=replace(shape.neighbours, near=()))
    return not shape.spread and repels_itself(filter_input, bare) == ()


def needs_own_batch(overlay: NodeOverlay, shape: PodSignature) -> bool:
    """Whether such pods must be near each other, and nobody else is there to be near to."""
    index, terms = overlay.scene.index, shape.neighbours.near
    question = PodQuery(tuple((index.spaces(term), term.selector) for term in terms))
    if not terms or not question.means(shape.namespace, dict(shape.labels)):
        return False
    node_index = overlay.scene.ground.land
    there = index.count(question)[node_index.slots] > 0
    return not any(bool((values_of(node_index, term.key)[0][there] != ABSENT).any()) for term in terms)


def room_for(filter_input: FilterInput, shape: PodSignature, where: Bools, most: int) -> tuple[Ints, Ints]:
    """The rows among these that hold such pods by what they ask for, and how many (no more than `most`)."""
    node_snapshot = filter_input.ground
    rows = np.flatnonzero(where)
    counts = np.full(len(rows), min(most, COUNT_MAX), dtype=np.int64)
    for resource, amount in shape.amounts:
        if amount > 0:
            at = node_snapshot.resources.get(resource)
            if at is None:
                return rows[:0], counts[:0]
            np.minimum(counts, node_snapshot.free[at][rows] // amount, out=counts)
    wants = minds(filter_input.zones, shape)
    if wants is not None and filter_input.zones is not None:
        np.minimum(counts, copies_of(filter_input.zones, wants, most, where)[rows], out=counts)
    good = counts > 0
    return rows[good], counts[good]


def most_pods(
    overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None, most: int
) -> tuple[Ints, Ints]:
    """The rows that could take such pods, if not now then once others of their gang have come; and how many.

    No way to seat them has more on any of these rows.
    """
    filter_result = overlay.judge(shape)
    where = filter_result.fits.copy()
    for (cause, _), refused in filter_result.refusals.items():
        if cause in CURED_BY_PEERS:
            where |= refused
    if allowed_nodes is not None:
        where &= allowed_nodes
    one_each = bool(shape.ports)
    return room_for(overlay.scene, shape, where, 1 if one_each else most)
