"""A cluster in memory with a queue whose nodes are made by an autoscaler, which the test plays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.api_kinds import CONFIGS
from bayplan.dialects.kueue.provisioning.requests import REQUESTS, TEMPLATES
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.core.loop import Loop
from tests.support.kueue_workloads import conditions
from tests.support.queued_cluster import (
    EVENTS,
    GPU,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    furnish,
    queued_workload,
    quota,
    rack_node,
    ruled,
)

NAME = "train-prov-1"
GROUP_LABEL = "cloud.example.com/node-group"


class Silent:
    """A journal that keeps nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Unreliable(EmbeddedBackend):
    """Says of the next writes of a kind that they ended otherwise than they did, or loses them."""

    kind: Kind | None = None
    ended = Ended.TIMED_OUT
    happens = False

    def submit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.kind != self.kind or write.tag is None:
                super().submit([write])
                continue
            if self.happens:
                super().submit([write])
                self._outcomes.pop()
            self._outcomes.append(WriteOutcome(write, self.ended))


class World:
    """A queue whose nodes are made by an autoscaler, which the test plays."""

    def __init__(self, definition: Object | None = None) -> None:
        numbers, self.now = itertools.count(1), NOW
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}"
        )
        define(self.store)
        if definition is not None:
            self.store.create(DEFINITIONS, definition)
        self.cluster = QueuedCluster(self.store, Path("unused"))
        furnish(self.cluster)
        parameters = {"apiGroup": CONFIGS.group, "kind": CONFIGS.kind, "name": "slow"}
        flavor = {
            "nodeLabels": {"pool": "made"},
            "topologyName": "hall",
            "tolerations": [{"key": "made", "operator": "Exists", "effect": "NoSchedule"}],
        }
        checks = {"admissionChecks": [{"name": "prov"}]}
        queue = {"namespaceSelector": {}, "resourceGroups": [quota("made", 16)]}
        for kind, obj in (
            ruled(CONFIGS, "slow", config()),
            ruled(
                api_kinds.CHECKS,
                "prov",
                {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
            ),
            ruled(api_kinds.FLAVORS, "made", flavor),
            ruled(api_kinds.CLUSTER_QUEUES, "made-queue", {**queue, "admissionChecksStrategy": checks}),
            ruled(api_kinds.LOCAL_QUEUES, "made", {"clusterQueue": "made-queue"}, "ml"),
        ):
            self.cluster.put(kind, obj)
        self.begin()

    def begin(self) -> None:
        """Start, or start again knowing nothing."""
        self.role = ProvisioningController()
        self.backend = Unreliable(self.store)
        self.loop = Loop(self.backend, [AdmissionController(), self.role], Silent())

    def pass_time(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(20):
            self.loop.step(self.now)

    def submit(self, name: str = "train", **notes: str) -> None:
        gang = queued_workload(name, 2, 4, "made", required=RACK)
        gang["metadata"]["annotations"] = notes
        self.cluster.submit(gang)
        self.pass_time()

    def workload(self, name: str = "train") -> Object:
        return self.store.get(api_kinds.WORKLOADS, "ml", name)

    def told(self, kind: str) -> tuple[str, str]:
        return conditions(self.workload()["status"])[kind][:2]

    def check(self) -> Object:
        found: list[Object] = self.workload()["status"]["admissionChecks"]
        assert len(found) == 1
        return found[0]

    def given(self) -> Object:
        found: list[Object] = self.workload()["status"]["admission"]["podSetAssignments"]
        assert len(found) == 1
        return found[0]

    def requests(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.store.list(REQUESTS, "ml").items]

    def templates(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.store.list(TEMPLATES, "ml").items]

    def answer(self, kind: str, message: str = "", name: str = NAME, **status: Any) -> None:
        """The autoscaler sets a condition of a request."""
        there = self.store.get(REQUESTS, "ml", name).get("status") or {}
        told = condition(kind, message)
        known = [one for one in there.get("conditions") or () if one["type"] != kind]
        patch = {"status": {"conditions": [*known, told], **status}}
        self.store.patch(REQUESTS, "ml", name, patch, subresource="status")
        self.pass_time()

    def node(self, name: str, **labels: str) -> None:
        self.cluster.put(NODES, rack_node(name, "b9", "r9", {"pool": "made", **labels}))

    def events(self) -> list[tuple[str, str]]:
        found = self.store.list(EVENTS, "ml").items
        return [(one["reason"], one["message"]) for one in found]

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events()]


def config(**more: Any) -> Object:
    label = {"key": GROUP_LABEL, "valueFromProvisioningClassDetail": "NodeGroup"}
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
    return {
        "provisioningClassName": "queued.example.com",
        "parameters": {"maxRunDurationSeconds": "3600"},
        "managedResources": [GPU],
        "podSetUpdates": {"nodeSelector": [label]},
        "retryStrategy": retry,
        **more,
    }


def condition(kind: str, message: str = "", status: str = "True") -> Object:
    at = "2027-01-15T08:00:00Z"
    return {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": at}
