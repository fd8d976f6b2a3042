"""Random small clusters whose nodes have zones with pods in them, and gangs that wait for room in zones."""

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
from bayplan.placement.numa.fingerprint import sign_of_container, sign_of_pods
from bayplan.placement.numa.resources import pinned_containers, whole_pod
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

GPU, BLOCK = "nvidia.com/gpu", "block"
FULL = {"cpu": 8000, "memory": 32 << 30, GPU: 4}
Left = list[dict[str, int]]
"""What each zone of a node has left."""


@dataclass(frozen=True)
class Question:
    """What is to be decided."""

    board: SchedulingState
    gangs: tuple[Ref, ...]
    profile: Profile

    def answer(self) -> Plan:
        return decide_gangs(self.board.look(self.gangs, 1.0), self.profile, 1000.0)


def question(seed: int) -> Question:
    """The same for the same seed."""
    random = Random(seed)
    board = SchedulingState(
        zone_care=NumaStalenessPolicy(OverReserve.RESERVE, make_room=random.random() < 0.95)
    )
    for at in range(random.randint(2, 5)):
        _furnish(board, random, f"n{random.randrange(10)}{at}")
    for name in ("v0", "v1"):
        about = GangSpec(
            Ref("g", "Gang", "ns", name), random.choice((0, 2)), leaves_whole=random.random() < 0.6
        )
        board.apply(GangSpecSeen(replace(about, priority=random.choice((None, 0, 1)), uid=name)))
    if random.random() < 0.3:
        chosen = Selector((Requirement("app", "In", ("x",)),))
        board.apply(BudgetSeen(DisruptionBudget("ns", "b", chosen, random.randint(0, 1))))
    sorts = [_wants(random, waits=True) for _ in range(2)]
    gangs = tuple(_gang(board, random, f"g{at}", sorts) for at in range(random.choice((1, 1, 2, 3))))
    rules = ZoneRules(
        random.choice((FitRule.STRICT, FitRule.STRICT, FitRule.PLAIN)),
        sidecars_stay=random.random() < 0.8,
        score=random.choice(list(ZoneScore)),
    )
    choice = random.choice((NodeChoice.PACK, NodeChoice.SPREAD))
    return Question(board, gangs, Profile(gang_nodes=choice, zones=rules, zone_hints=random.random() < 0.5))


def _furnish(board: SchedulingState, random: Random, name: str) -> None:
    """A node, pods that run there, and what it tells of its zones."""
    count = random.choice((1, 2, 2, 3))
    numbers = list(range(count)) if random.random() < 0.7 else random.sample(range(5), count)
    whole = {resource: amount * count for resource, amount in FULL.items()} | {"pods": 110}
    board.apply(NodeSeen(Node(name, {HOSTNAME: name, BLOCK: random.choice("ab")}, whole)))
    left: Left = [dict(FULL) for _ in numbers]
    seats: dict[tuple[str, str], int] = {}
    counted = []
    for at in range(random.randrange(2 * count, 9 * count)):  # those who come when it is full do not stay
        zone, wants = random.randrange(count), _wants(random)
        asked = dict(whole_pod(wants, sidecars_stay=True))
        if any(left[zone].get(resource, 0) < amount for resource, amount in asked.items()):
            continue
        for resource, amount in asked.items():
            left[zone][resource] -= amount
        key = f"{name}-{at}"
        seats |= {(key, one): zone for one in pinned_containers(wants, frozenset(FULL))}
        counted.append(key)
        board.apply(PodSeen(_running(random, key, name, wants)))
    if random.random() < 0.9:
        board.apply(NumaReportSeen(_report(random, name, numbers, left, seats, counted)))


def _running(random: Random, name: str, node: str, wants: NumaRequest) -> Pod:
    shape = _shape(wants, random.choice("xy"), tells=random.random() < 0.9)
    gang = random.choice((None, None, "v0", "v1"))
    return Pod(
        PodKey("ns", name), name, dict(shape.amounts), node,
        gang=None if gang is None else Ref("g", "Gang", "ns", gang),
        leaving=random.random() < 0.05,
        wants=PodSpec(shape, random.choice((0,) * 9 + (1,) * 9 + (200, 200))), ours=True, up=True,
        started=float(random.randrange(3)) + 1,
    )  # fmt: skip


def _report(
    random: Random, name: str, numbers: list[int], left: Left, seats: dict[tuple[str, str], int],
    pods: list[str],
) -> NodeZones:  # fmt: skip
    """Now and then it is wrong about who sits where, or about how much there can be."""
    zones = []
    for number, available in zip(numbers, left, strict=True):
        can = {resource: amount - random.choice((0,) * 9 + (1,)) for resource, amount in FULL.items()}
        listed = [resource for resource in FULL if resource != GPU or random.random() < 0.95]
        zones.append(Zone(number, {one: available[one] for one in listed}, can))
    order = sorted(seats, key=lambda seat: sign_of_container("ns", *seat))
    places = {
        numbers[zone]: tuple(at for at, seat in enumerate(order) if seats[seat] == zone)
        for zone in range(1, len(numbers))
    }
    told = ZoneAssignment(len(order) + (random.random() < 0.05), numbers[0], places)
    return NodeZones(
        name,
        tuple(zones),
        Alignment(
            random.choice((TopologyManagerPolicy.SINGLE_ZONE,) * 8 + (TopologyManagerPolicy.NONE,)),
            random.choice(list(TopologyManagerScope)),
        ),
        sign=sign_of_pods(("ns", pod) for pod in pods),
        seating=told if random.random() < 0.9 else None,
    )


def _wants(random: Random, *, waits: bool = False) -> NumaRequest:
    """Mostly one container to which everything is promised."""
    service = QosClass.GUARANTEED if random.random() < 0.85 else QosClass.BURSTABLE
    roles = random.choice(
        ((ContainerType.APP,),) * 4
        + (
            (ContainerType.APP, ContainerType.APP),
            (ContainerType.INIT, ContainerType.APP),
            (ContainerType.SIDECAR, ContainerType.APP),
        )
    )
    cpus = (1000, 2000, 4000, 6000) if waits and len(roles) == 1 else (1000, 2000, 3000, 1500)
    containers = tuple(
        ContainerRequest(
            f"c{at}",
            (
                ("cpu", random.choice(cpus)),
                ("memory", random.choice((1, 2, 8)) << 30),
                (GPU, random.choice((0, 1, 2, 4) if waits and len(roles) == 1 else (0, 1, 1, 2))),
            ),
            role,
        )
        for at, role in enumerate(roles)
    )
    return NumaRequest(service, containers)


def _shape(wants: NumaRequest, app: str, *, tells: bool = True) -> PodSignature:
    amounts = {**dict(whole_pod(wants, sidecars_stay=True)), "pods": 1}
    weighs = (amounts["cpu"], amounts["memory"])
    return PodSignature(
        "ns", (("app", app),), tuple(sorted(amounts.items())), weighs, zones=wants if tells else None
    )  # fmt: skip


def _gang(board: SchedulingState, random: Random, name: str, sorts: list[NumaRequest]) -> Ref:
    ref = Ref("g", "Gang", "ns", name)
    size = random.randint(1, 6)
    locality = random.choice(
        (Locality(), Locality(), Locality(), Locality(required=BLOCK), Locality(preferred=BLOCK))
    )
    minimum = size if random.random() < 0.6 else random.randint(1, size)
    board.apply(GangSpecSeen(GangSpec(ref, minimum, priority=100, uid=name, locality=locality)))
    mixed = random.random() < 0.3
    for at in range(size):
        shape = _shape(random.choice(sorts) if mixed else sorts[0], "z", tells=random.random() < 0.98)
        pod = Pod(
            PodKey("ns", f"{name}-{at}"), f"{name}-{at}", dict(shape.amounts), gang=ref,
            wants=PodSpec(shape, 100), ours=True,
        )  # fmt: skip
        board.apply(PodSeen(pod))
    return ref
