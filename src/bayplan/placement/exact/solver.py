"""Integer programs and their solver, an optional extra that is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayplan.placement.cluster.topology_tree import Ints

Floats = NDArray[np.float64]
Entries = Iterable[tuple[int, int]]
"""Columns, each with its coefficient."""

SECONDS_PER_COLUMN = 2e-5  # cost of building a program besides solving it; no clock is read here
GAP = 0.9  # objectives are integers, so a bound this close proves optimality


class SolverStatus(Enum):
    """The outcome of a solver run."""

    BEST = "best"
    FOUND = "found"  # feasible, perhaps not optimal
    NONE = "none"  # infeasible
    OPEN = "open"  # out of time without a solution


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A status, the solution if there is one, and the seconds it took."""

    status: SolverStatus
    solution: Ints | None
    seconds: float


@dataclass(slots=True)
class Program:
    """Integer columns from 0 to `most`, and sparse rows."""

    most: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    factors: list[int] = field(default_factory=list)
    least: list[float] = field(default_factory=list)  # by row
    limit: list[float] = field(default_factory=list)  # by row

    def column(self, most: int) -> int:
        """Add a column."""
        self.most.append(most)
        return len(self.most) - 1

    def equal(self, entries: Entries, amount: int) -> None:
        """Add a row whose sum is exactly this amount."""
        self._row(entries, amount, amount)

    def at_most(self, entries: Entries, amount: int, gate: int | None = None) -> None:
        """Add a row whose sum is at most this amount, and 0 while the gate column is 0."""
        if gate is None:
            self._row(entries, -np.inf, amount)
        else:
            self._row([*entries, (gate, -amount)], -np.inf, 0)

    def _row(self, entries: Entries, least: float, limit: float) -> None:
        for column, factor in entries:
            self.columns.append(column)
            self.factors.append(factor)
        self.starts.append(len(self.columns))
        self.least.append(least)
        self.limit.append(limit)


def solver() -> Any | None:
    """The solver's module, or None if the extra is not installed."""
    try:
        import highspy  # noqa: PLC0415
    except ImportError:
        return None
    return highspy


def solve(program: Program, cost: Floats, start: Ints | None, seconds: float) -> Solved:
    """Minimise the cost within a time limit, starting from a known solution if there is one."""
    module = solver()
    assert module is not None
    engine = module.Highs()
    options = {
        "output_flag": False, "threads": 1, "random_seed": 0, "time_limit": max(seconds, 0.0),
        "mip_rel_gap": 0.0, "mip_abs_gap": GAP,
    }  # fmt: skip
    for name, value in options.items():
        engine.setOptionValue(name, value)
    engine.passModel(_linear(module, program, cost))
    if start is not None:
        first = module.HighsSolution()
        first.col_value = start.astype(float).tolist()
        engine.setSolution(first)
    engine.run()
    spent = engine.getRunTime() + SECONDS_PER_COLUMN * len(program.most)
    status, known = engine.getModelStatus(), module.HighsModelStatus
    if status in (known.kInfeasible, known.kUnboundedOrInfeasible):
        return Solved(SolverStatus.NONE, None, spent)
    if engine.getInfo().primal_solution_status != module.SolutionStatus.kSolutionStatusFeasible:
        return Solved(SolverStatus.OPEN, None, spent)
    solution = np.rint(np.asarray(engine.getSolution().col_value)).astype(np.int64)
    return Solved(SolverStatus.BEST if status == known.kOptimal else SolverStatus.FOUND, solution, spent)


def _linear(module: Any, program: Program, cost: Floats) -> Any:
    linear = module.HighsLp()
    linear.num_col_, linear.num_row_ = len(program.most), len(program.limit)
    linear.col_cost_ = cost
    linear.col_lower_ = np.zeros(len(program.most))
    linear.col_upper_ = np.asarray(program.most, float)
    linear.row_lower_ = np.asarray(program.least, float)
    linear.row_upper_ = np.asarray(program.limit, float)
    linear.integrality_ = [module.HighsVarType.kInteger] * len(program.most)
    matrix = linear.a_matrix_
    matrix.format_ = module.MatrixFormat.kRowwise
    matrix.start_ = np.asarray(program.starts, np.int32)
    matrix.index_ = np.asarray(program.columns, np.int32)
    matrix.value_ = np.asarray(program.factors, float)
    return linear
