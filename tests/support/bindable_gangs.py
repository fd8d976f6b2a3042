"""Queued gangs whose pods have ports, volumes, affinity or spread, and their admission to a small cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bayplan.model.assignment import Assignment
from bayplan.model.change import (
    Change,
    FlavorSeen,
    NamespaceQueueSeen,
    NamespaceSeen,
    NodeSeen,
    PodSeen,
    QueuedGangSeen,
    QueueSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import Requirement
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import (
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    PodSpec,
    Selector,
    TopologySpread,
)
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang, QuotaRequest
from bayplan.model.quota import Flavor, NamespaceQueue, Preemption, Queue, Quota, QuotaNode, ResourceGroup
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.state import AdmissionState

ZONE, RACK = "zone", "rack"
LEVELS = (ZONE, RACK, HOSTNAME)
NAMESPACE = "team"
NOW = 1000.0


def labels(**pairs: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(pairs.items()))


def selects(**pairs: str) -> Selector:
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(pairs.items())))


def term(key: str, namespace: str = "", **pairs: str) -> PodAffinityTerm:
    """A term of a template: an empty namespace is that of the pod."""
    return PodAffinityTerm(key, selects(**pairs), (namespace,))


def near(key: str, **pairs: str) -> PodAffinity:
    return PodAffinity(required=(term(key, **pairs),))


def apart(key: str, **pairs: str) -> PodAffinity:
    return PodAffinity(required_anti=(term(key, **pairs),))


def spread_over(key: str, skew: int = 1, **pairs: str) -> TopologySpread:
    return TopologySpread(key, skew, selects(**pairs))


def host(name: str, *, cpu: int = 8000, taken: int = 0, **more: Any) -> Node:
    """A host `zone-rack-number`, with the labels of its zone and its rack."""
    zone, rack, _ = name.split("-")
    found = {ZONE: zone, RACK: f"{zone}-{rack}", HOSTNAME: name}
    return Node(name, found, {"cpu": cpu, "pods": 110}, **more)


def hosts(text: str, **more: Any) -> list[Node]:
    return [host(name, **more) for name in text.split()]


def running(name: str, node: str, shape: PodSignature = PodSignature(), cpu: int = 100) -> Pod:  # noqa: B008
    """A pod of another owner on a node."""
    own = shape.in_namespace(shape.namespace or NAMESPACE)
    return Pod(PodKey(own.namespace, name), name, {"cpu": cpu, "pods": 1}, node, spec=PodSpec(own))


def workers(
    count: int, template: PodSignature | None = None, *, cpu: int = 1000, name: str = "main", **more: Any
) -> PodSet:
    return PodSet(name, count, count, {"cpu": cpu}, template=template, **more)


def queued(name: str, *pod_sets: PodSet, namespace: str = NAMESPACE, priority: int = 0) -> QueuedGang:
    root = Group("", pod_sets, len(pod_sets))
    return QueuedGang(
        Gang(Ref("kueue", "Workload", namespace, name), root, "main", priority, uid=f"uid-{name}"),
        tuple(QuotaRequest(one.name, one.count, one.requests, topology=True) for one in pod_sets),
        (namespace, "main"),
        shape=repr(pod_sets) + namespace,
    )


def in_rack(count: int, template: PodSignature | None = None, **more: Any) -> PodSet:
    return workers(count, template, locality=Locality(required=RACK), **more)


class AdmissionStage:
    """The state of admission, one queue, and its decisions."""

    def __init__(
        self, nodes: Iterable[Node], *changes: Change, levels: tuple[str, ...] = LEVELS,
        profile: Profile | None = None, preempts: Preemption | None = None, cpu: int = 10**9,
    ) -> None:  # fmt: skip
        self.state, self.profile = AdmissionState(), profile or Profile()
        self.admitted: list[tuple[QueuedGang, dict[str, Assignment]]] = []
        queue = Queue(
            QuotaNode("q", "", {("f", "cpu"): Quota(cpu)}), (ResourceGroup(("cpu",), ("f",)),), namespaces=(),
            preemption=preempts or Preemption(),
        )  # fmt: skip
        self.see(
            TopologySeen(Topology("t", levels)), FlavorSeen(Flavor("f", topology="t")), QueueSeen(queue),
            NamespaceSeen(NAMESPACE, {}), NamespaceQueueSeen(NamespaceQueue(NAMESPACE, "main", "q")),
            *map(NodeSeen, nodes), *changes,
        )  # fmt: skip

    def see(self, *changes: Change) -> None:
        for change in changes:
            self.state.apply(change)

    def run(self, *pods: Pod) -> None:
        self.see(*map(PodSeen, pods))

    def decide(self) -> Plan:
        plan = decide_admissions(self.state.snapshot(self.state.heads(NOW)), self.profile, NOW)
        self.state.assume(plan, NOW)
        return plan

    def admit(self, *gangs: QueuedGang) -> dict[str, Assignment]:
        """Queue gangs and decide once for each; the placements by pod set (of the last gang that has it)."""
        first, names = len(self.admitted), {gang.gang.source for gang in gangs}
        self.see(*map(QueuedGangSeen, gangs))
        for _ in gangs:
            for action in self.decide().actions:
                if isinstance(action, Admit):
                    self.see(QueuedGangSeen(replace(action.queued_gang, admission=action.admission)))
                    places = {p.name: p.assignment for p in action.admission.pod_sets if p.assignment}
                    self.admitted.append((action.queued_gang, places))
        own = [places for gang, places in self.admitted[first:] if gang.gang.source in names]
        return {name: place for places in own for name, place in places.items()}

    def rejection(self, gang: QueuedGang) -> ReportNotAdmitted:
        self.see(QueuedGangSeen(gang))
        [action] = self.decide().actions
        assert isinstance(action, ReportNotAdmitted), action
        return action

    def evicted(self, gang: QueuedGang) -> list[str]:
        self.see(QueuedGangSeen(gang))
        return [a.queued_gang.gang.source.name for a in self.decide().actions if isinstance(a, EvictGang)]


def by_host(place: Assignment) -> dict[str, int]:
    return {share.values[-1]: share.count for share in place.shares}


def by_label(place: Assignment, nodes: Iterable[Node], key: str) -> Mapping[str, int]:
    """The pods of an assignment by a label of their nodes."""
    label = {node.name: node.labels[key] for node in nodes}
    found: dict[str, int] = {}
    for name, count in by_host(place).items():
        found[label[name]] = found.get(label[name], 0) + count
    return found
