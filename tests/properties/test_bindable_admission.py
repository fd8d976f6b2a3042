"""Whatever admission admits can be bound by the scheduler, on exactly the nodes of its placement."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.assignment import Assignment
from bayplan.model.change import Change, NamespaceSeen, NodeSeen, PodSeen, StorageSeen
from bayplan.model.gang import PodSet
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.model.plan import Bind
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import ClaimUse, Disk, HostPort, PodAffinity, PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.storage import ONE_POD, NodeVolumes, StorageClass, Volume, VolumeClaim
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState
from tests.properties.amounts import seeds
from tests.support.bindable_gangs import (
    NAMESPACE,
    RACK,
    ZONE,
    AdmissionStage,
    host,
    in_rack,
    labels,
    queued,
    running,
    spread_over,
    term,
    workers,
)

SEEDS = st.integers(0, 2**32)
APPS = ("red", "blue", "green")
KEYS = (ZONE, RACK, HOSTNAME)
CLAIMS = ("bound", "late", "one-pod")
CYCLES_MAX = 60


def random_nodes(random: Random) -> list[Node]:
    names = [f"z{zone}-r{rack}-{number}" for zone in (1, 2) for rack in (1, 2) for number in (1, 2, 3)]
    return [host(name, cpu=random.choice((2000, 4000))) for name in names if random.random() < 0.9]


def random_template(random: Random) -> PodSignature:
    """Labels, and at times each of the things that filters look at."""
    app = random.choice(APPS)
    affinity = PodAffinity(
        required=(term(random.choice(KEYS), app=random.choice(APPS)),) if random.random() < 0.2 else (),
        required_anti=(term(random.choice(KEYS), app=random.choice(APPS)),) if random.random() < 0.3 else (),
    )
    spread = spread_over(random.choice(KEYS), random.choice((1, 1, 2)), app=random.choice((app, *APPS)))
    spread = replace(spread, min_domains=random.choice((1, 1, 2)), honor_affinity=random.random() < 0.5)
    return PodSignature(
        labels=labels(app=app),
        ports=(HostPort(random.choice((80, 81))),) if random.random() < 0.2 else (),
        affinity=affinity,
        spread=(spread,) if random.random() < 0.3 else (),
        claims=(ClaimUse(random.choice(CLAIMS)),) if random.random() < 0.2 else (),
        disks=(Disk("gce", "d", read_only=random.random() < 0.5),) if random.random() < 0.1 else (),
    )


def random_storage(random: Random, nodes: list[Node]) -> list[Change]:
    def somewhere() -> tuple[NodeSelectorTerm, ...] | None:
        key, values = random.choice(((ZONE, ("z1", "z2")), (RACK, ("z1-r1", "z2-r2"))))
        only = (NodeSelectorTerm((Requirement(key, "In", (random.choice(values),)),)),)
        return None if random.random() < 0.3 else only

    claims = [
        VolumeClaim(NAMESPACE, "bound", volume="v1", bound=True),
        VolumeClaim(NAMESPACE, "late", "slow"),
        VolumeClaim(NAMESPACE, "one-pod", volume="v2", bound=True, modes=(ONE_POD,)),
    ]
    volumes = [Volume(name, affinity=somewhere(), driver="csi", handle=name) for name in ("v1", "v2")]
    slow = StorageClass("slow", "csi", wait_for_consumer=True, topologies=somewhere() or ())
    limits = [NodeVolumes(node.name, {"csi": random.choice((1, 2))}) for node in nodes]
    found = [StorageSeen(item) for group in (claims, volumes, limits) for item in group]
    return [*found, StorageSeen(slow)]


def random_gang(random: Random, name: str) -> QueuedGang:
    pod_sets: list[PodSet] = []
    for number in range(random.choice((1, 1, 2))):
        template = random_template(random) if random.random() < 0.9 else None
        make = in_rack if random.random() < 0.2 else workers
        cpu = random.choice((500, 1000, 2000))
        pod_sets.append(make(random.randint(1, 6), template, cpu=cpu, name=f"set{number}"))
    return queued(name, *pod_sets)


def pods_of(gang: QueuedGang, places: dict[str, Assignment]) -> list[Pod]:
    """The pods of an admitted gang as they are when they are ungated: each has its host as node selector."""
    found = []
    for pod_set in gang.gang.root.pod_sets():
        shape = (pod_set.template or PodSignature()).in_namespace(NAMESPACE)
        amounts = {**pod_set.requests, PODS: 1}
        for rank, (name,) in enumerate(places[pod_set.name].ranks()):
            rules = replace(pod_set.rules, selector=((HOSTNAME, name),))
            own = replace(shape, amounts=tuple(sorted(amounts.items())), rules=rules)
            key = PodKey(NAMESPACE, f"{gang.gang.source.name}-{pod_set.name}-{rank}")
            found.append(Pod(key, str(key), amounts, spec=PodSpec(own), ours=True, created=float(rank)))
    return found


def bound_by(state: SchedulingState, pods: list[Pod]) -> dict[PodKey, str]:
    """Bind the pods as long as the scheduler binds any; where they are then."""
    for pod in pods:
        state.apply(PodSeen(pod))
    by_key, nodes, now = {pod.key: pod for pod in pods}, dict[PodKey, str](), 0.0
    for _ in range(CYCLES_MAX):
        now += 1000.0
        plan = decide_gangs(state.snapshot(state.heads(now), now), Profile(preemption=False), now)
        state.assume(plan, now)
        for action in plan.actions:
            if isinstance(action, Bind):
                nodes[action.pod.key] = action.node
                state.apply(PodSeen(replace(by_key[action.pod.key], node=action.node)))
        if len(nodes) == len(pods):
            break
    return nodes


def _host(pod: Pod) -> str:
    return dict(pod.spec.signature.rules.selector)[HOSTNAME]


def _started(gang: QueuedGang, pod: Pod) -> Pod:
    """The pod as admission sees it on its host: it has a slot of its gang."""
    pod_set = pod.key.name.split("-")[1]
    return replace(pod, node=_host(pod), gang=gang.gang.source, pod_set=pod_set)


def check(seed: int) -> int:
    """Returns how many gangs were admitted."""
    random = Random(seed)
    nodes = random_nodes(random)
    storage = random_storage(random, nodes)
    others = [
        running(f"other{number}", random.choice(nodes).name, random_template(random), cpu=500)
        for number in range(random.randint(0, 4))
    ]
    stage = AdmissionStage(nodes, *storage)
    stage.run(*others)
    scheduler = SchedulingState()
    for change in (NamespaceSeen(NAMESPACE, {}), *map(NodeSeen, nodes), *storage, *map(PodSeen, others)):
        scheduler.apply(change)
    for number in range(random.randint(1, 4)):
        stage.admit(random_gang(random, f"gang{number}"))
        if random.random() < 0.5:  # the pods run before the next gang is admitted
            for gang, places in stage.admitted:
                stage.run(*(_started(gang, pod) for pod in pods_of(gang, places)))
    for gang, places in stage.admitted:  # in the order in which they were admitted
        pods = pods_of(gang, places)
        found, wanted = bound_by(scheduler, pods), {pod.key: _host(pod) for pod in pods}
        assert found == wanted, (seed, {key for key in wanted if found.get(key) != wanted[key]})
    return len(stage.admitted)


@settings(max_examples=seeds(50, 500), deadline=None)
@given(SEEDS)
def test_whatever_is_admitted_can_be_bound_on_exactly_those_nodes(seed: int) -> None:
    check(seed)


def test_most_worlds_admit_gangs_so_that_the_property_says_something() -> None:
    assert sum(check(seed) for seed in range(40)) >= 40
