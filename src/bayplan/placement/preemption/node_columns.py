"""Free amounts of single nodes for one more pod if some of their running pods were removed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import LeavingPods, VictimMatrix, counts, requested_rows, usable


class Columns:
    """Free amounts beyond one pod's requests, node by node. For pods without inter-pod constraints."""

    def __init__(
        self, overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None, terminating: LeavingPods
    ) -> None:
        self.overlay, self.terminating = overlay, terminating
        self.requested = requested_rows(overlay, shape)
        self.names = [name for name, amount in shape.amounts if amount > 0]
        self.good = usable(overlay, shape, allowed_nodes)
        self.known: dict[int, tuple[PodSignature, list[int]]] = {}
        self.free: Ints = overlay.filter_input.node_snapshot.free

    def refresh(self) -> None:
        """Read the overlay again, as if terminating pods were removed."""
        self.free = self.overlay.filter_input.node_snapshot.free + self.terminating.gain

    def rows_without(self, pods: Iterable[Pod]) -> list[int]:
        """The nodes that would fit the pod without these pods, smallest shortage first."""
        if self.requested is None:
            return []
        free = VictimMatrix(self.overlay, [tuple(pods)], self.terminating).free
        rows = np.flatnonzero(self.good & (counts(free, self.requested) > 0))
        shortage = np.zeros(len(rows))
        for at, amount in self.requested:
            np.maximum(shortage, (amount - self.free[at][rows]) / amount, out=shortage)
        ordered: list[int] = rows[np.lexsort((rows, shortage))].tolist()
        return ordered

    def left_free(self, row: int) -> list[int]:
        """By resource: what the pod would leave free on a node, negative if it does not fit."""
        assert self.requested is not None
        return [int(self.free[at, row]) - amount for at, amount in self.requested]

    def usage_of(self, shapes: Iterable[PodSignature]) -> list[int]:
        """The total amounts of pods of these signatures, by requested resource."""
        amounts_by_shape = [self._one(shape) for shape in shapes]
        return (
            amounts_by_shape[0]
            if len(amounts_by_shape) == 1
            else [sum(amounts) for amounts in zip(*amounts_by_shape, strict=True)]
        )

    def _one(self, shape: PodSignature) -> list[int]:
        known = self.known.get(id(shape))
        if known is None:
            amounts = dict(shape.amounts)
            known = self.known[id(shape)] = shape, [amounts.get(name, 0) for name in self.names]
        return known[1]


def resolvable_rows(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None) -> list[int]:
    """The nodes that a pod may fit after preemption."""
    curable = overlay.run_filters(shape).resolvable
    rows: list[int] = np.flatnonzero(curable if allowed_nodes is None else curable & allowed_nodes).tolist()
    return rows
