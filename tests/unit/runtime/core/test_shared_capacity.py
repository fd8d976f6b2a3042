"""Admission and binding in one process: what one of them gave away the other does not give again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from bayplan.backends.crds import define
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Event, Write, WriteOutcome
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.node import HOSTNAME
from bayplan.model.plan import Admit, Bind
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from bayplan.state.cluster.shared_state import ClusterState
from tests.support.pod_site import PODS
from tests.support.queued_cluster import (
    BLOCK,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    furnish,
    queued_workload,
    running_pod,
)
from tests.unit.backends.embedded.storage.test_store import store_at

HOSTS = 8  # of 4 GPUs each
GPU = "nvidia.com/gpu"


class Silent:
    """A journal that records nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Refusing(EmbeddedBackend):
    """Refuses the writes of some actions, and may be late with events."""

    refused: tuple[type, ...] = ()
    ended = Ended.REFUSED
    is_late = False

    def events(self) -> Iterable[Event]:
        return () if self.is_late else super().events()

    def submit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write.tag, self.refused):
                self._outcomes.append(WriteOutcome(write, self.ended, message="no"))
            else:
                super().submit([write])


class World:
    """Eight hosts, and a loop with the controllers in this order; a bar starts another process.

    The topology ends at the host, or at the last of `levels`.
    """

    def __init__(self, *order: str, levels: tuple[str, ...] = (BLOCK, RACK, HOSTNAME)) -> None:
        store = store_at(NOW)
        define(store)
        self.cluster, self.store, self.now = QueuedCluster(store, Path("unused")), store, NOW
        furnish(self.cluster, levels)
        shared = None if "|" in order else ClusterState()  # in one process
        self.scheduler = SchedulerController(cluster=shared)
        self.admission = AdmissionController(cluster=shared)
        named: dict[str, Controller] = {
            "scheduler": self.scheduler,
            "admission": self.admission,
            "ungating": UngatingController(),
        }
        processes = [part.split() for part in " ".join(order).split("|")]
        self.backends = [Refusing(store) for _ in processes]
        self.loops = [
            Loop(backend, [named[name] for name in names], Silent())
            for backend, names in zip(self.backends, processes, strict=True)
        ]
        self.backend = self.backends[0]

    def play(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        while True:
            for loop in self.loops:
                loop.step(self.now)
            if self.now >= end:
                return
            self.now = min(self.now + 0.25, end)

    def pod(
        self,
        name: str,
        labels: Object | None = None,
        notes: Object | None = None,
        priority: str = "",
        gpus: int = 4,
        on: str = "",
        gates: Sequence[str] = (),
    ) -> None:
        """A pod for a whole host, or for fewer GPUs; with annotations it is gated. `on`: only this host."""
        resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
        meta = {"name": name, "namespace": "ml", "labels": labels or {}, "annotations": notes or {}}
        containers = [{"name": "c", "image": "i", "resources": resources}]
        spec: Object = {"schedulerName": "bayplan", "containers": containers, "priorityClassName": priority}
        if on:
            spec["nodeSelector"] = {HOSTNAME: on}
        if notes:
            spec["schedulingGates"] = [{"name": name} for name in ("kueue.x-k8s.io/topology", *gates)]
        self.store.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def member(self, gang: str, number: int, gpus: int = 4, gates: Sequence[str] = ()) -> None:
        notes = {"kueue.x-k8s.io/workload": gang, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        labels = {"kueue.x-k8s.io/podset": "main"}
        self.pod(f"{gang}-{number}", labels=labels, notes=notes, gpus=gpus, gates=gates)

    def node_of(self, name: str) -> str:
        return str(self.store.get(PODS, "ml", name)["spec"].get("nodeName", ""))

    def is_admitted(self, name: str) -> bool:
        return self.condition(name, "Admitted") is not None

    def condition(self, name: str, kind: str) -> Object | None:
        """The condition of a Workload, if it is true."""
        status = self.store.get(api_kinds.WORKLOADS, "ml", name).get("status") or {}
        found = (c for c in status.get("conditions", ()) if c["type"] == kind and c["status"] == "True")
        return next(found, None)

    def hosts(self, name: str) -> set[str]:
        """The hosts of an admitted Workload."""
        field = Field(self.store.get(api_kinds.WORKLOADS, "ml", name))
        placed = field.at("status", "admission", "podSetAssignments").items()[0].at("topologyAssignment")
        assignment = decode_assignment(placed)
        return {share.values[-1] for share in assignment.shares} if assignment is not None else set()


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
    assert not world.scheduler.state.store.claims.counts and not world.scheduler.admissions.writes


@pytest.mark.parametrize("levels", [(BLOCK, RACK, HOSTNAME), (BLOCK, RACK)], ids=["host", "rack"])
def test_what_was_held_for_pending_pods_of_a_gang_that_is_gone_is_free_again(levels: tuple[str, ...]) -> None:
    world = World(*ORDERS[0], levels=levels)
    for number in range(3, HOSTS + 1):
        world.pod(f"filler-{number}", on=f"h{number}")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 2, 4))
    for number in range(2):
        world.member("gang", number, gates=("example.com/later",))
    world.play(5.0)
    world.pod("plain")
    world.play(5.0)
    assert world.node_of("plain") == ""
    world.store.delete(api_kinds.WORKLOADS, "ml", "gang")
    world.play(5.0)
    assert world.node_of("plain") != "", "the pods of the gang exist, but have no slots any more"


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


def test_hosts_of_an_evicted_gang_are_held_until_its_quota_is_released() -> None:
    world = World(*ORDERS[0])
    world.cluster.submit(queued_workload("gang", HOSTS, 4))
    world.play(2.0)
    workload = world.store.get(api_kinds.WORKLOADS, "ml", "gang")
    conditions = workload["status"]["conditions"]
    evicted = {**conditions[0], "type": "Evicted", "status": "True", "reason": "Preempted"}
    status = {**workload["status"], "conditions": [*conditions, evicted]}
    world.store.update(api_kinds.WORKLOADS, "ml", "gang", {**workload, "status": status}, "status")
    world.pod("plain")
    world.play(5.0)
    assert world.node_of("plain") == "", "the gang that preempted it is to have the hosts"
    world.store.delete(api_kinds.WORKLOADS, "ml", "gang")
    world.play(5.0)
    assert world.node_of("plain") != ""


# ── two processes ──────────────────────────────────────────────────────────────────────────────────


def crossed(gang: int, free: int, *, members: bool = False) -> World:
    """The scheduler binds a plain pod to a host of a gang that was admitted at the same moment."""
    world = World("admission ungating | scheduler")
    for number in range(HOSTS - free):
        world.pod(f"filler-{number}")
    world.play(1.0)
    for number in range(gang if members else 0):
        world.member("gang", number)
    world.pod("plain")
    admission, scheduler = world.loops
    scheduler.apply_events(world.now)
    world.backends[1].is_late = True
    world.cluster.submit(queued_workload("gang", gang, 4))
    for _ in range(8):
        world.now += 0.25
        admission.step(world.now)
    world.backends[0].is_late = True
    assert world.is_admitted("gang")
    scheduler.step(world.now)
    assert world.node_of("plain") in world.hosts("gang"), "the two have to meet"
    return world


def test_a_gang_whose_host_was_taken_before_it_started_is_evicted_as_a_whole() -> None:
    world = crossed(gang=2, free=2)
    taken = world.node_of("plain")
    for backend in world.backends:
        backend.is_late = False
    world.play(2.0)
    evicted = world.condition("gang", "Evicted")
    assert evicted is not None and evicted["reason"] == "NodesTaken"
    assert evicted["message"] == (
        f"Other pods were bound to node(s) {taken} of the topology assignment before the pods of this "
        "Workload. It is evicted as a whole and queued again"
    )
    assert world.node_of("plain") == taken, "a bound pod keeps its node"


def test_no_pod_of_a_gang_starts_while_another_pod_has_one_of_its_hosts() -> None:
    world = crossed(gang=2, free=2, members=True)
    world.backends[1].is_late = False
    world.play(5.0)
    assert [world.node_of(f"gang-{number}") for number in range(2)] == ["", ""]
    pod = world.store.get(PODS, "ml", "gang-0")
    assert f"bound to node {world.node_of('plain')}" in pod["status"]["conditions"][0]["message"]
    world.store.delete(PODS, "ml", "plain", Deletion(grace=0))
    world.play(5.0)
    assert {world.node_of(f"gang-{number}") for number in range(2)} == world.hosts("gang")


def test_a_gang_that_has_started_moves_away_from_a_host_that_was_taken() -> None:
    world = crossed(gang=3, free=4)
    taken = world.node_of("plain")
    other = min(world.hosts("gang") - {taken})
    bound = running_pod("gang-0", other, 4)
    bound["metadata"] |= {
        "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {
            "kueue.x-k8s.io/workload": "gang",
            "kueue.x-k8s.io/podset-unconstrained-topology": "true",
        },
    }
    world.store.create(PODS, bound)
    for backend in world.backends:
        backend.is_late = False
    world.play(2.0)
    assert world.condition("gang", "Evicted") is None
    assert other in world.hosts("gang") and taken not in world.hosts("gang")


def test_admission_counts_the_node_that_a_pod_of_another_process_is_nominated_to() -> None:
    world = World("admission ungating")
    for number in range(HOSTS - 1):
        world.store.create(PODS, running_pod(f"filler-{number}", f"h{number + 1}", 4))
    world.pod("plain")
    pod = world.store.get(PODS, "ml", "plain")
    world.store.update(PODS, "ml", "plain", {**pod, "status": {"nominatedNodeName": f"h{HOSTS}"}}, "status")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(5.0)
    assert not world.is_admitted("gang")
    pod = world.store.get(PODS, "ml", "plain")
    world.store.update(PODS, "ml", "plain", {**pod, "status": {}}, "status")
    world.play(60.0)
    assert world.is_admitted("gang"), "the nomination was withdrawn"
    assert not world.admission.promised_nodes.nominated
