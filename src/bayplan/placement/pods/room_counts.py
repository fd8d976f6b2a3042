"""How many pods of a gang fit in each domain of a level, by counts: a bound that is cheap to renew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bayplan.model.node import ROOM_MAX
from bayplan.model.pod import Pod
from bayplan.placement.cluster.node_index import NodeIndex, domains
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.bind_check import without_amounts


def domain_of_rows(node_index: NodeIndex, levels: Sequence[str]) -> Ints:
    """The number of each row's domain at the last level; ABSENT where a label is missing."""
    if not levels:
        return np.zeros(len(node_index), dtype=np.int64)
    columns = np.stack([domains(node_index, level)[0] for level in levels])
    found = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.where((columns == ABSENT).any(axis=0), ABSENT, found)


def usable_rows(overlay: NodeOverlay, pods: Sequence[Pod]) -> Bools:
    """The rows that any of the pods may use, whatever is free there."""
    usable = np.zeros(len(overlay), dtype=bool)
    for shape in dict.fromkeys(pod.spec.signature for pod in pods):
        usable |= overlay.run_filters(without_amounts(shape)).fits
    return usable


class RoomCounts:
    """How many pods of a request fit in each row and domain now.

    Pods of different requests count with the smallest amount of each resource that any of them asks for: a
    domain that is rejected so has no room for them; one that is not may still have none.
    """

    def __init__(self, overlay: NodeOverlay, pods: Sequence[Pod], levels: Sequence[str]) -> None:
        node_snapshot = overlay.filter_input.node_snapshot
        self.need = len(pods)
        shapes = {tuple(sorted(pod.amounts.items())): dict(pod.amounts) for pod in pods}.values()
        common = {name for name in next(iter(shapes)) if all(one.get(name) for one in shapes)}
        self.each = {name: min(one[name] for one in shapes) for name in sorted(common)}
        self.known = all(name in node_snapshot.resources for name in self.each)
        self.rows = usable_rows(overlay, pods)
        self.domain = domain_of_rows(node_snapshot.node_index, levels)
        self.free = {
            name: node_snapshot.free[node_snapshot.resources[name]].copy() for name in self.each if self.known
        }
        counts = np.full(len(overlay), ROOM_MAX if self.known else 0, dtype=np.int64)
        for name, amount in self.each.items():
            if self.known:
                counts = np.minimum(counts, self.free[name] // amount)
        self.counts: Ints = np.where(self.rows & (self.domain != ABSENT), np.maximum(counts, 0), 0)
        self.size = int(self.domain.max(initial=ABSENT)) + 1
        inside = self.domain != ABSENT
        self.totals = np.bincount(
            self.domain[inside], weights=self.counts[inside], minlength=self.size
        ).astype(np.int64)

    def mask(self, number: int) -> Bools:
        """The usable rows of a domain."""
        mask: Bools = self.rows & (self.domain == number)
        return mask

    def free_in(self, number: int, resource: str) -> int:
        """What is free of a resource in a domain."""
        return int(np.maximum(self.free[resource][self.mask(number)], 0).sum())

    def row_in(self, number: int) -> int:
        """The first row of a domain."""
        return int(np.flatnonzero(self.domain == number)[0])

    def fullest_first(self) -> list[int]:
        """Domains where all pods fit by counts, those with the least to spare first."""
        enough = np.flatnonzero(self.totals >= self.need)
        order = np.argsort(self.totals[enough], kind="stable")
        numbers: list[int] = enough[order].tolist()
        return numbers

    def slots(self) -> int:
        """How many gangs like the request fit now, each in one domain."""
        return int((self.totals // self.need).sum())

    def gain(self, row: int, freed: Mapping[str, int]) -> int:
        """How many more pods fit in a row if these amounts become free there."""
        if not self.rows[row] or not self.known:
            return 0
        fit = min(
            (
                (int(self.free[name][row]) + freed.get(name, 0)) // amount
                for name, amount in self.each.items()
            ),
            default=self.need,
        )
        return max(fit, 0) - int(self.counts[row])
