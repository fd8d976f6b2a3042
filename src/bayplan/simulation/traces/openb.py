"""Reads the openb trace (Alibaba, 2023): its nodes, and single pods of 0 to 8 GPUs or a share of one."""

from __future__ import annotations

from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.simulation.traces.trace_file import Row, TraceError, table
from bayplan.simulation.traces.workload import CPU, GPU, GPU_MODEL, MEMORY, WHOLE_GPU, Trace, TraceJob

POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
)
TIME_COLUMNS = {"creation_time", "deletion_time", "scheduled_time"}
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
MIB = 1 << 20
PODS_PER_NODE = 1000  # the trace states no limit


def read_pods(path: str) -> Trace:
    """The pods as jobs of one pod each; their run time counts from their start."""
    jobs = [_pod(row) for row in table(path, POD_COLUMNS)]
    if not jobs:
        raise TraceError(path, None, "there are no pods below the header")
    return Trace(path, tuple(sorted(jobs, key=lambda one: (one.arrival, one.name))))


def read_nodes(path: str) -> tuple[Node, ...]:
    """The nodes, in order of their names. They have no topology but themselves."""
    nodes = [_node(row) for row in table(path, NODE_COLUMNS)]
    if not nodes:
        raise TraceError(path, None, "there are no nodes below the header")
    return tuple(sorted(nodes, key=lambda one: one.name))


def _pod(row: Row) -> TraceJob:
    gpus, milli = row.whole("num_gpu"), row.whole("gpu_milli")
    if milli > WHOLE_GPU or (gpus > 1 and milli != WHOLE_GPU) or (gpus == 1 and milli == 0):
        raise row.error(f"num_gpu is {gpus} and gpu_milli {milli}; a share is 1 to 1000 of a single GPU")
    shares = gpus == 1 and milli < WHOLE_GPU
    arrival, duration = _times(row)
    requests = {CPU: row.whole("cpu_milli"), MEMORY: row.whole("memory_mib") * MIB}
    if gpus and not shares:
        requests[GPU] = gpus
    models = row.cells.get("gpu_spec", "").strip()  # not all variants have it
    return TraceJob(
        name=row.text("name"),
        arrival=arrival,
        duration=duration,
        requests=requests,
        owner=row.cells.get("qos", "").strip(),
        gpu_share=milli if shares else 0,
        gpu_models=tuple(sorted(set(models.split("|")))) if models else (),
        fails=row.cells.get("pod_phase", "").strip() == "Failed",
    )


def _times(row: Row) -> tuple[float, float | None]:
    """Arrival and run time. Variants without times: all pods arrive at once, run times are unknown."""
    if not row.cells.keys() >= TIME_COLUMNS:
        return 0.0, None
    arrival, end = row.number("creation_time"), row.number("deletion_time")
    if not row.text("scheduled_time"):
        return arrival, None  # it never started
    start = row.number("scheduled_time")
    if end < start:
        raise row.error(f"deletion_time {end:g} is before the start at {start:g}")
    return arrival, end - start


def _node(row: Row) -> Node:
    name, model = row.text("sn"), row.text("model")
    amounts = {CPU: row.whole("cpu_milli"), MEMORY: row.whole("memory_mib") * MIB, PODS: PODS_PER_NODE}
    if gpus := row.whole("gpu"):
        amounts[GPU] = gpus
    return Node(name, {HOSTNAME: name} | ({GPU_MODEL: model} if model else {}), amounts)
