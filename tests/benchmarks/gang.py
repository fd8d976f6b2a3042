"""`python -m tests.benchmarks.gang`: gangs and plain pods, by us and by kube-scheduler on one API server.

Each load is made first and released by one thing: gangs by their Workload, plain pods by the scheduler's
start. A loop that decides nothing and only binds shows what the API server allows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.kubeconfig import load
from tests.benchmarks.gang_decision import decisions
from tests.benchmarks.gang_load import PODS, WORKLOADS, ask_all, binding, deletion, gang_workload, load_pod
from tests.benchmarks.gang_site import (
    HIGH,
    LOW,
    OURS,
    QUIET_SECONDS,
    THEIRS,
    furnish,
    scheduler,
    watching,
)
from tools.controlplane.build import unavailable
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import DEFAULT_KUBE
from tools.controlplane.start import control_plane

PATIENCE = 240.0
WAITING_SECONDS = 12.0
"""How long pods are there before their Workload is; ours tells each that it waits, which takes a while."""

GANG_RATIO_MIN, PLAIN_RATIO_MIN, CPU_MS_MAX, BARE_SHARE_MIN = 3.0, 1.5, 1.0, 0.8
ASTRAY = "nobody"
"""A scheduler that does not exist: its pods are bound by hand."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one scheduler did with one load."""

    pods: int  # that ended as they should
    asked: int
    first: float  # seconds until the first
    last: float
    cpu: float  # seconds of the scheduler's processor

    @property
    def rate(self) -> float:
        """Pods per second, from the release to the last."""
        return self.pods / self.last if self.last else 0.0

    @property
    def pace(self) -> float:
        """Pods per second once the first was done."""
        return (self.pods - 1) / (self.last - self.first) if self.last > self.first else 0.0

    def told(self) -> str:
        each = 1000 * self.cpu / max(self.pods, 1)
        done = "" if self.pods == self.asked else f" ONLY {self.pods} of {self.asked} within {PATIENCE:g} s;"
        seen = f"{self.rate:.0f} pods/s, first after {self.first:.2f} s, last after {self.last:.2f} s"
        return f"{done} {seen}, {each:.2f} ms CPU each"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where it happens."""

    cluster: Cluster
    access: Access
    folder: Path

    def gangs(self, who: str, gangs: int, size: int, gpus: int = 1, priority: str = "") -> Run:
        """Pods first; the moment their Workloads are made the clock runs."""
        names = [f"g{number}" for number in range(gangs)]
        members = [f"{gang}-{at}" for gang in names for at in range(size)]
        with scheduler(self.cluster, who, self.folder) as running, watching(self.cluster) as watcher:
            ask_all(
                self.access,
                [("POST", PODS, load_pod(m, who, gpus, m.partition("-")[0], priority)) for m in members],
            )
            time.sleep(WAITING_SECONDS)
            cpu = running.cpu()
            watcher.set_clock()
            ask_all(self.access, [("POST", WORKLOADS, gang_workload(name, size)) for name in names], gangs)
            watcher.until(lambda w: len(w.bound.keys() & set(members)) == len(members), PATIENCE)
            time.sleep(QUIET_SECONDS)  # events come after the binds: they are part of the cost
            run = _run(watcher.bound, members, running.cpu() - cpu)
        self._remove(names, members)
        return run

    def hopeless(self, who: str, size: int) -> Run:
        """A gang that fits nowhere: until its pods say so."""
        members = [f"huge-{at}" for at in range(size)]
        with scheduler(self.cluster, who, self.folder) as running, watching(self.cluster) as watcher:
            ask_all(self.access, [("POST", PODS, load_pod(member, who, 9, "huge")) for member in members])
            time.sleep(QUIET_SECONDS)
            cpu = running.cpu()
            watcher.set_clock()
            ask_all(self.access, [("POST", WORKLOADS, gang_workload("huge", size))], 1)
            watcher.until(lambda w: len(w.refused) == size, PATIENCE)
            run = _run(watcher.refused, members, running.cpu() - cpu)
        self._remove(["huge"], members)
        return run

    def plain(self, who: str, count: int) -> Run:
        """Pods that wait for their scheduler to be started; what it takes to start does not count."""
        members = [f"p{number}" for number in range(count)]
        ask_all(self.access, [("POST", PODS, load_pod(member, who)) for member in members])
        with watching(self.cluster) as watcher:
            watcher.set_clock()
            with scheduler(self.cluster, who, self.folder) as running:
                watcher.until(lambda w: len(w.bound) == count, PATIENCE)
                time.sleep(QUIET_SECONDS)
                run = _run(watcher.bound, members, running.cpu())
        self._remove([], members)
        return run

    def contended(self, who: str, gangs: int, size: int, nodes: int) -> Run:
        """Every node is full of less important pods; more important gangs make room for themselves."""
        fillers = [f"low{number}" for number in range(nodes)]
        with self._full(fillers):
            return self.gangs(who, gangs, size, 8, HIGH)

    @contextmanager
    def _full(self, fillers: list[str]) -> Iterator[None]:
        ask_all(self.access, [("POST", PODS, load_pod(name, ASTRAY, 8, "", LOW)) for name in fillers])
        ask_all(self.access, [binding(name, f"n{at:05d}") for at, name in enumerate(fillers)])
        try:
            yield
        finally:
            self._remove([], fillers)

    def bare(self, count: int) -> float:
        """Binds per second of a loop that decides nothing."""
        members = [f"bare-{at}" for at in range(count)]
        ask_all(self.access, [("POST", PODS, load_pod(member, ASTRAY)) for member in members])
        time.sleep(QUIET_SECONDS)
        with watching(self.cluster) as watcher:
            watcher.set_clock()
            ask_all(self.access, [binding(member, f"n{at:05d}") for at, member in enumerate(members)])
            watcher.until(lambda w: len(w.bound) == count, PATIENCE)
            seconds = max(watcher.bound.values())
        self._remove([], members)
        return count / seconds

    def _remove(self, gangs: list[str], members: list[str]) -> None:
        ask_all(self.access, [deletion(WORKLOADS, name) for name in gangs])
        ask_all(self.access, [deletion(PODS, name) for name in members])
        time.sleep(QUIET_SECONDS)


def _run(when: dict[str, float], members: list[str], cpu: float) -> Run:
    times = [when[name] for name in members if name in when]
    return Run(len(times), len(members), min(times, default=0.0), max(times, default=0.0), cpu)


Load = Callable[[Bench, str], Run]
LOADS: dict[str, Load] = {
    "10 gangs of 100 pods": lambda bench, who: bench.gangs(who, 10, 100),
    "1 gang of 1,000 pods": lambda bench, who: bench.gangs(who, 1, 1000),
    "5,000 plain pods": lambda bench, who: bench.plain(who, 5000),
    "1 gang of 1,000 pods that cannot fit": lambda bench, who: bench.hopeless(who, 1000),
    "100 gangs of 10 pods on a full cluster": lambda bench, who: bench.contended(who, 100, 10, 5000),
}


def measured(kube: str, nodes: int, rounds: int, only: str) -> bool:
    """Every load by both, in turns; whether all targets were met."""
    good = True
    with tempfile.TemporaryDirectory() as name, control_plane(kube, Path(name) / "cluster") as cluster:
        furnish(cluster, nodes)
        bench = Bench(cluster, load(cluster.kubeconfig), Path(name))
        print(f"{nodes:,} nodes, Kubernetes {cluster.kube}", flush=True)
        for what, act in LOADS.items():
            if only not in what:
                continue
            runs: dict[str, list[Run]] = {OURS: [], THEIRS: []}
            bare: list[float] = []
            for number in range(rounds):
                for who in (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS):
                    runs[who].append(act(bench, who))
                    print(
                        f"    {what}, {who}:{runs[who][-1].told()}; load {os.getloadavg()[0]:.1f}", flush=True
                    )
                bare.append(bench.bare(1000))
                print(f"    bare loop: {bare[-1]:.0f} binds/s", flush=True)
            good &= verdict(what, runs, bare)
    return good


def verdict(what: str, runs: dict[str, list[Run]], bare: list[float]) -> bool:
    """Print the ratios of a load; whether its targets were met."""
    plain, fits = "plain" in what, "cannot" not in what

    def middle(who: str, figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, runs[who]))

    speed: Callable[[Run], float] = (lambda run: run.pace) if plain else (lambda run: run.rate)
    ours, theirs = middle(OURS, speed), middle(THEIRS, speed)
    each = middle(OURS, lambda run: 1000 * run.cpu / max(run.pods, 1))
    least = PLAIN_RATIO_MIN if plain else GANG_RATIO_MIN
    met = ours >= least * theirs
    print(f"{what}: {ours / max(theirs, 1e-9):.1f} × kube-scheduler (≥ {least:g}, {_word(met)})")
    print(f"    {ours:.0f} against {theirs:.0f} pods/s, medians of {len(bare)}")
    if not fits or "full" in what:
        return met
    pace = middle(OURS, lambda run: run.pace)  # how fast it binds, once it binds
    share, cheap = pace / statistics.median(bare), each <= CPU_MS_MAX
    enough = share >= BARE_SHARE_MIN
    print(f"    {100 * share:.0f} % of the bare loop (≥ {100 * BARE_SHARE_MIN:.0f} %, {_word(enough)})")
    limit = "" if plain else f" (≤ {CPU_MS_MAX:g}, {_word(cheap)})"
    print(f"    {each:.2f} ms CPU for each pod{limit}", flush=True)
    return met and enough and (cheap or plain)


def _word(met: bool) -> str:
    return "met" if met else "MISSED"


def main() -> int:
    """Measure and print; the exit status tells whether every target was met."""
    parser = argparse.ArgumentParser(prog="gang", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the name of a load, or `decision`")
    wishes = parser.parse_args()
    good = decisions() if wishes.only in ("", "decision") else True
    if wishes.only == "decision":
        return 0 if good else 1
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        print(f"Skipped: {reason}")
        return 0 if good else 1
    return 0 if measured(kube, wishes.nodes, wishes.rounds, wishes.only) and good else 1


if __name__ == "__main__":
    sys.exit(main())
