"""Admission and binding in one process: what one of them gave away the other does not give again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bayplan.backends.crds import define
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.plan import Admit, Bind
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from tests.support.pod_site import PODS
from tests.support.queued_cluster import NOW, Object, QueuedCluster, furnish, queued_workload
from tests.unit.backends.embedded.storage.test_store import store_at

HOSTS = 8  # of 4 GPUs each
GPU = "nvidia.com/gpu"


class Silent:
    """A journal that records nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Refusing(EmbeddedBackend):
    """Refuses the writes of some actions."""

    refused: tuple[type, ...] = ()

    def submit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write.tag, self.refused):
                self._outcomes.append(WriteOutcome(write, Ended.REFUSED, message="no"))
            else:
                super().submit([write])


class World:
    """Eight hosts, and a loop with the controllers in this order."""

    def __init__(self, *order: str) -> None:
        store = store_at(NOW)
        define(store)
        self.cluster, self.store, self.now = QueuedCluster(store, Path("unused")), store, NOW
        furnish(self.cluster)
        self.backend = Refusing(store)
        self.scheduler, self.admission = SchedulerController(), AdmissionController()
        named: dict[str, Controller] = {
            "scheduler": self.scheduler,
            "admission": self.admission,
            "ungating": UngatingController(),
        }
        self.loop = Loop(self.backend, [named[name] for name in order], Silent())

    def play(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        while True:
            self.loop.step(self.now)
            if self.now >= end:
                return
            self.now = min(self.now + 0.25, end)

    def pod(self, name: str, labels: Object | None = None, notes: Object | None = None) -> None:
        """A pod for a whole host; with annotations it is gated."""
        resources = {"requests": {GPU: "4"}, "limits": {GPU: "4"}}
        meta = {"name": name, "namespace": "ml", "labels": labels or {}, "annotations": notes or {}}
        containers = [{"name": "c", "image": "i", "resources": resources}]
        spec: Object = {"schedulerName": "bayplan", "containers": containers}
        if notes:
            spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
        self.store.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def member(self, gang: str, number: int) -> None:
        notes = {"kueue.x-k8s.io/workload": gang, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        self.pod(f"{gang}-{number}", labels={"kueue.x-k8s.io/podset": "main"}, notes=notes)

    def node_of(self, name: str) -> str:
        return str(self.store.get(PODS, "ml", name)["spec"].get("nodeName", ""))

    def is_admitted(self, name: str) -> bool:
        status = self.store.get(api_kinds.WORKLOADS, "ml", name).get("status") or {}
        return any(c["type"] == "Admitted" and c["status"] == "True" for c in status.get("conditions", ()))


ORDERS = [("admission", "ungating", "scheduler"), ("scheduler", "admission", "ungating")]


@pytest.mark.parametrize("order", ORDERS, ids=["admission first", "binding first"])
def test_a_plain_pod_is_not_bound_to_a_host_of_an_admitted_gang_without_pods(order: tuple[str, ...]) -> None:
    world = World(*order)
    for number in range(HOSTS - 2):
        world.pod(f"filler-{number}")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 2, 4))
    world.play(2.0)
    assert world.is_admitted("gang")
    world.pod("plain")
    world.play(5.0)
    assert world.node_of("plain") == ""
    for number in range(2):
        world.member("gang", number)
    world.play(5.0)
    hosts = {world.node_of(f"gang-{number}") for number in range(2)}
    assert len(hosts) == 2 and "" not in hosts and world.node_of("plain") == ""


@pytest.mark.parametrize("order", ORDERS, ids=["admission first", "binding first"])
def test_what_is_created_at_the_same_moment_is_given_once(order: tuple[str, ...]) -> None:
    world = World(*order)
    for number in range(HOSTS - 2):
        world.pod(f"filler-{number}")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 2, 4))
    world.pod("plain")
    world.play(10.0)
    assert world.is_admitted("gang") is (world.node_of("plain") == "")


def test_hosts_of_a_gang_that_is_gone_are_free_again() -> None:
    world = World(*ORDERS[0])
    world.cluster.submit(queued_workload("gang", 4, 4))
    world.play(2.0)
    for number in range(HOSTS):
        world.pod(f"plain-{number}")
    world.play(3.0)
    assert sum(world.node_of(f"plain-{number}") == "" for number in range(HOSTS)) == 4
    world.store.delete(api_kinds.WORKLOADS, "ml", "gang")
    world.play(3.0)
    assert all(world.node_of(f"plain-{number}") for number in range(HOSTS))
    assert not world.scheduler.state.store.claims.counts and not world.scheduler.admitting


@pytest.mark.parametrize("refused", [Admit, Bind])
def test_what_could_not_be_written_holds_nothing(refused: type) -> None:
    world = World(*ORDERS[0])
    world.backend.refused = (refused,)
    world.cluster.submit(queued_workload("gang", 4, 4))
    for number in range(HOSTS):
        world.pod(f"plain-{number}")
    world.play(3.0)
    world.backend.refused = ()
    world.play(60.0)
    bound = sum(world.node_of(f"plain-{number}") != "" for number in range(HOSTS))
    assert bound + 4 * world.is_admitted("gang") == HOSTS


def test_a_pod_of_high_priority_does_not_take_the_slot_of_a_pending_pod() -> None:
    world = World("admission", "ungating", "scheduler")
    for number in range(HOSTS - 1):
        world.pod(f"filler-{number}")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(2.0)
    world.backend.refused = (Bind,)
    world.member("gang", 0)
    world.play(1.0)
    world.backend.refused = ()
    world.pod("plain")
    world.play(20.0)
    assert world.node_of("gang-0") != "" and world.node_of("plain") == ""
