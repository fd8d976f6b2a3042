"""Runs many seeds and says what came of them: `python -m bayplan.simulator --seeds 1000`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import traceback
from collections import Counter

from bayplan.simulator.run import Report, Simulation


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if any of them shows a violation."""
    parser = argparse.ArgumentParser(prog="python -m bayplan.simulator", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=100, metavar="N", help="seeds 0 to N - 1 (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, metavar="K", help="only this one, with its journal's digest")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed)
    with multiprocessing.Pool(max(options.processes, 1)) as pool:
        reports = list(pool.imap_unordered(run_seed, range(options.seeds), chunksize=4))
    return _summary(sorted(reports, key=lambda report: report.seed))


def run_seed(seed: int) -> Report:
    """One seed; an exception is a violation like any other."""
    try:
        return Simulation(seed).run()
    except Exception:
        return Report(seed, violations=[traceback.format_exc()])


def _one(seed: int) -> int:
    report = run_seed(seed)
    print("\n".join(report.violations))
    print(
        f"seed {seed}: {report.steps} steps, {report.finished} of {report.jobs} jobs finished, "
        f"{report.workloads} workloads, {report.admissions} admissions"
    )
    print(f"faults injected: {dict(sorted(report.faults.items()))}")
    print(f"journal: {report.digest}")
    return 1 if report.violations else 0


def _summary(reports: list[Report]) -> int:
    faults: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        if report.violations:
            print(f"seed {report.seed}: {report.violations[0]}")
            print(f"  again: python -m bayplan.simulator --seed {report.seed}")
    failed = sum(bool(report.violations) for report in reports)
    admissions, workloads = sum(r.admissions for r in reports), sum(r.workloads for r in reports)
    finished, jobs = sum(r.finished for r in reports), sum(r.jobs for r in reports)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(faults.items())))
    print(
        f"{len(reports):,} seeds, {finished:,} of {jobs:,} jobs finished, "
        f"{admissions:,} admissions of {workloads:,} workloads, "
        f"{sum(r.steps for r in reports):,} steps, {sum(faults.values()):,} faults injected, "
        f"{failed} violations"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
