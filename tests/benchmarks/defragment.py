"""`python -m tests.benchmarks.defragment`: whether moves pay for themselves, and how long a search takes.

Gangs are drawn from the sizes and run times of Acme's jobs (Seren), on racks of Lingjun with 128 hosts; those
of several hosts need one rack. Each load runs without and with defragmentation; what counts is the waiting in
GPU-hours that is saved, minus the GPU-hours of work that are done again. The traces are looked for in
`../shared/traces`, or where BAYPLAN_TRACES says. The search is measured on 5,000 hosts, in CPU seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random

from bayplan.model.change import GangSpecSeen, NodeSeen, PodSeen
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.scheduling.defragment.policy import DefragmentPolicy
from bayplan.scheduling.defragment.problem import DefragmentPlan, MovableGang, RoomRequest, fresh_pods
from bayplan.scheduling.defragment.proof import find_proven_plan
from bayplan.scheduling.defragment.running import running_gangs, snapshot_for_moves
from bayplan.simulation.traces.cluster_shapes import RACK
from bayplan.simulation.traces.workload import GPU, Trace
from bayplan.simulation.virtual_time.defragmenting_engine import DefragmentingEngine
from bayplan.simulation.virtual_time.our_engine import OurEngine
from bayplan.simulation.virtual_time.outcome import RunOutcome, VirtualScheduler
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun
from bayplan.state.scheduling.state import SchedulingState
from tests.benchmarks.acme_load import drawn_gangs, lingjun_hosts, traces_folder

LOADS = (0.8, 0.9, 1.0, 1.1)
JOBS = 20_000
HOSTS = 128
LARGE_NODES, LARGE_SECONDS = 5_000, 2.0
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class PayOff:
    """One load of one seed, without and with moves."""

    load: float
    waiting_before: float  # GPU-hours
    waiting_after: float
    lost: float
    moves: int
    cpu_seconds: float

    @property
    def gain(self) -> float:
        return self.waiting_before - self.waiting_after - self.lost


def pay_off(folder: Path, load: float, jobs: int, seed: int) -> PayOff:
    """Both runs of one load."""
    collect_rarely()
    nodes = some_racks(lingjun_hosts(folder), HOSTS)
    bounds = ("largest: 64", "longest: 86400", f"required: {RACK}")  # a rack has 64 GPUs
    trace = drawn_gangs(folder, nodes, jobs, load, seed, *bounds)
    began = time.process_time()
    plain = run(nodes, trace, OurEngine(nodes, Profile()))
    moving = run(nodes, trace, DefragmentingEngine(nodes, Profile(), DefragmentPolicy()))
    return PayOff(
        load, waiting(plain), waiting(moving), moving.lost / HOUR, moving.moves, time.process_time() - began
    )


def some_racks(nodes: tuple[Node, ...], hosts: int) -> tuple[Node, ...]:
    """Whole racks of so many hosts: on all of them, jobs of a few days never fill what they ask for."""
    found: list[Node] = []
    for node in nodes:
        if len(found) >= hosts and node.labels[RACK] != found[-1].labels[RACK]:
            break
        found.append(node)
    return tuple(found)


def run(nodes: tuple[Node, ...], trace: Trace, scheduler: VirtualScheduler) -> RunOutcome:
    return VirtualRun("bayplan", nodes, trace, scheduler, RunSettings()).run(lambda arrived, total: None)


def waiting(outcome: RunOutcome) -> float:
    """GPU-hours that jobs waited."""
    return sum(job.gpus * (job.wait or 0.0) for job in outcome.jobs) / HOUR


def large_search(nodes: int = LARGE_NODES, seed: int = 1) -> tuple[float, DefragmentPlan | None, int]:
    """CPU seconds of one search on a fragmented cluster, the plan, and how many gangs could move."""
    state, dice = SchedulingState(), Random(seed)
    hosts = [
        Node(name, {RACK: name[:4], HOSTNAME: name}, {GPU: 8, "cpu": 128_000, PODS: 110})
        for name in (f"r{at // 16:03d}-h{at % 16:02d}" for at in range(nodes))
    ]
    changes: list[GangSpecSeen | PodSeen] = []
    for number, host in enumerate(hosts):
        left = 8
        for part in range(dice.choice((1, 1, 2, 3))):
            size = dice.choice((1, 2, 4, 8)) if dice.random() < 0.75 else 0
            if not size or size > left:
                continue
            left -= size
            ref = Ref("bench", "Gang", "ns", f"g{number}-{part}")
            changes.append(GangSpecSeen(GangSpec(ref, 1, priority=0)))
            changes.append(PodSeen(replace(gang_pod(ref, 0, size), node=host.name, ours=True, started=1.0)))
    state.apply_all(map(NodeSeen, hosts))
    state.apply_all(changes)
    snapshot = snapshot_for_moves(state, 100.0)
    movers = [
        MovableGang(snapshot.specs[ref], pods, fresh_pods(pods), dice.randint(100, 5000), 1)
        for ref, pods in running_gangs(snapshot).items()
    ]
    wanted = Ref("bench", "Gang", "ns", "wanted")
    pods = tuple(gang_pod(wanted, rank, 8) for rank in range(16))
    request = RoomRequest(GangSpec(wanted, 16, locality=Locality()), pods, (RACK,))
    began = time.process_time()
    found = find_proven_plan(snapshot, Profile(), request, movers)
    return time.process_time() - began, found if isinstance(found, DefragmentPlan) else None, len(movers)


def gang_pod(ref: Ref, rank: int, gpus: int) -> Pod:
    """A pod of a gang that asks for GPUs only."""
    amounts = {GPU: gpus, PODS: 1}
    shape = PodSignature("ns", amounts=tuple(sorted(amounts.items())))
    name = f"{ref.name}-{rank}"
    return Pod(PodKey("ns", name), name, amounts, gang=ref, rank=rank, spec=PodSpec(shape))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--load", type=float, action="append", help="only this load; may be repeated")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--only", choices=("search", "pay-off"))
    arguments = parser.parse_args()
    good = True
    if arguments.only != "pay-off":
        seconds, plan, movers = large_search()
        good = seconds <= LARGE_SECONDS and plan is not None
        found = (
            "no plan"
            if plan is None
            else f"{len(plan.moves)} moves, cost {plan.cost}, {plan.tries} placements"
        )
        print(
            f"{LARGE_NODES:,} hosts, {movers:,} gangs: {seconds:.2f} s CPU (at most {LARGE_SECONDS}), {found}"
        )
    if arguments.only == "search":
        return 0 if good else 1
    folder = traces_folder()
    if folder is None:
        return 1
    print("| load | waiting, GPU-hours | with moves | saved | done again | moves | gain |")
    print("|---|---|---|---|---|---|---|")
    for load in arguments.load or LOADS:
        with get_context("spawn").Pool(1) as pool:
            one = pool.apply(pay_off, (folder, load, arguments.jobs, arguments.seed))
        saved = one.waiting_before - one.waiting_after
        print(
            f"| {one.load} | {one.waiting_before:,.0f} | {one.waiting_after:,.0f} | {saved:,.0f} |"
            f" {one.lost:,.0f} | {one.moves} | {one.gain:,.0f} | ({one.cpu_seconds:.0f} s CPU)",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
