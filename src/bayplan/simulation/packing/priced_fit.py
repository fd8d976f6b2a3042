"""Priced fit: a pod goes where it costs the least of what the expected pods could still use.

The cost of a node is the sum of five prices, each in GPUs:

- what the parts of a device lose in worth (share_prices.py), so that shares are combined without leftovers;
- GPUs that are stranded because CPU runs out before them;
- a little for CPU that is left beyond the need of the GPUs: pods that need much CPU find such nodes later;
- breaking an unused node, as dear as pods that need most of such a node are frequent;
- GPUs of a model that pods constrained to it will ask for.

No price depends on the name of a node; equal costs go to the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bayplan.simulation.packing.baselines import FirstFit
from bayplan.simulation.packing.device_board import DeviceBoard, Floats, Ints, PodShape
from bayplan.simulation.packing.share_prices import values_of_parts
from bayplan.simulation.traces.workload import WHOLE_GPU

SURPLUS = 0.003
"""The price of CPU that one GPU would need, left beyond the need."""

SURPLUS_MAX = 100.0
FULLNESS = 0.001  # the price of a free GPU beside the pod: fuller nodes come first
UNBROKEN = 2.0
NEED = 5 / 6
"""The CPU that the expected pods need for a GPU, relative to what half of the GPUs have beside them."""

TIGHTNESS = 0.001  # the price of a device's leftover: of equal devices the tightest is taken
DIGITS = 6  # costs are compared to this many decimal places: sums in another order give the same choice


class PricedFit(FirstFit):
    """The node with the lowest cost, at prices from the mix of pods and the cluster."""

    def start(self, board: DeviceBoard, mix: Sequence[PodShape], seed: int) -> None:
        """Set the prices."""
        self.values = values_of_parts(Counter(shape.parts for shape in mix if shape.is_share))
        per_gpu = (board.cpu / np.maximum(board.devices, 1)).repeat(board.devices)
        self.cpu_per_gpu = max(float(np.median(per_gpu)) * NEED, 1.0)
        self.unbroken = _demand_for_whole_nodes(mix, board.parts.shape[1])
        self.model_prices = _model_prices(board, mix)

    def scores(self, board: DeviceBoard, shape: PodShape, rows: Ints) -> Floats:
        """The cost, negated."""
        parts, cpu, devices = board.parts[rows], board.cpu[rows], board.devices[rows]
        worth = self.values[parts].sum(1)
        if shape.is_share:
            taken = self._losses(parts, shape.parts).min(1)
        else:
            taken = np.full(len(rows), float(shape.devices))
        left, cpu_left = worth - taken, cpu - shape.cpu
        stranded = np.maximum(left * self.cpu_per_gpu - cpu_left, 0) - np.maximum(
            worth * self.cpu_per_gpu - cpu, 0
        )
        surplus = np.clip((cpu_left - left * self.cpu_per_gpu) / self.cpu_per_gpu, 0, SURPLUS_MAX)
        unused = ((parts == WHOLE_GPU).sum(1) == devices) & (2 * shape.devices <= devices)
        cost = (
            taken
            + stranded / self.cpu_per_gpu
            + SURPLUS * surplus
            + FULLNESS * left
            + UNBROKEN * np.where(unused, self.unbroken[devices], 0)
            + self.model_prices[board.model[rows]] * shape.total / WHOLE_GPU
        )
        rounded: Floats = np.round(cost, DIGITS)
        return -rounded

    def device(self, board: DeviceBoard, shape: PodShape, row: int) -> int:
        """The device that loses the least worth beyond the share itself."""
        return int(self._losses(board.parts[[row]], shape.parts)[0].argmin())

    def _losses(self, parts: Ints, share: int) -> Floats:
        """What each device loses in worth by a share, and a little for what remains of it."""
        left = np.maximum(parts - share, 0)
        loss = self.values[parts] - self.values[left] + TIGHTNESS * left / WHOLE_GPU
        return np.where(parts >= share, loss, np.inf)


def _demand_for_whole_nodes(mix: Sequence[PodShape], most: int) -> Floats:
    """For nodes of 0, 1, … devices: the share of GPU demand that needs more than half of such a node."""
    demand = np.zeros(most + 1)
    for shape in mix:
        if shape.devices > 1 and shape.devices <= most:
            demand[shape.devices] += shape.total
    total = sum(shape.total for shape in mix)
    return np.array([demand[size // 2 + 1 : size + 1].sum() / total for size in range(most + 1)])


def _model_prices(board: DeviceBoard, mix: Sequence[PodShape]) -> Floats:
    """For each GPU model, the demand that is constrained to it relative to its capacity, at most 1."""
    capacity = np.array(
        [board.devices[board.model == number].sum() * WHOLE_GPU for number in range(len(board.model_names))],
        float,
    )
    demand = np.zeros(len(capacity))
    for shape, count in Counter(shape for shape in mix if shape.models and shape.devices).items():
        allowed = board.models_of(shape.models)
        if allowed and capacity[allowed].sum():
            demand[allowed] += count * shape.total * capacity[allowed] / capacity[allowed].sum()
    prices: Floats = np.minimum(demand / np.maximum(capacity, 1), 1.0)
    return prices
