"""What a run in virtual time gives: a record of each job, and samples of the cluster over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bayplan.simulation.traces.workload import TraceJob
from bayplan.simulation.virtual_time.free_slots import NO_SLOTS, SlotCounts


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job starts: the node of each of its pods."""

    job: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobStop:
    """A running job was preempted; it waits again and runs from its beginning."""

    job: str


@dataclass(frozen=True, slots=True)
class JobMove:
    """A running job is moved; it does the last seconds of its work again."""

    job: str
    nodes: tuple[str, ...]
    lost: float


class VirtualScheduler(Protocol):
    """Decides which waiting jobs start, and where."""

    def submit(self, job: TraceJob, now: float) -> None:
        """A job arrived."""
        ...

    def finish(self, job: TraceJob, now: float) -> None:
        """A running job ended."""
        ...

    def withdraw(self, job: TraceJob) -> None:
        """A waiting job left the queue."""
        ...

    def set_available(self, node: str, available: bool, now: float) -> None:
        """A node failed, or is back. Its jobs were finished before it failed."""
        ...

    def decide(self, now: float) -> Sequence[JobStart | JobStop | JobMove]:
        """What changes now, in order."""
        ...

    def next_due(self, now: float) -> float:
        """When to decide again without an arrival or an end; infinite: not before."""
        ...


class JobState(StrEnum):
    """How far a job came."""

    DONE = "done"
    RUNNING = "running"  # when the run ended
    WAITING = "waiting"  # when the run ended
    FAILED = "failed"  # it ended early
    LEFT = "left"  # it waited too long
    NEVER_FITS = "never fits"  # not even on the empty cluster
    NO_DURATION = "no run time"  # the trace does not state how long it runs; left out


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. Times are None where it did not come to them."""

    name: str
    state: JobState
    gpus: float
    pods: int
    arrival: float
    start: float | None = None
    end: float | None = None
    hosts: int = 0
    racks: int = 0

    @property
    def wait(self) -> float | None:
        """Seconds from its arrival to its start."""
        return None if self.start is None else self.start - self.arrival


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after the events of one moment."""

    time: float
    allocated: float  # of the resource that is reported, GPUs if the cluster has any
    waiting: int
    broken: int  # nodes neither empty nor full
    slots: SlotCounts = NO_SLOTS


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One policy on one trace."""

    policy: str
    capacity: float
    resource: str
    nodes: int
    jobs: tuple[JobRecord, ...]
    samples: tuple[Sample, ...]
    ended: float  # virtual time at the end
    interrupted: bool = False
    restarts: int = 0  # runs that a node failure or a preemption ended
    decisions: int = 0  # moments at which the scheduler decided
    moves: int = 0  # of running jobs
    lost: float = 0.0  # seconds of work done again because of moves, times the size of the job
