"""A waiting time that is aimed at, and how much was waited in a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bayplan.simulation.reports.figures import quantile
from bayplan.simulation.virtual_time.added_racks import InvalidSweep
from bayplan.simulation.virtual_time.disruptions import InvalidDisruption, seconds_of
from bayplan.simulation.virtual_time.outcome import JobState, RunOutcome

TARGET = re.compile(r"(p50|p90|p95|p99|mean) wait(?: of (\d{1,6})-GPU gangs)? *< *(\S+)")
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class WaitTarget:
    """A waiting time that jobs, or those of one size, may have at most."""

    text: str
    statistic: str
    size: int  # GPUs of a job; 0: all jobs
    seconds: float

    def found(self, outcome: RunOutcome) -> float | None:
        """The waiting time of a run; None if a job that counts never started, or none counts."""
        records = [
            one
            for one in outcome.jobs
            if one.state not in (JobState.NEVER_FITS, JobState.NO_DURATION)
            and (not self.size or one.gpus == self.size)
        ]
        waits = [one.wait for one in records if one.wait is not None]
        if not waits or len(waits) < len(records):
            return None
        if self.statistic == "mean":
            return sum(waits) / len(waits)
        return quantile(waits, SHARES[self.statistic])

    def is_met(self, outcome: RunOutcome) -> bool:
        """Whether a run stays below the target."""
        found = self.found(outcome)
        return found is not None and found < self.seconds


def parse_target(text: str) -> WaitTarget:
    """`p95 wait of 64-GPU gangs < 30m`, or without a size. Raises InvalidSweep."""
    found = TARGET.fullmatch(text.strip())
    try:
        seconds = seconds_of(found[3]) if found is not None else 0.0
    except InvalidDisruption as error:
        raise InvalidSweep(str(error)) from None
    if found is None:
        raise InvalidSweep(f"{text[:80]!r} is no target; give it as `p95 wait of 64-GPU gangs < 30m`")
    return WaitTarget(text.strip(), found[1], int(found[2] or 0), seconds)


def waited_gpu_hours(outcome: RunOutcome) -> float:
    """GPUs of jobs times the hours that they waited, those that never started until the end of the run."""
    return sum(
        one.gpus * ((one.wait if one.wait is not None else outcome.ended - one.arrival) / HOUR)
        for one in outcome.jobs
        if one.state not in (JobState.NEVER_FITS, JobState.NO_DURATION)
    )
