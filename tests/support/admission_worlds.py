"""Queues, entrances, nodes and gangs in a few lines, for tests of how things stand."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import (
    FlavorSeen,
    NamespaceQueueSeen,
    NodeSeen,
    QueuedGangSeen,
    QueueSeen,
    QuotaNodeSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.queued_gang import (
    Admission,
    CheckStatus,
    Delayed,
    PodSetAdmission,
    QueuedGang,
    QuotaRequest,
)
from bayplan.model.quota import Flavor, NamespaceQueue, Queue, Quota, QuotaNode, ResourceGroup, StopPolicy
from bayplan.state.admission.state import AdmissionState

RACK = "rack"


def queue(
    name: str = "q", parent: str = "", nominal: int = 10_000, weight: Fraction = Fraction(1), **more: Any
) -> Queue:
    """A queue with so much CPU of the flavor `f`."""
    node = QuotaNode(name, parent, {("f", "cpu"): Quota(nominal)}, weight)
    return Queue(node, (ResourceGroup(("cpu",), ("f",)),), namespaces=(), **more)


def demand(
    name: str,
    *,
    cpu: int = 1000,
    given: str = "",
    admitted: bool = False,
    host: str = "",
    entrance: tuple[str, str] = ("ns", "main"),
    delayed: Delayed | None = None,
    verdicts: tuple[CheckStatus, ...] = (),
    **more: Any,
) -> QueuedGang:
    """A gang of one pod; `given` is the queue that gave it quota, `host` where it stands."""
    pod_set = PodSet("main", 1, 1, {"cpu": cpu})
    place = Assignment((HOSTNAME,), (DomainAssignment((host,), 1),)) if host else None
    admission = Admission(given, (PodSetAdmission("main", 1, {"cpu": "f"}, {"cpu": cpu}, place, delayed),))
    return QueuedGang(
        Gang(Ref("kueue", "Workload", entrance[0], name), Group("", (pod_set,), 1), uid=f"uid-{name}"),
        (QuotaRequest("main", 1, {"cpu": cpu}),),
        entrance,
        admission=admission if given else None,
        admitted=admitted,
        check_statuses=verdicts,
        shape=f"{cpu}",
        **more,
    )


def world(*queues: Queue, topology: str = "") -> AdmissionState:
    """A flavor `f`, these queues, and an entrance `main` in `ns` to the first of them."""
    state = AdmissionState()
    state.apply(FlavorSeen(Flavor("f", topology=topology)))
    for one in queues:
        state.apply(QueueSeen(one))
    if queues:
        state.apply(NamespaceQueueSeen(NamespaceQueue("ns", "main", queues[0].name)))
    return state


def racks(state: AdmissionState, sizes: Mapping[str, int], cpu: int = 4000) -> None:
    """A topology `t` of racks with so many nodes each."""
    state.apply(TopologySeen(Topology("t", (RACK, HOSTNAME))))
    for rack, size in sizes.items():
        for number in range(size):
            name = f"{rack}-{number}"
            state.apply(NodeSeen(Node(name, {RACK: rack, HOSTNAME: name}, {"cpu": cpu, "pods": 10})))


def see(state: AdmissionState, *demands: QueuedGang) -> None:
    for one in demands:
        state.apply(QueuedGangSeen(one))


def share_quota(state: AdmissionState, name: str, parent: str = "", cpu: int = 0) -> None:
    state.apply(QuotaNodeSeen(QuotaNode(name, parent, {("f", "cpu"): Quota(cpu)})))


def stop(state: AdmissionState, name: str = "main") -> None:
    state.apply(NamespaceQueueSeen(NamespaceQueue("ns", name, "q", StopPolicy.HOLD)))
