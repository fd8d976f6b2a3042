"""`python -m tests.benchmarks.packing`: GPU capacity allocated on the openb trace, by ours and the baselines.

Pods arrive and stay; simulation/packing/arrival_only.py has the conditions. The published figures are means
of ten runs of each policy by the authors of FGD. The trace is looked for in `../shared/traces`, or where
BAYPLAN_TRACES says; without it nothing is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayplan.model.node import Node
from bayplan.simulation.packing.arrival_only import PackingStrategy, pack
from bayplan.simulation.packing.baselines import FGD, BestFit, FirstFit, RandomFit
from bayplan.simulation.packing.priced_fit import PricedFit
from bayplan.simulation.traces.openb import read_nodes, read_pods

OURS, PERMUTED = "ours", "ours, names permuted"
TOLERANCE = 0.3
"""How far a baseline may be from its published mean, in points."""


@dataclass(frozen=True, slots=True)
class PackingTarget:
    """What a workload must reach, and what was published for it."""

    ours: float
    published: dict[str, float]


WORKLOADS = {
    "default": PackingTarget(95.4, {"fgd": 95.23, "best_fit": 92.86, "random": 86.30}),
    "multigpu50": PackingTarget(97.1, {"fgd": 97.09, "best_fit": 95.62, "random": 81.28}),
    "gpuspec33": PackingTarget(87.8, {"fgd": 87.84, "best_fit": 80.40, "random": 83.87}),
}
STRATEGIES: dict[str, Callable[[], PackingStrategy]] = {
    OURS: PricedFit,
    PERMUTED: PricedFit,
    "fgd": FGD,
    "best_fit": BestFit,
    "first_fit": FirstFit,
    "random": RandomFit,
}


def measured(folder: Path, workloads: Sequence[str], strategies: Sequence[str], seeds: range) -> bool:
    """One line a workload; whether all targets were met."""
    archive, good = folder / "openb.tar.xz", True
    nodes = read_nodes(f"{archive}#openb_node_list_gpu_node.csv")
    for workload in workloads:
        target = WORKLOADS[workload]
        jobs = read_pods(f"{archive}#openb_pod_list_{workload}.csv").jobs
        texts = []
        for name in strategies:
            runs = [
                pack(
                    _order(nodes, seed if name == PERMUTED else None), jobs, STRATEGIES[name](), seed
                ).allocated
                for seed in seeds
            ]
            text, met = _told(name, runs, target)
            print(f"    {workload}, {name}: {', '.join(f'{run:.2f}' for run in runs)}", flush=True)
            texts.append(text)
            good &= met
        print(f"{workload}: {', '.join(texts)}", flush=True)
    return good


def _order(nodes: Sequence[Node], seed: int | None) -> list[Node]:
    """The nodes in the order that decides between equals: by name, or as if the names were permuted."""
    if seed is None:
        return list(nodes)
    return [nodes[at] for at in np.random.default_rng([seed, 2]).permutation(len(nodes)).tolist()]


def _told(name: str, runs: Sequence[float], target: PackingTarget) -> tuple[str, bool]:
    mean, spread = statistics.mean(runs), statistics.stdev(runs) if len(runs) > 1 else 0.0
    figure = f"{name} {mean:.2f} ± {spread:.2f}"
    if name in (OURS, PERMUTED):
        met = mean >= target.ours
        return f"{figure} (≥ {target.ours}, {'met' if met else 'MISSED'})", met
    if name not in target.published:
        return figure, True
    met = abs(mean - target.published[name]) <= TOLERANCE
    return f"{figure} (published {target.published[name]:.2f}{'' if met else ', NOT REPRODUCED'})", met


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="all by default")
    parser.add_argument("--strategy", action="append", choices=STRATEGIES, help="all by default")
    parser.add_argument("--seeds", type=int, default=10, help="how many, from 42 on")
    asked = parser.parse_args()
    beside = Path(__file__).parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("BAYPLAN_TRACES") or beside)
    if not (folder / "openb.tar.xz").is_file():
        print(
            f"{folder} has no openb.tar.xz; set BAYPLAN_TRACES to the folder with the trace", file=sys.stderr
        )
        sys.exit(2)
    seeds = range(42, 42 + asked.seeds)
    good = measured(folder, asked.workload or list(WORKLOADS), asked.strategy or list(STRATEGIES), seeds)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
