"""Run simulation seeds and report violations: `python -m bayplan.simulator --seeds 1000`."""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.simulator.core import reach
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.core.simulation import SimulationRun
from bayplan.simulator.jobs.run import JobsSimulation
from bayplan.simulator.plays.gangs import Simulation
from bayplan.simulator.pods.run import PodsSimulation
from bayplan.simulator.shared.run import SharedSimulation
from bayplan.simulator.subgroups.run import TreesSimulation

GANGS, JOBS, PODS, TREES, SHARED, SPLIT = "gangs", "jobs", "pods", "trees", "shared", "split"
CLAIMS = "claims"
RECORDED = ("commit", "play", "throw", "first", "last", "steps", "faults", "violations")
REACHED = ("commit", "play", "throw", "first", "last", "name", "times")
PLAYS: dict[str, Callable[[int], SimulationRun]] = {
    GANGS: Simulation,  # gangs of the scheduler and bare Workloads, as the seed says
    JOBS: JobsSimulation,  # jobs that name a queue, their pods, and nodes that fail
    PODS: PodsSimulation,  # gangs of the gang API, plain pods and jobs, with preemption and contention
    CLAIMS: partial(PodsSimulation, devices=True),  # the same with devices by claim, and their drivers
    TREES: TreesSimulation,  # groups with sub-groups that share nodes by queue, and jobs put into groups
    SHARED: SharedSimulation,  # queued jobs, groups, gangs and plain pods on the same nodes, under all roles
    SPLIT: partial(SharedSimulation, processes=2),  # the same with admission and binding in two processes
}


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; return 1 if any of them has a violation."""
    parser = argparse.ArgumentParser(prog="python -m bayplan.simulator", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=100, metavar="N", help="so many seeds (default %(default)s)"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="K", help="begin with this seed (default %(default)s)"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="append a line for each play to this CSV table"
    )
    parser.add_argument("--commit", default="", help="the commit that is written to the table")
    parser.add_argument(
        "--seed", type=int, metavar="K", help="run only this seed, and print the digest of its journal"
    )
    parser.add_argument(
        "--play", choices=list(PLAYS), help=f"run only this play (default: all; with --seed {GANGS})"
    )
    parser.add_argument(
        "--throw", action="store_true", help="also raise exceptions in the work on one gang of each seed"
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="also print which states and reasons each play reached, and fail if one of reached.toml is "
        "missing; with --record, add them to a table beside that one",
    )
    parser.add_argument(
        "--expect-reached", action="store_true", help="write to reached.toml what these seeds reached"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.play or GANGS, options.seed, throw=options.throw)
    plays = [options.play] if options.play else list(PLAYS)
    seeds = range(options.first, options.first + options.seeds)
    runs = [(play, seed, options.throw) for play in plays for seed in seeds]
    reports = []
    with multiprocessing.Pool(max(options.processes, 1), prepare_process) as pool:
        for report in pool.imap_unordered(_run, runs, chunksize=4):
            reports.append(report)
            if report.violations:
                print(f"{report.play} {report.seed}: {report.violations[0].splitlines()[-1]}", flush=True)
    reports.sort(key=lambda report: (plays.index(report.play), report.seed))
    failed = [_summary(play, [one for one in reports if one.play == play], options.throw) for play in plays]
    if options.record is not None:
        for play in plays:
            _record(options, play, seeds, [one for one in reports if one.play == play])
    if options.expect_reached:
        reach.write_expected(reports)
    lost = _coverage(options, plays, seeds, reports) if options.coverage else False
    print(
        f"{len(reports):,} runs, {sum(one.steps for one in reports):,} steps, "
        f"{sum(sum(one.faults.values()) for one in reports):,} faults injected, {sum(failed)} violations"
    )
    return 1 if any(failed) or lost else 0


def prepare_process() -> None:
    """Settings of a process that does nothing but run seeds."""
    collect_rarely()


def run_seed(
    seed: int, play: str = GANGS, *, throw: bool = False, contained: bool = True, digest: bool = False
) -> SeedReport:
    """Run one seed; an exception counts as a violation unless it was injected and contained."""
    try:
        simulation = PLAYS[play](seed)
        report = (simulation.throwing(contained=contained) if throw else simulation).run()
        report.digest = simulation.digest() if digest else ""
    except Exception:
        report = SeedReport(seed, violations=[traceback.format_exc()])
    report.play = play
    return report


def _run(seed_run: tuple[str, int, bool]) -> SeedReport:
    play, seed, throw = seed_run
    return run_seed(seed, play, throw=throw)


def _one(play: str, seed: int, *, throw: bool) -> int:
    report = run_seed(seed, play, throw=throw, digest=True)
    print("\n".join(report.violations))
    print(
        f"seed {seed}: {report.steps} steps, {report.finished} of {report.jobs} jobs finished, "
        f"{report.workloads} workloads, {report.admissions} admissions"
    )
    print(f"faults injected: {dict(sorted(report.faults.items()))}")
    print(f"journal: {report.digest}")
    return 1 if report.violations else 0


def _record(options: argparse.Namespace, play: str, seeds: range, reports: list[SeedReport]) -> None:
    """Append what was run, so that the seeds of many days add up."""
    is_new = not options.record.exists()
    with options.record.open("a", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        if is_new:
            table.writerow(RECORDED)
        table.writerow(
            (
                options.commit,
                play,
                "yes" if options.throw else "no",
                seeds.start,
                seeds.stop - 1,
                sum(report.steps for report in reports),
                sum(sum(report.faults.values()) for report in reports),
                sum(bool(report.violations) for report in reports),
            )
        )


def _coverage(options: argparse.Namespace, plays: list[str], seeds: range, reports: list[SeedReport]) -> bool:
    """Print what was reached, and record it; return whether a play no longer reaches what it has to."""
    print("\n".join(reach.table(plays, reports)))
    within, lost = reach.expected(), False
    for play in plays:
        missing = reach.not_reached(play, reports, within.get(play, {}))
        lost = lost or bool(missing)
        for name in missing:
            print(f"{play}: {name} was to be reached within {within[play][name]} seeds, and was not")
    if options.record is not None:
        _record_coverage(options, seeds, reports)
    return lost


def _record_coverage(options: argparse.Namespace, seeds: range, reports: list[SeedReport]) -> None:
    path = options.record.with_name(f"{options.record.stem}-coverage{options.record.suffix}")
    is_new, total = not path.exists(), Counter[tuple[str, str]]()
    for report in reports:
        total.update({(report.play, name): count for name, count in report.reached.items()})
    with path.open("a", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        if is_new:
            table.writerow(REACHED)
        throw = "yes" if options.throw else "no"
        for (play, name), count in sorted(total.items()):
            table.writerow((options.commit, play, throw, seeds.start, seeds.stop - 1, name, count))


def _summary(play: str, reports: list[SeedReport], throw: bool) -> int:
    """Print the results of the seeds of a play; return the number of seeds with a violation."""
    faults: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        if report.violations:
            print(f"{play} {report.seed}: {report.violations[0]}")
            repeat = f"--play {play} --seed {report.seed}{' --throw' if throw else ''}"
            print(f"  repeat: python -m bayplan.simulator {repeat}")
    failed = sum(bool(report.violations) for report in reports)
    admissions, workloads = sum(r.admissions for r in reports), sum(r.workloads for r in reports)
    finished, jobs = sum(r.finished for r in reports), sum(r.jobs for r in reports)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(faults.items())))
    print(
        f"{play}: {len(reports):,} seeds, {finished:,} of {jobs:,} jobs finished, "
        f"{admissions:,} admissions of {workloads:,} workloads, "
        f"{sum(r.steps for r in reports):,} steps, {sum(faults.values()):,} faults injected, "
        f"{failed} violations"
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
