"""A recorded workload: its jobs in order of arrival, whatever the format they were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bayplan.model.gang import Locality
from bayplan.model.node import Node

CPU, MEMORY = "cpu", "memory"
GPU = "nvidia.com/gpu"
GPU_MODEL = "gpu-model"
"""The node label with the model of its GPUs."""

WHOLE_GPU = 1000
"""A GPU is divisible into this many parts in the simulation."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job: equal pods that start together and run for the same time."""

    name: str
    arrival: float  # seconds since the start of the trace
    duration: float | None  # seconds that it runs once started; None: unknown
    requests: Mapping[str, int] = field(default_factory=dict)  # of one pod: milli-CPU, bytes, whole GPUs
    pods: int = 1
    owner: str = ""
    limit: float | None = None  # the run time that its owner asked for
    gpu_share: int = 0  # thousandths of one GPU that its only pod uses, instead of whole GPUs
    gpu_models: tuple[str, ...] = ()  # the models it may use; empty: any
    locality: Locality = field(default_factory=Locality)  # levels here are node labels
    priority: int = 0
    fails: bool = False  # it ended early with an error

    def __post_init__(self) -> None:
        assert self.pods >= 1, self
        assert self.arrival >= 0, self
        assert self.duration is None or self.duration >= 0, self
        assert 0 <= self.gpu_share < WHOLE_GPU, self
        assert not self.gpu_share or (self.pods == 1 and not self.requests.get(GPU)), self

    @property
    def gpus(self) -> float:
        """The GPUs of all its pods."""
        return self.pods * self.requests.get(GPU, 0) + self.gpu_share / WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace in order of arrival, and the nodes if the trace describes them."""

    source: str  # the file, for messages and reports
    jobs: tuple[TraceJob, ...]
    nodes: tuple[Node, ...] = ()
    notes: tuple[str, ...] = ()  # what was left out or assumed while reading

    def __post_init__(self) -> None:
        assert all(one.arrival <= two.arrival for one, two in zip(self.jobs, self.jobs[1:], strict=False))


def equal_pods(amount: int, most: int) -> tuple[int, int]:
    """Split a job of this many GPUs or processors into equal pods: their number, and the amount of each.

    Traces record a total only. Each pod gets the largest divisor of the total that a node can hold.
    """
    assert amount >= 1 and most >= 1, (amount, most)
    each = next(size for size in range(min(amount, most), 0, -1) if amount % size == 0)
    return amount // each, each
