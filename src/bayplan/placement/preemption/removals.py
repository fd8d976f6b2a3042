"""Candidate victims as arrays: free amounts of nodes after their removal, and which can be reprieved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import is_unconstrained

ALREADY_REMOVED = -1  # the unit of pods that are removed in any case


def only_resources_constrain(filter_input: FilterInput, shape: PodSignature) -> bool:
    """Whether only resources constrain such pods: no other pod affects where they may run."""
    if not is_unconstrained(shape) or numa_request_of(filter_input.zones, shape) is not None:
        return False
    if shape.devices is not None:
        return False
    return not any(
        term_entry.required and term_entry.weight < 0
        for term_entry, _ in filter_input.index.matching_terms(shape)
    )


class LeavingPods:
    """Terminating pods, and the amounts that they will free."""

    def __init__(
        self, overlay: NodeOverlay, keys: Iterable[PodKey] = (), departed: Iterable[PodKey] = ()
    ) -> None:
        """`departed` pods are gone but still hold devices."""
        self.overlay = overlay
        self.keys: set[PodKey] = set()
        self.gain: Ints = np.zeros_like(overlay.filter_input.node_snapshot.free)  # same axes
        self.add(keys)
        self.keys.update(departed)

    def add(self, keys: Iterable[PodKey]) -> None:
        """Add terminating pods. A pod that is already removed frees nothing."""
        node_snapshot, pods = self.overlay.filter_input.node_snapshot, self.overlay.filter_input.index.pods
        rows = node_snapshot.node_index.rows()
        for key in keys:
            running = pods.get(key)
            if running is None or key in self.keys:
                continue
            self.keys.add(key)
            row = int(rows[running.node]) if running.node < len(rows) else ABSENT
            for resource, amount in running.shape.amounts if row != ABSENT else ():
                resource_row = node_snapshot.resources.get(resource)
                if resource_row is not None:
                    self.gain[resource_row, row] += amount

    def total_free(self) -> dict[str, int]:
        """The total free amount of all nodes without them, by resource."""
        node_snapshot = self.overlay.filter_input.node_snapshot
        free = np.maximum(node_snapshot.free + self.gain, 0).sum(axis=1).tolist()
        return {resource: free[at] for resource, at in node_snapshot.resources.items()}

    def fitting_pods(self, shape: PodSignature, allowed_nodes: Bools | None) -> int:
        """How many pods of an unconstrained signature would fit then."""
        requested = requested_rows(self.overlay, shape)
        if not requested:
            return 0
        free = self.overlay.filter_input.node_snapshot.free + self.gain
        return int(counts(free, requested)[usable(self.overlay, shape, allowed_nodes)].sum())


class VictimMatrix:
    """Running pods in numbered units that are preempted together. At first all of them are removed."""

    def __init__(
        self, overlay: NodeOverlay, units: Sequence[Sequence[Pod]], terminating: LeavingPods
    ) -> None:
        self.overlay, self.terminating, self.size = overlay, terminating, len(units)
        node_index = overlay.filter_input.node_snapshot.node_index
        rows = node_index.remember(
            "row by name", lambda: {n.name: row for row, n in enumerate(node_index.table.nodes)}
        )
        # by identity: many pods share a signature, and comparing signatures is slow
        numbers: dict[int, int] = {}
        shapes: list[PodSignature] = []
        entries: list[tuple[int, int, int]] = []
        for unit, pods in enumerate(units):
            for pod in pods:
                shape = pod.spec.signature
                number = numbers.get(id(shape))
                if number is None:
                    number = numbers[id(shape)] = len(shapes)
                    shapes.append(shape)
                entries.append((unit, rows.get(pod.node, ABSENT), number))
        table = np.array(entries, dtype=np.int64).reshape(-1, 3)
        table = table[table[:, 1] != ABSENT]
        self.unit: Ints = table[:, 0]  # of each pod, ascending
        self.row: Ints = table[:, 1]
        self.shape: Ints = table[:, 2]
        self.amounts = _amounts(overlay, shapes)  # by resource and shape
        self._remove_all()

    def _remove_all(self) -> None:
        self.reprieved = np.zeros(self.size, dtype=bool)
        self.free: Ints = (
            self.overlay.filter_input.node_snapshot.free + self.terminating.gain + self._usage(slice(None))
        )

    def part(self, units: Sequence[int]) -> VictimMatrix:
        """A matrix of some units only, in this order, all removed; the others stay on their nodes."""
        part = copy(self)
        positions, part.unit = pods_of_units(self.unit, units, self.size)
        part.row, part.shape, part.size = self.row[positions], self.shape[positions], len(units)
        part._remove_all()
        return part

    def free_if(self, start: int, stop: int, rows: Ints | None = None) -> Ints:
        """The free amounts, optionally of some rows only, if these units stay, too."""
        if rows is None:
            return self.free - self._usage(self.between(start, stop)) if stop > start else self.free
        free: Ints = self.free[:, rows]
        if stop > start:
            pods = self.between(start, stop)
            place = np.full(self.free.shape[1], len(rows), dtype=np.int64)
            place[rows] = np.arange(len(rows))
            at, shape = place[self.row[pods]], self.shape[pods]
            for column, amounts in zip(free, self.amounts, strict=True):
                if amounts.any():
                    taken = np.zeros(len(rows) + 1, dtype=np.int64)
                    np.add.at(taken, at, amounts[shape])
                    column -= taken[:-1]
        return free

    def _usage(self, pods: Bools | slice) -> Ints:
        """The usage of these pods; same axes as the free amounts."""
        total = np.zeros_like(self.overlay.filter_input.node_snapshot.free)
        row, shape = self.row[pods], self.shape[pods]
        for at, amounts in enumerate(self.amounts):
            if amounts.any():
                np.add.at(total[at], row, amounts[shape])
        return total

    def between(self, start: int, stop: int) -> slice:
        """The pods of these units."""
        first, last = np.searchsorted(self.unit, (start, stop))
        return slice(int(first), int(last))

    def reprieve(self, start: int, stop: int) -> None:
        """Reprieve the units of these numbers."""
        self.free = self.free - self._usage(self.between(start, stop))
        self.reprieved[start:stop] = True

    def remove_units(self, units: Iterable[int]) -> None:
        """Remove these units again, which were reprieved."""
        removed = np.zeros_like(self.reprieved)
        removed[list(units)] = True
        self.free = self.free + self._usage(removed[self.unit])
        self.reprieved &= ~removed

    def reprieve_beside(self, overlay: NodeOverlay, start: int, rows: Iterable[int]) -> None:
        """Reprieve, one by one from unit `start` on, the units that still fit beside the gang on an overlay.

        Only rows of the gang are checked: on other nodes a unit is not in the way, even if they are overused.
        """
        gang_rows = frozenset(rows)
        free = [column.tolist() for column in overlay.filter_input.node_snapshot.free]
        amounts = self.amounts.T.tolist()
        pods_from_start = self.between(start, self.size)
        pods_by_unit: dict[int, list[tuple[int, int]]] = {}
        for unit, row, number in zip(
            *(column[pods_from_start].tolist() for column in (self.unit, self.row, self.shape)), strict=True
        ):
            pods_by_unit.setdefault(unit, []).append((row, number))
        for unit in range(start, self.size):
            pods = pods_by_unit.get(unit, ())
            for row, number in pods:
                for column, amount in zip(free, amounts[number], strict=True):
                    column[row] -= amount
            if all(column[row] >= 0 for row, _ in pods if row in gang_rows for column in free):
                self.reprieve(unit, unit + 1)
                continue
            for row, number in pods:
                for column, amount in zip(free, amounts[number], strict=True):
                    column[row] += amount

    def overlay_if(self, start: int = 0, stop: int = 0) -> NodeOverlay:
        """An overlay in which these units stay, too, for unconstrained pods. The caller closes it."""
        filter_input = self.overlay.filter_input
        free = self.free_if(start, stop)
        overlay = NodeOverlay(
            replace(filter_input, node_snapshot=replace(filter_input.node_snapshot, free=free, memory={}))
        )
        overlay.before = self.overlay.before
        return overlay

    def removed_units(self) -> list[int]:
        """The units that are removed."""
        return np.flatnonzero(~self.reprieved).tolist()

    def on(self, nodes: Bools) -> list[int]:
        """The units that have pods on these nodes, in order."""
        units: list[int] = np.unique(self.unit[nodes[self.row]]).tolist()
        return units

    def on_rows(self, rows: Iterable[int]) -> list[int]:
        """The units that have pods on the nodes of these rows, in order."""
        nodes = np.zeros(len(self.overlay), dtype=bool)
        nodes[list(rows)] = True
        return self.on(nodes)


def pods_of_units(unit: Ints, units: Sequence[int], size: int) -> tuple[Ints, Ints]:
    """The pods of some units in the order of these, by position, and the new numbers of their units.

    Pods that are removed in any case are always included.
    """
    number = np.full(size + 1, ALREADY_REMOVED - 1, dtype=np.int64)
    number[list(units)] = np.arange(len(units))
    number[ALREADY_REMOVED] = ALREADY_REMOVED
    new = number[unit]
    at = np.flatnonzero(new >= ALREADY_REMOVED)
    at = at[np.argsort(new[at], kind="stable")]
    return at, new[at]


def _amounts(overlay: NodeOverlay, shapes: Sequence[PodSignature]) -> Ints:
    resources = overlay.filter_input.node_snapshot.resources
    amounts = np.zeros((len(resources), len(shapes)), np.int64)
    for number, shape in enumerate(shapes):
        for resource, amount in shape.amounts:
            row = resources.get(resource)
            if row is not None:
                amounts[row, number] = amount
    return amounts


def usable(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None = None) -> Bools:
    """The nodes that reject such a pod for nothing but resources."""
    result = overlay.run_filters(shape)
    good = result.fits.copy()
    for (reason, _), nodes in result.rejections.items():
        if reason is FilterReason.INSUFFICIENT:
            good |= nodes
    return good if allowed_nodes is None else good & allowed_nodes


def requested_rows(overlay: NodeOverlay, shape: PodSignature) -> list[tuple[int, int]] | None:
    """A pod's requests by row of the resource; None if no node has one of the resources."""
    resources = overlay.filter_input.node_snapshot.resources
    wanted = [(name, amount) for name, amount in shape.amounts if amount > 0]
    if any(name not in resources for name, _ in wanted):
        return None
    return [(resources[name], amount) for name, amount in wanted]


def counts(free: Ints, requested: Sequence[tuple[int, int]]) -> Ints:
    """How many equal pods fit on each node."""
    fitting = np.full(free.shape[1], 2**31 - 1, dtype=np.int64)
    for at, amount in requested:
        np.minimum(fitting, free[at] // amount, out=fitting)
    return np.maximum(fitting, 0)


def reprieve_units(
    victims: VictimMatrix, shape: PodSignature, wanted: int, allowed_nodes: Bools | None
) -> int:
    """How many of `wanted` equal unconstrained pods fit; units that need not be preempted are reprieved.

    Units are reprieved in their order: the first units are the last to be preempted.
    """
    overlay = victims.overlay
    requested = requested_rows(overlay, shape)
    if not requested:
        return 0
    good = usable(overlay, shape, allowed_nodes)
    places = min(wanted, int(counts(victims.free, requested)[good].sum()))
    first = _first_not_reprieved(victims, requested, good, places)
    victims.reprieve(0, first)
    fitting = np.where(good, counts(victims.free, requested), 0)
    later_pods = victims.between(first, victims.size)
    inside = good[victims.row[later_pods]]
    columns = (column[later_pods][inside].tolist() for column in (victims.unit, victims.row, victims.shape))
    pods_by_unit: dict[int, list[tuple[int, int]]] = {}
    for unit, row, number in zip(*columns, strict=True):
        pods_by_unit.setdefault(unit, []).append((row, number))
    preempted = _units_to_preempt(
        [victims.free[at].tolist() for at, _ in requested],
        [amount for _, amount in requested],
        list(zip(*(victims.amounts[at].tolist() for at, _ in requested), strict=True)),
        fitting.tolist(),
        pods_by_unit,
        int(fitting.sum()) - places,
    )
    victims.reprieve(first, victims.size)
    victims.remove_units(preempted)
    return places


def _first_not_reprieved(
    victims: VictimMatrix, requested: Sequence[tuple[int, int]], good: Bools, places: int
) -> int:
    """The first unit that cannot be reprieved if all before it are."""
    low, high = 0, victims.size + 1  # all before low can stay, not all before high
    while high - low > 1:
        middle = (low + high) // 2
        free = victims.free - victims._usage(victims.between(0, middle))
        if int(counts(free, requested)[good].sum()) >= places:
            low = middle
        else:
            high = middle
    return low


def _units_to_preempt(
    free: list[list[int]], pod_amounts: list[int], amounts: list[tuple[int, ...]], fitting: list[int],
    pods_by_unit: dict[int, list[tuple[int, int]]], slack: int,
) -> list[int]:  # fmt: skip
    """The units to preempt, on plain numbers: `slack` is how many free places reprieved units may take."""
    resources = range(len(pod_amounts))
    preempted: list[int] = []
    for unit, pods in pods_by_unit.items():
        lost = 0
        before = []
        for row, number in pods:
            used = amounts[number]
            for at in resources:
                free[at][row] -= used[at]
            fit = max(0, min([free[at][row] // pod_amounts[at] for at in resources]))
            before.append((row, fitting[row]))
            lost += fitting[row] - fit
            fitting[row] = fit
        if lost <= slack:
            slack -= lost
            continue
        preempted.append(unit)
        for row, fit in reversed(before):
            fitting[row] = fit
        for row, number in pods:
            for at in resources:
                free[at][row] += amounts[number][at]
    return preempted


def fewest_victims_first(free: Ints, emptied: NodeOverlay, shapes: Sequence[PodSignature]) -> list[Bools]:
    """Masks of 1, 2, 4, … nodes, beginning with the nodes where the fewest pods have to be preempted.

    `free` is the amount that is free now.
    """
    nodes = len(emptied)
    capacity = np.zeros(nodes, dtype=np.int64)
    current = np.zeros(nodes, dtype=np.int64)
    for shape in dict.fromkeys(shapes):
        requested = requested_rows(emptied, shape)
        if requested:
            capacity += counts(emptied.filter_input.node_snapshot.free, requested)
            current += counts(free, requested)
    order = np.lexsort((np.arange(nodes), -capacity, capacity - current, capacity == 0))
    masks = []
    size = 1
    while True:
        mask = np.zeros(len(order), dtype=bool)
        mask[order[: min(size, len(order))]] = True
        masks.append(mask)
        if size >= len(order):
            return masks
        size *= 2
