"""What disturbs a run: nodes that fail and come back, jobs that end early, and jobs that leave the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bayplan.model.node import Node
from bayplan.simulation.traces.trace_file import NUMBER_MAX, TraceError, table
from bayplan.simulation.traces.workload import Trace

NEVER = float("inf")
OUTAGES_MAX = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class InvalidDisruption(Exception):
    """A rate or a duration is invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A node is away for some time; the jobs on it start again from their beginning."""

    node: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Disruptions:
    """The same for every policy of a comparison."""

    outages: tuple[NodeOutage, ...] = ()
    failing_share: float = 0.0  # of jobs: they end early, at any moment of their run time
    patience: float = NEVER  # seconds after which a waiting job leaves the queue

    def run_time_share(self, seed: int, job: str) -> float:
        """The share of its run time after which a job ends; 1 if it does not fail. The seed decides."""
        if not self.failing_share:
            return 1.0
        dice = Random(f"{seed}/{job}")
        return dice.random() if dice.random() < self.failing_share else 1.0


def seconds_of(text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `30d` in seconds. Raises InvalidDisruption."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= NUMBER_MAX:
        raise InvalidDisruption(f"{text[:40]!r} is no duration; give a number with s, m, h or d, such as 30m")
    return seconds


def read_outages(path: str, nodes: Sequence[Node]) -> tuple[NodeOutage, ...]:
    """A CSV table with the columns node, start and seconds. Raises TraceError."""
    known = {node.name for node in nodes}
    found = []
    for row in table(path, ("node", "start", "seconds")):
        name = row.text("node")
        if name not in known:
            raise TraceError(path, row.line, f"there is no node {name[:60]!r} in the cluster")
        found.append(NodeOutage(name, row.number("start"), row.number("seconds")))
    return tuple(sorted(found, key=lambda one: (one.start, one.node)))


def draw_outages(text: str, nodes: Sequence[Node], trace: Trace, seed: int) -> tuple[NodeOutage, ...]:
    """Outages at random: `mtbf=30d repair=2h`, the mean time of one node between failures and to its repair.

    They are drawn for as long as the jobs of the trace arrive, and for the longest run time after that.
    """
    given = dict(part.partition("=")[::2] for part in text.replace(",", " ").split())
    if given.keys() != {"mtbf", "repair"}:
        raise InvalidDisruption(f"{text[:60]!r} is no rate; give a file, or it as `mtbf=30d repair=2h`")
    between, repair = seconds_of(given["mtbf"]), seconds_of(given["repair"])
    end = max((job.arrival + (job.duration or 0.0) for job in trace.jobs), default=0.0)
    if end / between * len(nodes) > OUTAGES_MAX:
        raise InvalidDisruption(
            f"mtbf={given['mtbf']} gives more than {OUTAGES_MAX:,} outages; give a longer"
        )
    found = []
    for node in nodes:
        dice = Random(f"{seed}/{node.name}")
        at = dice.expovariate(1 / between)
        while at < end:
            seconds = dice.expovariate(1 / repair)
            found.append(NodeOutage(node.name, at, seconds))
            at += seconds + dice.expovariate(1 / between)
    return tuple(sorted(found, key=lambda one: (one.start, one.node)))
