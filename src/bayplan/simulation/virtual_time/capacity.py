"""Amounts of jobs and nodes as the simulation counts them: GPUs in thousandths, because of shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bayplan.model.node import PODS, Node
from bayplan.simulation.traces.workload import CPU, GPU, GPU_MODEL, WHOLE_GPU, TraceJob


def amounts_of(job: TraceJob) -> dict[str, int]:
    """What one pod of a job requests."""
    amounts = {name: amount for name, amount in job.requests.items() if amount} | {PODS: 1}
    if parts := job.requests.get(GPU, 0) * WHOLE_GPU + job.gpu_share:
        amounts[GPU] = parts
    return amounts


def counted(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with their GPUs in thousandths. Shares are counted per node here, not per device."""
    return [
        replace(node, allocatable={**node.allocatable, GPU: node.allocatable[GPU] * WHOLE_GPU})
        if GPU in node.allocatable
        else node
        for node in nodes
    ]


def reported_resource(nodes: Sequence[Node]) -> str:
    """GPUs, or CPU in a cluster without any."""
    return GPU if any(node.allocatable.get(GPU) for node in nodes) else CPU


def pods_that_fit(node: Node, job: TraceJob, amounts: dict[str, int]) -> int:
    """How many pods of a job fit the node when it is empty."""
    if job.gpu_models and node.labels.get(GPU_MODEL, "") not in job.gpu_models:
        return 0
    return min(node.allocatable.get(name, 0) // amount for name, amount in amounts.items())


def can_ever_fit(nodes: Sequence[Node], job: TraceJob) -> bool:
    """Whether a job fits the empty cluster, within one domain of its required level."""
    amounts, level = amounts_of(job), job.locality.required
    fits: dict[str, int] = defaultdict(int)
    for node in nodes:
        if level is None or level in node.labels:
            fits[node.labels[level] if level else ""] += pods_that_fit(node, job, amounts)
    return max(fits.values(), default=0) >= job.pods
