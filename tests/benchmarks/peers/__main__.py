"""`python -m tests.benchmarks.peers`: what users wait for, with other managers and with Bayplan.

Each run has a control plane of its own; managers take turns, the other one first in every other round. A run
is refused if the states that were seen book a node or a quota twice. Loads without preemption also have
runs of a bare loop, which makes the same writes and decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.peers.loads import LOADS, Load
from tests.benchmarks.peers.managers import BARE, BAYPLAN, PEER
from tests.benchmarks.peers.run import Outcome, run
from tools.controlplane.build import build, unavailable
from tools.controlplane.plan import DEFAULT_KUBE, KUEUE, KUEUE_VERSION, NEEDED
from tools.controlplane.start import control_plane

BINDING = "f"
"""Gangs bound beside kube-scheduler, which Kueue leaves to it: `make bench-gang`."""
SCHEDULERS = "g"
"""Gangs bound beside the schedulers of KAI and Volcano."""
BESIDE = {BINDING: "tests.benchmarks.gang", SCHEDULERS: "tests.benchmarks.peers.schedulers"}
WITHOUT_BARE = ("e",)  # a bare loop preempts nothing
HEAD = ("manager", "rate/s", "p50 s", "p99 s", "last s", "CPU s", "API CPU s", "MB", "evicted")


def main() -> int:
    """Measure, print ratios, and say whether anything was booked twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    loads = [*LOADS, *BESIDE]
    parser.add_argument("--only", nargs="+", choices=loads, default=loads, help="these loads")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each manager (default %(default)s)")
    known = (BARE, PEER, BAYPLAN)
    parser.add_argument("--manager", nargs="+", choices=known, default=known, help="only these, in turns")
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide the size of each load, to see whether it works"
    )
    parser.add_argument("--json", type=Path, help="also write all outcomes there")
    wishes = parser.parse_args()
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    programs = (*NEEDED, *((KUEUE,) if PEER in wishes.manager else ()))
    if reason := unavailable(kube, programs):
        print(f"Skipped: {reason}")
        return 0
    build(kube, programs)
    print(f"Kueue {KUEUE_VERSION} and Bayplan on Kubernetes {kube}, {os.cpu_count()} cores", flush=True)
    found: list[Outcome] = []
    for name in [name for name in wishes.only if name not in BESIDE]:
        load = LOADS[name](wishes.shrink)
        print(f"\n{name}: {load.told}\n" + "".join(f"{one:>11}" for one in HEAD), flush=True)
        outcomes = []
        for number in range(wishes.rounds):
            turns = (*((BARE,) if name not in WITHOUT_BARE else ()), PEER, BAYPLAN)
            for manager in turns if number % 2 == 0 else reversed(turns):
                if manager in wishes.manager:
                    outcomes.append(_run(kube, manager, load))
                    _print(outcomes[-1])
        _ratios(outcomes)
        found += outcomes
    if wishes.json:
        wishes.json.parent.mkdir(parents=True, exist_ok=True)
        wishes.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    modules = [module for name, module in BESIDE.items() if name in wishes.only]
    codes = [subprocess.run([sys.executable, "-m", one], check=False).returncode for one in modules]
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    return 1 if any(one.violations for one in found) or any(codes) else 0


def _run(kube: str, manager: str, load: Load) -> Outcome:
    with tempfile.TemporaryDirectory() as name, open(os.devnull, "w") as nowhere:  # noqa: PTH123
        folder = Path(name)
        with control_plane(kube, folder / "cluster", out=nowhere) as cluster:
            return run(cluster, folder, manager, load)


def _print(one: Outcome) -> None:
    rate = one.count / one.seconds
    cells = [f"{rate:.1f}", f"{one.p50:.2f}", f"{one.p99:.2f}", f"{one.seconds:.1f}"]
    cells += [f"{one.manager_cpu:.1f}", f"{one.server_cpu:.1f}", f"{one.megabytes:.0f}", str(one.evictions)]
    print("".join(f"{cell:>11}" for cell in (one.manager, *cells)), flush=True)
    used = _each(one.manager_cpu, one), _each(one.server_cpu, one)
    print(f"    CPU for each: {used[0]} of the manager, {used[1]} of API server and etcd", flush=True)
    told = ", ".join(f"{number:,} {what}" for what, number in list(one.writes.items())[:8])
    print(f"    writes: {told}", flush=True)
    for sentence in one.violations[:5]:
        print(f"    booked twice: {sentence}", flush=True)


def _each(seconds: float, one: Outcome) -> str:
    """For one gang that was admitted, or one pod of a Job."""
    return f"{1000 * seconds / one.count:.1f} ms"


def _ratios(outcomes: list[Outcome]) -> None:
    by = {name: [one for one in outcomes if one.manager == name] for name in (BAYPLAN, PEER, BARE)}

    def middle(name: str, field: str) -> float:
        return float(statistics.median(getattr(one, field) for one in by[name]))

    for name, whose in ((PEER, "Kueue's"), (BARE, "those of a bare loop")):
        if by[BAYPLAN] and by[name]:
            rate = middle(name, "seconds") / middle(BAYPLAN, "seconds")
            cpu = middle(BAYPLAN, "manager_cpu") / max(middle(name, "manager_cpu"), 0.01)
            served = middle(BAYPLAN, "server_cpu") / max(middle(name, "server_cpu"), 0.01)
            print(f"    rate {rate:.2f} ×, CPU of manager {cpu:.2f} ×, of API server {served:.2f} × {whose}")


if __name__ == "__main__":
    sys.exit(main())
