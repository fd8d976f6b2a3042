"""Reads the two public forms of the Philly trace (Microsoft, 2017): jobs with GPUs and a run time."""

from __future__ import annotations

from datetime import UTC, datetime

from bayplan.simulation.traces.trace_file import Row, TraceError, table
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob, equal_pods

DATED_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
COUNTED_COLUMNS = ("job_id", "user", "num_gpu", "submit_time", "duration")


def read_dated(path: str, gpus_per_pod: int) -> Trace:
    """The form with dates and virtual clusters, in any order; times count from the earliest."""
    rows = [(_moment(row), row) for row in table(path, DATED_COLUMNS)]
    if not rows:
        raise TraceError(path, None, "there are no jobs below the header")
    first = min(moment for moment, _ in rows)
    jobs = [
        _job(
            row, f"job-{row.line - 1:06d}", moment - first, row.whole("num_gpus", 1), "cluster", gpus_per_pod
        )
        for moment, row in rows
    ]
    return Trace(path, tuple(sorted(jobs, key=lambda one: (one.arrival, one.name))))


def read_counted(path: str, gpus_per_pod: int) -> Trace:
    """The form with a user and a submission time in seconds for each job."""
    jobs, without = [], 0
    for row in table(path, COUNTED_COLUMNS):
        name, gpus = f"job-{row.whole('job_id'):06d}", row.whole("num_gpu")
        if gpus:
            jobs.append(_job(row, name, row.number("submit_time"), gpus, "user", gpus_per_pod))
        without += not gpus
    if not jobs:
        raise TraceError(path, None, "there are no jobs below the header")
    notes = (f"{without} jobs without GPUs are left out: their amounts are not stated",) if without else ()
    return Trace(path, tuple(sorted(jobs, key=lambda one: (one.arrival, one.name))), notes=notes)


def _job(row: Row, name: str, arrival: float, gpus: int, owner: str, gpus_per_pod: int) -> TraceJob:
    pods, each = equal_pods(gpus, gpus_per_pod)
    return TraceJob(
        name, arrival, row.number("duration"), requests={GPU: each}, pods=pods, owner=row.text(owner)
    )


def _moment(row: Row) -> float:
    text = row.text("timestamp")
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error(f"timestamp is {text[:40]!r}; give it as 2017-10-09 07:01:55") from None
