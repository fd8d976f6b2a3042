"""The run: arrivals and ends in order of virtual time, and a decision after each such moment."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from bayplan.model.node import Node
from bayplan.simulation.traces.cluster_shapes import RACK
from bayplan.simulation.traces.workload import GPU, WHOLE_GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.capacity import amounts_of, can_ever_fit, counted, reported_resource
from bayplan.simulation.virtual_time.disruptions import NEVER, Disruptions
from bayplan.simulation.virtual_time.free_slots import FreeSlots
from bayplan.simulation.virtual_time.outcome import (
    JobMove,
    JobRecord,
    JobStart,
    JobState,
    RunOutcome,
    Sample,
    VirtualScheduler,
)


class RunEvent(IntEnum):
    """What happens, in its order at one moment: what an end frees can be used."""

    ENDS = 0
    RETURNS = 1  # a node
    FAILS = 2  # a node
    ARRIVES = 3
    LEAVES = 4


Progress = Callable[[int, int], None]
"""Told how many jobs have arrived, and how many there are."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What holds for every policy of a comparison."""

    until: float = NEVER  # virtual seconds
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    """Level → the rate of a job whose pods are in several of its domains; the lowest rate counts."""

    disruptions: Disruptions = field(default_factory=Disruptions)
    seed: int = 42  # decides which jobs fail


class VirtualRun:
    """One policy on one trace. Interrupting it keeps what has happened so far."""

    def __init__(
        self,
        policy: str,
        nodes: Sequence[Node],
        trace: Trace,
        scheduler: VirtualScheduler,
        settings: RunSettings,
    ) -> None:
        self.policy, self.scheduler, self.settings = policy, scheduler, settings
        self.nodes = {node.name: node for node in counted(nodes)}
        self.resource = reported_resource(nodes)
        self.used = dict.fromkeys(self.nodes, 0)  # of the reported resource
        self.slots = FreeSlots(self.nodes)
        self.jobs = {job.name: job for job in trace.jobs}
        self.now, self.allocated, self.broken, self.decisions, self.restarts = 0.0, 0, 0, 0, 0
        self.starts: dict[str, tuple[float, tuple[str, ...]]] = {}
        self.ends: dict[str, float] = {}
        self.due: dict[str, float] = {}  # when running jobs will end
        self.moves, self.lost = 0, 0.0
        self.waiting: dict[str, None] = {}
        self.runs: dict[str, int] = {}  # how often each job was started: an end of an earlier run is void
        self.samples: list[Sample] = []
        self.left_out: dict[str, JobState] = {}
        self.failed: set[str] = set()  # jobs that ended early
        self.away: dict[str, int] = {}  # nodes, and how many outages of theirs last
        self.running: dict[str, None] = {}
        self.jobs_on: dict[str, dict[str, None]] = {name: {} for name in self.nodes}  # that run, by node
        self.events: list[tuple[float, int, str, int]] = []
        known: dict[object, bool] = {}
        for job in trace.jobs:
            if job.duration is None:
                self.left_out[job.name] = JobState.NO_DURATION
                continue
            shape = _shape(job)
            if shape not in known:
                known[shape] = can_ever_fit(tuple(self.nodes.values()), job)
            if not known[shape]:
                self.left_out[job.name] = JobState.NEVER_FITS
            else:
                self.events.append((job.arrival, RunEvent.ARRIVES, job.name, 0))
        self.total = self.arriving = len(self.events)
        for outage in settings.disruptions.outages:
            self.events.append((outage.start, RunEvent.FAILS, outage.node, 0))
            self.events.append((outage.start + outage.seconds, RunEvent.RETURNS, outage.node, 0))
        heapq.heapify(self.events)

    def run(self, progress: Progress) -> RunOutcome:
        """Run to the end, to the time set, or until an interrupt."""
        interrupted = False
        try:
            self._loop(progress)
        except KeyboardInterrupt:
            interrupted = True
        return self.outcome(interrupted)

    def outcome(self, interrupted: bool = False) -> RunOutcome:
        """What has happened so far."""
        scale = WHOLE_GPU  # of GPUs and of CPU: both are counted in thousandths
        capacity = sum(node.allocatable.get(self.resource, 0) for node in self.nodes.values()) / scale
        return RunOutcome(
            policy=self.policy,
            capacity=capacity,
            resource=self.resource,
            nodes=len(self.nodes),
            jobs=tuple(self._record(job) for job in self.jobs.values()),
            samples=tuple(self.samples),
            ended=self.now,
            interrupted=interrupted,
            restarts=self.restarts,
            decisions=self.decisions,
            moves=self.moves,
            lost=self.lost,
        )

    def _loop(self, progress: Progress) -> None:
        due = NEVER
        while self.events or due < NEVER:
            now = min(self.events[0][0] if self.events else NEVER, due)
            if now > self.settings.until or not (self.arriving or self.waiting or self.running):
                break
            self.now = now
            while self.events and self.events[0][0] <= now:
                self._happen(*heapq.heappop(self.events)[1:])
            for found in self.scheduler.decide(now):
                match found:
                    case JobStart():
                        self._start(found)
                    case JobMove():
                        self._move(found)
                    case _:
                        self._stop(found.job)
            self.decisions += 1
            waiting, slots = len(self.waiting), self.slots.now()
            self.samples.append(Sample(now, self.allocated / WHOLE_GPU, waiting, self.broken, slots))
            due = self.scheduler.next_due(now)
            assert due > now, (due, now)
            progress(self.total - self.arriving, self.total)

    def _happen(self, sort: int, name: str, run: int) -> None:
        """One event; an end of an earlier run, or leaving after a start, is void."""
        match RunEvent(sort):
            case RunEvent.ARRIVES:
                self.arriving -= 1
                self.waiting[name] = None
                self.scheduler.submit(self.jobs[name], self.now)
                if self.settings.disruptions.patience < NEVER:
                    leaves = self.now + self.settings.disruptions.patience
                    heapq.heappush(self.events, (leaves, RunEvent.LEAVES, name, 0))
            case RunEvent.ENDS:
                if self.runs[name] == run:
                    self._end(name)
            case RunEvent.LEAVES:
                if name in self.waiting and name not in self.runs:
                    del self.waiting[name]
                    self.left_out[name] = JobState.LEFT
                    self.scheduler.withdraw(self.jobs[name])
            case RunEvent.FAILS:
                self.away[name] = self.away.get(name, 0) + 1
                if self.away[name] == 1:
                    self._lose(name)
            case RunEvent.RETURNS:
                self.away[name] -= 1
                if not self.away[name]:
                    del self.away[name]
                    self.slots.set_available(name, True)
                    self.scheduler.set_available(name, True, self.now)

    def _lose(self, node: str) -> None:
        """A node fails: its jobs start again from their beginning, elsewhere."""
        lost = list(self.jobs_on[node])
        for name in lost:
            self._stop(name)
            self.scheduler.finish(self.jobs[name], self.now)
        self.slots.set_available(node, False)
        self.scheduler.set_available(node, False, self.now)
        for name in lost:
            self.scheduler.submit(self.jobs[name], self.now)

    def _stop(self, name: str) -> None:
        self._release(name)
        self.runs[name] += 1
        self.restarts += 1
        self.waiting[name] = None

    def _start(self, start: JobStart) -> None:
        job = self.jobs[start.job]
        assert len(start.nodes) == job.pods, start
        del self.waiting[job.name]
        self.starts[job.name] = (self.now, start.nodes)
        self._use(start.nodes, amounts_of(job).get(self.resource, 0))
        run = self.runs[job.name] = self.runs.get(job.name, 0) + 1
        self.running[job.name] = None
        for node in start.nodes:
            self.jobs_on[node][job.name] = None
        assert job.duration is not None, job
        share = self.settings.disruptions.run_time_share(self.settings.seed, job.name)
        seconds = share * job.duration / self._rate(start.nodes)
        self.due[job.name] = self.now + seconds
        heapq.heappush(self.events, (self.due[job.name], RunEvent.ENDS, job.name, run))

    def _move(self, move: JobMove) -> None:
        """The job goes on elsewhere, and ends later by what it does again."""
        job = self.jobs[move.job]
        started, nodes = self.starts[job.name]
        amount = amounts_of(job).get(self.resource, 0)
        self._use(nodes, -amount)
        self._use(move.nodes, amount)
        self.starts[job.name] = (started, move.nodes)
        run = self.runs[job.name] = self.runs[job.name] + 1
        self.due[job.name] += move.lost
        self.moves, self.lost = self.moves + 1, self.lost + move.lost * job.gpus
        heapq.heappush(self.events, (self.due[job.name], RunEvent.ENDS, job.name, run))

    def _rate(self, names: Sequence[str]) -> float:
        rate = 1.0
        for level, slower in self.settings.slowdowns.items():
            if len({self.nodes[name].labels.get(level) for name in names}) > 1:
                rate = min(rate, slower)
        return rate

    def _end(self, name: str) -> None:
        nodes = self.starts[name]
        self._release(name)
        self.starts[name] = nodes
        self.ends[name] = self.now
        if self.settings.disruptions.run_time_share(self.settings.seed, name) < 1.0:
            self.failed.add(name)
        self.scheduler.finish(self.jobs[name], self.now)

    def _release(self, name: str) -> None:
        del self.running[name]
        _, nodes = self.starts.pop(name)
        for node in nodes:
            self.jobs_on[node].pop(name, None)
        self._use(nodes, -amounts_of(self.jobs[name]).get(self.resource, 0))

    def _use(self, names: Sequence[str], amount: int) -> None:
        for name in names:
            self.broken -= self._is_broken(name)
            self.used[name] += amount
            self.slots.use(name, amount)
            self.allocated += amount
            self.broken += self._is_broken(name)
            assert 0 <= self.used[name] <= self.nodes[name].allocatable.get(self.resource, 0), name

    def _is_broken(self, name: str) -> bool:
        return 0 < self.used[name] < self.nodes[name].allocatable.get(self.resource, 0)

    def _record(self, job: TraceJob) -> JobRecord:
        start, nodes = self.starts.get(job.name, (None, ()))
        if job.name in self.left_out:
            state = self.left_out[job.name]
        elif job.name in self.ends:
            state = JobState.FAILED if job.name in self.failed else JobState.DONE
        else:
            state = JobState.WAITING if start is None else JobState.RUNNING
        racks = {self.nodes[name].labels.get(RACK, name) for name in nodes}
        size = (
            job.gpus if self.resource == GPU else amounts_of(job).get(self.resource, 0) * job.pods / WHOLE_GPU
        )
        return JobRecord(
            job.name,
            state,
            size,
            job.pods,
            job.arrival,
            start,
            self.ends.get(job.name),
            len(set(nodes)),
            len(racks),
        )


def _shape(job: TraceJob) -> object:
    return tuple(sorted(amounts_of(job).items())), job.pods, job.gpu_models, job.locality.required
