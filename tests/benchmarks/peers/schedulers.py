"""`python -m tests.benchmarks.peers.schedulers`: gangs bound by KAI, by Volcano and by Bayplan.

All pods are there before their gangs are created, so that nothing but the scheduler is measured. Each runs on
the same cluster in turns. Gangs for Bayplan are made in the API of KAI beside KAI, and in that of Kubernetes
beside Volcano, whose API it does not read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bayplan.backends.remote.kubeconfig import load as load_access
from tests.benchmarks.gang_load import NODE, PODS, ask_all, deletion
from tests.benchmarks.gang_site import QUIET_SECONDS, furnish, watching
from tests.benchmarks.peers.gang_apis import PEERS, Peer, bayplan, define
from tests.benchmarks.peers.managers import BAYPLAN, server_cpu
from tools.controlplane.build import build, unavailable
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import DEFAULT_KUBE, KAI_VERSION, NEEDED, VOLCANO_VERSION
from tools.controlplane.start import control_plane

PATIENCE = 300.0
SETTLE_SECONDS = 12.0  # Bayplan tells each pod without a gang what it waits for; the others tell nothing
LOADS = {"10 gangs of 100 pods": (10, 100), "1 gang of 1,000 pods": (1, 1000)}
HEAD = ("scheduler", "pods/s", "first s", "last s", "CPU s", "API CPU s", "MB")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one scheduler did with one load."""

    scheduler: str
    pods: int
    first: float  # seconds from the creation of the gangs until the first pod was bound
    last: float
    cpu: float
    server_cpu: float
    megabytes: float
    partial: int  # gangs of which only some pods were bound in the end
    overbooked: int  # nodes with more GPUs bound than they have


def main() -> int:
    """Measure, print ratios, and say whether anything was booked twice or bound in part."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers.schedulers", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each scheduler (default %(default)s)")
    parser.add_argument("--shrink", type=int, default=1, help="divide the number of nodes and pods")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), help="beside these peers")
    wishes = parser.parse_args()
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    peers = [PEERS[name] for name in wishes.only]
    wanted = (*NEEDED, *(program for peer in peers for program in peer.programs))
    if reason := unavailable(kube, wanted):
        print(f"Skipped: {reason}")
        return 0
    build(kube, wanted)
    versions = f"KAI {KAI_VERSION}, Volcano {VOLCANO_VERSION} and Bayplan on Kubernetes {kube}"
    print(f"{versions}, {os.cpu_count()} cores", flush=True)
    good = True
    for peer in peers:
        with tempfile.TemporaryDirectory() as name, open(os.devnull, "w") as nowhere:  # noqa: PTH123
            folder = Path(name)
            with control_plane(kube, folder / "cluster", out=nowhere) as cluster:
                define(cluster, peer)
                furnish(cluster, wishes.nodes // wishes.shrink)
                for load, (gangs, size) in LOADS.items():
                    shape = gangs, size // wishes.shrink
                    good &= _beside(cluster, folder, peer, load, shape, wishes.rounds)
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


def _beside(
    cluster: Cluster, folder: Path, peer: Peer, load: str, shape: tuple[int, int], rounds: int
) -> bool:
    print(f"\n{load}, beside {peer.name}\n" + "".join(f"{one:>14}" for one in HEAD), flush=True)
    outcomes = []
    for number in range(rounds):
        for who in (BAYPLAN, peer.name) if number % 2 else (peer.name, BAYPLAN):
            # What a scheduler left behind of earlier pods must not concern later ones: no name is used twice.
            run = f"{shape[0]}-{number}-{who}"
            outcomes.append(
                _run(cluster, folder, peer, who, [f"g{n}-{run}" for n in range(shape[0])], shape[1])
            )
            _print(outcomes[-1])
    ours, theirs = ([one for one in outcomes if (one.scheduler == BAYPLAN) is mine] for mine in (True, False))
    rate = _ratio(ours, theirs, lambda one: one.pods / one.last)
    cpu, served = _ratio(ours, theirs, lambda one: one.cpu), _ratio(ours, theirs, lambda one: one.server_cpu)
    print(f"    rate {rate:.2f} ×, scheduler CPU {cpu:.2f} ×, API server and etcd {served:.2f} ×", flush=True)
    return not any(one.partial or one.overbooked for one in ours)


def _ratio(ours: Sequence[Outcome], theirs: Sequence[Outcome], figure: Callable[[Outcome], float]) -> float:
    """Of the medians."""
    mine, other = (statistics.median(map(figure, one)) for one in (ours, theirs))
    return mine / max(other, 0.01)


def _run(cluster: Cluster, folder: Path, peer: Peer, who: str, names: Sequence[str], size: int) -> Outcome:
    """Pods first; the clock runs from the moment their gangs are made."""
    access, api = load_access(cluster.kubeconfig), peer.ours if who == BAYPLAN else peer.api
    members = {f"{gang}-{at}": gang for gang in names for at in range(size)}
    started = bayplan if who == BAYPLAN else peer.start
    with started(cluster, folder) as running, watching(cluster) as watcher:
        ask_all(access, [("POST", PODS, api.pod(name, who, gang)) for name, gang in members.items()])
        time.sleep(SETTLE_SECONDS)
        cpu, served = running.cpu(), server_cpu(cluster)
        watcher.set_clock()
        ask_all(access, [("POST", api.path, api.gang(name, size)) for name in names], len(names))
        watcher.until(lambda seen: len(seen.bound.keys() & members.keys()) == len(members), PATIENCE)
        time.sleep(QUIET_SECONDS)  # events come after the binds: they are part of the cost
        cpu, served = running.cpu() - cpu, server_cpu(cluster) - served
        times = [watcher.bound[name] for name in members if name in watcher.bound]
        bound = Counter(members[name] for name in members if name in watcher.bound)
        megabytes = running.peak_megabytes()
        overbooked = _overbooked(cluster)
    ask_all(access, [deletion(api.path, name) for name in names])
    ask_all(access, [deletion(PODS, name) for name in members])
    time.sleep(QUIET_SECONDS)
    partial = sum(0 < bound[name] < size for name in names)
    return Outcome(
        who, len(times), min(times, default=0.0), max(times, default=PATIENCE), cpu, served, megabytes,
        partial, overbooked,
    )  # fmt: skip


def _overbooked(cluster: Cluster) -> int:
    """Each pod uses one GPU."""
    used = cluster.kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    return sum(count > int(NODE["nvidia.com/gpu"]) for count in Counter(used).values())


def _print(one: Outcome) -> None:
    cells = [f"{one.pods / one.last:.0f}", f"{one.first:.2f}", f"{one.last:.2f}", f"{one.cpu:.2f}"]
    cells += [f"{one.server_cpu:.1f}", f"{one.megabytes:.0f}"]
    print("".join(f"{cell:>14}" for cell in (one.scheduler, *cells)), flush=True)
    if one.partial or one.overbooked:
        print(f"    {one.partial} gangs bound in part, {one.overbooked} nodes booked twice", flush=True)


if __name__ == "__main__":
    sys.exit(main())
