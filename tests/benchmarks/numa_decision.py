"""Whole decisions about an aligned gang of 1,000 pods on 5,000 nodes of eight zones, without any API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle

from bayplan.model.change import (
    FlavorSeen,
    GangSpecSeen,
    NamespaceQueueSeen,
    NodeSeen,
    NumaReportSeen,
    PodSeen,
    QueuedGangSeen,
    QueueSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, GangSpec, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.numa import NodeZones, NumaRequest
from bayplan.model.plan import Admit, Bind, Plan, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import NodeChoice, Profile
from bayplan.model.queued_gang import QueuedGang, QuotaRequest
from bayplan.model.quota import Flavor, NamespaceQueue, Queue, Quota, QuotaNode, ResourceGroup
from bayplan.placement.numa.resources import whole_pod
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.admission.state import AdmissionState
from bayplan.state.scheduling.state import SchedulingState

BLOCK = "block"
NODES_PER_BLOCK = 500
Supply = tuple[list[Node], dict[str, NodeZones]]


def labelled(nodes: list[Node]) -> list[Node]:
    """The same nodes as members of blocks."""
    return [
        Node(node.name, {HOSTNAME: node.name, BLOCK: f"b{at // NODES_PER_BLOCK:03}"}, node.allocatable)
        for at, node in enumerate(nodes)
    ]


def board_of(supply: Supply) -> SchedulingState:
    """The scheduler's beliefs."""
    nodes, reports = supply
    board = SchedulingState()
    board.apply_all(map(NodeSeen, nodes))
    board.apply_all(map(NumaReportSeen, reports.values()))
    return board


def scheduler_turns(
    board: SchedulingState, sorts: Sequence[NumaRequest], pods: int, required: str | None = None, *,
    fits: bool = True, choice: NodeChoice = NodeChoice.PACK,
) -> Iterator[float]:  # fmt: skip
    """Seconds of CPU time from the look at a gang to its plan, again and again; nothing is carried out.

    Its pods are of these sorts by turns.
    """
    shapes = [shape_of(wants) for wants in sorts]
    profile = Profile(gang_nodes=choice)
    number = 0
    while True:
        number += 1
        gang = Ref("bench", "Gang", "default", f"gang-{number}")
        locality = Locality(required=required)
        board.apply(GangSpecSeen(GangSpec(gang, minimum=pods, uid=gang.name, locality=locality)))
        board.apply_all(
            PodSeen(
                Pod(
                    PodKey("default", f"{gang.name}-{at}"), f"{at}", dict(shape.amounts),
                    gang=gang, spec=PodSpec(shape), ours=True,
                )
            )
            for at, shape in zip(range(pods), cycle(shapes), strict=False)
        )  # fmt: skip
        yield timed(partial(decided, board, gang, profile), Bind if fits else ReportUnschedulable)


def decided(board: SchedulingState, gang: Ref, profile: Profile) -> Plan:
    """The plan for one gang."""
    return decide_gangs(board.snapshot([gang], 1.0), profile, 1.0)


def shape_of(wants: NumaRequest) -> PodSignature:
    """Pods that ask for nothing else."""
    amounts = {**dict(whole_pod(wants, sidecars_stay=True)), "pods": 1}
    return PodSignature(
        "default", amounts=tuple(sorted(amounts.items())), score_requests=(4000, 8 << 30), zones=wants
    )


def queue_turns(supply: Supply, wants: NumaRequest, pods: int, required: str | None) -> Iterator[float]:
    """The same for a gang that asks a queue for quota and hosts."""
    nodes, reports = supply
    requests = dict(whole_pod(wants, sidecars_stay=True))
    state = AdmissionState()
    state.apply(TopologySeen(Topology("t", (BLOCK, HOSTNAME))))
    state.apply_all(map(NodeSeen, nodes))
    state.apply_all(map(NumaReportSeen, reports.values()))
    state.apply(FlavorSeen(Flavor("f", topology="t")))
    quotas = {("f", name): Quota(amount * pods) for name, amount in requests.items()}
    state.apply(
        QueueSeen(Queue(QuotaNode("q", "", quotas), (ResourceGroup(tuple(requests), ("f",)),), namespaces=()))
    )
    state.apply(NamespaceQueueSeen(NamespaceQueue("default", "main", "q")))
    pod_set = PodSet("main", pods, pods, requests, Locality(required=required), zones=wants)
    gang = Gang(Ref("kueue", "Workload", "default", "a"), Group("", (pod_set,), 1), uid="a")
    state.apply(
        QueuedGangSeen(
            QueuedGang(gang, (QuotaRequest("main", pods, requests, topology=True),), ("default", "main"))
        )
    )
    heads = state.heads(1.0)
    while True:
        yield timed(lambda: decide_admissions(state.snapshot(heads), Profile(), 1.0), Admit)


def timed(decide: Callable[[], Plan], wanted: type) -> float:
    """Seconds of CPU time of a decision, which begins with such an action."""
    begin = time.process_time()
    plan = decide()
    spent = time.process_time() - begin
    assert plan.actions and isinstance(plan.actions[0], wanted), plan.actions[:1]
    return spent
