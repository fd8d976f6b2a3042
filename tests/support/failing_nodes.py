"""A cluster in memory whose nodes fail: eight hosts of four GPUs, two to a rack, and who stands on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayplan.backends.crds import define
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from tests.support.kueue_workloads import conditions
from tests.support.queued_cluster import (
    EVENTS,
    NOW,
    Object,
    QueuedCluster,
    furnish,
    queued_workload,
    rack_node,
)
from tests.unit.backends.embedded.storage.test_store import store_at
from tests.unit.runtime.controllers.admission.test_controller import Flaky, Silent

PLAIN_NODES, PLAIN_PODS = replace(NODES, wire=None), replace(PODS_KIND, wire=None)
LIMIT = HealthRules().not_ready_seconds


class World:
    """A loop that admits, and looks after nodes."""

    def __init__(
        self,
        profile: Profile | None = None,
        rules: HealthRules | None = None,
        others: Sequence[Controller] = (),
    ) -> None:
        store = store_at(NOW)
        define(store)
        self.store = store
        self.cluster = QueuedCluster(store, Path("unused"))
        furnish(self.cluster)
        self.backend = Flaky(store)
        self.health = NodeHealthController(rules)
        self.loop = Loop(self.backend, [AdmissionController(profile), self.health, *others], Silent())
        self.now = NOW
        self.pass_time()

    def pass_time(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(30):
            self.loop.step(self.now)

    # ── gangs ─────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str, pods: int, gpus: int, required: str = "", **spec: Any) -> dict[str, int]:
        """A gang is admitted and its pods run; says where."""
        self.cluster.submit(queued_workload(name, pods, gpus, required=required, **spec))
        self.pass_time()
        rank = 0
        for on, count in self.places(name).items():
            for _ in range(count):
                self.pod(f"{name}-{rank}", name, on)
                rank += 1
        self.pass_time()
        return self.places(name)

    def pod(self, pod: str, gang: str, on: str, *, bound: bool = True) -> None:
        notes = {"kueue.x-k8s.io/workload": gang, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        spec: Object = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {HOSTNAME: on}}
        spec |= {"nodeName": on} if bound else {}
        meta = {"name": pod, "namespace": "ml", "annotations": notes}
        self.store.create(
            PLAIN_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "ml"
        )
        status = {"phase": "Running" if bound else "Pending"}
        self.store.patch(PLAIN_PODS, "ml", pod, {"status": status}, subresource="status")

    def workload(self, name: str) -> Object:
        return self.store.get(api_kinds.WORKLOADS, "ml", name)

    def places(self, name: str) -> dict[str, int]:
        """Pods by host, in the order of their ranks."""
        status = self.workload(name).get("status") or {}
        (part,) = status["admission"]["podSetAssignments"]
        found = decode_assignment(Field(part["topologyAssignment"]))
        assert found is not None
        return {share.values[-1]: share.count for share in found.shares}

    def listed(self, name: str) -> list[str]:
        status = self.workload(name).get("status") or {}
        return [node["name"] for node in status.get("unhealthyNodes") or ()]

    def evicted(self, name: str) -> tuple[str, str] | None:
        found = conditions(self.workload(name)["status"]).get("Evicted")
        return found[1:] if found is not None and found[0] == "True" else None

    def events(self, name: str) -> list[tuple[str, str]]:
        found = self.store.list(EVENTS, "ml").items
        return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────

    def add(self, *names: str, rack: str) -> None:
        for name in names:
            self.cluster.put(NODES, rack_node(name, "b1", rack, {"gpu": "yes"}))
        self.pass_time()

    def ready(self, name: str, says: str, *, dated: bool = True) -> None:
        told = {"type": "Ready", "status": says} | (
            {"lastTransitionTime": timestamp(self.now)} if dated else {}
        )
        self.store.patch(PLAIN_NODES, "", name, {"status": {"conditions": [told]}}, subresource="status")

    def fail(self, *names: str) -> None:
        for name in names:
            self.ready(name, "Unknown")
        self.pass_time()

    def change(self, name: str, spec: Object) -> None:
        self.store.patch(PLAIN_NODES, "", name, {"spec": spec})
        self.pass_time()

    def delete(self, *names: str) -> None:
        for name in names:
            self.store.delete(PLAIN_NODES, "", name)
        self.pass_time()

    def drain(self, name: str) -> None:
        """Cordon a node and remove its pods."""
        self.change(name, {"unschedulable": True})
        self.remove_pods(name)

    def remove_pods(self, on: str) -> None:
        for pod in self.store.list(PLAIN_PODS, "ml").items:
            if pod["spec"].get("nodeName") == on:
                self.store.delete(PLAIN_PODS, "ml", pod["metadata"]["name"])
        self.pass_time(1.0)
        self.pass_time(60.0)  # those that linger
