"""Victims for a NUMA zone: equal to a search node by node, sufficient, and none without need."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.change import GangSpecSeen, NodeSeen, NumaReportSeen, PodSeen
from bayplan.model.gang import GangSpec, Ref
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
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import Profile
from bayplan.placement.numa.fingerprint import container_fingerprint, pods_fingerprint
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.scheduling.preemption.single_pod import VictimsByNode
from bayplan.state.scheduling.state import SchedulingState
from tests.support.model_objects import pod

GPU = "nvidia.com/gpu"
POLICY = NumaStalenessPolicy(OverReserve.RESERVE, simulate_evictions=True)
ZONE_CPU, ZONE_GPUS = 8, 4
PodZones = dict[str, list[tuple[str, int, int, int]]]  # by node: pod, zone, CPUs, GPUs


def numa_request(cpu: int, gpus: int) -> NumaRequest:
    asked = (("cpu", cpu * 1000), ("memory", 1 << 30), (GPU, gpus))
    return NumaRequest(QosClass.GUARANTEED, (ContainerRequest("main", asked),))


def numa_pod(name: str, cpu: int, gpus: int, priority: int, node: str = "") -> Pod:
    request = numa_request(cpu, gpus)
    amounts = {**dict(request.containers[0].requests), "pods": 1}
    shape = PodSignature("ns", amounts=tuple(sorted(amounts.items())), zones=request)
    started = 1.0 if node else 0.0
    return pod(name, shape, node, priority, uid=name, was_started=bool(node), started=started)


def state_of(
    seed: int, nodes: int, reporting: float = 0.9
) -> tuple[SchedulingState, PodZones, dict[str, int]]:
    """Nodes of two zones with running pods; most nodes report the zones of containers."""
    random = Random(seed)
    state = SchedulingState(numa_policy=POLICY)
    pod_zones: PodZones = {}
    priorities: dict[str, int] = {}
    for number in range(nodes):
        node = f"n{number}"
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        state.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        pod_zones[node] = []
        left = [[ZONE_CPU, 32, ZONE_GPUS], [ZONE_CPU, 32, ZONE_GPUS]]
        for at in range(random.randrange(0, 5)):
            zone, cpu, gpus = random.randrange(2), random.randrange(1, 4), random.randrange(0, 3)
            if left[zone][0] < cpu or left[zone][2] < gpus:
                continue
            name = f"{node}-{at}"
            left[zone] = [left[zone][0] - cpu, left[zone][1] - 1, left[zone][2] - gpus]
            pod_zones[node].append((name, zone, cpu, gpus))
            priorities[name] = random.choice((0, 0, 1, 200))
            state.apply(PodSeen(numa_pod(name, cpu, gpus, priorities[name], node)))
        state.apply(NumaReportSeen(report(node, pod_zones[node], left, knows=random.random() < reporting)))
    return state, pod_zones, priorities


def report(
    node: str, running: list[tuple[str, int, int, int]], left: list[list[int]], *, knows: bool
) -> NodeZones:
    full = {"cpu": 1000 * ZONE_CPU, "memory": 32 << 30, GPU: ZONE_GPUS}
    zones = tuple(
        Zone(number, {"cpu": 1000 * cpu, "memory": memory << 30, GPU: gpus}, full)
        for number, (cpu, memory, gpus) in enumerate(left)
    )
    order = sorted(running, key=lambda one: container_fingerprint("ns", one[0], "main"))
    second = tuple(at for at, one in enumerate(order) if one[1] == 1)
    return NodeZones(
        node,
        zones,
        Alignment(TopologyManagerPolicy.SINGLE_ZONE, TopologyManagerScope.CONTAINER),
        fingerprint=pods_fingerprint(("ns", one[0]) for one in running),
        assignment=ZoneAssignment(len(running), 0, {1: second}) if knows else None,
    )


def decided(state: SchedulingState, cpu: int, gpus: int) -> Plan:
    gang = Ref("kube", "Pod", "ns", "high")
    state.apply(PodSeen(numa_pod("high", cpu, gpus, 100)))
    return decide_gangs(state.snapshot([gang], 1.0), Profile(), 1.0)


def victims(plan: Plan) -> list[str]:
    return sorted(action.pod.key.name for action in plan.actions if isinstance(action, PreemptPod))


def nominated(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, Nominate) and action.node]


@given(seed=st.integers(0, 1 << 30), cpu=st.integers(1, 8), gpus=st.integers(1, 4))
def test_the_search_over_all_nodes_equals_the_search_node_by_node(seed: int, cpu: int, gpus: int) -> None:
    together = decided(state_of(seed, 4)[0], cpu, gpus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VictimsByNode, "_by_numa", lambda self, one, _, *rest: self._one_by_one(one, *rest))
        alone = decided(state_of(seed, 4)[0], cpu, gpus)
    assert (victims(together), nominated(together)) == (victims(alone), nominated(alone))


@given(seed=st.integers(0, 1 << 30), cpu=st.integers(1, 8), gpus=st.integers(1, 4))
def test_every_victim_is_needed_and_together_they_are_enough(seed: int, cpu: int, gpus: int) -> None:
    """By arithmetic on the zones of the node: a zone fits without all victims, and none with any of them."""
    state, pod_zones, priorities = state_of(seed, 4)
    plan = decided(state, cpu, gpus)
    victim_names, where = victims(plan), nominated(plan)
    if not victim_names:
        return
    [node] = where
    assert all(priorities[name] < 100 for name in victim_names)
    running = pod_zones[node]
    assert {name for name, *_ in running} >= set(victim_names)

    def some_zone(removed: list[str]) -> bool:
        stay = [one for one in running if one[0] not in removed]
        return any(
            sum(c for _, at, c, _ in stay if at == zone) + cpu <= ZONE_CPU
            and sum(g for *_, at, _, g in stay if at == zone) + gpus <= ZONE_GPUS
            for zone in range(2)
        )

    assert some_zone(victim_names)
    assert not any(some_zone([name for name in victim_names if name != one]) for one in victim_names)


def test_the_node_with_the_fewest_victims_of_many_is_chosen() -> None:
    """Only the last node needs one victim; the others need two."""
    state = SchedulingState(numa_policy=POLICY)
    for number in range(150):
        node = f"n{number:03}"
        last = number == 149
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        state.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        running = [(f"{node}-{at}", at % 2, 1, 2) for at in range(2 if last else 4)]
        for name, _, cpu, gpus in running:
            state.apply(PodSeen(numa_pod(name, cpu, gpus, 0, node)))
        left = [[ZONE_CPU - 1, 31, 2], [ZONE_CPU - 1, 31, 2]] if last else [[ZONE_CPU - 2, 30, 0]] * 2
        state.apply(NumaReportSeen(report(node, running, left, knows=True)))
    plan = decided(state, 1, 4)
    assert nominated(plan) == ["n149"]
    assert len(victims(plan)) == 1


def test_a_gang_preempts_pods_to_free_zones() -> None:
    state = SchedulingState(numa_policy=POLICY)
    for number in range(4):
        node = f"n{number}"
        whole = {"cpu": 2000 * ZONE_CPU, "memory": 64 << 30, GPU: 2 * ZONE_GPUS, "pods": 110}
        state.apply(NodeSeen(Node(node, {HOSTNAME: node}, whole)))
        running = [(f"{node}-{at}", at, 1, 1) for at in range(2)]
        for name, _, cpu, gpus in running:
            state.apply(PodSeen(numa_pod(name, cpu, gpus, 0, node)))
        left = [[ZONE_CPU - 1, 31, 3], [ZONE_CPU - 1, 31, 3]]
        state.apply(NumaReportSeen(report(node, running, left, knows=True)))
    gang = Ref("bench", "Gang", "ns", "g")
    state.apply(GangSpecSeen(GangSpec(gang, minimum=3, uid="g", priority=100)))
    for at in range(3):
        one = numa_pod(f"g-{at}", 1, 4, 100)
        state.apply(
            PodSeen(Pod(one.key, one.uid, one.amounts, gang=gang, spec=one.spec, ours=True))
        )  # each needs a whole zone
    plan = decide_gangs(state.snapshot([gang], 1.0), Profile(), 1.0)
    assert len(victims(plan)) == 3, "one victim for each pod of the gang"
    assert len(nominated(plan)) == 3
