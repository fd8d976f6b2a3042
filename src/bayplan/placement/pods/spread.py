"""Equal pods that choose their nodes one after the other: what nodes are worth to the next is foreseen."""

from __future__ import annotations

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.resource_fit import lacking
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.score import WEIGHTS, room_worth
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.score import zone_scores
from bayplan.placement.numa.snapshot import minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import is_plain
from bayplan.placement.pods.node_choice import UNFIT, NodeScores, by_name, part, scores_of

CASES_MAX = 4096  # nodes with so many pods more, each of them a case, that are worked out together


def best_rows(
    overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None, wanted: int
) -> Ints | None:
    """A row per pod, as far as they go: what `choose` says to one after the other. Nobody is seated yet.

    None if what a node is worth depends on more than how many of them it has.
    """
    company = shape.company is not None and bool(shape.company.requirements)
    if not is_plain(shape) or company or next(overlay.scene.index.stances_towards(shape), None) is not None:
        return None
    known = scores_of(overlay, shape)
    if known.compares:
        return None
    return _ScoreLookahead(overlay, shape, known, allowed_nodes).best(wanted)


class _ScoreLookahead:
    """What each node is worth to the next pod, and to some of those after it."""

    def __init__(
        self, overlay: NodeOverlay, shape: PodSignature, known: NodeScores, allowed_nodes: Bools | None
    ) -> None:
        self.overlay, self.shape, self.known = overlay, shape, known
        order = by_name(overlay.scene.ground.land)
        self.order: Ints = np.arange(len(overlay)) if order is None else order
        worth = known.worth if allowed_nodes is None else np.where(allowed_nodes, known.worth, UNFIT)
        self.now: Ints = worth[self.order]  # to the next pod, in the order of names
        self.depth = np.zeros(len(overlay), dtype=np.int64)  # so many pods more were thought of
        self.full = np.zeros(len(overlay), dtype=bool)  # with as many as were thought of, there is no room
        self.ahead: dict[int, list[int]] = {}  # what it will be worth to those after the next, the last first

    def best(self, wanted: int) -> Ints:
        """The rows in the order in which they are chosen."""
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
        """Twice as far for this node, and for others that may be chosen and are no better known."""
        deeper = min(max(int(self.depth[at]), 1), left)
        size = max(min(left, CASES_MAX // deeper, len(self.now)), 1)
        best = np.argpartition(-self.now, size - 1)[:size]
        some = (self.now[best] != UNFIT) & ~self.full[best] & (self.depth[best] <= self.depth[at])
        nodes = np.union1d(best[some], [at])
        cases = np.repeat(nodes, deeper)
        counts = self.depth[cases] + np.tile(np.arange(1, deeper + 1), len(nodes))
        worth = self._worth(self.order[cases], counts).reshape(len(nodes), deeper)
        self.depth[nodes] += deeper
        self.full[nodes] = worth[:, -1] == UNFIT
        for node, values in zip(nodes.tolist(), worth[:, ::-1].tolist(), strict=True):
            self.ahead[node] = values + self.ahead.get(node, [])

    def _worth(self, rows: Ints, counts: Ints) -> Ints:
        """What rows are worth once so many such pods came to each."""
        overlay, shape, known = self.overlay, self.shape, self.known
        node_snapshot, weighs = overlay.scene.ground, np.array(shape.weighs, dtype=np.int64)[:, None]
        some = part(node_snapshot, rows)
        for resource, amount in shape.amounts:
            if resource in node_snapshot.resources:
                some.free[node_snapshot.resources[resource]] -= amount * counts
        fits = known.may_fit[rows]
        for short in lacking(some, shape).values():
            fits &= ~short
        weight = overlay.scene.index.weight_of(some.land.slots) + weighs * counts
        worth = known.settled[rows] + room_worth(some, weight, shape)
        zones, wants = overlay.zones, shape.zones
        if zones is not None and wants is not None:
            cares = minds(zones.ground, shape) is not None
            columns = zones.found_after(wants, rows, counts if cares else counts * 0)
            worth += WEIGHTS["zones"] * zone_scores(columns, wants, zones.ground.rules)
            if cares:
                fits &= aligned(columns, wants, zones.ground.rules).good
        return np.where(fits, worth, UNFIT)
