"""How pods of one signature constrain each other, and how many of them each node holds by resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_index import terms_mask
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.snapshot import aligned_copies, numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch

COUNT_MAX = 2**31 - 1
CURED_BY_PEERS = (FilterReason.POD_AFFINITY, FilterReason.SPREAD)
"""Filter reasons that other pods of the same gang may remove once they are assigned."""


def needs_only_resources(shape: PodSignature) -> bool:
    """Whether other pods change neither the nodes that fit nor their scores except by using resources."""
    return not (
        shape.ports or shape.claims or shape.disks or shape.affinity or shape.spread or shares_devices(shape)
    )


def shares_devices(shape: PodSignature) -> bool:
    """Whether pods share a claim: the first one decides where the others find its devices."""
    return shape.devices is not None and bool(shape.devices.shared)


def is_unconstrained(shape: PodSignature) -> bool:
    """Whether other pods change the nodes that fit only by using resources; scores may change otherwise."""
    return not shape.constrains_nodes


def repels_itself(filter_input: FilterInput, shape: PodSignature) -> tuple[str, ...] | None:
    """The label keys in whose domains one pod repels all others of its signature; "" means the node.

    None if the pods constrain each other in other ways too.
    """
    neighbours = shape.affinity
    other_constraints = shape.claims or shape.disks or neighbours.required or shares_devices(shape)
    if other_constraints or any(spread.required for spread in shape.spread):
        return None
    keys = [""] if shape.ports else []
    about, labels = filter_input.index.namespaces.get(shape.namespace, {}), dict(shape.labels)
    keys += [term.key for term in neighbours.required_anti if term.selects(shape.namespace, about, labels)]
    return tuple(dict.fromkeys(keys))


def follows_first_pod(filter_input: FilterInput, shape: PodSignature) -> bool:
    """Whether the nodes that fit change only by resource use once the first such pod is assigned.

    Such pods have required affinity, perhaps to each other, and no anti-affinity among themselves.
    """
    if not shape.affinity.required or shape.affinity.preferred or shape.affinity.preferred_anti:
        return False
    bare = replace(shape, affinity=replace(shape.affinity, required=()))
    return not shape.spread and repels_itself(filter_input, bare) == ()


def needs_own_batch(overlay: NodeOverlay, shape: PodSignature) -> bool:
    """Whether such pods have required affinity to each other, and no running pod matches it yet."""
    index, terms = overlay.filter_input.index, shape.affinity.required
    query = PodQuery(tuple((index.namespaces_of(term), term.selector) for term in terms))
    if not terms or not query.matches(shape.namespace, dict(shape.labels)):
        return False
    node_index = overlay.filter_input.node_snapshot.node_index
    has_match = index.count(query)[node_index.slots] > 0
    return not any(bool((values_of(node_index, term.key)[0][has_match] != ABSENT).any()) for term in terms)


def capacity_for(
    filter_input: FilterInput, shape: PodSignature, where: Bools, limit: int
) -> tuple[Ints, Ints]:
    """The rows among these with enough resources for such pods, and how many fit (at most `limit`)."""
    node_snapshot = filter_input.node_snapshot
    rows = np.flatnonzero(where)
    counts = np.full(len(rows), min(limit, COUNT_MAX), dtype=np.int64)
    for resource, amount in shape.amounts:
        if amount > 0:
            at = node_snapshot.resources.get(resource)
            if at is None:
                return rows[:0], counts[:0]
            np.minimum(counts, node_snapshot.free[at][rows] // amount, out=counts)
    numa_request = numa_request_of(filter_input.zones, shape)
    if numa_request is not None and filter_input.zones is not None:
        np.minimum(counts, aligned_copies(filter_input.zones, numa_request, limit, where)[rows], out=counts)
    if shape.devices is not None and filter_input.devices is not None:
        by_devices = filter_input.devices.counts(node_snapshot.node_index, shape.devices, limit)
        np.minimum(counts, by_devices[rows], out=counts)
    nonzero = counts > 0
    return rows[nonzero], counts[nonzero]


def most_pods(
    overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None, limit: int
) -> tuple[Ints, Ints]:
    """The rows that fit such pods, now or once other pods of the gang are assigned, and how many fit.

    The counts are upper bounds for every assignment.
    """
    filter_result = overlay.run_filters(shape)
    where = filter_result.fits.copy()
    for (cause, _), refused in filter_result.rejections.items():
        if cause in CURED_BY_PEERS:
            where |= refused
    if allowed_nodes is not None:
        where &= allowed_nodes
    one_each = bool(shape.ports)
    return capacity_for(overlay.filter_input, shape, where, 1 if one_each else limit)


def shared_device_domains(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed_nodes: Bools | None, most: int
) -> Iterator[Bools]:
    """Nodes among which the pods of a gang find the devices of a claim that they share.

    Devices of one node restrict the gang to that node, those of a network to the nodes that reach them. First
    the nodes with room for the most pods, at most `most`.
    """
    supply = overlay.filter_input.devices
    if supply is None or not any(shares_devices(batch.shape) for batch in batches):
        return
    room = np.zeros(len(overlay), dtype=np.int64)
    for batch in batches:
        rows, counts = most_pods(overlay, batch.shape, allowed_nodes, len(batch.keys))
        room[rows] += counts
    order = np.argsort(-room, kind="stable")
    for row in order[room[order] > 0][:most].tolist():
        yield np.arange(len(overlay)) == row
    reaches = dict.fromkeys(part.reach.terms for part in supply.counter.allocator.index.shared)
    for terms in islice((one for one in reaches if one is not None), most):
        yield terms_mask(overlay.filter_input.node_snapshot.node_index, terms)
