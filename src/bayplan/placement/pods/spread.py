"""Assigns many identical pods one by one at low cost, by computing node scores several pods ahead."""

from __future__ import annotations

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.resource_fit import lacking
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.score import WEIGHTS, resource_score
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.score import zone_scores
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import needs_only_resources
from bayplan.placement.pods.node_choice import UNFIT, NodeScores, by_name, part, scores_of

CASES_MAX = 4096  # (node, number of pods added) pairs that are scored in one call


def best_rows(
    overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None, wanted: int
) -> Ints | None:
    """A row for each pod that fits, as `choose` would return pod by pod; the overlay is not changed.

    None if the score of a node depends on more than how many of these pods it has.
    """
    company = shape.default_spread is not None and bool(shape.default_spread.requirements)
    if (
        not needs_only_resources(shape)
        or company
        or next(overlay.filter_input.index.matching_terms(shape), None) is not None
    ):
        return None
    cached = scores_of(overlay, shape)
    if cached.compares:
        return None
    return _ScoreLookahead(overlay, shape, cached, allowed_nodes).best(wanted)


class _ScoreLookahead:
    """The score of each node for the next pod, and for some of the pods after it."""

    def __init__(
        self, overlay: NodeOverlay, shape: PodSignature, cached: NodeScores, allowed_nodes: Bools | None
    ) -> None:
        self.overlay, self.shape, self.known = overlay, shape, cached
        order = by_name(overlay.filter_input.node_snapshot.node_index)
        self.order: Ints = np.arange(len(overlay)) if order is None else order
        scores = cached.scores if allowed_nodes is None else np.where(allowed_nodes, cached.scores, UNFIT)
        self.now: Ints = scores[self.order]  # score for the next pod, in name order
        self.depth = np.zeros(len(overlay), dtype=np.int64)  # how many further pods were scored
        self.full = np.zeros(len(overlay), dtype=bool)  # no capacity beyond the pods scored so far
        self.ahead: dict[int, list[int]] = {}  # scores for the pods after the next, last first

    def best(self, wanted: int) -> Ints:
        """The chosen rows, in order."""
        found: list[int] = []
        while len(found) < wanted and len(self.now):
            at = int(self.now.argmax())
            if self.now[at] == UNFIT:
                break
            found.append(at)
            if not self.ahead.get(at) and len(found) < wanted:
                self._look_ahead(at, wanted - len(found))
            self.now[at] = self.ahead[at].pop() if self.ahead.get(at) else UNFIT
        return self.order[np.array(found, dtype=np.int64)]

    def _look_ahead(self, at: int, left: int) -> None:
        """Score twice as many further pods for this node, and for likely other nodes scored no further."""
        deeper = min(max(int(self.depth[at]), 1), left)
        size = max(min(left, CASES_MAX // deeper, len(self.now)), 1)
        best = np.argpartition(-self.now, size - 1)[:size]
        subset = (self.now[best] != UNFIT) & ~self.full[best] & (self.depth[best] <= self.depth[at])
        nodes = np.union1d(best[subset], [at])
        cases = np.repeat(nodes, deeper)
        counts = self.depth[cases] + np.tile(np.arange(1, deeper + 1), len(nodes))
        scores = self._scores(self.order[cases], counts).reshape(len(nodes), deeper)
        self.depth[nodes] += deeper
        self.full[nodes] = scores[:, -1] == UNFIT
        for node, values in zip(nodes.tolist(), scores[:, ::-1].tolist(), strict=True):
            self.ahead[node] = values + self.ahead.get(node, [])

    def _scores(self, rows: Ints, counts: Ints) -> Ints:
        """The scores of rows after so many such pods were added to each."""
        overlay, shape, cached = self.overlay, self.shape, self.known
        node_snapshot, weighs = (
            overlay.filter_input.node_snapshot,
            np.array(shape.score_requests, dtype=np.int64)[:, None],
        )
        subset = part(node_snapshot, rows)
        for resource, amount in shape.amounts:
            if resource in node_snapshot.resources:
                subset.free[node_snapshot.resources[resource]] -= amount * counts
        fits = cached.may_fit[rows]
        for short in lacking(subset, shape).values():
            fits &= ~short
        weight = overlay.filter_input.index.weight_of(subset.node_index.slots) + weighs * counts
        scores = cached.fixed[rows] + resource_score(subset, weight, shape)
        zones, numa_request = overlay.zones, shape.zones
        if zones is not None and numa_request is not None:
            needs_alignment = numa_request_of(zones.snapshot, shape) is not None
            columns = zones.columns_after(numa_request, rows, counts if needs_alignment else counts * 0)
            scores += WEIGHTS["zones"] * zone_scores(columns, numa_request, zones.snapshot.rules)
            if needs_alignment:
                fits &= aligned(columns, numa_request, zones.snapshot.rules).good
        if shape.devices is not None and overlay.devices is not None:
            most = int(counts.max(initial=0)) + 1
            fits &= overlay.devices.counts(node_snapshot.node_index, shape.devices, most)[rows] > counts
        return np.where(fits, scores, UNFIT)
