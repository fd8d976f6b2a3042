"""Random small clusters whose nodes have NUMA zones with running pods, and pending gangs that need zones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from bayplan.model.change import BudgetSeen, GangSpecSeen, NodeSeen, NumaReportSeen, PodSeen
from bayplan.model.gang import DisruptionBudget, GangSpec, Locality, Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.node_rules import Requirement
from bayplan.model.numa import (
    Alignment,
    ContainerRequest,
    ContainerType,
    FitRule,
    NodeZones,
    NumaRequest,
    NumaStalenessPolicy,
    OverReserve,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
    ZoneAssignment,
    ZoneRules,
    ZoneScore,
)
from bayplan.model.plan import Plan
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec, Selector
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.numa.fingerprint import container_fingerprint, pods_fingerprint
from bayplan.placement.numa.resources import pinned_containers, whole_pod
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

GPU, BLOCK = "nvidia.com/gpu", "block"
FULL = {"cpu": 8000, "memory": 32 << 30, GPU: 4}
FreeByZone = list[dict[str, int]]
"""The free amounts of each zone of a node."""


@dataclass(frozen=True)
class SchedulingProblem:
    """A cluster state, pending gangs and a profile."""

    state: SchedulingState
    gangs: tuple[Ref, ...]
    profile: Profile

    def plan(self) -> Plan:
        return decide_gangs(self.state.snapshot(self.gangs, 1.0), self.profile, 1000.0)


def problem(seed: int) -> SchedulingProblem:
    """A random problem, deterministic by seed."""
    random = Random(seed)
    state = SchedulingState(
        numa_policy=NumaStalenessPolicy(OverReserve.RESERVE, simulate_evictions=random.random() < 0.95)
    )
    for at in range(random.randint(2, 5)):
        _add_node(state, random, f"n{random.randrange(10)}{at}")
    for name in ("v0", "v1"):
        spec = GangSpec(
            Ref("g", "Gang", "ns", name), random.choice((0, 2)), disrupt_together=random.random() < 0.6
        )
        state.apply(GangSpecSeen(replace(spec, priority=random.choice((None, 0, 1)), uid=name)))
    if random.random() < 0.3:
        chosen = Selector((Requirement("app", "In", ("x",)),))
        state.apply(BudgetSeen(DisruptionBudget("ns", "b", chosen, random.randint(0, 1))))
    requests = [_request(random, pending=True) for _ in range(2)]
    gangs = tuple(_gang(state, random, f"g{at}", requests) for at in range(random.choice((1, 1, 2, 3))))
    rules = ZoneRules(
        random.choice((FitRule.STRICT, FitRule.STRICT, FitRule.PLAIN)),
        sidecars_stay=random.random() < 0.8,
        score=random.choice(list(ZoneScore)),
    )
    choice = random.choice(list(NodeChoice))
    return SchedulingProblem(
        state, gangs, Profile(gang_nodes=choice, zones=rules, zone_hints=random.random() < 0.5)
    )


def _add_node(state: SchedulingState, random: Random, name: str) -> None:
    """Add a node, its running pods and the report of its zones."""
    count = random.choice((1, 2, 2, 3))
    numbers = list(range(count)) if random.random() < 0.7 else random.sample(range(5), count)
    whole = {resource: amount * count for resource, amount in FULL.items()} | {"pods": 110}
    state.apply(NodeSeen(Node(name, {HOSTNAME: name, BLOCK: random.choice("ab")}, whole)))
    left: FreeByZone = [dict(FULL) for _ in numbers]
    container_zones: dict[tuple[str, str], int] = {}
    counted = []
    for at in range(random.randrange(2 * count, 9 * count)):  # pods that do not fit are dropped
        zone, request = random.randrange(count), _request(random)
        requested = dict(whole_pod(request, sidecars_stay=True))
        if any(left[zone].get(resource, 0) < amount for resource, amount in requested.items()):
            continue
        for resource, amount in requested.items():
            left[zone][resource] -= amount
        key = f"{name}-{at}"
        container_zones |= {(key, one): zone for one in pinned_containers(request, frozenset(FULL))}
        counted.append(key)
        state.apply(PodSeen(_running(random, key, name, request)))
    if random.random() < 0.9:
        state.apply(NumaReportSeen(_report(random, name, numbers, left, container_zones, counted)))


def _running(random: Random, name: str, node: str, request: NumaRequest) -> Pod:
    shape = _shape(request, random.choice("xy"), with_zones=random.random() < 0.9)
    gang = random.choice((None, None, "v0", "v1"))
    return Pod(
        PodKey("ns", name), name, dict(shape.amounts), node,
        gang=None if gang is None else Ref("g", "Gang", "ns", gang),
        terminating=random.random() < 0.05,
        spec=PodSpec(shape, random.choice((0,) * 9 + (1,) * 9 + (200, 200))), ours=True, was_started=True,
        started=float(random.randrange(3)) + 1,
    )  # fmt: skip


def _report(
    random: Random, name: str, numbers: list[int], left: FreeByZone,
    container_zones: dict[tuple[str, str], int], pods: list[str],
) -> NodeZones:  # fmt: skip
    """A report that is sometimes wrong about container zones or allocatable amounts."""
    zones = []
    for number, available in zip(numbers, left, strict=True):
        can = {resource: amount - random.choice((0,) * 9 + (1,)) for resource, amount in FULL.items()}
        listed = [resource for resource in FULL if resource != GPU or random.random() < 0.95]
        zones.append(Zone(number, {one: available[one] for one in listed}, can))
    order = sorted(container_zones, key=lambda container: container_fingerprint("ns", *container))
    places = {
        numbers[zone]: tuple(at for at, container in enumerate(order) if container_zones[container] == zone)
        for zone in range(1, len(numbers))
    }
    assignment = ZoneAssignment(len(order) + (random.random() < 0.05), numbers[0], places)
    return NodeZones(
        name,
        tuple(zones),
        Alignment(
            random.choice((TopologyManagerPolicy.SINGLE_ZONE,) * 8 + (TopologyManagerPolicy.NONE,)),
            random.choice(list(TopologyManagerScope)),
        ),
        fingerprint=pods_fingerprint(("ns", pod) for pod in pods),
        assignment=assignment if random.random() < 0.9 else None,
    )


def _request(random: Random, *, pending: bool = False) -> NumaRequest:
    """Mostly one container of a Guaranteed pod."""
    service = QosClass.GUARANTEED if random.random() < 0.85 else QosClass.BURSTABLE
    roles = random.choice(
        ((ContainerType.APP,),) * 4
        + (
            (ContainerType.APP, ContainerType.APP),
            (ContainerType.INIT, ContainerType.APP),
            (ContainerType.SIDECAR, ContainerType.APP),
        )
    )
    cpus = (1000, 2000, 4000, 6000) if pending and len(roles) == 1 else (1000, 2000, 3000, 1500)
    containers = tuple(
        ContainerRequest(
            f"c{at}",
            (
                ("cpu", random.choice(cpus)),
                ("memory", random.choice((1, 2, 8)) << 30),
                (GPU, random.choice((0, 1, 2, 4) if pending and len(roles) == 1 else (0, 1, 1, 2))),
            ),
            role,
        )
        for at, role in enumerate(roles)
    )
    return NumaRequest(service, containers)


def _shape(request: NumaRequest, app: str, *, with_zones: bool = True) -> PodSignature:
    amounts = {**dict(whole_pod(request, sidecars_stay=True)), "pods": 1}
    weighs = (amounts["cpu"], amounts["memory"])
    return PodSignature(
        "ns", (("app", app),), tuple(sorted(amounts.items())), weighs, zones=request if with_zones else None
    )  # fmt: skip


def _gang(state: SchedulingState, random: Random, name: str, requests: list[NumaRequest]) -> Ref:
    ref = Ref("g", "Gang", "ns", name)
    size = random.randint(1, 6)
    locality = random.choice(
        (Locality(), Locality(), Locality(), Locality(required=BLOCK), Locality(preferred=BLOCK))
    )
    minimum = size if random.random() < 0.6 else random.randint(1, size)
    state.apply(GangSpecSeen(GangSpec(ref, minimum, priority=100, uid=name, locality=locality)))
    mixed = random.random() < 0.3
    for at in range(size):
        shape = _shape(
            random.choice(requests) if mixed else requests[0], "z", with_zones=random.random() < 0.98
        )
        pod = Pod(
            PodKey("ns", f"{name}-{at}"), f"{name}-{at}", dict(shape.amounts), gang=ref,
            spec=PodSpec(shape, 100), ours=True,
        )  # fmt: skip
        state.apply(PodSeen(pod))
    return ref
