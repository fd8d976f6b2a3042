"""Who has to go for the sake of a zone: as a look at each node by itself says, and nobody without need."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.change import GangSpecSeen, NodeSeen, NumaReportSeen, PodSeen
from bayplan.model.gang import Ref
from bayplan.model.gang_spec import GangSpec
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.numa import (
    Alignment,
    ContainerRequest,
    NodeZones,
    NumaRequest,
    NumaStalenessPolicy,
    OverReserve,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
    ZoneAssignment,
)
from bayplan.model.plan import Nominate, Plan, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.placement.numa.fingerprint import sign_of_container, sign_of_pods
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.scheduling.preemption.single_pod import VictimsByNode
from bayplan.state.scheduling.state import SchedulingState

GPU = "nvidia.com/gpu"
CARE = NumaStalenessPolicy(OverReserve.RESERVE, make_room=True)
ZONE_CPU, ZONE_GPUS = 8, 4
Seats = dict[str, list[tuple[str, int, int, int]]]  # by node: pod, zone, CPUs, GPUs


def asking(cpu: int, gpus: int) -> NumaRequest:
    asked = (("cpu", cpu * 1000), ("memory", 1 << 30), (GPU, gpus))
    return NumaRequest(QosClass.GUARANTEED, (ContainerRequest("main", asked),))


def pod(name: str, cpu: int, gpus: int, priority: int, node: str = "") -> Pod:
    wants = asking(cpu, gpus)
    amounts = {**dict(wants.containers[0].requests), "pods": 1}
    shape = PodSignature("ns", amounts=tuple(sorted(amounts.items())), zones=wants)
    return Pod(
        PodKey("ns", name), name, amounts, node,
        wants=PodSpec(shape, priority), ours=True, up=bool(node), started=1.0 if node else 0.0,
    )  # fmt: skip


def board(seed: int, nodes: int, told: float = 0.9) -> tuple[SchedulingState, Seats, dict[str, int]]:
    """Nodes of two zones with pods in them, most of which report who sits where."""
    random = Random(seed)
    made = SchedulingState(zone_care=CARE)
    seats: Seats = {}
    priorities: dict[str, int] = {}
    for number in range(nodes):
        node = f"n{number}"
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        made.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        seats[node] = []
        left = [[ZONE_CPU, 32, ZONE_GPUS], [ZONE_CPU, 32, ZONE_GPUS]]
        for at in range(random.randrange(0, 5)):
            zone, cpu, gpus = random.randrange(2), random.randrange(1, 4), random.randrange(0, 3)
            if left[zone][0] < cpu or left[zone][2] < gpus:
                continue
            name = f"{node}-{at}"
            left[zone] = [left[zone][0] - cpu, left[zone][1] - 1, left[zone][2] - gpus]
            seats[node].append((name, zone, cpu, gpus))
            priorities[name] = random.choice((0, 0, 1, 200))
            made.apply(PodSeen(pod(name, cpu, gpus, priorities[name], node)))
        made.apply(NumaReportSeen(report(node, seats[node], left, knows=random.random() < told)))
    return made, seats, priorities


def report(
    node: str, there: list[tuple[str, int, int, int]], left: list[list[int]], *, knows: bool
) -> NodeZones:
    full = {"cpu": 1000 * ZONE_CPU, "memory": 32 << 30, GPU: ZONE_GPUS}
    zones = tuple(
        Zone(number, {"cpu": 1000 * cpu, "memory": memory << 30, GPU: gpus}, full)
        for number, (cpu, memory, gpus) in enumerate(left)
    )
    order = sorted(there, key=lambda one: sign_of_container("ns", one[0], "main"))
    second = tuple(at for at, one in enumerate(order) if one[1] == 1)
    return NodeZones(
        node,
        zones,
        Alignment(TopologyManagerPolicy.SINGLE_ZONE, TopologyManagerScope.CONTAINER),
        sign=sign_of_pods(("ns", one[0]) for one in there),
        seating=ZoneAssignment(len(there), 0, {1: second}) if knows else None,
    )


def decided(made: SchedulingState, cpu: int, gpus: int) -> Plan:
    gang = Ref("kube", "Pod", "ns", "high")
    made.apply(PodSeen(pod("high", cpu, gpus, 100)))
    return decide_gangs(made.look([gang], 1.0), Profile(), 1.0)


def victims(plan: Plan) -> list[str]:
    return sorted(action.pod.key.name for action in plan.actions if isinstance(action, PreemptPod))


def promised(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, Nominate) and action.node]


@given(seed=st.integers(0, 1 << 30), cpu=st.integers(1, 8), gpus=st.integers(1, 4))
def test_all_nodes_at_once_say_what_each_by_itself_says(seed: int, cpu: int, gpus: int) -> None:
    together = decided(board(seed, 4)[0], cpu, gpus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VictimsByNode, "_by_numa", lambda self, one, _, *rest: self._one_by_one(one, *rest))
        alone = decided(board(seed, 4)[0], cpu, gpus)
    assert (victims(together), promised(together)) == (victims(alone), promised(alone))


@given(seed=st.integers(0, 1 << 30), cpu=st.integers(1, 8), gpus=st.integers(1, 4))
def test_whoever_goes_is_needed_and_is_enough(seed: int, cpu: int, gpus: int) -> None:
    """By plain arithmetic on the zones of the node: with all of them gone one has room, else none."""
    made, seats, priorities = board(seed, 4)
    plan = decided(made, cpu, gpus)
    go, where = victims(plan), promised(plan)
    if not go:
        return
    [node] = where
    assert all(priorities[name] < 100 for name in go)
    there = seats[node]
    assert {name for name, *_ in there} >= set(go)

    def some_zone(gone: list[str]) -> bool:
        stay = [one for one in there if one[0] not in gone]
        return any(
            sum(c for _, at, c, _ in stay if at == zone) + cpu <= ZONE_CPU
            and sum(g for *_, at, _, g in stay if at == zone) + gpus <= ZONE_GPUS
            for zone in range(2)
        )

    assert some_zone(go)
    assert not any(some_zone([name for name in go if name != one]) for one in go)


def test_the_best_of_many_nodes_is_found() -> None:
    """Only the last of them can be freed with one pod of no importance; the others take two."""
    made = SchedulingState(zone_care=CARE)
    for number in range(150):
        node = f"n{number:03}"
        last = number == 149
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        made.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        there = [(f"{node}-{at}", at % 2, 1, 2) for at in range(2 if last else 4)]
        for name, _, cpu, gpus in there:
            made.apply(PodSeen(pod(name, cpu, gpus, 0, node)))
        left = [[ZONE_CPU - 1, 31, 2], [ZONE_CPU - 1, 31, 2]] if last else [[ZONE_CPU - 2, 30, 0]] * 2
        made.apply(NumaReportSeen(report(node, there, left, knows=True)))
    plan = decided(made, 1, 4)
    assert promised(plan) == ["n149"]
    assert len(victims(plan)) == 1


def test_a_gang_makes_room_in_zones() -> None:
    made = SchedulingState(zone_care=CARE)
    for number in range(4):
        node = f"n{number}"
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        made.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        there = [(f"{node}-{at}", at, 1, 1) for at in range(2)]
        for name, _, cpu, gpus in there:
            made.apply(PodSeen(pod(name, cpu, gpus, 0, node)))
        left = [[ZONE_CPU - 1, 31, 3], [ZONE_CPU - 1, 31, 3]]
        made.apply(NumaReportSeen(report(node, there, left, knows=True)))
    gang = Ref("bench", "Gang", "ns", "g")
    made.apply(GangSpecSeen(GangSpec(gang, minimum=3, uid="g", priority=100)))
    for at in range(3):
        one = pod(f"g-{at}", 1, 4, 100)
        made.apply(
            PodSeen(Pod(one.key, one.uid, one.amounts, gang=gang, wants=one.wants, ours=True))
        )  # each needs a zone of its own, whole
    plan = decide_gangs(made.look([gang], 1.0), Profile(), 1.0)
    assert len(victims(plan)) == 3, "one for each of them, and no more"
    assert len(promised(plan)) == 3
