"""How evenly pods lie over zones, hosts or other domains: what that forbids, and what it prefers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayplan.model.node import HOSTNAME
from bayplan.model.pod_spec import PodSignature, Selector, TopologySpread
from bayplan.placement.cluster.node_index import NodeIndex, by_domain, chosen, domains, untainted
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodIndex, PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints

ZONE = "topology.kubernetes.io/zone"
BY_DEFAULT = ((HOSTNAME, 3), (ZONE, 5))
BEST = 100


class SpreadFit(NamedTuple):
    """Nodes that lack a label that a constraint needs, and nodes that would make it too uneven."""

    unlabelled: Bools
    uneven: Bools


def spread_fit(land: NodeIndex, index: PodIndex, shape: PodSignature) -> SpreadFit:
    """What required constraints forbid. Each node has the fault of the first constraint it fails."""
    constraints = [spread for spread in shape.spread if spread.must]
    unlabelled, uneven = np.zeros(len(land), dtype=bool), np.zeros(len(land), dtype=bool)
    everywhere = _labelled(land, constraints)
    for spread in constraints:
        domain, size = domains(land, spread.key)
        counted = everywhere & _heeded(land, shape, spread)
        there = np.where(counted, _matching(land, index, shape, spread), 0)
        total = by_domain(domain, size, there)
        known = np.bincount(domain[counted], minlength=size) > 0
        least = int(total[known].min()) if known.sum() >= max(spread.min_domains, 1) else 0
        itself = int(spread.selector.accepts(dict(shape.labels)))
        missing = domain == ABSENT
        skewed = ~missing & (np.append(total, 0)[domain] + itself - least > spread.max_skew)
        faultless = ~(unlabelled | uneven)
        unlabelled |= faultless & missing
        uneven |= faultless & skewed
    return SpreadFit(unlabelled, uneven)


def evenness(land: NodeIndex, index: PodIndex, shape: PodSignature, fitting: Bools) -> Ints | None:
    """How even the pod would make things on each fitting node, in hundredths; None if nobody cares."""
    strict = bool(shape.spread)
    constraints = [spread for spread in shape.spread if not spread.must] if strict else _defaults(shape)
    if not constraints:
        return None
    everywhere = _labelled(land, constraints) if strict else np.ones(len(land), dtype=bool)
    judged = fitting & everywhere
    total = np.zeros(len(land), dtype=np.float64)
    counts: dict[Selector, Ints] = {}
    for spread in constraints:
        domain, size = domains(land, spread.key)
        there = counts.get(spread.selector)
        if there is None:
            there = counts[spread.selector] = _matching(land, index, shape, spread)
        if spread.key == HOSTNAME:
            places = int(judged.sum())
        else:
            counted = everywhere & _heeded(land, shape, spread)
            there = np.append(by_domain(domain, size, np.where(counted, there, 0)), 0)[domain]
            places = int(np.count_nonzero(np.bincount(domain[judged] - ABSENT)))  # no label is a place, too
        worth = there * np.log(float(places + 2)) + float(spread.max_skew - 1)
        total += np.where(domain != ABSENT, worth, 0.0)
    return _hundredths(np.floor(total + 0.5).astype(np.int64), judged)


def _hundredths(crowd: Ints, judged: Bools) -> Ints:
    """The less crowded, the better; nodes that are not judged get nothing."""
    if not judged.any():
        return np.zeros(len(crowd), dtype=np.int64)
    most, least = int(crowd[judged].max()), int(crowd[judged].min())
    if most == 0:
        return np.where(judged, BEST, 0).astype(np.int64)
    return np.where(judged, BEST * (most + least - crowd) // most, 0)


def _defaults(shape: PodSignature) -> list[TopologySpread]:
    """What everybody would like who says nothing: pods of one service apart by host, then by zone."""
    if not (shape.company and shape.company.requirements):
        return []
    return [TopologySpread(key, skew, shape.company, must=False) for key, skew in BY_DEFAULT]


def _labelled(land: NodeIndex, constraints: list[TopologySpread]) -> Bools:
    good = np.ones(len(land), dtype=bool)
    for spread in constraints:
        good &= land.table.column(spread.key) != ABSENT
    return good


def _heeded(land: NodeIndex, shape: PodSignature, spread: TopologySpread) -> Bools:
    """Nodes that count for a constraint."""
    good = np.ones(len(land), dtype=bool)
    if spread.heed_affinity:
        good &= chosen(land, shape.rules)
    if spread.heed_taints:
        good &= untainted(land, shape.rules.tolerations)
    return good


def _matching(land: NodeIndex, index: PodIndex, shape: PodSignature, spread: TopologySpread) -> Ints:
    """Pods of the same namespace that a constraint counts, per node. An empty selector counts none."""
    if not spread.selector.requirements:
        return np.zeros(len(land), dtype=np.int64)
    question = PodQuery(((frozenset((shape.namespace,)), spread.selector),), leaving=False)
    return index.count(question)[land.slots]
