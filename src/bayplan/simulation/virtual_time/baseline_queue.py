"""Baselines: jobs in order of arrival, with or without backfill, each pod on the first node by a simple rule.

The rules know hosts only; a required level is kept to, a preferred one is not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import Node
from bayplan.simulation.traces.workload import GPU, GPU_MODEL, TraceJob
from bayplan.simulation.virtual_time.capacity import amounts_of, counted, reported_resource
from bayplan.simulation.virtual_time.outcome import JobStart, JobStop

Ints = NDArray[np.int64]


class NodeRule(StrEnum):
    """Which node is used first."""

    FIRST_FIT = "first-fit"  # by name
    BEST_FIT = "best-fit"  # the least free
    SPREAD = "spread"  # the most free
    RANDOM = "random"
    FGD = "fgd"  # where the GPUs that pods of the usual mix cannot use become the fewest


class Backfill(StrEnum):
    """Which jobs may overtake the first that does not fit."""

    NONE = "none"
    EASY = "easy"  # those that do not delay the first, if all run for the time that they asked for
    ANY = "any"  # all that fit


@dataclass(frozen=True, slots=True)
class FirstJobReservation:
    """For the first job: from when on, and what is free then beside it."""

    start: float
    free: Ints


class BaselineQueue:
    """A queue in order of arrival."""

    def __init__(
        self,
        nodes: Sequence[Node],
        rule: NodeRule,
        backfill: Backfill,
        seed: int,
        jobs: Sequence[TraceJob] = (),
    ) -> None:
        self.nodes = sorted(counted(nodes), key=lambda node: node.name)
        self.rule, self.backfill = rule, backfill
        self.random = np.random.default_rng(seed)
        self.resources = sorted({name for node in self.nodes for name in node.allocatable})
        amounts = [[node.allocatable.get(name, 0) for name in self.resources] for node in self.nodes]
        self.free: Ints = np.array(amounts, np.int64)  # node x resource
        self.main = self.resources.index(reported_resource(nodes))
        self.rows = {node.name: row for row, node in enumerate(self.nodes)}
        self.waiting: dict[str, TraceJob] = {}
        self.jobs: dict[str, TraceJob] = {}  # that run
        self.placed: dict[str, Ints] = {}
        self.ends: dict[str, float] = {}  # when each running job ends at the latest, as far as is known
        self.away = np.zeros(len(self.nodes), np.bool_)
        self.mix = _usual_mix(jobs)
        self.domains: dict[str, list[Ints]] = {}
        self.changed = False  # since the last decision: without a change the same jobs do not fit

    def submit(self, job: TraceJob, now: float) -> None:
        """It waits behind all others."""
        self.waiting[job.name] = job
        self.changed = True

    def finish(self, job: TraceJob, now: float) -> None:
        """Its nodes are free again."""
        np.add.at(self.free, self.placed.pop(job.name), self._request(job))
        del self.jobs[job.name], self.ends[job.name]
        self.changed = True

    def withdraw(self, job: TraceJob) -> None:
        """It waits no longer."""
        del self.waiting[job.name]
        self.changed = True

    def set_available(self, node: str, available: bool, now: float) -> None:
        """A node that failed takes no pods."""
        self.away[self.rows[node]] = not available
        self.changed = True

    def decide(self, now: float) -> list[JobStart | JobStop]:
        """One pass over the queue."""
        if not self.changed:
            return []
        self.changed = False
        found: list[JobStart | JobStop] = []
        refused: set[object] = set()
        reservation: FirstJobReservation | None = None
        for job in list(self.waiting.values()):
            shape = (tuple(sorted(amounts_of(job).items())), job.pods, job.gpu_models, job.locality.required)
            is_short = reservation is not None and now + _limit(job) <= reservation.start
            rows = None
            if (shape, is_short) not in refused:
                free = self.free
                if reservation is not None and not is_short:
                    free = np.minimum(free, reservation.free)
                rows = self._place(job, free)
            if rows is not None:
                self._start(job, rows, now)
                found.append(JobStart(job.name, tuple(self.nodes[row].name for row in rows.tolist())))
                if reservation is not None and not is_short:
                    np.subtract.at(reservation.free, rows, self._request(job))
            elif self.backfill is Backfill.NONE:
                break
            elif self.backfill is Backfill.EASY and reservation is None:
                reservation = self._reserve(job)
            else:
                refused.add((shape, is_short))
        return found

    def _start(self, job: TraceJob, rows: Ints, now: float) -> None:
        np.subtract.at(self.free, rows, self._request(job))
        self.placed[job.name], self.jobs[job.name], self.ends[job.name] = rows, job, now + _limit(job)
        del self.waiting[job.name]

    def _reserve(self, job: TraceJob) -> FirstJobReservation:
        """When the first job can start if running jobs use their limits, and what is left beside it then."""
        free = self.free.copy()
        for name in sorted(self.ends, key=lambda name: (self.ends[name], name)):
            np.add.at(free, self.placed[name], self._request(self.jobs[name]))
            rows = self._place(job, free)
            if rows is not None:
                np.subtract.at(free, rows, self._request(job))
                return FirstJobReservation(self.ends[name], free)
        return FirstJobReservation(float("inf"), free)

    def next_due(self, now: float) -> float:
        """Nothing changes by itself."""
        return float("inf")

    def _request(self, job: TraceJob) -> Ints:
        amounts = amounts_of(job)
        return np.array([amounts.get(name, 0) for name in self.resources], np.int64)

    def _place(self, job: TraceJob, free: Ints) -> Ints | None:
        """The row of each pod, by what is free."""
        request = self._request(job)
        if amounts_of(job).keys() - set(self.resources):
            return None
        asked = request > 0
        counts = (free[:, asked] // request[asked]).min(1)
        counts[self.away] = 0
        if job.gpu_models:
            counts[[node.labels.get(GPU_MODEL, "") not in job.gpu_models for node in self.nodes]] = 0
        for rows in self._domains(job.locality.required):
            if counts[rows].sum() >= job.pods:
                order = rows[self._order(rows, free, request)]
                places = order.repeat(counts[order])
                if self.rule in (NodeRule.SPREAD, NodeRule.RANDOM):  # one pod on each node, then a second one
                    turns = np.concatenate([np.arange(count) for count in counts[order]])
                    places = places[np.argsort(turns, kind="stable")]
                return places[: job.pods]
        return None

    def _order(self, rows: Ints, amounts: Ints, request: Ints) -> Ints:
        free = amounts[rows, self.main]
        match self.rule:
            case NodeRule.FIRST_FIT:
                return np.arange(len(rows))
            case NodeRule.BEST_FIT:
                return np.argsort(free, kind="stable")
            case NodeRule.SPREAD:
                return np.argsort(-free, kind="stable")
            case NodeRule.RANDOM:
                return self.random.permutation(len(rows))
            case NodeRule.FGD:
                lost = _unusable(free - request[self.main], self.mix) - _unusable(free, self.mix)
                return np.lexsort((free, lost))

    def _domains(self, level: str | None) -> list[Ints]:
        key = level or ""
        if key not in self.domains:
            values: dict[str, list[int]] = {}
            for row, node in enumerate(self.nodes):
                if level is None or level in node.labels:
                    values.setdefault(node.labels[level] if level else "", []).append(row)
            self.domains[key] = [np.array(rows, np.int64) for _, rows in sorted(values.items())]
        return self.domains[key]


def _limit(job: TraceJob) -> float:
    """The run time that is known of a job before it ends: the one that its owner asked for."""
    return job.limit or job.duration or 0.0


def _usual_mix(jobs: Sequence[TraceJob]) -> tuple[Ints, NDArray[np.float64]]:
    """The GPU parts that pods of the trace request, and how often each amount occurs."""
    counts: Counter[int] = Counter()
    for job in jobs:
        counts[amounts_of(job).get(GPU, 0)] += job.pods
    sizes = sorted(size for size in counts if size)
    weights = np.array([counts[size] for size in sizes], np.float64)
    return np.array(sizes, np.int64), weights / max(weights.sum(), 1.0)


def _unusable(free: Ints, mix: tuple[Ints, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The GPU parts of each node that a pod of the usual mix cannot use, in expectation."""
    sizes, weights = mix
    lost: NDArray[np.float64] = np.where(free[:, None] < sizes, free[:, None], 0) @ weights
    return lost
