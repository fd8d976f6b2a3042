"""Admission on nodes whose NUMA reports are late: an admitted gang gets its zones when its pods start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.change import (
    FlavorSeen,
    NamespaceQueueSeen,
    NodeSeen,
    NumaReportSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.numa import ContainerRequest, NodeZones, NumaRequest, QosClass, Zone
from bayplan.model.plan import Admit
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission, QueuedGang, QuotaRequest
from bayplan.model.quota import Flavor, NamespaceQueue, Queue, Quota, QuotaNode, ResourceGroup
from bayplan.placement.numa.fingerprint import pods_fingerprint
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.state import AdmissionState
from tests.support.numa_nodes import GPU, report

RACK = "rack"
ZONE_GPUS, ZONES, HOSTS = 5, 2, 3  # one more pod of two or three GPUs fits by node total than by zones
QUEUES = ("one", "two")
STEPS = ("submit", "submit", "decide", "decide", "start", "start", "end", "look", "tell")


@dataclass
class AdmissionPlay:
    """Hosts that assign zones to pods as kubelets do, and the admission state that follows them."""

    gpus: int  # requested by every pod
    signed: bool
    state: AdmissionState = field(default_factory=AdmissionState)
    pod_zones: dict[str, dict[PodKey, int]] = field(default_factory=dict)  # by host, the zone of each pod
    to_start: list[tuple[QueuedGang, str, int]] = field(default_factory=list)  # in the order of admission
    admitted: dict[Ref, QueuedGang] = field(default_factory=dict)
    pods: dict[Ref, list[Pod]] = field(default_factory=dict)
    late_reports: list[NodeZones] = field(default_factory=list)
    now: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        apply = self.state.apply
        apply(TopologySeen(Topology("t", (RACK, HOSTNAME))))
        for at in range(HOSTS):
            amounts = {"cpu": 99_000, GPU: ZONES * ZONE_GPUS, "pods": 110}
            apply(NodeSeen(Node(f"h{at}", {HOSTNAME: f"h{at}", RACK: f"r{at // 2}"}, amounts)))
            self.pod_zones[f"h{at}"] = {}
        apply(FlavorSeen(Flavor("f", topology="t")))
        for queue in QUEUES:  # so that one cycle decides on several gangs
            node = QuotaNode(queue, "", {("f", GPU): Quota(1000)})
            apply(QueueSeen(Queue(node, (ResourceGroup((GPU,), ("f",)),), namespaces=())))
            apply(NamespaceQueueSeen(NamespaceQueue("ns", queue, queue)))
        for host in self.pod_zones:
            apply(NumaReportSeen(self.report(host)))

    @property
    def wants(self) -> NumaRequest:
        return NumaRequest(QosClass.BURSTABLE, (ContainerRequest("main", ((GPU, self.gpus),)),))

    def left(self, host: str) -> list[int]:
        free = [ZONE_GPUS] * ZONES
        for zone in self.pod_zones[host].values():
            free[zone] -= self.gpus
        return free

    def report(self, host: str) -> NodeZones:
        base = report(*({GPU: left} for left in self.left(host)), name=host)
        zones = tuple(Zone(zone.number, zone.available, {GPU: ZONE_GPUS}) for zone in base.zones)
        sign = pods_fingerprint((key.namespace, key.name) for key in self.pod_zones[host])
        return replace(base, zones=zones, fingerprint=sign if self.signed else None)

    def submit(self, pods: int) -> None:
        self.number += 1
        requests = {GPU: self.gpus}
        part = PodSet("main", pods, pods, requests, Locality(required=RACK), zones=self.wants)
        gang = Gang(Ref("k", "W", "ns", f"g{self.number}"), Group("", (part,), 1), uid=f"{self.number}")
        asks = (QuotaRequest("main", pods, requests, topology=True),)
        namespace_queue = ("ns", QUEUES[self.number % len(QUEUES)])
        self.state.apply(QueuedGangSeen(QueuedGang(gang, asks, namespace_queue, queued=float(self.number))))

    def decide(self) -> None:
        heads = self.state.heads(self.now)
        if not heads:
            return
        plan = decide_admissions(self.state.snapshot(heads), Profile(), self.now)
        self.state.assume(plan, self.now)
        for action in plan.actions:
            if isinstance(action, Admit):
                self.take(replace(action.queued_gang, admission=action.admission), action.admission)

    def take(self, queued_gang: QueuedGang, admission: Admission) -> None:
        self.admitted[queued_gang.gang.source] = queued_gang
        self.state.apply(QueuedGangSeen(queued_gang))
        assignment = admission.pod_sets[0].assignment
        assert assignment is not None
        for share in assignment.shares:
            self.to_start += [(queued_gang, share.values[-1], at) for at in range(share.count)]

    def start(self) -> None:
        """Start the next pod on its host, which assigns the lowest zone that fits."""
        if not self.to_start:
            return
        queued_gang, host, at = self.to_start.pop(0)
        ref = queued_gang.gang.source
        zone = next((n for n, left in enumerate(self.left(host)) if left >= self.gpus), None)
        assert zone is not None, f"{ref.name} was admitted to {host}, which has {self.left(host)} left"
        key = PodKey("ns", f"{ref.name}-{host}-{at}")
        self.pod_zones[host][key] = zone
        wants = PodSpec(PodSignature(zones=self.wants))
        pod = Pod(key, str(key), {GPU: self.gpus, "pods": 1}, host, gang=ref, pod_set="main", spec=wants)
        self.state.apply(PodSeen(pod))
        self.state.apply(PodSeen(replace(pod, was_started=True)))
        self.pods.setdefault(ref, []).append(pod)

    def end(self, random: Random) -> None:
        waiting = {queued_gang.gang.source for queued_gang, _, _ in self.to_start}
        done = [ref for ref in self.admitted if ref not in waiting]
        if not done:
            return
        ref = random.choice(done)
        del self.admitted[ref]
        for pod in self.pods.pop(ref, ()):
            del self.pod_zones[pod.node][pod.key]
            self.state.apply(PodLost(pod.key))
        self.state.apply(QueuedGangLost(ref))


@settings(max_examples=settings().max_examples // 2)  # each example is a long play
@given(seed=st.integers(0, 1 << 30), gpus=st.integers(2, 3))
def test_no_gang_is_admitted_to_a_zone_in_use(seed: int, gpus: int) -> None:
    """Reports have a fingerprint: without one it is unknown which pods a late report counts."""
    random = Random(seed)
    simulation = AdmissionPlay(gpus, signed=True)
    for _ in range(60):
        simulation.now += random.choice((0.0, 0.5, 2.0))
        match random.choice(
            ("submit", "submit", "decide", "decide", "start", "start", "end", "look", "tell")
        ):
            case "submit":
                simulation.submit(random.randrange(1, 5))
            case "decide":
                simulation.decide()
            case "start":
                simulation.start()
            case "end":
                simulation.end(random)
            case "look":  # reports are created now and delivered later
                simulation.late_reports.append(simulation.report(random.choice(list(simulation.pod_zones))))
            case "tell" if simulation.late_reports:
                simulation.state.apply(NumaReportSeen(simulation.late_reports.pop(0)))
    while simulation.to_start:
        simulation.start()


@settings(max_examples=settings().max_examples // 2)  # each example is a long play
@given(seed=st.integers(0, 1 << 30), gpus=st.integers(2, 3))
def test_all_zones_are_available_again_after_all_gangs_ended(seed: int, gpus: int) -> None:
    """Once all pods ended and reports say so, a gang gets every zone."""
    random = Random(seed)
    simulation = AdmissionPlay(gpus, signed=random.random() < 0.5)
    for _ in range(10):
        simulation.submit(random.randrange(1, 5))
        simulation.decide()
        simulation.start()
    while simulation.to_start:
        simulation.start()
    for ref in list(simulation.state.pending.entries):
        if ref not in simulation.admitted:
            simulation.state.apply(QueuedGangLost(ref))
    while simulation.admitted:
        simulation.end(random)
    for host in simulation.pod_zones:
        simulation.state.apply(NumaReportSeen(simulation.report(host)))
    simulation.now += 100.0
    pods = ZONES * (ZONE_GPUS // gpus) * 2  # the larger rack has two hosts
    simulation.submit(pods)
    simulation.decide()
    assert len(simulation.to_start) == pods
