"""Packing by arrival only: pods arrive in a random order and stay; a pod that does not fit is dropped.

The conditions are those of the published comparison of fragmentation policies on the openb trace: pods in the
order of their names are shuffled by the seed, then pods drawn at random follow until more than all GPUs are
requested. The figure is the share of GPU capacity allocated, averaged over the arrivals at which the requests
so far round to 100 % of the capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bayplan.model.node import Node
from bayplan.simulation.packing.device_board import Bools, DeviceBoard, Floats, Ints, PodShape, shape_of
from bayplan.simulation.traces.workload import TraceJob

DRAWN_AT_ONCE = 1000
MEASURED = 100
"""Per cent of the capacity requested at which the allocation is measured."""


class PackingStrategy(Protocol):
    """Chooses a node and, for a share of a GPU, the device."""

    def start(self, board: DeviceBoard, mix: Sequence[PodShape], seed: int) -> None:
        """Begin with an empty cluster. `mix` has the shape of every pod of the trace."""
        ...

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """How good these nodes are for a pod that fits all of them; it depends on each node alone."""
        ...

    def choose(self, scores: Floats, fits: Bools) -> int:
        """The row to use; at least one fits."""
        ...

    def device(self, board: DeviceBoard, shape: PodShape, row: int) -> int:
        """The device for a share."""
        ...


@dataclass(frozen=True, slots=True)
class PackingResult:
    """How much was allocated."""

    allocated: float  # per cent of GPU capacity when 100 % were requested
    bound: int
    dropped: int


def arrivals(shapes: Sequence[int], parts: Ints, capacity: int, seed: int) -> Ints:
    """The number of the shape of each arriving pod, until a little more than the capacity is requested."""
    random = np.random.default_rng(seed)
    numbers = np.array(shapes, np.int64)
    order = [numbers[random.permutation(len(numbers))]]
    total = int(parts[order[0]].sum())
    while total <= capacity * (MEASURED + 1) / 100:
        order.append(numbers[random.integers(0, len(numbers), DRAWN_AT_ONCE)])
        total += int(parts[order[-1]].sum())
    return np.concatenate(order)


def pack(
    nodes: Sequence[Node], jobs: Sequence[TraceJob], strategy: PackingStrategy, seed: int
) -> PackingResult:
    """Pack the pods of a trace onto the nodes. Equal scores go to the node that comes first."""
    mix = [shape_of(job) for job in sorted(jobs, key=lambda one: one.name)]
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(mix))}
    shapes = list(numbers)
    parts = np.array([shape.total for shape in shapes], np.int64)
    board = DeviceBoard(nodes)
    assert board.capacity and parts.sum(), "a cluster and pods with GPUs"
    strategy.start(board, mix, seed)
    scored = _Scored(board, strategy, shapes)
    requested = allocated = bound = dropped = 0
    measured: list[int] = []
    for number in arrivals([numbers[shape] for shape in mix], parts, board.capacity, seed).tolist():
        shape = shapes[number]
        requested += shape.total
        row = scored.best(number)
        if row is None:
            dropped += 1
        else:
            share = [strategy.device(board, shape, row)] if shape.is_share else None
            board.bind(shape, row, share or board.whole_devices(row, shape.devices))
            scored.changed(row)
            allocated += shape.total
            bound += 1
        percent = round(100 * requested / board.capacity)
        if percent == MEASURED or (percent > MEASURED and not measured):  # few pods may jump over it
            measured.append(allocated)
        if percent > MEASURED:
            break
    return PackingResult(100 * float(np.mean(measured)) / board.capacity, bound, dropped)


class _Scored:
    """The scores of all nodes for each shape. After a bind only the node that changed is scored again."""

    def __init__(self, board: DeviceBoard, strategy: PackingStrategy, shapes: Sequence[PodShape]) -> None:
        self.board, self.strategy, self.shapes = board, strategy, shapes
        self.scores = np.full((len(shapes), len(board.names)), -np.inf)
        self.fits = np.zeros((len(shapes), len(board.names)), np.bool_)
        self.seen = [-1] * len(shapes)  # how many changes each shape has been scored after
        self.log: list[int] = []

    def changed(self, row: int) -> None:
        """A pod was bound to this node."""
        self.log.append(row)

    def best(self, number: int) -> int | None:
        """The node for a pod of this shape."""
        seen, self.seen[number] = self.seen[number], len(self.log)
        recent = range(len(self.board.names)) if seen < 0 else sorted(set(self.log[seen:]))
        rows = np.fromiter(recent, np.int64)
        shape, scores, fits = self.shapes[number], self.scores[number], self.fits[number]
        if len(rows):
            fits[rows] = self.board.fits(shape, rows)
            scores[rows] = -np.inf
            fitting = rows[fits[rows]]
            if len(fitting):
                scores[fitting] = self.strategy.scores(self.board, shape, fitting)
        return self.strategy.choose(scores, fits) if fits.any() else None
