"""Scores of the nodes that fit a pod: nine scores from 0 to 100, weighted and summed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.images import image_locality
from bayplan.placement.cluster.node_index import NodeSnapshot, preference, soft_taint_counts
from bayplan.placement.cluster.resource_fit import balanced, emptiest
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.filters.pod_affinity import preference_weights
from bayplan.placement.filters.topology_spread import spread_score
from bayplan.placement.numa.snapshot import numa_scores

BEST = 100
WEIGHTS = {
    "taints": 3,
    "affinity": 2,
    "emptiest": 1,
    "spread": 2,
    "neighbours": 2,
    "balanced": 1,
    "images": 1,
    "zones": 1,
    "devices": 2,
}


def score_nodes(filter_input: FilterInput, shape: PodSignature, fitting: Bools) -> Ints:
    """The total score of each fitting node. Some scores are normalised over all fitting nodes."""
    weight = filter_input.index.weight_of(filter_input.node_snapshot.node_index.slots)
    total = resource_score(filter_input.node_snapshot, weight, shape) + remaining_score(
        filter_input, shape, fitting
    )
    return np.where(fitting, total, -1)


def resource_score(node_snapshot: NodeSnapshot, weight: Ints, shape: PodSignature) -> Ints:
    """The part of the score that depends only on the free amounts and the pods of each node by itself."""
    return weighted_sum(resource_scores(node_snapshot, weight, shape), len(node_snapshot.node_index))


def remaining_score(filter_input: FilterInput, shape: PodSignature, fitting: Bools) -> Ints:
    """The part of the score that is not in `resource_score`."""
    return weighted_sum(remaining_scores(filter_input, shape, fitting), len(fitting))


def weighted_sum(scores: Mapping[str, Ints], size: int) -> Ints:
    """The weighted sum of scores."""
    total = np.zeros(size, dtype=np.int64)
    for name, score in scores.items():
        total += WEIGHTS[name] * score
    return total


def all_scores(filter_input: FilterInput, shape: PodSignature, fitting: Bools) -> dict[str, Ints]:
    """Each score by name, normalised over the fitting nodes."""
    weight = filter_input.index.weight_of(filter_input.node_snapshot.node_index.slots)
    return resource_scores(filter_input.node_snapshot, weight, shape) | remaining_scores(
        filter_input, shape, fitting
    )


def resource_scores(node_snapshot: NodeSnapshot, weight: Ints, shape: PodSignature) -> dict[str, Ints]:
    """The scores that depend only on each node's own amounts."""
    return {"emptiest": emptiest(node_snapshot, weight, shape), "balanced": balanced(node_snapshot, shape)}


def remaining_scores(filter_input: FilterInput, shape: PodSignature, fitting: Bools) -> dict[str, Ints]:
    """The scores that are not in `resource_scores`."""
    index, node_index = filter_input.index, filter_input.node_snapshot.node_index
    scores = {
        "taints": _reversed(
            _share_of_highest(soft_taint_counts(node_index, shape.rules.tolerations), fitting)
        )
    }
    if shape.rules.preferred:
        scores["affinity"] = _share_of_highest(preference(node_index, shape.rules), fitting)
    even = spread_score(node_index, index, shape, fitting)
    if even is not None:
        scores["spread"] = even
    if shape.affinity or next(index.matching_terms(shape), None) is not None:
        scores["neighbours"] = _min_max_normalised(preference_weights(node_index, index, shape), fitting)
    if filter_input.images is not None:
        scores["images"] = image_locality(node_index, filter_input.images, shape)
    if filter_input.zones is not None and shape.zones is not None:
        scores["zones"] = numa_scores(filter_input.zones, shape.zones)
    if shape.devices is not None and shape.devices.has_alternatives and filter_input.devices is not None:
        preferred = filter_input.devices.preferences(node_index, shape.devices, fitting)
        scores["devices"] = _share_of_highest(preferred, fitting)
    return scores


def best(score: Ints, fitting: Bools) -> Bools:
    """The fitting nodes with the highest score."""
    if not fitting.any():
        return fitting
    return fitting & np.equal(score, int(score[fitting].max()))


def _share_of_highest(values: Ints, fitting: Bools) -> Ints:
    highest = int(values[fitting].max()) if fitting.any() else 0
    return BEST * values // highest if highest else np.zeros(len(values), dtype=np.int64)


def _reversed(shares: Ints) -> Ints:
    return BEST - shares


def _min_max_normalised(values: Ints, fitting: Bools) -> Ints:
    """Normalise to 0 for the lowest and 100 for the highest."""
    if not fitting.any():
        return np.zeros(len(values), dtype=np.int64)
    lowest, highest = int(values[fitting].min()), int(values[fitting].max())
    if highest == lowest:
        return np.zeros(len(values), dtype=np.int64)
    return (BEST * ((values - lowest) / (highest - lowest))).astype(np.int64)
