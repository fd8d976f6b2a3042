"""A cluster in memory where jobs are queued, admitted, ungated, bound and played out, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import (
    CONTROLLERS,
    FakeController,
    FakeControllerManager,
)
from bayplan.backends.fake_controllers.crds import foreign_crds, schemaless_crd
from bayplan.backends.fake_controllers.manifests import GPU, RACK, node, topology
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.node import HOSTNAME
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.loop import Loop
from tests.support.api_objects import job

Object = dict[str, Any]

PODS = Kind("", "v1", "Pod", "pods")
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
EVENTS = Kind("", "v1", "Event", "events")
POOL = "example.com/pool"
TEST = "test"


class Silent:
    """A journal that keeps nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class JobWorld:
    """Two racks of two hosts with four GPUs each, one queue for all of them."""

    def __init__(
        self,
        gpus: int = 16,
        patience: PodsReadyPolicy | None = None,
        tas: bool = True,
        operators: Sequence[FakeController] = (),
    ) -> None:
        self.clock = VirtualClock()
        uids, endings = count(1), count(1)
        self.store = new_store(self.clock.wall, lambda: f"uid-{next(uids)}", lambda: f"{next(endings):05d}")
        register_webhooks(self.store)
        define(self.store)
        for definition in (*foreign_crds(), *(schemaless_crd(one.kind) for one in operators)):
            self.store.create(DEFINITIONS, definition)
        self._furnish(gpus, tas)
        self.crew = FakeControllerManager(EmbeddedBackend(self.store), (*CONTROLLERS, *operators))
        self.patience = patience
        self.restart()

    def restart(self) -> None:
        """Bayplan begins anew, knowing nothing."""
        self.backend = EmbeddedBackend(self.store)
        self.jobs_role = JobsController(self.patience)
        self.loop = Loop(
            self.backend, (AdmissionController(), self.jobs_role, UngatingController(0.0)), Silent()
        )

    def _furnish(self, gpus: int, tas: bool) -> None:
        self.store.create(api_kinds.TOPOLOGIES, topology())
        for rack in ("r1", "r2"):
            for host in ("h1", "h2"):
                made = node(f"{rack}-{host}", "b1", rack, 4)
                made["metadata"]["labels"][POOL] = "gpu"
                self.store.create(NODES, made)
        spec: Object = {"nodeLabels": {POOL: "gpu"}} | ({"topologyName": "data-centre"} if tas else {})
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
        self.make(api_kinds.FLAVORS, "gpu", spec)
        resources = [{"name": GPU, "nominalQuota": gpus}]
        groups = [{"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": resources}]}]
        preemption = {"withinClusterQueue": "LowerPriority"}
        self.make(
            api_kinds.CLUSTER_QUEUES,
            "all",
            {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption},
        )
        self.make(api_kinds.LOCAL_QUEUES, "main", {"clusterQueue": "all"})

    def make(self, kind: Kind, name: str, spec: Object) -> None:
        meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
        self.store.create(
            kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        )

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def pass_time(self, seconds: float = 0.0, step: float = 0.5) -> None:
        """Let everybody work, second by second."""
        self._work()
        end = self.clock.wall() + seconds
        while self.clock.wall() < end:
            self.clock.advance(min(step, end - self.clock.wall()))
            self._work()

    def _work(self) -> None:
        """Everybody works until nothing is written any more; three times, as some work takes two turns."""
        idle = 0
        for _ in range(25):
            before = self.store.version
            now = self.clock.wall()
            self.loop.step(now)
            self.crew.step(now)
            self._bind()
            idle = idle + 1 if self.store.version == before else 0
            if idle == 3:
                return

    def _bind(self) -> None:
        """What kube-scheduler does with pods that nobody holds back."""
        nodes = self.store.list(NODES).items
        for pod in self.store.list(PODS).items:
            spec = pod["spec"]
            if (
                spec.get("nodeName")
                or spec.get("schedulingGates")
                or pod["metadata"].get("deletionTimestamp")
            ):
                continue
            wanted = (spec.get("nodeSelector") or {}).items()
            fitting = [one for one in nodes if wanted <= (one["metadata"]["labels"] or {}).items()]
            if fitting:
                target = {"apiVersion": "v1", "kind": "Node", "name": fitting[0]["metadata"]["name"]}
                meta = {"name": pod["metadata"]["name"], "namespace": "default"}
                self.store.connect(
                    PODS, "default", meta["name"], "binding", {"metadata": meta, "target": target}
                )

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def create(self, obj: Object) -> Object:
        kind = resource(obj["kind"]) if obj["kind"] != "Pod" else PODS
        return self.store.create(kind, obj, "default")

    def get(self, kind: str, name: str) -> Object:
        return self.store.get(resource(kind) if kind != "Pod" else PODS, "default", name)

    def pods(self) -> list[Object]:
        return self.store.list(PODS, "default").items

    def workloads(self) -> list[Object]:
        return self.store.list(api_kinds.WORKLOADS, "default").items

    def workload(self) -> Object:
        (found,) = self.workloads()
        return found

    def told(self, kind: str, workload: Object | None = None) -> tuple[str, str, str]:
        """Status, reason and message of a condition of the (only) Workload."""
        found = workload or self.workload()
        for one in (found.get("status") or {}).get("conditions") or []:
            if one["type"] == kind:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def events(self, name: str) -> list[tuple[str, str]]:
        found = self.store.list(EVENTS, "default").items
        return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]

    def used(self) -> str:
        """How much of the quota is taken, as the queue tells."""
        self.pass_time(2.0)
        status = self.store.get(api_kinds.CLUSTER_QUEUES, "", "all").get("status") or {}
        usage = status.get("flavorsReservation") or [{"resources": [{"total": "0"}]}]
        return str(usage[0]["resources"][0]["total"])

    def until(self, happened: Callable[[], bool], seconds: float = 60.0) -> None:
        for _ in range(int(seconds)):
            if happened():
                return
            self.pass_time(1.0)
        raise AssertionError("it never happened")


# ── what people submit ─────────────────────────────────────────────────────────────────────────────

LABELS = {"kueue.x-k8s.io/queue-name": "main"}
REQUIRED = {"kueue.x-k8s.io/podset-required-topology": RACK}


def pod_template(
    gpus: int = 2, seconds: float | None = 5, notes: dict[str, str] | None = None, restart: str = "Never"
) -> Object:
    container = {
        "name": "main",
        "image": "example.invalid/trainer",
        "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}},
    }
    played = {"bayplan.dev/run-seconds": str(seconds)} if seconds is not None else {}
    found = {"metadata": {"annotations": {**played, **(notes or {})}}}
    return found | {"spec": {"restartPolicy": restart, "containers": [container]}}


def indexed_job(
    name: str = "train", pods: int = 4, labels: dict[str, str] | None = None, **template: Any
) -> Object:
    known = LABELS if labels is None else labels
    parts = pod_template(**template)
    return job(name, parts, pods, namespace="default", labels=known, completionMode="Indexed")


def job_set(name: str = "train", replicas: int = 2, pods: int = 2, **template: Any) -> Object:
    inner = {"parallelism": pods, "completions": pods, "template": pod_template(**template)}
    parts = [{"name": "workers", "replicas": replicas, "template": {"spec": inner}}]
    meta = {"name": name, "namespace": "default", "labels": LABELS}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"replicatedJobs": parts},
    }


def leader_worker_set(name: str = "serve", replicas: int = 2, size: int = 2) -> Object:
    template = pod_template(seconds=None, notes=REQUIRED, restart="Always")
    meta = {"name": name, "namespace": "default", "labels": LABELS}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": meta,
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    }


def stateful_set(name: str = "serve", replicas: int = 2) -> Object:
    template = pod_template(seconds=None, notes=REQUIRED, restart="Always")
    template["metadata"]["labels"] = {"app": name}
    meta = {"name": name, "namespace": "default", "labels": LABELS}
    spec = {
        "replicas": replicas,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}


def group_pod(name: str, group: str, size: int, **template: Any) -> Object:
    made = pod_template(**template)
    notes = made["metadata"]["annotations"] | {"kueue.x-k8s.io/pod-group-total-count": str(size)}
    labels = {**LABELS, "kueue.x-k8s.io/pod-group-name": group}
    meta = {"name": name, "namespace": "default", "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}


def hosts(pods: list[Object]) -> set[str]:
    return {pod["spec"]["nodeSelector"][HOSTNAME] for pod in pods}


def phases(world: JobWorld) -> list[str]:
    return sorted(pod["status"].get("phase", "") for pod in world.pods())


def running(world: JobWorld, count: int) -> bool:
    return phases(world) == ["Running"] * count


def evict(world: JobWorld) -> None:
    """An administrator deactivates the only Workload."""
    name = world.workload()["metadata"]["name"]
    world.store.patch(api_kinds.WORKLOADS, "default", name, {"spec": {"active": False}})
