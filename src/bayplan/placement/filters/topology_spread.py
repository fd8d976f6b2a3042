"""Topology spread constraints: the nodes that they reject, and the spread score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayplan.model.node import HOSTNAME
from bayplan.model.pod_spec import PodSignature, Selector, TopologySpread
from bayplan.placement.cluster.node_index import (
    NodeIndex,
    affinity_nodes,
    domains,
    sum_by_domain,
    tolerated_nodes,
)
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodIndex, PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints

ZONE = "topology.kubernetes.io/zone"
BY_DEFAULT = ((HOSTNAME, 3), (ZONE, 5))
BEST = 100


class SpreadFit(NamedTuple):
    """Nodes that lack the label of a constraint, and nodes that would exceed its maximum skew."""

    unlabelled: Bools
    uneven: Bools


def spread_fit(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> SpreadFit:
    """The nodes that required constraints reject, by the first constraint that each node fails."""
    constraints = [spread for spread in shape.spread if spread.required]
    unlabelled, uneven = np.zeros(len(node_index), dtype=bool), np.zeros(len(node_index), dtype=bool)
    labelled = _labelled(node_index, constraints)
    for spread in constraints:
        domain, _ = domains(node_index, spread.key)
        itself = int(spread.selector.accepts(dict(shape.labels)))
        missing, skewed = domain == ABSENT, np.zeros(len(node_index), dtype=bool)
        for pods in _matching_pods(node_index, index, shape, spread):
            total, _, fewest = _totals(node_index, shape, spread, labelled, pods)
            skewed |= ~missing & (np.append(total, 0)[domain] + itself - fewest > spread.max_skew)
        not_rejected = ~(unlabelled | uneven)
        unlabelled |= not_rejected & missing
        uneven |= not_rejected & skewed
    return SpreadFit(unlabelled, uneven)


def _totals(
    node_index: NodeIndex, shape: PodSignature, spread: TopologySpread, labelled: Bools, pods: Ints
) -> tuple[Ints, Bools, int]:
    """By domain, the matching pods, and whether it counts; and the fewest pods of a domain that counts."""
    domain, size = domains(node_index, spread.key)
    counted = labelled & _counted_nodes(node_index, shape, spread)
    total = sum_by_domain(domain, size, np.where(counted, pods, 0))
    known = np.bincount(domain[counted], minlength=size) > 0
    fewest = int(total[known].min()) if known.sum() >= max(spread.min_domains, 1) else 0
    return total, known, fewest


def spread_totals(
    node_index: NodeIndex, index: PodIndex, shape: PodSignature, spread: TopologySpread
) -> tuple[Ints, Bools, int]:
    """By domain of a required constraint, the matching pods, and whether it counts; and the fewest."""
    labelled = _labelled(node_index, [one for one in shape.spread if one.required])
    pods = matching_pods(node_index, index, shape, spread)
    return _totals(node_index, shape, spread, labelled, pods)


def spread_allowance(
    node_index: NodeIndex, index: PodIndex, shape: PodSignature, spread: TopologySpread
) -> Ints:
    """By domain, how many more pods that the constraint counts it may get now."""
    total, _, fewest = spread_totals(node_index, index, shape, spread)
    return np.maximum(spread.max_skew + fewest - total, 0)


def spread_score(node_index: NodeIndex, index: PodIndex, shape: PodSignature, fitting: Bools) -> Ints | None:
    """The spread score of each fitting node, 0 to 100; None if the pod has no soft constraints."""
    strict = bool(shape.spread)
    constraints = [spread for spread in shape.spread if not spread.required] if strict else _defaults(shape)
    if not constraints:
        return None
    labelled = _labelled(node_index, constraints) if strict else np.ones(len(node_index), dtype=bool)
    scored = fitting & labelled
    total = np.zeros(len(node_index), dtype=np.float64)
    counts: dict[Selector, Ints] = {}
    for spread in constraints:
        domain, size = domains(node_index, spread.key)
        pods = counts.get(spread.selector)
        if pods is None:
            pods = counts[spread.selector] = matching_pods(node_index, index, shape, spread)
        if spread.key == HOSTNAME:
            domain_count = int(scored.sum())
        else:
            counted = labelled & _counted_nodes(node_index, shape, spread)
            pods = np.append(sum_by_domain(domain, size, np.where(counted, pods, 0)), 0)[domain]
            # nodes without the label count as one domain
            domain_count = int(np.count_nonzero(np.bincount(domain[scored] - ABSENT)))
        score = pods * np.log(float(domain_count + 2)) + float(spread.max_skew - 1)
        total += np.where(domain != ABSENT, score, 0.0)
    return _normalised(np.floor(total + 0.5).astype(np.int64), scored)


def _normalised(raw: Ints, scored: Bools) -> Ints:
    """Higher for fewer pods; nodes that are not scored get zero."""
    if not scored.any():
        return np.zeros(len(raw), dtype=np.int64)
    highest, lowest = int(raw[scored].max()), int(raw[scored].min())
    if highest == 0:
        return np.where(scored, BEST, 0).astype(np.int64)
    return np.where(scored, BEST * (highest + lowest - raw) // highest, 0)


def _defaults(shape: PodSignature) -> list[TopologySpread]:
    """Default constraints: spread the pods of one service or owner by host and by zone."""
    if not (shape.default_spread and shape.default_spread.requirements):
        return []
    return [TopologySpread(key, skew, shape.default_spread, required=False) for key, skew in BY_DEFAULT]


def _labelled(node_index: NodeIndex, constraints: list[TopologySpread]) -> Bools:
    good = np.ones(len(node_index), dtype=bool)
    for spread in constraints:
        good &= node_index.table.column(spread.key) != ABSENT
    return good


def _counted_nodes(node_index: NodeIndex, shape: PodSignature, spread: TopologySpread) -> Bools:
    """Nodes that a constraint counts, by its affinity and taint policies."""
    good = np.ones(len(node_index), dtype=bool)
    if spread.honor_affinity:
        good &= affinity_nodes(node_index, shape.rules)
    if spread.honor_taints:
        good &= tolerated_nodes(node_index, shape.rules.tolerations)
    return good


def matching_pods(
    node_index: NodeIndex, index: PodIndex, shape: PodSignature, spread: TopologySpread
) -> Ints:
    """Matching pods of the same namespace per node. An empty selector matches none."""
    return _matching_pods(node_index, index, shape, spread)[0]


def _matching_pods(
    node_index: NodeIndex, index: PodIndex, shape: PodSignature, spread: TopologySpread
) -> tuple[Ints, ...]:
    """Matching pods per node; if some of them are nominated only, the counts without those, too."""
    if not spread.selector.requirements:
        return (np.zeros(len(node_index), dtype=np.int64),)
    query = PodQuery(((frozenset((shape.namespace,)), spread.selector),), leaving=False)
    return tuple(counts[node_index.slots] for counts in index.counts(query))
