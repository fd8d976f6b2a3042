"""Baselines: jobs in order of arrival, with or without backfill, each pod on the first node by a simple rule.

Backfill here lets any later job that fits overtake, without a reservation for the first. The rules know hosts
only; a required level is kept to, a preferred one is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import Node
from bayplan.simulation.traces.workload import GPU_MODEL, TraceJob
from bayplan.simulation.virtual_time.capacity import amounts_of, counted, reported_resource
from bayplan.simulation.virtual_time.outcome import JobStart, JobStop

Ints = NDArray[np.int64]


class NodeRule(StrEnum):
    """Which node is used first."""

    FIRST_FIT = "first-fit"  # by name
    BEST_FIT = "best-fit"  # the least free
    SPREAD = "spread"  # the most free
    RANDOM = "random"


class BaselineQueue:
    """A queue in order of arrival."""

    def __init__(self, nodes: Sequence[Node], rule: NodeRule, backfill: bool, seed: int) -> None:
        self.nodes = sorted(counted(nodes), key=lambda node: node.name)
        self.rule, self.backfill = rule, backfill
        self.random = np.random.default_rng(seed)
        self.resources = sorted({name for node in self.nodes for name in node.allocatable})
        amounts = [[node.allocatable.get(name, 0) for name in self.resources] for node in self.nodes]
        self.free: Ints = np.array(amounts, np.int64)  # node x resource
        self.main = self.resources.index(reported_resource(nodes))
        self.rows = {node.name: row for row, node in enumerate(self.nodes)}
        self.waiting: dict[str, TraceJob] = {}
        self.placed: dict[str, Ints] = {}
        self.domains: dict[str, list[Ints]] = {}
        self.changed = False  # since the last decision: without a change the same jobs do not fit

    def submit(self, job: TraceJob, now: float) -> None:
        """It waits behind all others."""
        self.waiting[job.name] = job
        self.changed = True

    def finish(self, job: TraceJob, now: float) -> None:
        """Its nodes are free again."""
        np.add.at(self.free, self.placed.pop(job.name), self._request(job))
        self.changed = True

    def decide(self, now: float) -> list[JobStart | JobStop]:
        """One pass over the queue."""
        if not self.changed:
            return []
        self.changed = False
        found: list[JobStart | JobStop] = []
        refused: set[object] = set()
        for job in list(self.waiting.values()):
            shape = (tuple(sorted(amounts_of(job).items())), job.pods, job.gpu_models, job.locality.required)
            rows = None if shape in refused else self._place(job)
            if rows is not None:
                np.subtract.at(self.free, rows, self._request(job))
                self.placed[job.name] = rows
                del self.waiting[job.name]
                found.append(JobStart(job.name, tuple(self.nodes[row].name for row in rows.tolist())))
            elif self.backfill:
                refused.add(shape)
            else:
                break
        return found

    def next_due(self, now: float) -> float:
        """Nothing changes by itself."""
        return float("inf")

    def _request(self, job: TraceJob) -> Ints:
        amounts = amounts_of(job)
        return np.array([amounts.get(name, 0) for name in self.resources], np.int64)

    def _place(self, job: TraceJob) -> Ints | None:
        """The row of each pod."""
        request = self._request(job)
        if amounts_of(job).keys() - set(self.resources):
            return None
        asked = request > 0
        counts = (self.free[:, asked] // request[asked]).min(1)
        if job.gpu_models:
            counts[[node.labels.get(GPU_MODEL, "") not in job.gpu_models for node in self.nodes]] = 0
        for rows in self._domains(job.locality.required):
            if counts[rows].sum() >= job.pods:
                order = rows[self._order(rows)]
                places = order.repeat(counts[order])
                if self.rule in (NodeRule.SPREAD, NodeRule.RANDOM):  # one pod on each node, then a second one
                    turns = np.concatenate([np.arange(count) for count in counts[order]])
                    places = places[np.argsort(turns, kind="stable")]
                return places[: job.pods]
        return None

    def _order(self, rows: Ints) -> Ints:
        free = self.free[rows, self.main]
        match self.rule:
            case NodeRule.FIRST_FIT:
                return np.arange(len(rows))
            case NodeRule.BEST_FIT:
                return np.argsort(free, kind="stable")
            case NodeRule.SPREAD:
                return np.argsort(-free, kind="stable")
            case NodeRule.RANDOM:
                return self.random.permutation(len(rows))

    def _domains(self, level: str | None) -> list[Ints]:
        key = level or ""
        if key not in self.domains:
            values: dict[str, list[int]] = {}
            for row, node in enumerate(self.nodes):
                if level is None or level in node.labels:
                    values.setdefault(node.labels[level] if level else "", []).append(row)
            self.domains[key] = [np.array(rows, np.int64) for _, rows in sorted(values.items())]
        return self.domains[key]
