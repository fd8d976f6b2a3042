"""`python -m tests.benchmarks.fairness`: large gangs under a stream of small ones, with reservations or not.

Small gangs of 2 to 8 GPUs that run for up to half an hour ask for all of 16 hosts of 8 GPUs for hours;
three gangs of six hosts arrive meanwhile. They wait as gangs of the scheduler, as Workloads (with more
quota than nodes, and with quota for half of the nodes), and in a KAI queue (without a limit, and with one of
half of the nodes). Everything runs in virtual time with the state and the decisions of a cluster, so one seed
gives the same figures and the same plot on every machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.simulation.reports.figures import quantile
from bayplan.simulation.reports.images import can_draw, png
from bayplan.simulation.reports.plots import BarPlot, seconds_in_words
from bayplan.simulation.traces.cluster_shapes import parse_shape
from tests.support.streams import PATHS, StreamRun, large_gang, run_stream, stream

HOSTS = parse_shape("4x4 gpu=8")
PLOT = Path("docs/images/fairness.png")
LARGE = "large"


def waits(run: StreamRun, *, large: bool) -> list[float]:
    """How long the gangs of a size waited; they all start in the end, if only after the stream."""
    found = [job for job in run.outcome.jobs if job.name.startswith(LARGE) is large]
    return [job.wait for job in found if job.wait is not None]


def row(name: str, run: StreamRun) -> str:
    """Waiting times of both sizes, whether the first large gang kept to its bound, and utilisation."""
    sizes = []
    for large in (False, True):
        values = waits(run, large=large)
        found = (quantile(values, 0.5), quantile(values, 0.95), max(values))
        sizes.append(" ".join(f"{seconds_in_words(value):>8}" for value in found))
    held = "-" if run.bound == float("inf") else ("held" if run.start <= run.bound else "BROKEN")
    return f"{name:<40} {sizes[0]} |{sizes[1]} | {held:>6} | {run.allocation:>6.1%}"


def plot(found: dict[str, tuple[StreamRun, StreamRun]]) -> BarPlot:
    """The longest wait of large gangs and the p95 of small ones, in hours."""
    series: dict[str, Sequence[float | None]] = {}
    for number, said in enumerate(("without reservation", "with reservation")):
        runs = [pair[number] for pair in found.values()]
        longest = [max(waits(run, large=True)) / 3600 for run in runs]
        usual = [(quantile(waits(run, large=False), 0.95) or 0.0) / 3600 for run in runs]
        series |= {f"large gangs, longest, {said}": longest, f"small gangs, p95, {said}": usual}
    return BarPlot("fairness", "Waiting time in hours under a stream of small gangs", list(found), series)


def main() -> int:
    """Run everything, print the table, and write the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=5.0, help="how long the stream lasts")
    parser.add_argument("--load", type=float, default=1.0, help="of the small gangs alone")
    parser.add_argument("--plot", type=Path, default=PLOT, help="where the plot is written")
    asked = parser.parse_args()
    collect_rarely()
    large = [large_gang(number, 0.5 + 1.2 * number, 6) for number in range(3)]
    found: dict[str, tuple[StreamRun, StreamRun]] = {}
    head = f"{'p50':>8} {'p95':>8} {'max':>8}"
    print(f"{'waiting of small gangs | of large gangs':<40} {head} |{head} |  bound | in use")
    for path in PATHS:
        trace = stream(HOSTS, asked.seed, asked.hours, large, load=asked.load * path.share)
        without, kept = (run_stream(path, HOSTS, trace, reserve=reserve) for reserve in (False, True))
        found[path.name] = without, kept
        print(row(path.name, without), row(f"{path.name}, with reservation", kept), sep="\n", flush=True)
    if can_draw():
        asked.plot.write_bytes(png(plot(found)))
        print(f"plot: {asked.plot}")
    else:
        print("no plot: matplotlib is not installed; `pip install 'bayplan[sim]'`")
    good = all(kept.start <= kept.bound and kept.start < without.start for without, kept in found.values())
    print("Exit status 1 if the first large gang missed its bound, or started no earlier than without.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
