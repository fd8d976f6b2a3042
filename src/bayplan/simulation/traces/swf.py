"""Reads logs of HPC sites in the Standard Workload Format: processors, run times, and limits of users."""

from __future__ import annotations

import re

from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.simulation.traces.trace_file import Row, TraceError, lines
from bayplan.simulation.traces.workload import CPU, Trace, TraceJob, equal_pods

COLUMNS = (
    "job",
    "submit",
    "wait",
    "run",
    "processors",
    "cpu_time",
    "memory",
    "processors_requested",
    "limit",
    "memory_requested",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think",
)
UNKNOWN = -1
CORE = 1000  # milli-CPU of one processor
NODES_MAX = 200_000
_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes):\s*(\d+)")


def read_swf(path: str, processors_per_pod: int | None = None) -> Trace:
    """The jobs that ran, and the nodes that the header counts.

    A job without a run time or without processors never ran; such lines are counted in the notes. Pods are of
    one processor, or of as many as a node has, if that is known.
    """
    header: dict[str, int] = {}
    rows = []
    for number, line in lines(path):
        if line.startswith(";"):
            header |= {key: int(value[:9]) for key, value in _HEADER.findall(line)}
        elif line.strip():
            cells = line.split()
            if len(cells) != len(COLUMNS):
                raise TraceError(path, number, f"{len(cells)} numbers; {len(COLUMNS)} were expected")
            rows.append(Row(path, number, dict(zip(COLUMNS, cells, strict=True))))
    if not rows:
        raise TraceError(path, None, "there are no jobs in the file")
    processors, nodes = header.get("MaxProcs", 0), header.get("MaxNodes", 0)
    nodes = nodes or processors
    of_node = processors // nodes if nodes else 1
    per_pod = processors_per_pod or max(of_node, 1)
    jobs = [job for row in rows if (job := _job(row, per_pod)) is not None]
    left_out = len(rows) - len(jobs)
    notes = (f"{left_out} of {len(rows)} jobs never ran and are left out",) if left_out else ()
    jobs.sort(key=lambda one: (one.arrival, one.name))
    return Trace(path, tuple(jobs), _nodes(path, nodes, of_node), notes)


def _job(row: Row, per_pod: int) -> TraceJob | None:
    run, used = row.number("run", UNKNOWN), row.whole("processors", UNKNOWN)
    asked, limit = row.whole("processors_requested", UNKNOWN), row.number("limit", UNKNOWN)
    arrival, amount = row.number("submit"), used if used > 0 else asked
    if run <= 0 or amount <= 0:
        return None
    pods, each = equal_pods(amount, per_pod)
    return TraceJob(
        name=f"job-{row.whole('job'):07d}",
        arrival=arrival,
        duration=run,
        requests={CPU: each * CORE},
        pods=pods,
        owner=f"user-{row.text('user')}",
        limit=limit if limit > 0 else None,
        fails=row.text("status") == "0",
    )


def _nodes(path: str, count: int, processors: int) -> tuple[Node, ...]:
    if count > NODES_MAX:
        raise TraceError(
            path, None, f"the header counts {count:,} nodes; at most {NODES_MAX:,} are simulated"
        )
    amounts = {CPU: processors * CORE, PODS: max(processors, 1)}
    return tuple(Node(name, {HOSTNAME: name}, amounts) for name in (f"node-{at:06d}" for at in range(count)))
