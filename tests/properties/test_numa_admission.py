"""Admission on nodes whose reports are late: whoever is admitted finds its zones when its pods start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
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
from bayplan.placement.numa.fingerprint import sign_of_pods
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.state import AdmissionState
from tests.support.numa_nodes import GPU, report

RACK = "rack"
ZONE_GPUS, ZONES, HOSTS = 5, 2, 3  # pods of two or three would fit once more by room than by zones
QUEUES = ("one", "two")
STEPS = ("submit", "submit", "decide", "decide", "start", "start", "end", "look", "tell")


@dataclass
class Play:
    """A cluster of hosts that give pods their zones in truth, and what admission makes of it."""

    gpus: int  # that every pod asks for
    signed: bool
    state: AdmissionState = field(default_factory=AdmissionState)
    sat: dict[str, dict[PodKey, int]] = field(default_factory=dict)  # by host, in which zone
    to_start: list[tuple[QueuedGang, str, int]] = field(default_factory=list)  # in the order of admission
    admitted: dict[Ref, QueuedGang] = field(default_factory=dict)
    pods: dict[Ref, list[Pod]] = field(default_factory=dict)
    late: list[NodeZones] = field(default_factory=list)
    now: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        apply = self.state.apply
        apply(TopologySeen(Topology("t", (RACK, HOSTNAME))))
        for at in range(HOSTS):
            amounts = {"cpu": 99_000, GPU: ZONES * ZONE_GPUS, "pods": 110}
            apply(NodeSeen(Node(f"h{at}", {HOSTNAME: f"h{at}", RACK: f"r{at // 2}"}, amounts)))
            self.sat[f"h{at}"] = {}
        apply(FlavorSeen(Flavor("f", topology="t")))
        for queue in QUEUES:  # so that several gangs are decided on in one round
            node = QuotaNode(queue, "", {("f", GPU): Quota(1000)})
            apply(QueueSeen(Queue(node, (ResourceGroup((GPU,), ("f",)),), namespaces=())))
            apply(NamespaceQueueSeen(NamespaceQueue("ns", queue, queue)))
        for host in self.sat:
            apply(NumaReportSeen(self.report(host)))

    @property
    def wants(self) -> NumaRequest:
        return NumaRequest(QosClass.BURSTABLE, (ContainerRequest("main", ((GPU, self.gpus),)),))

    def left(self, host: str) -> list[int]:
        found = [ZONE_GPUS] * ZONES
        for zone in self.sat[host].values():
            found[zone] -= self.gpus
        return found

    def report(self, host: str) -> NodeZones:
        made = report(*({GPU: left} for left in self.left(host)), name=host)
        zones = tuple(Zone(zone.number, zone.available, {GPU: ZONE_GPUS}) for zone in made.zones)
        sign = sign_of_pods((key.namespace, key.name) for key in self.sat[host])
        return replace(made, zones=zones, sign=sign if self.signed else None)

    def submit(self, pods: int) -> None:
        self.number += 1
        requests = {GPU: self.gpus}
        part = PodSet("main", pods, pods, requests, Locality(required=RACK), zones=self.wants)
        gang = Gang(Ref("k", "W", "ns", f"g{self.number}"), Group("", (part,), 1), uid=f"{self.number}")
        asks = (QuotaRequest("main", pods, requests, topology=True),)
        entrance = ("ns", QUEUES[self.number % len(QUEUES)])
        self.state.apply(QueuedGangSeen(QueuedGang(gang, asks, entrance, queued=float(self.number))))

    def decide(self) -> None:
        heads = self.state.heads(self.now)
        if not heads:
            return
        plan = decide_admissions(self.state.snapshot(heads), Profile(), self.now)
        self.state.assume(plan, self.now)
        for action in plan.actions:
            if isinstance(action, Admit):
                self.take(replace(action.demand, admission=action.admission), action.admission)

    def take(self, demand: QueuedGang, admission: Admission) -> None:
        self.admitted[demand.gang.source] = demand
        self.state.apply(QueuedGangSeen(demand))
        place = admission.given[0].place
        assert place is not None
        for share in place.shares:
            self.to_start += [(demand, share.values[-1], at) for at in range(share.count)]

    def start(self) -> None:
        """The next pod begins on its host, which gives it the lowest zone that has room."""
        if not self.to_start:
            return
        demand, host, at = self.to_start.pop(0)
        ref = demand.gang.source
        zone = next((n for n, left in enumerate(self.left(host)) if left >= self.gpus), None)
        assert zone is not None, f"{ref.name} was admitted to {host}, which has {self.left(host)} left"
        key = PodKey("ns", f"{ref.name}-{host}-{at}")
        self.sat[host][key] = zone
        wants = PodSpec(PodSignature(zones=self.wants))
        pod = Pod(key, str(key), {GPU: self.gpus, "pods": 1}, host, gang=ref, pod_set="main", wants=wants)
        self.state.apply(PodSeen(pod))
        self.state.apply(PodSeen(replace(pod, up=True)))
        self.pods.setdefault(ref, []).append(pod)

    def end(self, random: Random) -> None:
        waiting = {demand.gang.source for demand, _, _ in self.to_start}
        done = [ref for ref in self.admitted if ref not in waiting]
        if not done:
            return
        ref = random.choice(done)
        del self.admitted[ref]
        for pod in self.pods.pop(ref, ()):
            del self.sat[pod.node][pod.key]
            self.state.apply(PodLost(pod.key))
        self.state.apply(QueuedGangLost(ref))


@given(seed=st.integers(0, 1 << 30), gpus=st.integers(2, 3))
def test_nobody_is_admitted_to_a_zone_that_is_taken(seed: int, gpus: int) -> None:
    """Reports with a fingerprint: without one nobody can tell whom a late report counts."""
    random = Random(seed)
    play = Play(gpus, signed=True)
    for _ in range(60):
        play.now += random.choice((0.0, 0.5, 2.0))
        match random.choice(
            ("submit", "submit", "decide", "decide", "start", "start", "end", "look", "tell")
        ):
            case "submit":
                play.submit(random.randrange(1, 5))
            case "decide":
                play.decide()
            case "start":
                play.start()
            case "end":
                play.end(random)
            case "look":  # reports are made now, and heard of later
                play.late.append(play.report(random.choice(list(play.sat))))
            case "tell" if play.late:
                play.state.apply(NumaReportSeen(play.late.pop(0)))
    while play.to_start:
        play.start()


@given(seed=st.integers(0, 1 << 30), gpus=st.integers(2, 3))
def test_in_the_end_all_room_is_found_again(seed: int, gpus: int) -> None:
    """Once everybody is gone and reports say so, a gang gets every zone there is."""
    random = Random(seed)
    play = Play(gpus, signed=random.random() < 0.5)
    for _ in range(10):
        play.submit(random.randrange(1, 5))
        play.decide()
        play.start()
    while play.to_start:
        play.start()
    for ref in list(play.state.lines.standings):
        if ref not in play.admitted:
            play.state.apply(QueuedGangLost(ref))
    while play.admitted:
        play.end(random)
    for host in play.sat:
        play.state.apply(NumaReportSeen(play.report(host)))
    play.now += 100.0
    most = ZONES * (ZONE_GPUS // gpus) * 2  # the larger rack has two hosts
    play.submit(most)
    play.decide()
    assert len(play.to_start) == most
