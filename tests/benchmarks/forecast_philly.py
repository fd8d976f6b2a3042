"""Forecasts on the Philly trace: hosts of 8 GPUs, no limits, run times by virtual cluster and size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.simulation.forecast.calibration import WaitMarks
from bayplan.simulation.forecast.expected_starts import ForecastInput, drawn_starts
from bayplan.simulation.forecast.forward_run import QueuePicture, RunningGang, StartOption, WaitingGang
from bayplan.simulation.forecast.node_room import Measure, NodeCapacity, NodeRoom
from bayplan.simulation.forecast.quota_room import NO_QUOTA
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.baseline_queue import Backfill, BaselineQueue, NodeRule
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun

HOSTS, GPUS = 96, 8
"""Fewer than the site had: on its own hosts hardly a job waited."""
DRAWS = 20
WARM_UP = 1000
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def philly_forecasts(trace: Trace, every: int) -> Iterator[tuple[float, WaitMarks, float]]:
    """When some jobs arrived, the marks of their forecasts, and how long they waited."""
    nodes = [Node(name, {HOSTNAME: name}, {GPU: GPUS, PODS: 110}) for name in _names()]
    queue = BaselineQueue(nodes, NodeRule.FIRST_FIT, Backfill.ANY, seed=0)
    outcome = VirtualRun("first fit, backfill", nodes, trace, queue, RunSettings()).run(lambda *_: None)
    jobs = [job for job, record in zip(trace.jobs, outcome.jobs, strict=True) if record.end is not None]
    records = [record for record in outcome.jobs if record.end is not None]
    starts = [record.start or 0.0 for record in records]
    ends = [record.end or math.inf for record in records]
    by_end, learnt = sorted(range(len(jobs)), key=ends.__getitem__), 0
    history, waited = RunTimeHistory(), 0
    present: list[int] = []
    for number, job in enumerate(jobs):
        now = job.arrival
        while learnt < len(jobs) and ends[by_end[learnt]] <= now:
            ended = by_end[learnt]
            history.learn(_request(jobs[ended]), ends[ended] - starts[ended])
            learnt += 1
        present = [one for one in present if ends[one] > now]
        present.append(number)
        if number < WARM_UP or starts[number] <= now:
            continue
        waited += 1
        if waited % every:
            continue
        running = [one for one in present if starts[one] < now]
        waiting = [one for one in present if starts[one] >= now]
        asked = _input(jobs, running, waiting, np.array([starts[one] for one in running]))
        target = waiting.index(number)
        marks = drawn_starts(asked, history, now, target, DRAWS).marks[target]
        yield now, replace(marks, by_limits=math.inf), starts[number] - now  # the trace has no limits


def _names() -> list[str]:
    return [f"host-{at:03d}" for at in range(HOSTS)]


def _request(job: TraceJob) -> RunRequest:
    return RunRequest(job.owner, shape=str(job.gpus))


def _input(
    jobs: Sequence[TraceJob], running: Sequence[int], waiting: Sequence[int], started: np.ndarray
) -> ForecastInput:
    requests = np.array([[size] for size in SIZES], np.int64)
    capacity = NodeCapacity(
        free=np.full((HOSTS, 1), GPUS, np.int64),
        requests=requests,
        allowed=np.ones((len(SIZES), HOSTS), bool),
        measures=tuple(Measure(shape) for shape in range(len(SIZES))),
    )
    room, placed = NodeRoom(capacity), []
    for one in sorted(running, key=lambda number: -jobs[number].requests[GPU]):
        share = room.find(jobs[one].requests[GPU] - 1, jobs[one].pods)
        if share is None:  # other hosts are in use than in the run itself; it holds what is left
            continue
        room.use(share)
        placed.append((one, share))
    order = {one: at for at, one in enumerate(running)}
    picture = QueuePicture(
        capacity,
        NO_QUOTA,
        tuple(RunningGang(jobs[one].name, share) for one, share in placed),
        tuple(
            WaitingGang(jobs[one].name, (StartOption(((jobs[one].requests[GPU] - 1, jobs[one].pods),)),))
            for one in waiting
        ),
    )
    return ForecastInput(
        picture,
        tuple(_request(jobs[one]) for one, _ in placed),
        started[[order[one] for one, _ in placed]],
        tuple(_request(jobs[one]) for one in waiting),
    )
