"""How many more gangs of a size would fit: within racks, and anywhere in the cluster.

A gang of 64 GPUs is counted as the simulation splits it: equal pods, as large as a host can hold. GPUs on
hosts that have no room for such a pod are in no slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bayplan.model.node import Node
from bayplan.simulation.traces.cluster_shapes import RACK
from bayplan.simulation.traces.workload import GPU, WHOLE_GPU

SLOT_SIZES = (32, 64, 128, 256)
"""GPUs of the gangs that are counted."""


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Slots by the sizes of SLOT_SIZES; in a cluster without GPUs there are none."""

    in_racks: tuple[int, ...] = ()  # each within one rack
    anywhere: tuple[int, ...] = ()  # across racks, where that is needed


NO_SLOTS = SlotCounts()


class FreeSlots:
    """The slots of a cluster; every change of a node updates the sums of its rack only."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        amounts = {name: node.allocatable.get(GPU, 0) for name, node in nodes.items()}
        largest = min(max(amounts.values(), default=0) // WHOLE_GPU, SLOT_SIZES[0])
        self.each = WHOLE_GPU << (largest.bit_length() - 1) if largest else 0  # parts of a GPU in one pod
        self.sizes: Sequence[int] = (
            [size * WHOLE_GPU // self.each for size in SLOT_SIZES] if self.each else ()
        )
        self.free, self.away = amounts, set[str]()
        self.racks = {name: node.labels.get(RACK, name) for name, node in nodes.items()}
        self.pods = dict.fromkeys(self.racks.values(), 0)  # that fit each rack
        self.total = 0
        self.in_racks = [0] * len(self.sizes)
        self.counts = NO_SLOTS
        self.changed = bool(self.each)
        if self.each:
            for name, amount in amounts.items():
                self._add(name, amount // self.each)

    def use(self, node: str, amount: int) -> None:
        """Pods use so much more of the GPUs of a node, or less."""
        if self.each and amount:
            before = self.free[node] // self.each
            self.free[node] -= amount
            if node not in self.away:
                self._add(node, self.free[node] // self.each - before)

    def set_available(self, node: str, available: bool) -> None:
        """A node that failed is in no slot."""
        if not self.each or available == (node not in self.away):
            return
        pods = self.free[node] // self.each
        self._add(node, pods if available else -pods)
        (self.away.discard if available else self.away.add)(node)

    def now(self) -> SlotCounts:
        """The slots at this moment; the same object until they change."""
        if self.changed:
            self.changed = False
            anywhere = tuple(self.total // size for size in self.sizes)
            found = SlotCounts(tuple(self.in_racks), anywhere)
            self.counts = self.counts if found == self.counts else found
        return self.counts

    def _add(self, node: str, pods: int) -> None:
        if not pods:
            return
        rack = self.racks[node]
        before = self.pods[rack]
        self.pods[rack] = after = before + pods
        self.total += pods
        for at, size in enumerate(self.sizes):
            self.in_racks[at] += after // size - before // size
        self.changed = True
