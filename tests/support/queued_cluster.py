"""A cluster in memory with queues, flavors and cohorts, and Workloads made by hand, for tests of commands.

Two blocks of two racks of two hosts, 4 GPUs each. Queues `left` and `right` share the cohort `team` below
`all`; `small` has no topology. Time stands still.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bayplan.backends.crds import define
from bayplan.backends.embedded.http.server import ApiServer
from bayplan.backends.embedded.storage.store import Store
from bayplan.cli.commands.main import main
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.node import HOSTNAME
from bayplan.runtime.core.clock import VirtualClock
from tests.support.api_objects import READY, job, node, pod, workload
from tests.unit.backends.embedded.storage.test_store import store_at

Object = dict[str, Any]

TOLD = Path(__file__).parent / "expected_output"
NOW = 1_800_000_000.0
BLOCK, RACK, GPU = "example.com/block", "example.com/rack", "nvidia.com/gpu"
JOBS = Kind("batch", "v1", "Job", "jobs")
EVENTS = Kind("", "v1", "Event", "events")
API = "kueue.x-k8s.io/v1beta2"


def ruled(kind: Kind, name: str, spec: Object, namespace: str = "") -> tuple[Kind, Object]:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def rack_node(name: str, block: str, rack: str, labels: dict[str, str]) -> Object:
    amounts = {"cpu": "64", GPU: "4", "pods": "20"}
    return node(name, amounts, {BLOCK: block, RACK: rack, **labels}, conditions=[READY])


def quota(flavor: str, gpus: int, **limits: Any) -> Object:
    return {
        "coveredResources": ["cpu", GPU],
        "flavors": [
            {
                "name": flavor,
                "resources": [
                    {"name": "cpu", "nominalQuota": "256"},
                    {"name": GPU, "nominalQuota": str(gpus), **limits},
                ],
            }
        ],
    }


def template(gpus: int, notes: dict[str, str] | None = None) -> Object:
    amounts = {"cpu": "8", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "example.com/train", "resources": {"requests": amounts}}
    container["resources"] |= {"limits": {GPU: str(gpus)}} if gpus else {}  # type: ignore[operator]
    meta = {"metadata": {"annotations": notes}} if notes else {}
    return {**meta, "spec": {"restartPolicy": "Never", "containers": [container]}}


def queued_workload(
    name: str,
    pods: int,
    gpus: int,
    queue: str = "left",
    *,
    required: str = "",
    namespace: str = "ml",
    **spec: Any,
) -> Object:
    request = {"topologyRequest": {"required": required}} if required else {}
    one = {"name": "main", "count": pods, "template": template(gpus), **request}
    given = {"queueName": queue, "active": True, "priority": 0, **spec}
    return workload(name, one, namespace=namespace, **given)


def queued_job(name: str, pods: int, gpus: int, queue: str = "left", **notes: str) -> Object:
    told = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in notes.items()}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return job(name, template(gpus, told), pods, namespace="ml", labels=labels, suspend=True)


def running_pod(name: str, on: str, gpus: int) -> Object:
    """A pod without a gang, bound to a node."""
    return pod(name, namespace="ml", nodeName=on, **template(gpus)["spec"])


def condition(kind: str, ago: float, reason: str, message: str = "", status: str = "True") -> Object:
    at = timestamp(NOW - ago)
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at,
    }  # fmt: skip


def admitted(
    queue: str, flavor: str, usage: dict[str, str], hosts: dict[str, int], ago: float = 300
) -> Object:
    """The status of a Workload that runs on these hosts."""
    placed = {
        "levels": [HOSTNAME],
        "slices": [
            {
                "domainCount": len(hosts),
                "valuesPerLevel": [{"individual": {"roots": list(hosts)}}],
                "podCounts": {"individual": list(hosts.values())},
            }
        ],
    }
    given: Object = {
        "name": "main",
        "count": sum(hosts.values()),
        "flavors": dict.fromkeys(usage, flavor),
        "resourceUsage": usage,
        "topologyAssignment": placed,
    }
    return {
        "admission": {"clusterQueue": queue, "podSetAssignments": [given]},
        "conditions": [
            condition("QuotaReserved", ago, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}"),
            condition("Admitted", ago, "Admitted", "The workload is admitted"),
        ],
    }


@dataclass
class QueuedCluster:
    """The store, and the command in front of its HTTP face."""

    store: Store
    kubeconfig: Path
    now: float = NOW

    def put(self, kind: Kind, obj: Object) -> Object:
        return self.store.create(replace(kind, wire=None), obj, obj["metadata"].get("namespace", ""))

    def submit(self, obj: Object, status: Object | None = None) -> None:
        """Make a Workload by hand, running if it has a status."""
        self.put(api_kinds.WORKLOADS, obj)
        if status is not None:
            meta = obj["metadata"]
            self.store.patch(
                api_kinds.WORKLOADS, meta["namespace"], meta["name"], {"status": status}, subresource="status"
            )

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        command = arguments[0]
        places = 2 if command == "list" else 1
        where = ["--kubeconfig", str(self.kubeconfig)]
        given = [*arguments[:places], *where, *arguments[places:]]
        clock = VirtualClock(wall=self.now)
        return CliRunner().invoke(main, given, input=stdin, obj=clock)


@contextmanager
def queued_cluster(folder: Path, *, defined: bool = True) -> Iterator[QueuedCluster]:
    """A cluster that is served for as long as it is needed."""
    store = store_at(NOW - 600)
    if defined:
        define(store)
    face = ApiServer(store, threading.RLock()).start()
    face.write_kubeconfig(folder / "kubeconfig")
    try:
        yield QueuedCluster(store, folder / "kubeconfig")
    finally:
        face.stop()


def furnish(cluster: QueuedCluster, levels: tuple[str, ...] = (BLOCK, RACK, HOSTNAME)) -> None:
    """Nodes, a topology, flavors, cohorts and queues."""
    for kind, obj in furniture(levels):
        cluster.put(kind, obj)


def furniture(names: tuple[str, ...] = (BLOCK, RACK, HOSTNAME)) -> Iterator[tuple[Kind, Object]]:
    """What others stand on first; `names` are the levels of the topology."""
    yield api_kinds.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    for number in range(8):
        block, rack = f"b{number // 4 + 1}", f"r{number // 2 % 2 + 1}"
        yield NODES, rack_node(f"h{number + 1}", block, rack, {"gpu": "yes"})
    levels = [{"nodeLabel": level} for level in names]
    flavor = {"nodeLabels": {"gpu": "yes"}, "topologyName": "hall"}
    shared: Object = {"cohortName": "team", "namespaceSelector": {}}
    left = {"resourceGroups": [quota("a100", 16)], "preemption": {"withinClusterQueue": "LowerPriority"}}
    right = {"resourceGroups": [quota("a100", 16, borrowingLimit="8")]}
    small = {"queueingStrategy": "StrictFIFO", "resourceGroups": [quota("plain", 4)]}
    yield ruled(api_kinds.TOPOLOGIES, "hall", {"levels": levels})
    yield ruled(api_kinds.FLAVORS, "a100", flavor)
    yield ruled(api_kinds.FLAVORS, "plain", {})
    yield ruled(api_kinds.COHORTS, "all", {})
    yield ruled(api_kinds.COHORTS, "team", {"parentName": "all"})
    yield ruled(api_kinds.CLUSTER_QUEUES, "left-queue", shared | left)
    yield ruled(api_kinds.CLUSTER_QUEUES, "right-queue", shared | right)
    yield ruled(api_kinds.CLUSTER_QUEUES, "small-queue", {"namespaceSelector": {}} | small)
    for name in ("left", "right", "small"):
        yield ruled(api_kinds.LOCAL_QUEUES, name, {"clusterQueue": f"{name}-queue"}, "ml")


def golden(name: str, printed: str) -> None:
    """What is printed is what the file says; with BAYPLAN_GOLDEN=write the file is made."""
    path = TOLD / f"{name}.txt"
    if os.environ.get("BAYPLAN_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")
