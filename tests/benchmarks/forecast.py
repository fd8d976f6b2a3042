"""`python -m tests.benchmarks.forecast`: how well expected starts hold, on logs of HPC sites and on Philly.

SWF logs are run with EASY backfill, Philly with first fit and backfill on hosts of 8 GPUs. When a job arrives
that does not start at once, its start is forecast from what was known then: the queue is run forward without
new arrivals, with run times drawn from the past of its owners, and corrected by errors of earlier forecasts.
`limits` is the same with all jobs running as long as their owners allowed, the method of `squeue --start`.

The last row is the time of one forecast in a large cluster (`--log large`).

Traces are looked for in `../shared/traces`, or where BAYPLAN_TRACES says; without them nothing is measured.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayplan.simulation.forecast.calibration import ERRORS_NEEDED, CalibratedWait, Calibration, WaitMarks
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory
from bayplan.simulation.traces.readers import read_trace
from bayplan.simulation.traces.swf import CORE
from bayplan.simulation.traces.workload import CPU, Trace, TraceJob
from tests.benchmarks.easy_pool import PoolJob, PoolMoment, starts_of, wait_of
from tests.benchmarks.forecast_large import large_forecast
from tests.benchmarks.forecast_philly import philly_forecasts

DRAWS = 24
WARM_UP = 200  # jobs from the beginning of a log that are not forecast
SHORTEST_LIMIT = 60.0
UNLIMITED = 3600.0
LARGE = "large"


@dataclass(frozen=True, slots=True)
class MadeForecast:
    """One forecast at the arrival of a job, and how long the job waited."""

    at: float
    marks: WaitMarks
    wait: float


@dataclass(frozen=True, slots=True)
class LogTarget:
    """A log: every how many jobs one is forecast, and the published error of limits in minutes."""

    file: str
    every: int
    published: float | None = None
    jobs: int | None = None  # only so many from the beginning
    judged: bool = True


LOGS = {
    "KTH-SP2": LogTarget("swf_KTH-SP2.swf.xz", 12, 73.0),
    "CEA-Curie": LogTarget("swf_CEA-Curie_sample.swf.xz", 15, 110.0),
    "LLNL-Atlas": LogTarget("swf_LLNL-Atlas.swf.xz", 5, judged=False),
    "Philly": LogTarget("philly_pollux.csv.xz", 40, jobs=30_000),
}


def swf_forecasts(trace: Trace, every: int) -> Iterator[MadeForecast]:
    """Forecasts for some jobs of an SWF log, in order of arrival."""
    processors = sum(node.allocatable[CPU] for node in trace.nodes) // CORE
    jobs = [job for job in map(_pool_job, trace.jobs) if job.processors <= processors]
    starts = starts_of(jobs, processors)
    ends = [start + job.run for start, job in zip(starts, jobs, strict=True)]
    by_end, learnt = sorted(range(len(jobs)), key=ends.__getitem__), 0
    history, random = RunTimeHistory(), np.random.default_rng(42)
    present: list[int] = []
    for number, job in enumerate(jobs):
        now = job.arrival
        while learnt < len(jobs) and ends[by_end[learnt]] <= now:
            history.learn(_request(jobs[by_end[learnt]]), jobs[by_end[learnt]].run)
            learnt += 1
        present = [one for one in present if ends[one] > now]
        present.append(number)
        if number % every or number < WARM_UP or starts[number] <= now:
            continue
        running = {one: starts[one] for one in present if starts[one] < now}
        waiting = [one for one in present if starts[one] >= now]
        free = processors - sum(jobs[one].processors for one in running)
        moment = PoolMoment(now, free, running, waiting, number)
        yield MadeForecast(now, _marks(jobs, moment, history, random), starts[number] - now)


def _pool_job(job: TraceJob) -> PoolJob:
    assert job.duration is not None, job
    limit = max(job.limit or max(job.duration, UNLIMITED), SHORTEST_LIMIT)
    processors = job.pods * job.requests[CPU] // CORE
    return PoolJob(job.arrival, processors, min(job.duration, limit), limit, job.owner)


def _request(job: PoolJob) -> RunRequest:
    return RunRequest(job.owner, shape=str(job.processors), limit=job.limit)


def _marks(
    jobs: Sequence[PoolJob], moment: PoolMoment, history: RunTimeHistory, random: np.random.Generator
) -> WaitMarks:
    present = [*moment.running, *moment.waiting]
    drawn = {}
    for one in present:
        elapsed = moment.now - moment.running[one] if one in moment.running else 0.0
        samples = history.samples(_request(jobs[one]), elapsed)
        assert samples is not None, "every job of these logs has a limit"
        drawn[one] = random.choice(samples, DRAWS)
    waits = [wait_of(jobs, moment, {one: float(drawn[one][at]) for one in present}) for at in range(DRAWS)]
    low, middle, high = np.quantile(waits, (0.1, 0.5, 0.9)).tolist()
    return WaitMarks(low, middle, high, wait_of(jobs, moment, {one: jobs[one].limit for one in present}))


@dataclass(slots=True)
class ForecastScore:
    """What became of the forecasts that could be corrected."""

    held: list[bool]
    drawn_held: list[bool]  # before the correction
    later: list[bool]  # than the latest time
    errors: list[float]
    limit_errors: list[float]
    widths: list[float]


def scored(forecasts: Sequence[MadeForecast]) -> ForecastScore:
    """Correct each forecast by those whose jobs had started before, and compare it with what happened."""
    score, calibration = ForecastScore([], [], [], [], [], []), Calibration()
    pending = sorted(forecasts, key=lambda one: one.at + one.wait)
    known = 0
    for made in forecasts:
        while pending[known].at + pending[known].wait <= made.at:
            calibration.learn(pending[known].marks, pending[known].wait)
            known += 1
        if calibration.errors < ERRORS_NEEDED or not math.isfinite(made.marks.high):
            continue
        shown: CalibratedWait = calibration.apply(made.marks)
        score.held.append(shown.low <= made.wait <= shown.high)
        score.drawn_held.append(made.marks.low <= made.wait <= made.marks.high)
        score.later.append(made.wait > shown.latest)
        score.errors.append(abs(shown.middle - made.wait))
        score.widths.append(shown.high - shown.low)
        if math.isfinite(made.marks.by_limits):
            score.limit_errors.append(abs(made.marks.by_limits - made.wait))
    return score


HEADS = ("log", "waited", "draws", "80 % held", "later", "error", "of limits", "published", "width", "s", "")
KEY = (
    "\nheld: between the two times shown; later: than the latest time; error: median, of the middle;\n"
    "targets: 75-85 % held, at most 6 % later, error at most half of that of limits"
)
ROW = "{:<11} {:>7} {:>7} {:>10} {:>7} {:>8} {:>10} {:>10} {:>8} {:>6}  {}"


def line(name: str, target: LogTarget, score: ForecastScore, seconds: float) -> tuple[str, bool]:
    """One row of the table, and whether the targets are met."""
    if len(score.held) < ERRORS_NEEDED:
        few = f"too few jobs waited: {len(score.held)} forecasts beyond the first {ERRORS_NEEDED}"
        return ROW.format(name, len(score.held), *[""] * 7, f"{seconds:.0f}", few), not target.judged
    held, later = statistics.mean(score.held), statistics.mean(score.later)
    error = statistics.median(score.errors) / 60
    limits = statistics.median(score.limit_errors) / 60 if score.limit_errors else None
    missed = []
    if not 0.75 <= held <= 0.85:
        missed.append("interval")
    if later > 0.06:
        missed.append("latest time")
    bounds = [bound for bound in (limits, target.published) if bound is not None]
    if bounds and error > min(bounds) / 2:
        missed.append("error")
    verdict = "met" if not missed else f"MISSED: {', '.join(missed)}"
    text = ROW.format(
        name,
        len(score.held),
        f"{statistics.mean(score.drawn_held):.0%}",
        f"{held:.1%}",
        f"{later:.1%}",
        f"{error:.0f} min",
        "-" if limits is None else f"{limits:.0f} min",
        "-" if target.published is None else f"{target.published:.0f} min",
        f"{statistics.median(score.widths) / 60:.0f} min",
        f"{seconds:.0f}",
        verdict,
    )
    return text, not missed or not target.judged


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", action="append", choices=[*LOGS, LARGE], help="all by default")
    parser.add_argument("--jobs", type=int, help="only so many jobs from the beginning of each log")
    asked = parser.parse_args()
    beside = Path(__file__).parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("BAYPLAN_TRACES") or beside)
    good, names = True, [name for name in asked.log or LOGS if name != LARGE]
    missing = [LOGS[name].file for name in names if not (folder / LOGS[name].file).is_file()]
    if missing:
        print(f"{folder} has no {missing[0]}; set BAYPLAN_TRACES to the folder", file=sys.stderr)
        sys.exit(2)
    if names:
        print(ROW.format(*HEADS))
    for name in names:
        target, begun = LOGS[name], time.monotonic()
        trace = read_trace(str(folder / target.file))
        trace = Trace(trace.source, trace.jobs[: asked.jobs or target.jobs], trace.nodes)
        make: Callable[[Trace, int], Iterator[MadeForecast]]
        make = swf_forecasts if trace.nodes else _philly
        text, met = line(name, target, scored(list(make(trace, target.every))), time.monotonic() - begun)
        print(text, flush=True)
        good &= met
    if names:
        print(KEY)
    if not asked.log or LARGE in asked.log:
        text, met = large_forecast()
        print(text)
        good &= met
    sys.exit(0 if good else 1)


def _philly(trace: Trace, every: int) -> Iterator[MadeForecast]:
    return (MadeForecast(*one) for one in philly_forecasts(trace, every))


if __name__ == "__main__":
    main()
