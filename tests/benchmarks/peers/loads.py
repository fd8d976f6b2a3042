"""The loads: nodes, queues, and the Workloads or Jobs that are created, the same for every manager."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.api_objects import KUEUE, Object, api_object, cluster_queue, container, node, workload

RACK, BLOCK, HOST, GPU = "example.com/rack", "example.com/block", "kubernetes.io/hostname", "nvidia.com/gpu"
NAMESPACE = "default"
LEVELS = (BLOCK, RACK, HOST)
WISHES = ("required", "preferred", "unconstrained")


@dataclass(frozen=True, slots=True)
class Gang:
    """A Workload that is created, and how long it runs once it is admitted (without end, if 0)."""

    obj: Object
    runs: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one run consists of."""

    name: str
    told: str
    nodes: list[Object]
    queues: list[Object]
    first: list[Gang] = field(default_factory=list)  # admitted before the clock starts
    gangs: list[Gang] = field(default_factory=list)
    jobs: list[Object] = field(default_factory=list)
    pods: int = 0  # of the Jobs, all of which lose their gates


def all_fit(shrink: int = 1) -> Load:
    """a1: gangs of 1 to 64 pods that all fit, in 30 queues of 5 cohorts."""
    dice, count = random.Random(1), 2000 // shrink
    hosts = list(_hosts(racks=10, each=64, gpus=96))
    queues = list(_queues(5, 6, 96 * 640 // 30))
    gangs = [
        Gang(
            _gang(f"g{n:04d}", f"q{n % 5}-{n // 5 % 6}", dice.choice((1, 2, 4, 8, 16, 32, 64)), WISHES[n % 3])
        )
        for n in range(count)
    ]
    return Load("a1", f"{count:,} gangs of 1 to 64 pods, 640 nodes, all fit", hosts, queues, gangs=gangs)


def crowded(shrink: int = 1) -> Load:
    """a2: three times what fits, of three sizes and priorities, with short runs and reclaim in cohorts."""
    sizes = ((2, 1, 50, 0.2), (4, 1, 100, 0.5), (8, 2, 200, 1.0))  # pods, GPUs each, priority, seconds
    counts = (46 // shrink, 13 // shrink or 1, 7 // shrink or 1)
    each = [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    dice = random.Random(2)
    gangs = []
    for queue in range(30):
        mixed = list(each)
        dice.shuffle(mixed)
        for number, (pods, gpus, priority, runs) in enumerate(mixed):
            name, where = f"g{queue:02d}-{number:03d}", f"q{queue % 5}-{queue // 5}"
            gangs.append(Gang(_gang(name, where, pods, WISHES[number % 2], gpus, priority), runs))
    gangs.sort(key=lambda one: one.obj["metadata"]["name"].partition("-")[2])  # all queues at the same pace
    asked = sum(pods * gpus for pods, gpus, _, _ in each)
    hosts = list(_hosts(racks=10, each=64, gpus=96))
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    queues = list(_queues(5, 6, asked // 3, borrowing=asked, preemption=preemption))
    told = f"{len(gangs):,} gangs, three times what the quota allows, short runs, priorities, reclaim"
    return Load("a2", told, hosts, queues, gangs=gangs)


def many_jobs(shrink: int = 1, pods: int = 20) -> Load:
    """b: Jobs with a required rack, to the last pod without a gate."""
    count = 200 // shrink
    hosts = list(_hosts(racks=20, each=32, gpus=8))
    queues = list(_queues(1, 1, 8 * 640))
    jobs = [_job(f"job-{number:03d}", pods, "required") for number in range(count)]
    told = f"{count} Jobs of {pods} pods, required rack, until no pod has a gate"
    return Load("b", told, hosts, queues, jobs=jobs, pods=count * pods)


def large_job(shrink: int = 1) -> Load:
    """c: one Job."""
    pods = 1000 // shrink
    hosts = list(_hosts(racks=20, each=32, gpus=8))
    return Load(
        "c", f"one Job of {pods:,} pods, until no pod has a gate", hosts, list(_queues(1, 1, 8 * 640)),
        jobs=[_job("large", pods, "preferred")], pods=pods,
    )  # fmt: skip


def many_nodes(shrink: int = 1, count: int = 100, pods: int = 256) -> Load:
    """d: large gangs on many nodes."""
    nodes, count = max(500, 5000 // shrink), count // shrink
    hosts = list(_hosts(racks=nodes // 50, each=50, gpus=8))
    gangs = [
        Gang(_gang(f"g{n:03d}", "q0-0", pods, ("required", "preferred")[n % 2], at=BLOCK))
        for n in range(count)
    ]
    told = f"{nodes:,} nodes, {count} gangs of {pods} pods"
    return Load("d", told, hosts, list(_queues(1, 1, 8 * nodes)), gangs=gangs)


def full(shrink: int = 1) -> Load:
    """e: gangs of a higher priority on nodes that are full."""
    nodes, count = max(100, 1000 // shrink // 50 * 50), max(2, 20 // shrink)
    hosts = list(_hosts(racks=nodes // 50, each=50, gpus=8))
    queues = list(_queues(1, 1, 8 * nodes, preemption={"withinClusterQueue": "LowerPriority"}))
    first = [Gang(_gang(f"low-{n:03d}", "q0-0", 8, "required", 8, 10)) for n in range(nodes // 50 * 6)]
    first += [Gang(_gang(f"rest-{n:03d}", "q0-0", 1, "unconstrained", 8, 10)) for n in range(nodes // 50 * 2)]
    gangs = [Gang(_gang(f"high-{n:02d}", "q0-0", 16, "required", 8, 100)) for n in range(count)]
    return Load(
        "e", f"{count} gangs of 16 nodes preempt on {nodes:,} full nodes", hosts, queues, first, gangs
    )


LOADS: dict[str, Callable[[int], Load]] = {
    "a1": all_fit,
    "a2": crowded,
    "b": many_jobs,
    "c": large_job,
    "d": many_nodes,
    "e": full,
}


def _hosts(racks: int, each: int, gpus: int) -> Iterator[Object]:
    for rack in range(racks):
        for number in range(each):
            name = f"r{rack:03d}-h{number:02d}"
            labels = {RACK: f"r{rack:03d}", BLOCK: f"b{rack // 10:02d}", HOST: name, "pool": "gpu"}
            yield node(name, {"cpu": "192", "memory": "2048Gi", "pods": "250", GPU: str(gpus)}, labels)


def _queues(cohorts: int, each: int, gpus: int, borrowing: int = 0, **more: Any) -> Iterator[Object]:
    levels = [{"nodeLabel": level} for level in LEVELS]
    yield api_object(KUEUE, "Topology", "hall", spec={"levels": levels})
    yield api_object(
        KUEUE, "ResourceFlavor", "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "hall"}
    )
    quota = {"name": GPU, "nominalQuota": gpus} | ({"borrowingLimit": borrowing} if borrowing else {})
    for cohort in range(cohorts):
        for number in range(each):
            name = f"q{cohort}-{number}"
            spec: Object = {"namespaceSelector": {}, "cohortName": f"cohort-{cohort}", **more}
            yield cluster_queue(name, [quota], ["gpu"], **spec)
            yield api_object(KUEUE, "LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name})


def _gang(
    name: str, queue: str, pods: int, wish: str, gpus: int = 1, priority: int = 0, at: str = RACK
) -> Object:
    asked = {GPU: str(gpus)}
    request = {"unconstrained": True} if wish == "unconstrained" else {wish: at}
    pod_set = {
        "name": "main",
        "count": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container(asked, asked)]}},
        "topologyRequest": request,
    }
    return workload(name, pod_set, namespace=NAMESPACE, queueName=queue, priority=priority)


def _job(name: str, pods: int, wish: str) -> Object:
    asked = {GPU: "1"}
    spec = {"restartPolicy": "Never", "schedulerName": "by-hand", "containers": [container(asked, asked)]}
    notes = {f"kueue.x-k8s.io/podset-{wish}-topology": RACK}
    template = {"metadata": {"annotations": notes, "labels": {"bench": "yes"}}, "spec": spec}
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "suspend": True}
    labels = {"kueue.x-k8s.io/queue-name": "q0-0"}
    return api_object(
        "batch/v1", "Job", name, namespace=NAMESPACE, labels=labels, spec={**counts, "template": template}
    )
