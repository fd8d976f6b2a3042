"""Pods that must or would rather be near or apart: which nodes that leaves, and how much each is liked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayplan.model.pod_spec import PodAffinityTerm, PodSignature
from bayplan.placement.cluster.node_index import NodeIndex, by_domain, domains
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodIndex, PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints


class PodAffinityFit(NamedTuple):
    """Nodes near those it must be near, apart from those it must be apart from, and where nobody minds it."""

    near: Bools
    apart: Bools
    welcome: Bools


def neighbour_fit(land: NodeIndex, index: PodIndex, shape: PodSignature) -> PodAffinityFit:
    """What required terms, its own and those of running pods, leave of the nodes."""
    return PodAffinityFit(_near(land, index, shape), _apart(land, index, shape), _welcome(land, index, shape))


def _near(land: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    """One pod must match all terms at once to count for any. The first of its kind may go anywhere."""
    terms = shape.neighbours.near
    labelled = np.ones(len(land), dtype=bool)
    good = np.ones(len(land), dtype=bool)
    if not terms:
        return good
    question = PodQuery(tuple((index.spaces(term), term.selector) for term in terms))
    there = index.count(question)[land.slots]
    anybody = False
    for term in terms:
        domain, size = domains(land, term.key)
        total = by_domain(domain, size, there)
        labelled &= domain != ABSENT
        good &= _spread_out(total, domain) > 0
        anybody |= bool(total.any())
    if not anybody and question.means(shape.namespace, dict(shape.labels)):
        return labelled
    return labelled & good


def _apart(land: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    good = np.ones(len(land), dtype=bool)
    for term in shape.neighbours.apart:
        good &= _totals(land, index, term) == 0
    return good


def _welcome(land: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    good = np.ones(len(land), dtype=bool)
    for stance, tally in index.stances_towards(shape):
        if stance.must and stance.weight < 0:
            good &= _over_domains(land, stance.term.key, tally.dense(len(index.slots))[land.slots]) == 0
    return good


def liking(land: NodeIndex, index: PodIndex, shape: PodSignature) -> Ints:
    """The weights of preferred terms, its own and those of running pods, summed for each node.

    Whoever must be near such a pod is glad of it, too: by a weight of one.
    """
    total = np.zeros(len(land), dtype=np.int64)
    for weight, term in shape.neighbours.rather_near:
        total += weight * _totals(land, index, term)
    for weight, term in shape.neighbours.rather_apart:
        total -= weight * _totals(land, index, term)
    for stance, tally in index.stances_towards(shape):
        if stance.weight > 0 or not stance.must:
            there = tally.dense(len(index.slots))[land.slots]
            total += stance.weight * _over_domains(land, stance.term.key, there)
    return total


def _totals(land: NodeIndex, index: PodIndex, term: PodAffinityTerm) -> Ints:
    """How many pods that a term means run in each node's domain."""
    question = PodQuery(((index.spaces(term), term.selector),))
    return _over_domains(land, term.key, index.count(question)[land.slots])


def _over_domains(land: NodeIndex, key: str, counts: Ints) -> Ints:
    domain, size = domains(land, key)
    return _spread_out(by_domain(domain, size, counts), domain)


def _spread_out(total: Ints, domain: Ints) -> Ints:
    """A figure per domain, given to each of its nodes; nought where the label is missing."""
    return np.append(total, 0)[domain]
