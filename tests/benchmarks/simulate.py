"""`python -m tests.benchmarks.simulate`: how long `bayplan simulate` takes on large clusters, and its memory.

Gangs are drawn from the sizes and run times of Acme's jobs (Seren). The rows run one after the other on one
core, each in its own process. The traces are looked for in `../shared/traces`, or where BAYPLAN_TRACES says;
without them nothing is measured.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from bayplan.model.profile import Profile
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.simulation.traces.cluster_shapes import RACK, parse_shape
from bayplan.simulation.virtual_time.outcome import JobState
from bayplan.simulation.virtual_time.policies import known_policies
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun
from tests.benchmarks.acme_load import drawn_gangs, lingjun_hosts, traces_folder

SEED = 42
LOAD = 0.9
"""Of what the cluster can run."""


@dataclass(frozen=True, slots=True)
class SimulateRow:
    """One cluster with one workload, and what is asked of it."""

    about: str
    shape: str  # empty: the hosts of the switch table
    jobs: int
    seconds_max: float  # of CPU: a run has one thread and waits for nothing
    megabytes_max: float


ROWS = {
    "lingjun": SimulateRow("847 hosts of Lingjun x 8 GPUs", "", 30_000, 300, 2048),
    "large": SimulateRow("10,000 hosts x 8 GPUs", "10x50x20 gpu=8", 100_000, 1800, 2048),
}


@dataclass(frozen=True, slots=True)
class SimulateResult:
    """What one row took and gave."""

    jobs: int
    done: int
    decisions: int
    seconds: float
    cpu_seconds: float
    megabytes: float
    waiting_max: int
    allocated: float  # the highest share of GPUs


def run_row(folder: Path, row: SimulateRow, jobs: int) -> SimulateResult:
    """One run to its end."""
    collect_rarely()
    nodes = parse_shape(row.shape) if row.shape else lingjun_hosts(folder)
    trace = drawn_gangs(folder, nodes, jobs, LOAD, SEED, "longest: 86400", f"preferred: {RACK}")
    began, cpu = time.monotonic(), time.process_time()
    scheduler = known_policies(Profile())["bayplan"].scheduler(nodes, SEED)
    outcome = VirtualRun("bayplan", nodes, trace, scheduler, RunSettings()).run(lambda arrived, total: None)
    return SimulateResult(
        jobs,
        sum(job.state is JobState.DONE for job in outcome.jobs),
        outcome.decisions,
        time.monotonic() - began,
        time.process_time() - cpu,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        max(sample.waiting for sample in outcome.samples),
        max(sample.allocated for sample in outcome.samples) / outcome.capacity,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), help="one row")
    parser.add_argument("--jobs", type=int, help="fewer gangs than the row has")
    arguments = parser.parse_args()
    folder = traces_folder()
    if folder is None:
        return 1
    good = True
    for name, row in ROWS.items():
        if arguments.only in (None, name):
            with get_context("spawn").Pool(1) as pool:
                found = pool.apply(run_row, (folder, row, arguments.jobs or row.jobs))
            met = found.cpu_seconds <= row.seconds_max and found.megabytes <= row.megabytes_max
            good &= met
            print(
                f"{row.about}, {found.jobs:,} gangs: {found.cpu_seconds:.0f} s CPU (at most"
                f" {row.seconds_max:.0f}; {found.seconds:.0f} s passed), {found.megabytes:.0f} MB (at most"
                f" {row.megabytes_max:.0f}), {found.decisions / found.cpu_seconds:,.0f} decisions/s,"
                f" {found.done:,} ran, at most {found.waiting_max:,} waited and"
                f" {found.allocated:.1%} of GPUs were allocated: {'ok' if met else 'MISSED'}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
