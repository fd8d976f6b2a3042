"""`make bench-segments`: how long a decision takes on gangs in segments, that fit and that cannot."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.kai.api.gang_tree import decode, gang_spec
from bayplan.dialects.kai.api.members import known_pods, pod_positions
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.model.change import FairQueueSeen, GangSpecSeen, NodeSeen, PodSeen, TopologySeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.plan import Bind, Plan, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

LEVELS = ("zone", "rack", HOSTNAME)
HALL = Topology("hall", LEVELS)
HOSTS, RACKS = 20, 50  # in a rack, in a zone
NODE = {"cpu": 64_000, "memory": 1024 << 30, "pods": 110, "gpu": 8}
WORKER = {"cpu": 8_000, "memory": 64 << 30, "gpu": 4, "pods": 1}
SIZE = 16
QUEUE = "team"

FITS_MS, CANNOT_MS = 100.0, 200.0
PEER_FITS_S, PEER_CANNOT_S = 48.7, 249.5
"""What the scheduler whose API this is needs for 512 pods on 500 nodes."""

RACK = Constraint("hall", "rack")
BOTH = Constraint("hall", "rack", HOSTNAME)
ZONE = Constraint("hall", "zone")


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, how much of each rack is taken, and the gang that comes."""

    title: str
    nodes: int
    workers: int
    fits: int  # so many of them
    parent: Constraint | None = None
    segment: Constraint = RACK
    elastic: int = 0  # segments that may be missing
    taken: Callable[[int], bool] | None = None  # hosts on which something runs, by number within the rack
    peer: float = 0.0
    lasting: bool = True  # nobody may be asked to move


def beyond(first: int) -> Callable[[int], bool]:
    """All hosts of a rack but so many."""
    return lambda host: host >= first


LARGE, GANG = 10_000, 1024
CASES = (
    Case("1,024 in 64 segments on 10,000 nodes", LARGE, GANG, GANG),
    Case("the same, all in one zone", LARGE, GANG, GANG, ZONE),
    Case("the same, each segment on few hosts if possible", LARGE, GANG, GANG, ZONE, BOTH),
    Case("the same, half of the segments elastic", LARGE, GANG, GANG, ZONE, elastic=32),
    Case("no rack has room for a segment, all together have", LARGE, GANG, 0, taken=beyond(7)),
    Case("the same, all in one zone", LARGE, GANG, 0, ZONE, taken=beyond(7)),
    Case("the same, each segment on few hosts if possible", LARGE, GANG, 0, ZONE, BOTH, taken=beyond(7)),
    Case("every rack has room for one, no zone for all", LARGE, GANG, 0, ZONE, taken=beyond(8)),
    Case("the same, though 6,000 gangs could move", LARGE, GANG, 0, ZONE, taken=beyond(8), lasting=False),
    Case("half of them are elastic", LARGE, GANG, 800, ZONE, elastic=32, taken=beyond(8)),
    Case("512 in 32 segments on 500 nodes", 500, 512, 512, peer=PEER_FITS_S),
    Case("no rack of 500 nodes has room", 500, 512, 0, taken=beyond(7), peer=PEER_CANNOT_S),
    Case("there is room for 25 of 32 segments", 500, 512, 0, taken=beyond(8), peer=PEER_CANNOT_S),
)


def board_of(case: Case) -> SchedulingState:
    """The cluster: zones of racks of hosts, a queue, and what runs in it."""
    board = SchedulingState()
    without_bound = {name: Entitlement(None, None) for name in ("cpu", "memory", "gpu")}
    board.apply_all([
        TopologySeen(HALL),
        FairQueueSeen(FairQueue("all", entitlements=without_bound)),
        FairQueueSeen(FairQueue(QUEUE, "all", entitlements=without_bound)),
    ])  # fmt: skip
    board.apply_all(NodeSeen(one) for one in _nodes(case.nodes))
    if case.taken is not None:
        board.apply_all(_running(case))
    board.heads(0.0)
    return board


def _nodes(count: int) -> Iterator[Node]:
    for at in range(count):
        rack, name = at // HOSTS, f"n{at:05d}"
        labels = {"zone": f"z{rack // RACKS:02d}", "rack": f"r{rack:03d}", HOSTNAME: name}
        yield Node(name, labels, NODE)


def _running(case: Case) -> Iterator[GangSpecSeen | PodSeen]:
    """A gang of one on each host that is taken, of the same queue and as important as the one that comes."""
    assert case.taken is not None
    for at in range(case.nodes):
        if case.taken(at % HOSTS):
            ref = Ref("bench", "Gang", "ns", f"r{at}")
            yield GangSpecSeen(
                GangSpec(ref, 1, priority=0, queue=QUEUE, non_preemptible=case.lasting, strict=True)
            )
            made = _pod(f"r{at}", ref, "", 0, {**WORKER, "gpu": 8})
            yield PodSeen(replace(made, node=f"n{at:05d}"))


def _pod(name: str, gang: Ref, of: str, rank: int, amounts: dict[str, int]) -> Pod:
    shape = PodSignature(
        "ns", (("index", name),), tuple(sorted(amounts.items())), (amounts["cpu"], amounts["memory"])
    )
    key = PodKey("ns", name)
    return Pod(key, name, amounts, gang=gang, pod_set=of, rank=rank, spec=PodSpec(shape), ours=True)


def arrive(board: SchedulingState, case: Case, number: int) -> Ref:
    """A gang comes, read as it is read from the API."""
    count = case.workers // SIZE
    cut = tuple(
        SubGroup(f"worker-{at}", SIZE if at < count - case.elastic else 0, "worker", case.segment)
        for at in range(count)
    )
    group = PodGroup(
        f"job-{number}", "ns", QUEUE, sub_groups=(SubGroup("worker", case.workers, "", case.parent), *cut)
    )
    pods = {
        f"worker-{at}": [
            _pod(f"job-{number}-{rank}", group.ref, "", rank, WORKER)
            for rank in range(at * SIZE, (at + 1) * SIZE)
        ]
        for at in range(count)
    }
    found = decode(group, known_pods(pods))
    made = gang_spec(group, found, 0, topologies={"hall": LEVELS})
    board.apply(GangSpecSeen(replace(made, queue=QUEUE, topology="hall", uid=group.name)))
    given = pod_positions(found, pods)
    for members in pods.values():
        for pod in members:
            pod_set, rank = given[pod.key]
            board.apply(PodSeen(replace(pod, pod_set=pod_set, rank=rank)))
    return group.ref


def once(board: SchedulingState, case: Case, number: int) -> float:
    """Milliseconds of CPU time from the look at the gang to its plan; nothing of it is carried out."""
    ref = arrive(board, case, number)
    start = time.process_time()
    plan = decide_gangs(board.snapshot([ref], float(number)), Profile(), float(number))
    spent = 1000 * (time.process_time() - start)
    _check(plan, case)
    return spent


def _check(plan: Plan, case: Case) -> None:
    """All is as it was asked for: that many pods, and every segment in one rack."""
    binds = [action for action in plan.actions if isinstance(action, Bind)]
    assert len(binds) == case.fits, (case.title, len(binds))
    assert any(isinstance(action, ReportUnschedulable) for action in plan.actions) == (
        case.fits < case.workers
    )
    racks: dict[int, set[int]] = {}
    for bind in binds:
        number = int(bind.pod.key.name.rsplit("-", 1)[1])
        racks.setdefault(number // SIZE, set()).add(int(bind.node[1:]) // HOSTS)
    assert all(len(where) == 1 for where in racks.values())
    if case.parent is not None:
        assert len({rack // RACKS for where in racks.values() for rack in where}) <= 1


def main() -> int:
    """Measure, print a table, and say what was missed."""
    parser = argparse.ArgumentParser(prog="segments", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    collect_rarely()  # as the scheduler does
    good = True
    width = max(len(case.title) for case in CASES)
    print("Milliseconds of CPU time for one decision: median, least")
    for case in CASES:
        board = board_of(case)
        times = sorted(once(board, case, number) for number in range(rounds))
        middle, limit = statistics.median(times), FITS_MS if case.fits == case.workers else CANNOT_MS
        met = middle <= limit
        good &= met
        ratio = f"  {1000 * case.peer / middle:,.0f} × the peer's {case.peer:g} s" if case.peer else ""
        limited = f"≤ {limit:g} {'met' if met else 'MISSED'}"
        print(f"{case.title:{width}} {middle:8.1f} {times[0]:8.1f}  {limited}{ratio}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
