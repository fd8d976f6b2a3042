"""Packing strategies to compare with: first fit by name, best fit, spread, random, and FGD.

FGD (fragmentation gradient descent) lowers the GPU capacity that a pod of the usual mix could not use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bayplan.simulation.packing.device_board import Bools, DeviceBoard, Floats, Ints, PodShape
from bayplan.simulation.traces.workload import WHOLE_GPU

CPU_SCALE, GPU_SCALE = 128_000, 8 * WHOLE_GPU
"""The largest node: leftovers of CPU and GPU are compared relative to it."""

COVERED = 0.95
"""The usual mix: the most frequent shapes that make up this share of all pods."""


class FirstFit:
    """The first node that fits; a share goes to the device with the least left."""

    def start(self, board: DeviceBoard, mix: Sequence[PodShape], seed: int) -> None:
        """Nothing to learn."""

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """All equal."""
        return np.zeros(len(rows))

    def choose(self, scores: Floats, fits: Bools) -> int:
        """The best, and of equals the first."""
        return int(scores.argmax())

    def device(self, board: DeviceBoard, shape: PodShape, row: int) -> int:
        """The tightest device."""
        parts = board.parts[row]
        return int(np.where(parts >= shape.parts, parts, WHOLE_GPU + 1).argmin())


class BestFit(FirstFit):
    """The node with the least CPU and GPU left, in whole per cent of the largest node."""

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """The less is left, the better."""
        cpu = (board.cpu[rows] - shape.cpu) / CPU_SCALE
        gpu = (board.parts[rows].sum(1) - shape.total) / GPU_SCALE
        left: Floats = np.floor(100 * (cpu + gpu) / 2)
        return -left


class Spread(BestFit):
    """The node with the most left."""

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """The more is left, the better."""
        return -super().scores(board, shape, rows)


class RandomFit(FirstFit):
    """Any node and any device that fit."""

    def start(self, board: DeviceBoard, mix: Sequence[PodShape], seed: int) -> None:
        """The draws depend on the seed alone."""
        self.random = np.random.default_rng([seed, 1])

    def choose(self, scores: Floats, fits: Bools) -> int:
        """One of those that fit."""
        return int(self.random.choice(np.flatnonzero(fits)))

    def device(self, board: DeviceBoard, shape: PodShape, row: int) -> int:
        """One of those with enough left."""
        return int(self.random.choice(np.flatnonzero(board.parts[row] >= shape.parts)))


class FGD(FirstFit):
    """The node and device where fragmentation falls most, in whole per cent of a sigmoid."""

    def start(self, board: DeviceBoard, mix: Sequence[PodShape], seed: int) -> None:
        """The usual mix, by how often each shape occurs. Memory is no part of a shape here."""
        counts = Counter((one.cpu, one.devices, one.parts, one.models) for one in mix)
        usual, covered = [], 0
        for shape, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
            if covered >= COVERED * len(mix):
                break
            usual.append((shape, count))
            covered += count
        gpu = [(shape, count / covered) for shape, count in usual if shape[1]]
        self.weights = np.array([weight for _, weight in gpu])
        self.cpu = np.array([shape[0] for shape, _ in gpu], np.int64)
        self.devices = np.array([shape[1] for shape, _ in gpu], np.int64)
        self.levels, self.level = np.unique([shape[2] for shape, _ in gpu], return_inverse=True)
        every = range(len(board.model_names))
        allowed = [board.models_of(shape[3]) if shape[3] else every for shape, _ in gpu]
        self.allowed = np.array([[number in one for one in allowed] for number in every])
        self.without_gpu = 1.0 - float(self.weights.sum())

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """The best device of each node."""
        at, devices = self._options(board, shape, rows)
        gains = self._gains(board, shape, rows, at, devices)
        best = np.full(len(rows), -np.inf)
        np.maximum.at(best, at, gains)
        return best

    def device(self, board: DeviceBoard, shape: PodShape, row: int) -> int:
        """The device with the best score, and of equals the first."""
        rows = np.array([row])
        at, devices = self._options(board, shape, rows)
        return int(devices[self._gains(board, shape, rows, at, devices).argmax()])

    def _options(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> tuple[Ints, Ints]:
        """Positions in `rows` with each device to try for a share; devices with equal parts count once."""
        if not shape.is_share:
            return np.arange(len(rows)), np.zeros(len(rows), np.int64)
        parts = board.parts[rows]
        earlier = np.tril(np.ones((parts.shape[1], parts.shape[1]), np.bool_), -1)
        repeated = ((parts[:, :, None] == parts[:, None, :]) & earlier).any(2)
        at, devices = np.nonzero((parts >= shape.parts) & ~repeated)
        return at, devices

    def _gains(self, board: DeviceBoard, shape: PodShape, rows: Ints, at: Ints, devices: Ints) -> Floats:
        before = self._fragment(board.cpu[rows], board.parts[rows], board.model[rows])
        left = board.parts[rows][at]
        if shape.is_share:
            left[np.arange(len(at)), devices] -= shape.parts
        elif shape.devices:
            unused = left >= WHOLE_GPU
            left[unused & (unused.cumsum(1) <= shape.devices)] = 0
        after = self._fragment(board.cpu[rows][at] - shape.cpu, left, board.model[rows][at])
        gains: Floats = np.floor(100 / (1 + np.exp((after - before[at]) / WHOLE_GPU)))
        return gains

    def _fragment(self, cpu: Ints, parts: Ints, model: Ints) -> Floats:
        """The parts of each node that a pod of the usual mix could not use, in expectation."""
        idle = parts.sum(1)
        enough = parts[:, :, None] >= self.levels
        count = enough.sum(1)[:, self.level]
        small = (parts[:, :, None] * ~enough).sum(1)[:, self.level]
        fits = (count >= self.devices) & (cpu[:, None] >= self.cpu) & self.allowed[model]
        lost: Floats = np.where(fits, small, idle[:, None]) @ self.weights
        total: Floats = lost + idle * self.without_gpu
        return total
