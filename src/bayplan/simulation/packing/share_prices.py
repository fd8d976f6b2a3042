"""What a share of a GPU is worth: prices from the cutting-stock problem of the mix.

How should shares be combined on devices, so that as few devices as possible are used? The dual of the linear
program gives each size a price, such that no combination that fits one device is worth more than the device.
A size that nothing useful can be combined with costs a whole device; one that fits into leftovers is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bayplan.simulation.packing.device_board import Floats
from bayplan.simulation.traces.workload import WHOLE_GPU

GRIDS = (10, 25, 50, 100)
"""Sizes are rounded up to a multiple of the first of these with which there are few enough combinations."""

COMBINATIONS_MAX = 20_000
PIVOTS_MAX = 10_000
_TOLERANCE = 1e-9


def values_of_parts(counts: Mapping[int, int]) -> Floats:
    """The worth of 0, 1, … 1,000 free parts of a device, given how often shares of each size arrive."""
    prices = share_prices(counts)
    values = np.zeros(WHOLE_GPU + 1)
    for size, price in sorted(prices.items()):
        for free in range(size, WHOLE_GPU + 1):  # ascending: a size may be used several times
            values[free] = max(values[free], values[free - size] + price)
    values = np.maximum.accumulate(values)
    values[WHOLE_GPU] = 1.0
    return values


def share_prices(counts: Mapping[int, int]) -> dict[int, float]:
    """The price of each size, as a part of a device."""
    if not counts:
        return {}
    for grid in GRIDS:
        rounded: dict[int, int] = {}
        for size, count in counts.items():
            key = min(-(-size // grid) * grid, WHOLE_GPU)
            rounded[key] = rounded.get(key, 0) + count
        sizes = sorted(rounded, reverse=True)
        combinations = _combinations(sizes)
        if combinations is not None:
            prices = _solve(np.array(combinations, float), np.array([rounded[size] for size in sizes], float))
            by_size = dict(zip(sizes, prices.tolist(), strict=True))
            return {size: by_size[min(-(-size // grid) * grid, WHOLE_GPU)] for size in counts}
    raise AssertionError("ten sizes of a tenth each have fewer combinations than the bound")


def _combinations(sizes: Sequence[int]) -> list[list[int]] | None:
    """The number of each size in every combination that is full; None if there are too many."""
    found: list[list[int]] = []
    ahead: list[tuple[list[int], int]] = [([], WHOLE_GPU)]
    while ahead:
        counts, left = ahead.pop()
        if len(counts) == len(sizes):
            if left < sizes[-1]:
                found.append(counts)
        else:
            size = sizes[len(counts)]
            ahead += [([*counts, count], left - count * size) for count in range(left // size + 1)]
        if len(found) > COMBINATIONS_MAX or len(ahead) > COMBINATIONS_MAX:
            return None
    return found


def _solve(rows: Floats, gains: Floats) -> Floats:
    """Maximise gains · x with rows · x ≤ 1 and x ≥ 0: the simplex method, which may start at x = 0.

    The tableau keeps one column for each variable that is zero, and Bland's rule keeps it from circling.
    """
    count, width = rows.shape
    table = np.vstack([np.hstack([rows, np.ones((count, 1))]), np.append(gains, 0.0)])
    basic = list(range(width, width + count))
    zero = list(range(width))
    for _ in range(PIVOTS_MAX):
        rising = [at for at in range(width) if table[-1, at] > _TOLERANCE]
        if not rising:
            break
        column = min(rising, key=lambda at: zero[at])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(table[:-1, column] > _TOLERANCE, table[:-1, -1] / table[:-1, column], np.inf)
        least = ratios.min()
        row = min(np.flatnonzero(ratios <= least + _TOLERANCE).tolist(), key=lambda at: basic[at])
        _pivot(table, row, column)
        basic[row], zero[column] = zero[column], basic[row]
    solution = np.zeros(width)
    for row, variable in enumerate(basic):
        if variable < width:
            solution[variable] = table[row, -1]
    return np.maximum(solution, 0.0)


def _pivot(table: Floats, row: int, column: int) -> None:
    """Exchange the basic variable of the row with the variable of the column."""
    pivot = table[row, column]
    rest = table[:, column].copy()
    table[row] /= pivot
    rest[row] = 0.0
    table -= np.outer(rest, table[row])
    table[:, column] = -rest / pivot
    table[row, column] = 1.0 / pivot
