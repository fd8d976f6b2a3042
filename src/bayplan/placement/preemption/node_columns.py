"""What single nodes would have for one more pod without some of those that run there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import LeavingPods, VictimMatrix, asked_rows, counts, usable


class Columns:
    """What is free on nodes beyond what one pod asks for, node by node. For pods that mind nobody."""

    def __init__(
        self, floor: NodeOverlay, shape: PodSignature, within: Bools | None, gone: LeavingPods
    ) -> None:
        self.floor, self.gone = floor, gone
        self.asked = asked_rows(floor, shape)
        self.names = [name for name, amount in shape.amounts if amount > 0]
        self.good = usable(floor, shape, within)
        self.known: dict[int, tuple[PodSignature, list[int]]] = {}
        self.free: Ints = floor.scene.ground.free

    def refresh(self) -> None:
        """Read the floor again, as if those on the way out were gone."""
        self.free = self.floor.scene.ground.free + self.gone.gain

    def rows_without(self, pods: Iterable[Pod]) -> list[int]:
        """The nodes that would have room without these pods; those that lack least come first."""
        if self.asked is None:
            return []
        free = VictimMatrix(self.floor, [tuple(pods)], self.gone).free
        rows = np.flatnonzero(self.good & (counts(free, self.asked) > 0))
        lack = np.zeros(len(rows))
        for at, amount in self.asked:
            np.maximum(lack, (amount - self.free[at][rows]) / amount, out=lack)
        found: list[int] = rows[np.lexsort((rows, lack))].tolist()
        return found

    def room(self, row: int) -> list[int]:
        """By resource: what would be left on a node, below zero if it is too little."""
        assert self.asked is not None
        return [int(self.free[at, row]) - amount for at, amount in self.asked]

    def taken(self, shapes: Iterable[PodSignature]) -> list[int]:
        """What pods of these shapes take together, by the resources asked for."""
        found = [self._one(shape) for shape in shapes]
        return found[0] if len(found) == 1 else [sum(amounts) for amounts in zip(*found, strict=True)]

    def _one(self, shape: PodSignature) -> list[int]:
        known = self.known.get(id(shape))
        if known is None:
            amounts = dict(shape.amounts)
            known = self.known[id(shape)] = shape, [amounts.get(name, 0) for name in self.names]
        return known[1]


def curable_rows(floor: NodeOverlay, shape: PodSignature, within: Bools | None) -> list[int]:
    """The nodes that a pod might fit if others left."""
    curable = floor.judge(shape).curable
    found: list[int] = np.flatnonzero(curable if within is None else curable & within).tolist()
    return found
