"""Free CPU, memory and GPU parts of every node as arrays; a GPU is divisible, each device by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayplan.model.node import Node
from bayplan.simulation.traces.workload import CPU, GPU, GPU_MODEL, MEMORY, WHOLE_GPU, TraceJob

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PodShape:
    """What a pod requests; `parts` of each of its devices: a share of a single one, or all of each."""

    cpu: int
    memory: int
    devices: int = 0
    parts: int = 0
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.parts == WHOLE_GPU or self.devices <= 1, self
        assert (self.parts > 0) == (self.devices > 0), self

    @property
    def total(self) -> int:
        """The parts of all its devices."""
        return self.devices * self.parts

    @property
    def is_share(self) -> bool:
        return 0 < self.parts < WHOLE_GPU


def shape_of(job: TraceJob) -> PodShape:
    """The shape of a pod of a job."""
    devices = 1 if job.gpu_share else job.requests.get(GPU, 0)
    parts = job.gpu_share or (WHOLE_GPU if devices else 0)
    return PodShape(job.requests.get(CPU, 0), job.requests.get(MEMORY, 0), devices, parts, job.gpu_models)


class DeviceBoard:
    """The free amounts, one row a node in the order given."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        counts = [node.allocatable.get(GPU, 0) for node in nodes]
        self.names = tuple(node.name for node in nodes)
        self.cpu: Ints = np.array([node.allocatable.get(CPU, 0) for node in nodes], np.int64)
        self.memory: Ints = np.array([node.allocatable.get(MEMORY, 0) for node in nodes], np.int64)
        self.devices: Ints = np.array(counts, np.int64)  # of each node
        self.parts: Ints = (np.arange(max(counts, default=0)) < self.devices[:, None]) * np.int64(WHOLE_GPU)
        self.model_names = tuple(sorted({node.labels.get(GPU_MODEL, "") for node in nodes}))
        at = {name: number for number, name in enumerate(self.model_names)}
        self.model: Ints = np.array([at[node.labels.get(GPU_MODEL, "")] for node in nodes], np.int64)
        self.capacity = int(self.devices.sum()) * WHOLE_GPU

    def models_of(self, names: Iterable[str]) -> list[int]:
        """The numbers of those models that the cluster has."""
        wanted = set(names)
        return [number for number, name in enumerate(self.model_names) if name in wanted]

    def fits(self, shape: PodShape, rows: Ints) -> Bools:
        """Which of these nodes have what a pod requests."""
        fits: Bools = (self.cpu[rows] >= shape.cpu) & (self.memory[rows] >= shape.memory)
        if shape.devices:
            fits &= (self.parts[rows] >= shape.parts).sum(1) >= shape.devices
        if shape.models:
            fits &= np.isin(self.model[rows], self.models_of(shape.models))
        return fits

    def bind(self, shape: PodShape, row: int, devices: Sequence[int]) -> None:
        """Take what the pod requests, from these devices."""
        assert len(devices) == shape.devices, (shape, devices)
        self.cpu[row] -= shape.cpu
        self.memory[row] -= shape.memory
        self.parts[row, list(devices)] -= shape.parts
        assert self.cpu[row] >= 0 <= self.memory[row], (shape, row)
        assert (self.parts[row] >= 0).all(), (shape, row)

    def whole_devices(self, row: int, count: int) -> list[int]:
        """The first unused devices of a node."""
        return [int(at) for at in np.flatnonzero(self.parts[row] >= WHOLE_GPU)[:count]]
