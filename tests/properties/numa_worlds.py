"""Random nodes with NUMA zones, and random pods with requests for them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bayplan.model.node import Node
from bayplan.model.numa import (
    Alignment,
    ContainerRequest,
    ContainerType,
    NodeZones,
    NumaRequest,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
)
from bayplan.placement.numa.columns import NumaColumns, zone_columns

GPU, NIC, LICENSE = "nvidia.com/gpu", "vendor.com/nic", "example.com/license"
ZONED = ("cpu", "memory", "hugepages-2Mi", GPU, NIC)
REQUESTED = (*ZONED, LICENSE, "ephemeral-storage")


@dataclass(frozen=True)
class World:
    nodes: list[Node]
    reports: dict[str, NodeZones]
    stale: list[str]

    @property
    def columns(self) -> NumaColumns:
        return zone_columns(self.nodes, self.reports, self.stale)


def amount(random: Random, resource: str, limit: int) -> int:
    if resource == "cpu":
        return random.choice([0, 500, 1000, 1500, 2000, 3000, 4000]) * limit // 4
    if resource in ("memory", "hugepages-2Mi"):
        return random.randrange(0, 4 * limit)
    return random.randrange(0, limit + 1)


def zone(random: Random, number: int, numbers: list[int]) -> Zone:
    listed = [name for name in ZONED if random.random() < (0.95 if name in ("cpu", "memory") else 0.6)]
    available = {name: amount(random, name, 8) for name in listed}
    known = random.random() < 0.8
    distances = (
        {to: 10 if to == number else random.choice([11, 12, 20, 21]) for to in numbers} if known else {}
    )
    return Zone(number, available, {name: left + 1 for name, left in available.items()}, distances)


def report(random: Random, name: str) -> NodeZones:
    count = random.choice([0, 1, 2, 2, 3, 4])
    numbers = list(range(count)) if random.random() < 0.7 else random.sample(range(70), count)
    policy = (
        TopologyManagerPolicy.SINGLE_ZONE
        if random.random() < 0.8
        else random.choice(list(TopologyManagerPolicy))
    )
    return NodeZones(
        name,
        tuple(zone(random, number, numbers) for number in numbers),
        Alignment(policy, random.choice(list(TopologyManagerScope)), random.choice([8, 8, 2, 16, 200])),
    )


def world(seed: int) -> World:
    random = Random(seed)
    nodes, reports, stale = [], {}, []
    for number in range(random.randrange(1, 6)):
        name = f"n{number}"
        offered = [resource for resource in REQUESTED if random.random() < 0.9]
        nodes.append(Node(name, {}, dict.fromkeys(offered, 1 << 30)))
        if random.random() < 0.9:
            reports[name] = report(random, name)
        if random.random() < 0.1:
            stale.append(name)
    return World(nodes, reports, stale)


def numa_request(seed: int) -> NumaRequest:
    random = Random(seed ^ 0x5EED)
    service = random.choice(
        [QosClass.GUARANTEED, QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT]
    )
    containers: list[ContainerRequest] = []
    for role in [ContainerType.INIT, ContainerType.SIDECAR, ContainerType.INIT]:
        if random.random() < 0.3:
            containers.append(container(random, f"c{len(containers)}", role, service))
    for _ in range(random.randrange(1, 4)):
        containers.append(container(random, f"c{len(containers)}", ContainerType.APP, service))
    overhead = (("cpu", 250), ("memory", 1)) if random.random() < 0.2 else ()
    return NumaRequest(service, tuple(containers), overhead)


def container(random: Random, name: str, role: ContainerType, service: QosClass) -> ContainerRequest:
    requests = {}
    if service is QosClass.GUARANTEED:
        requests = {"cpu": amount(random, "cpu", 4) or 500, "memory": amount(random, "memory", 3) + 1}
    for resource in REQUESTED:
        if resource not in requests and random.random() < 0.25:
            if service is QosClass.BEST_EFFORT and resource in ("cpu", "memory"):
                continue
            requests[resource] = amount(random, resource, 2)
    return ContainerRequest(name, tuple(requests.items()), role)
