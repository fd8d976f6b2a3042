"""Inter-pod affinity and anti-affinity: the nodes that satisfy required terms, and preferred weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayplan.model.pod_spec import PodAffinityTerm, PodSignature
from bayplan.placement.cluster.node_index import NodeIndex, domains, sum_by_domain
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodIndex, PodQuery
from bayplan.placement.cluster.topology_tree import Bools, Ints


class PodAffinityFit(NamedTuple):
    """Nodes that satisfy the pod's affinity, its anti-affinity, and the anti-affinity of running pods."""

    affinity: Bools
    anti_affinity: Bools
    existing_anti_affinity: Bools


def pod_affinity_fit(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> PodAffinityFit:
    """The nodes that satisfy the required terms of the pod and of running pods."""
    return PodAffinityFit(
        _affinity(node_index, index, shape),
        _anti_affinity(node_index, index, shape),
        _running_anti_affinity(node_index, index, shape),
    )


def _affinity(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    """Nodes that satisfy the pod's required affinity terms.

    Only pods that match all terms count. If none does and the pod matches itself, any labelled node fits.
    """
    terms = shape.affinity.required
    good = np.ones(len(node_index), dtype=bool)
    if not terms:
        return good
    query = PodQuery(tuple((index.namespaces_of(term), term.selector) for term in terms))
    for counts in index.counts(query):
        good &= _affinity_to(node_index, shape, query, counts[node_index.slots])
    return good


def _affinity_to(node_index: NodeIndex, shape: PodSignature, query: PodQuery, pods: Ints) -> Bools:
    """Nodes that satisfy the required affinity terms, if so many pods on each node match all of them."""
    labelled, good = np.ones(len(node_index), dtype=bool), np.ones(len(node_index), dtype=bool)
    any_match = False
    for term in shape.affinity.required:
        domain, size = domains(node_index, term.key)
        total = sum_by_domain(domain, size, pods)
        labelled &= domain != ABSENT
        good &= _expand(total, domain) > 0
        any_match |= bool(total.any())
    if not any_match and query.matches(shape.namespace, dict(shape.labels)):
        return labelled
    return labelled & good


def _anti_affinity(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    good = np.ones(len(node_index), dtype=bool)
    for term in shape.affinity.required_anti:
        good &= _totals(node_index, index, term) == 0
    return good


def _running_anti_affinity(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    good = np.ones(len(node_index), dtype=bool)
    for term_entry, counter in index.matching_terms(shape):
        if term_entry.required and term_entry.weight < 0:
            good &= (
                _over_domains(
                    node_index, term_entry.term.key, counter.dense(len(index.slots))[node_index.slots]
                )
                == 0
            )
    return good


def preference_weights(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> Ints:
    """The summed weights of the preferred terms of the pod and of running pods, for each node.

    Required affinity terms of running pods that match the pod count with a weight of one.
    """
    total = np.zeros(len(node_index), dtype=np.int64)
    for weight, term in shape.affinity.preferred:
        total += weight * _totals(node_index, index, term)
    for weight, term in shape.affinity.preferred_anti:
        total -= weight * _totals(node_index, index, term)
    for term_entry, counter in index.matching_terms(shape):
        if term_entry.weight > 0 or not term_entry.required:
            pods = counter.dense(len(index.slots))[node_index.slots]
            total += term_entry.weight * _over_domains(node_index, term_entry.term.key, pods)
    return total


def _totals(node_index: NodeIndex, index: PodIndex, term: PodAffinityTerm) -> Ints:
    """How many pods that match a term run in each node's domain."""
    query = PodQuery(((index.namespaces_of(term), term.selector),))
    return _over_domains(node_index, term.key, index.count(query)[node_index.slots])


def _over_domains(node_index: NodeIndex, key: str, counts: Ints) -> Ints:
    domain, size = domains(node_index, key)
    return _expand(sum_by_domain(domain, size, counts), domain)


def _expand(total: Ints, domain: Ints) -> Ints:
    """A value per domain expanded to its nodes; zero where the label is missing."""
    return np.append(total, 0)[domain]
