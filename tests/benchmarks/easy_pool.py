"""EASY backfill on processors that are all alike, as HPC sites run it: the scheduler of the SWF logs.

The first job that does not fit has a reservation, computed from the limits of the running jobs; a later job
may start if it ends before that by its own limit, or uses processors that the first one will not need.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A job of a log."""

    arrival: float
    processors: int
    run: float
    limit: float
    owner: str


class EasyPool:
    """Processors, the jobs that run and the jobs that wait. Jobs are numbers into one list."""

    def __init__(self, jobs: Sequence[PoolJob], free: int) -> None:
        self.jobs, self.free = jobs, free
        self.bounds: list[tuple[float, int]] = []  # of running jobs: the end by the limit, and the job
        self.bound_of: dict[int, float] = {}
        self.ends: list[tuple[float, int]] = []
        self.waiting: list[int] = []

    def add_running(self, job: int, started: float, end: float) -> None:
        bound = started + self.jobs[job].limit
        insort(self.bounds, (bound, job))
        self.bound_of[job] = bound
        heapq.heappush(self.ends, (end, job))

    def end_until(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            _, job = heapq.heappop(self.ends)
            self.free += self.jobs[job].processors
            del self.bounds[bisect_left(self.bounds, (self.bound_of.pop(job), job))]

    def start(self, now: float) -> list[int]:
        """The jobs that start now; the caller adds them as running."""
        started, waiting, jobs = list[int](), self.waiting, self.jobs
        while waiting and jobs[waiting[len(started)]].processors <= self.free:
            started.append(waiting[len(started)])
            self.free -= jobs[started[-1]].processors
            if len(started) == len(waiting):
                break
        del waiting[: len(started)]
        if not waiting or not self.free:
            return started
        more = [(now + jobs[job].limit, job) for job in started]
        shadow, extra = self._shadow(waiting[0], sorted([*self.bounds, *more]) if more else self.bounds, now)
        kept = waiting[:1]
        for job in waiting[1:]:
            needs = jobs[job].processors
            in_time = now + jobs[job].limit <= shadow
            if needs <= self.free and (in_time or needs <= extra):
                extra -= 0 if in_time else needs
                self.free -= needs
                started.append(job)
            else:
                kept.append(job)
        self.waiting = kept
        return started

    def _shadow(self, job: int, bounds: Sequence[tuple[float, int]], now: float) -> tuple[float, int]:
        """When the first job can start at the latest, and the processors that are left over then."""
        available, needs = self.free, self.jobs[job].processors
        for bound, other in bounds:
            available += self.jobs[other].processors
            if available >= needs:
                return max(bound, now), available - needs
        return math.inf, 0


def starts_of(jobs: Sequence[PoolJob], processors: int) -> list[float]:
    """When each job of a log starts."""
    pool, starts, arrived = EasyPool(jobs, processors), [math.inf] * len(jobs), 0
    while arrived < len(jobs) or pool.ends:
        now = min(
            jobs[arrived].arrival if arrived < len(jobs) else math.inf,
            pool.ends[0][0] if pool.ends else math.inf,
        )
        pool.end_until(now)
        while arrived < len(jobs) and jobs[arrived].arrival <= now:
            pool.waiting.append(arrived)
            arrived += 1
        for job in pool.start(now):
            starts[job] = now
            pool.add_running(job, now, now + jobs[job].run)
    return starts


@dataclass(frozen=True, slots=True)
class PoolMoment:
    """The pool when a job arrives."""

    now: float
    free: int
    running: Mapping[int, float]  # job -> its start
    waiting: Sequence[int]
    target: int


def wait_of(jobs: Sequence[PoolJob], moment: PoolMoment, runs: Mapping[int, float]) -> float:
    """How long the target waits if nothing else arrives and jobs run for so long."""
    pool = EasyPool(jobs, moment.free)
    pool.waiting = list(moment.waiting)
    for job, started in moment.running.items():
        pool.add_running(job, started, max(started + runs[job], moment.now))
    now = moment.now
    while True:
        for job in pool.start(now):
            if job == moment.target:
                return now - moment.now
            pool.add_running(job, now, now + runs[job])
        if not pool.ends:
            return math.inf
        now = pool.ends[0][0]
        pool.end_until(now)
