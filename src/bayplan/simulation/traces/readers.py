"""Reads a trace or a table of nodes in whichever of the known formats it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.node import Node
from bayplan.simulation.traces import distributions, gavel, openb, philly, swf
from bayplan.simulation.traces.cluster_shapes import SWITCH_COLUMNS, read_switches
from bayplan.simulation.traces.trace_file import TraceError, lines, shown
from bayplan.simulation.traces.workload import CPU, GPU, Trace

DEFAULT_GPUS_PER_POD = 8


class TraceFormat(StrEnum):
    """The formats of workloads."""

    OPENB = "openb"
    PHILLY = "philly"
    PHILLY_COUNTED = "philly-counted"
    GAVEL = "gavel"
    SWF = "swf"
    DISTRIBUTION = "distribution"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a format does not state."""

    nodes: tuple[Node, ...] = ()  # of the cluster to simulate; empty: those of the trace
    seed: int = 42  # of drawn workloads
    rates: str = ""  # the table of steps per second for Gavel traces


DEFAULT_OPTIONS = ReadOptions()


def read_trace(path: str, options: ReadOptions = DEFAULT_OPTIONS, found: TraceFormat | None = None) -> Trace:
    """The workload of a file. Raises TraceError."""
    per_pod = max((node.allocatable.get(GPU, 0) for node in options.nodes), default=0) or DEFAULT_GPUS_PER_POD
    match found or detect(path):
        case TraceFormat.OPENB:
            return openb.read_pods(path)
        case TraceFormat.PHILLY:
            return philly.read_dated(path, per_pod)
        case TraceFormat.PHILLY_COUNTED:
            return philly.read_counted(path, per_pod)
        case TraceFormat.GAVEL:
            return gavel.read_gavel(path, per_pod, gavel.read_rates(options.rates) if options.rates else None)
        case TraceFormat.SWF:
            cores = max((node.allocatable.get(CPU, 0) for node in options.nodes), default=0) // swf.CORE
            return swf.read_swf(path, cores or None)
        case TraceFormat.DISTRIBUTION:
            capacity = sum(node.allocatable.get(GPU, 0) for node in options.nodes)
            if not capacity:
                raise TraceError(path, None, "a drawn workload needs a cluster with GPUs, for its load")
            return distributions.draw(distributions.read_spec(path), capacity, per_pod, options.seed)


def detect(path: str) -> TraceFormat:
    """The format of a file, by its name or its first line."""
    name = path.removesuffix(".xz").removesuffix(".gz")
    if name.endswith(".swf"):
        return TraceFormat.SWF
    if name.endswith((".yaml", ".yml")):
        return TraceFormat.DISTRIBUTION
    first = _first_line(path)
    columns = {cell.strip() for cell in first.removeprefix("\ufeff").split(",")}
    for known, needed in (
        (TraceFormat.OPENB, {"cpu_milli", "num_gpu"}),
        (TraceFormat.PHILLY, {"timestamp", "num_gpus"}),
        (TraceFormat.PHILLY_COUNTED, {"submit_time", "num_gpu"}),
    ):
        if needed <= columns:
            return known
    if first.count("\t") >= len(gavel.COLUMNS) - 1:
        return TraceFormat.GAVEL
    if first.startswith(";") or len(first.split()) == len(swf.COLUMNS):
        return TraceFormat.SWF
    raise TraceError(
        path,
        1,
        f"the format is unknown; found: {shown(first)}. Known: {', '.join(TraceFormat)}; see --format",
    )


def read_node_table(path: str, gpus: int) -> tuple[Node, ...]:
    """The nodes of a CSV file: those of openb, or hosts with their switches and this many GPUs each."""
    first = _first_line(path)
    if set(SWITCH_COLUMNS) <= set(first.split(",")):
        return read_switches(path, gpus)
    return openb.read_nodes(path)


def _first_line(path: str) -> str:
    for _, line in lines(path):
        if line.strip():
            return line
    raise TraceError(path, None, "the file is empty; give a trace")
