"""Reads Gavel traces: a job type, a number of steps and a number of workers of one GPU each.

A trace states steps, not seconds. The run time comes from a table of measured steps per second.
"""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.simulation.traces.trace_file import Row, TraceError, lines, table
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob, equal_pods

COLUMNS = ("job_type", "command", "steps_argument", "needs_data", "total_steps", "arrival", "workers")
RATE_COLUMNS = ("gpu", "job_type", "workers", "steps_per_s_consolidated")

Rates = Mapping[tuple[str, int], float]
"""Steps per second by job type and number of workers, all on one host."""


def read_rates(path: str, gpu: str = "v100") -> Rates:
    """The measured rates on one GPU model."""
    rates = {}
    for row in table(path, RATE_COLUMNS):
        if row.text("gpu") == gpu and (rate := row.number("steps_per_s_consolidated")) > 0:
            rates[row.text("job_type"), row.whole("workers", 1)] = rate
    if not rates:
        raise TraceError(path, None, f"there are no rates for the GPU {gpu}")
    return rates


def read_gavel(path: str, gpus_per_pod: int, rates: Rates | None = None) -> Trace:
    """The jobs. Without rates no run time is known."""
    jobs, scaled = [], 0
    for number, line in lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) < len(COLUMNS):
            raise TraceError(path, number, f"{len(cells)} cells, tab-separated; {len(COLUMNS)} were expected")
        row = Row(path, number, dict(zip(COLUMNS, cells, strict=False)))
        duration, known = _duration(row, rates)
        scaled += not known
        pods, each = equal_pods(row.whole("workers", 1), gpus_per_pod)
        jobs.append(
            TraceJob(
                name=f"job-{number:06d}",
                arrival=row.number("arrival"),
                duration=duration,
                requests={GPU: each},
                pods=pods,
                owner=row.text("job_type"),
            )
        )
    if not jobs:
        raise TraceError(path, None, "there are no jobs in the file")
    notes = (f"{scaled} jobs run at the rate of the most workers measured for their type",) if scaled else ()
    return Trace(path, tuple(sorted(jobs, key=lambda one: (one.arrival, one.name))), notes=notes)


def _duration(row: Row, rates: Rates | None) -> tuple[float | None, bool]:
    """The run time, and whether the rate was measured with this number of workers."""
    steps, workers, kind = row.number("total_steps"), row.whole("workers", 1), row.text("job_type")
    if rates is None:
        return None, True
    measured = [count for (name, count) in rates if name == kind and count <= workers]
    if not measured:
        raise row.error(f"no rate is known for {kind[:60]!r}; add the job type to the table of rates")
    return steps / rates[kind, max(measured)], max(measured) == workers
