"""`python -m tests.benchmarks.jobs`: from `kubectl create` of a large Job to its last pod without a gate.

On a real control plane, in turns: `bayplan run` admits the Job, starts it and ungates its pods; and a loop
that decides nothing patches the pods of the same Job, started by hand, to the same nodes. What the second
takes is the share of the API server and the Job controller.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.jobs_site import Run, furnish, with_bare_loop, with_bayplan
from tools.controlplane.build import unavailable
from tools.controlplane.plan import DEFAULT_KUBE
from tools.controlplane.start import control_plane

RATIO_MAX = 1.3


def measured(kube: str, pods: int, rounds: int, options: list[str]) -> tuple[list[Run], list[Run]]:
    """Runs of ours and of the bare loop in turns, each way first in every other round."""
    ours: list[Run] = []
    bare: list[Run] = []
    with tempfile.TemporaryDirectory() as name, control_plane(kube, Path(name) / "cluster") as cluster:
        folder = Path(name)
        hosts = furnish(cluster, pods)
        print(f"one Job of {pods:,} pods on {hosts:,} hosts, Kubernetes {cluster.kube}", flush=True)
        model = with_bayplan(cluster, folder, "model", pods, *options)  # also warms up
        tell("warm-up, ours", model)
        for number in range(rounds):
            for is_ours in (number % 2 == 0, number % 2 == 1):
                if is_ours:
                    ours.append(with_bayplan(cluster, folder, f"ours-{number}", pods, *options))
                    tell(f"round {number + 1}, ours", ours[-1])
                else:
                    bare.append(with_bare_loop(cluster, folder, f"bare-{number}", model))
                    tell(f"round {number + 1}, bare", bare[-1])
    return ours, bare


def tell(what: str, run: Run) -> None:
    told = f"{run.seconds:.2f} s, the pods were made between {run.first_made:.2f} and {run.last_made:.2f} s"
    print(f"    {what}: {told}; load {os.getloadavg()[0]:.1f}", flush=True)


def verdict(pods: int, ours: list[Run], bare: list[Run]) -> bool:
    """Print the figures; whether the target was met."""
    mine = statistics.median(run.seconds for run in ours)
    other = statistics.median(run.seconds for run in bare)
    ratio = mine / other
    word = "met" if ratio <= RATIO_MAX else "MISSED"
    print(f"from creation to the last pod ungated: {ratio:.2f} × the bare loop (≤ {RATIO_MAX:g}, {word})")
    each = [f"{ours:.2f} s, {pods / ours:.0f} pods/s" for ours in (mine, other)]
    print(f"    Bayplan {each[0]}; bare loop {each[1]} (medians of {len(ours)})")
    for name, runs in (("Bayplan", ours), ("bare loop", bare)):
        loop = statistics.median(100 * run.loop_cpu / run.seconds for run in runs)
        everything = statistics.median(100 * run.all_cpu / run.seconds for run in runs)
        cost = statistics.median(1000 * run.all_cpu / pods for run in runs)
        parts = f"{loop:.0f} % of one core in the loop, " if name == "Bayplan" else ""
        print(f"    CPU of {name}: {parts}{everything:.0f} % in all, {cost:.2f} ms for each pod")
    served = [statistics.median(run.server_cpu for run in runs) for runs in (ours, bare)]
    print(
        f"    CPU of the control plane: {served[0]:.1f} s with Bayplan, {served[1]:.1f} s with the bare loop"
    )
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    return ratio <= RATIO_MAX


def main() -> int:
    """Measure and print; the exit status tells whether the target was met."""
    parser = argparse.ArgumentParser(prog="jobs", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--pod-batch-seconds", default="", help="as of `bayplan run`; its default if not given"
    )
    wishes = parser.parse_args()
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        print(f"Skipped: {reason}")
        return 0
    batch = wishes.pod_batch_seconds
    options = [f"--pod-batch-seconds={batch}"] if batch else []
    return 0 if verdict(wishes.pods, *measured(kube, wishes.pods, wishes.rounds, options)) else 1


if __name__ == "__main__":
    sys.exit(main())
