"""Slots of a rack are held on its hosts: whatever the scheduler binds, the promised pods can still be placed.

And the other way round: a pod is refused only if the promised pods need the host, in whatever way they are
placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import NodeLost, NodeSeen, PodLost, PodSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Gang, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.node_rules import NodeRules
from bayplan.model.plan import Plan
from bayplan.model.pod import PodKey, Slot
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission, PodSetAdmission, QueuedGang
from bayplan.state.scheduling.state import SchedulingState
from tests.properties.amounts import seeds
from tests.support import model_objects
from tests.support.scheduling_scene import NOW, binds, board, ends, step

SEEDS, CHUNK = seeds(300, 3_000), 100
CHUNKS = [0, *(pytest.param(at, marks=pytest.mark.long) for at in range(CHUNK, SEEDS, CHUNK))]
RACK = "rack"


def gang_ref(name: str) -> Ref:
    return Ref("kueue", "Workload", "ns", name)


class RackWorld:
    """One rack of a few hosts, gangs that are admitted to it, and plain pods."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.hosts = {f"h{n}": self.random.randint(2, 6) for n in range(1, self.random.randint(2, 4))}
        self.state: SchedulingState = board(*(self.seen(host) for host in self.hosts))
        self.gangs: dict[str, tuple[int, int]] = {}  # pods, and GPUs of one
        self.plain: dict[str, tuple[int, str]] = {}  # GPUs and the only host, if it names one
        self.now, self.number = NOW, 0

    def seen(self, host: str) -> NodeSeen:
        return NodeSeen(model_objects.node(host, {RACK: "r1"}, gpu=self.hosts[host], pods=10))

    def admit(self) -> None:
        """Admit a gang that can be placed pod by pod."""
        name, pods, gpus = f"g{self.number}", self.random.randint(1, 3), self.random.randint(1, 4)
        self.gangs[name] = pods, gpus
        if not self.fits():
            del self.gangs[name]
            return
        pod_set = PodSet("main", pods, pods, {"gpu": gpus})
        place = Assignment((RACK,), (DomainAssignment(("r1",), pods),))
        admission = Admission("q", (PodSetAdmission("main", pods, assignment=place),))
        made = Gang(gang_ref(name), Group("", (pod_set,), 1))
        self.state.apply(
            QueuedGangSeen(QueuedGang(made, (), ("ns", "q"), admission=admission, admitted=True))
        )

    def create_member(self) -> None:
        """A pod of a gang that lacks one becomes pending."""
        short = [name for name, (pods, _) in self.gangs.items() if len(self.members(name)) < pods]
        if short:
            gang = self.random.choice(short)
            wants = self.signature(self.gangs[gang][1], ((RACK, "r1"),))
            slot = Slot(gang_ref(gang), "main", "")
            self.state.apply(PodSeen(model_objects.pod(f"{gang}-{self.number}", wants, slot=slot)))

    def create_plain(self) -> None:
        gpus, host = self.random.randint(1, 4), self.random.choice(("", *self.hosts))
        name = f"p{self.number}"
        self.plain[name] = gpus, host
        wants = self.signature(gpus, ((HOSTNAME, host),) if host else ())
        self.state.apply(PodSeen(model_objects.pod(name, wants)))

    def delete_pod(self) -> None:
        names = [key.name for key in self.state.store.pods]
        if names:
            name = self.random.choice(names)
            self.plain.pop(name, None)
            self.state.apply(PodLost(PodKey("ns", name)))

    def end_gang(self) -> None:
        if self.gangs:
            gang = self.random.choice(sorted(self.gangs))
            for pod in self.members(gang):
                self.state.apply(PodLost(pod))
            del self.gangs[gang]
            self.state.apply(QueuedGangLost(gang_ref(gang)))

    def signature(self, gpus: int, selector: tuple[tuple[str, str], ...]) -> PodSignature:
        return PodSignature("ns", amounts=(("gpu", gpus), (PODS, 1)), rules=NodeRules(selector=selector))

    def members(self, gang: str) -> list[PodKey]:
        return [key for key in self.state.store.pods if key.name.startswith(f"{gang}-")]

    def used(self) -> dict[str, int]:
        used = dict.fromkeys(self.hosts, 0)
        for pod in self.state.store.placed.values():
            used[pod.node] += pod.amounts["gpu"]
        return used

    def missing(self) -> list[int]:
        """GPUs of the promised pods that are not bound, largest first."""
        placed = self.state.store.placed
        found = [
            gpus
            for name, (pods, gpus) in self.gangs.items()
            for _ in range(pods - sum(key in placed for key in self.members(name)))
        ]
        return sorted(found, reverse=True)

    def fits(self, more: int = 0, host: str = "") -> bool:
        """Whether the promised pods fit in some way, with so many more GPUs in use on a host."""
        used = self.used()
        if host:
            used[host] += more
        free = [self.hosts[name] - used[name] for name in self.hosts]
        return min(free) >= 0 and fit_in(free, self.missing())

    def play(self) -> None:
        actions = (self.admit, self.create_member, self.create_plain, self.create_plain, self.delete_pod)
        for _ in range(25):
            self.number += 1
            self.random.choice((*actions, self.end_gang))()
            self.now += 100.0
            plan = self.step()
            assert self.fits(), f"promised pods fit nowhere after {binds(plan)}"

    def step(self) -> Plan:
        plan = step(self.state, self.now, Profile(keep_after_seconds=0))
        ends(self.state, plan, self.now)
        return plan

    def wrongly_pending(self) -> Iterator[str]:
        """Plain pods that wait although a host has room for them beside all promised pods."""
        for name, (gpus, only) in self.plain.items():
            if PodKey("ns", name) not in self.state.store.placed:
                for host in (only,) if only else self.hosts:
                    if self.fits(gpus, host):
                        yield f"{name} with {gpus} on {host}"


def fit_in(free: list[int], pods: list[int]) -> bool:
    """Try every host for every pod."""
    for choice in product(range(len(free)), repeat=len(pods)):
        left = list(free)
        for gpus, at in zip(pods, choice, strict=True):
            left[at] -= gpus
        if min(left) >= 0:
            return True
    return False


@pytest.mark.parametrize("chunk", CHUNKS)
def test_promised_pods_can_be_placed_after_every_binding(chunk: int) -> None:
    for seed in range(chunk, min(chunk + CHUNK, SEEDS)):
        RackWorld(seed).play()


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_pod_is_refused_only_if_the_promised_pods_need_the_host(chunk: int) -> None:
    for seed in range(chunk, min(chunk + CHUNK, SEEDS)):
        world = RackWorld(seed)
        world.play()
        for _ in range(3):  # until nothing changes; no pod of a gang is pending then
            world.now += 1_000.0
            world.step()
        assert list(world.wrongly_pending()) == [], seed


def test_a_node_that_is_gone_takes_no_pod_from_its_rack() -> None:
    world = RackWorld(1)
    world.hosts = {"h1": 4, "h2": 4}
    for host in world.hosts:
        world.state.apply(world.seen(host))
    for host in set(world.state.store.nodes.by_name) - set(world.hosts):
        world.state.apply(NodeLost(host))
    world.random = Random(3)
    while not world.gangs:
        world.number += 1
        world.admit()
    step(world.state, world.now)
    world.state.apply(NodeLost("h2"))
    step(world.state, world.now + 10)
    assert not any(key.name.endswith("/h2") for key in world.state.store.nodes.ledger.entries)
