"""The published admission load: 640 nodes, 30 queues in 5 cohorts, 15,000 Workloads of three sizes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.api_objects import container, workload

Object = dict[str, Any]

RACK, HOST = "topology/rack", "kubernetes.io/hostname"
NAMESPACE = "default"
API = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True, slots=True)
class Size:
    """A sort of Workload: pods, CPU each, how often one comes, how long it runs, how important it is."""

    name: str
    pods: int
    cpu: str
    every: float
    runs: float
    priority: int
    per_queue: int


SIZES = (
    Size("small", 2, "500m", 0.1, 0.2, 50, 350),
    Size("medium", 4, "1250m", 0.5, 0.5, 100, 100),
    Size("large", 8, "2500m", 1.2, 1.0, 200, 50),
)


def rules(cohorts: int = 5, queues: int = 6) -> Iterator[Object]:
    """Topology, flavor, queues and the ways into them."""
    yield _object("Topology", "data-centre", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    yield _object("ResourceFlavor", "gpu", {"nodeLabels": {"pool": "gpu"}, "topologyName": "data-centre"})
    for cohort in range(cohorts):
        for queue in range(queues):
            name = f"queue-{cohort}-{queue}"
            quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
            yield _object(
                "ClusterQueue",
                name,
                {
                    "cohortName": f"cohort-{cohort}",
                    "namespaceSelector": {},
                    "queueingStrategy": "BestEffortFIFO",
                    "flavorFungibility": {
                        "whenCanBorrow": "MayStopSearch",
                        "whenCanPreempt": "TryNextFlavor",
                    },
                    "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                    "resourceGroups": [
                        {"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": [quota]}]}
                    ],
                },
            )
            yield _object("LocalQueue", name, {"clusterQueue": name}, NAMESPACE)


def nodes(racks: int = 10, hosts: int = 64) -> Iterator[Object]:
    """Hosts of 96 CPU."""
    for rack in range(racks):
        for host in range(hosts):
            name = f"r{rack:02d}-h{host:02d}"
            amounts = {"cpu": "96", "memory": "256Gi", "pods": "110"}
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {RACK: f"r{rack:02d}", HOST: name, "pool": "gpu"}},
                "spec": {},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }


def rack_workload(name: str, queue: str, size: Size, wish: str) -> Object:
    """One Workload; `wish` is required or preferred."""
    pod_set = {
        "name": "main",
        "count": size.pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container({"cpu": size.cpu})]}},
        "topologyRequest": {wish: RACK},
    }
    return workload(name, pod_set, namespace=NAMESPACE, queueName=queue, priority=size.priority)


def arrivals(cohorts: int = 5, queues: int = 6, share: float = 1.0) -> list[tuple[float, Object, Size]]:
    """When which Workload comes."""
    lines = [
        [
            (
                index * size.every / 3,
                rack_workload(
                    f"{size.name}-{cohort}-{queue}-{index:03d}",
                    f"queue-{cohort}-{queue}",
                    size,
                    ("required", "preferred", "preferred")[index % 3],
                ),
                size,
            )
            for index in range(int(size.per_queue * share))
        ]
        for cohort in range(cohorts)
        for queue in range(queues)
        for size in SIZES
    ]
    return list(heapq.merge(*lines, key=lambda entry: (entry[0], entry[1]["metadata"]["name"])))


def _object(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
