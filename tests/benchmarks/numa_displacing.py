"""Who goes for an aligned gang, on thousands of nodes whose zones are full, without any API."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial

from bayplan.model.change import GangSpecSeen, NodeSeen, NumaReportSeen, PodSeen
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.node import Node
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
from bayplan.model.plan import PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSpec
from bayplan.model.profile import Profile
from bayplan.placement.numa.fingerprint import container_fingerprint, pods_fingerprint
from bayplan.state.scheduling.state import SchedulingState
from tests.benchmarks.numa_decision import decided, labelled, shape_of, timed

GPU = "nvidia.com/gpu"
FULL = {"cpu": 8000, "memory": 32 << 30, GPU: 4}
URGENT = 100
SEED = 8


@cache
def asking(cpus: int, gpus: int) -> NumaRequest:
    """One container to which everything is promised."""
    asked = (("cpu", 1000 * cpus), ("memory", 1 << 30), (GPU, gpus))
    return NumaRequest(QosClass.GUARANTEED, (ContainerRequest("main", asked),))


@cache
def _wants(cpus: int, gpus: int, priority: int) -> PodSpec:
    return PodSpec(shape_of(asking(cpus, gpus)), priority)


def full_board(nodes: int, zones: int, pods: int) -> SchedulingState:
    """Every zone is in use by so many pods of little importance, and reports say who sits where."""
    chance = random.Random(SEED)
    board = SchedulingState(numa_policy=NumaStalenessPolicy(OverReserve.RESERVE, simulate_evictions=True))
    whole = {name: zones * amount for name, amount in FULL.items()} | {"pods": 110}
    for node in labelled([Node(f"node-{at:05}", {}, whole) for at in range(nodes)]):
        board.apply(NodeSeen(node))
        seats: dict[str, int] = {}
        left = [dict(FULL) for _ in range(zones)]
        for at in range(zones * pods):
            zone, wants = at // pods, _wants(chance.randrange(1, 3), 4 // pods, chance.randrange(3))
            name = f"{node.name}-{at}"
            seats[name] = zone
            for resource, amount in asking_of(wants).items():
                left[zone][resource] -= amount
            amounts = dict(wants.signature.amounts)
            board.apply(
                PodSeen(
                    Pod(
                        PodKey("default", name), name, amounts, node.name,
                        spec=wants, ours=True, was_started=True, started=1.0,
                    )
                )
            )  # fmt: skip
        board.apply(NumaReportSeen(_report(node.name, left, seats)))
    return board


def asking_of(wants: PodSpec) -> dict[str, int]:
    """What a pod takes of its zone."""
    return {name: amount for name, amount in wants.signature.amounts if name in FULL}


def _report(node: str, left: list[dict[str, int]], seats: dict[str, int]) -> NodeZones:
    order = sorted(seats, key=lambda name: container_fingerprint("default", name, "main"))
    places = {
        zone: tuple(at for at, name in enumerate(order) if seats[name] == zone)
        for zone in range(1, len(left))
    }
    return NodeZones(
        node,
        tuple(Zone(number, available, FULL) for number, available in enumerate(left)),
        Alignment(TopologyManagerPolicy.SINGLE_ZONE, TopologyManagerScope.CONTAINER),
        fingerprint=pods_fingerprint(("default", name) for name in seats),
        assignment=ZoneAssignment(len(seats), 0, places),
    )


def displacing_turns(board: SchedulingState, pods: int, required: str | None = None) -> Iterator[float]:
    """Seconds of CPU time until it is known who goes for a gang whose pods take a zone each."""
    number = 0
    while True:
        number += 1
        gang = Ref("bench", "Gang", "default", f"gang-{number}")
        charter = GangSpec(gang, pods, priority=URGENT, uid=gang.name, locality=Locality(required=required))
        board.apply(GangSpecSeen(charter))
        wants = _wants(1, 4, URGENT)
        board.apply_all(
            PodSeen(
                Pod(
                    PodKey("default", f"{gang.name}-{at}"), f"{at}", dict(wants.signature.amounts),
                    gang=gang, spec=wants, ours=True,
                )
            )
            for at in range(pods)
        )  # fmt: skip
        yield timed(partial(decided, board, gang, Profile()), PreemptPod)
