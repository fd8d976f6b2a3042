"""A small random cluster whose nodes are shared by gangs of all APIs, generated from a seed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random

from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api import names
from bayplan.dialects.kube.gang_api.gates import VERSIONS
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import MINIMUM, SEGMENT_SIZE, SYNCED
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import Profile
from bayplan.simulator.core.arrivals import TimedObject, generate_arrivals
from bayplan.simulator.core.fixtures import PLAIN_PODS
from bayplan.simulator.core.world import Arrival
from bayplan.simulator.jobs.world import JobsWorld, SeedSettings, jobs_world
from bayplan.simulator.pods import world as pods
from bayplan.simulator.pods.world import CLASSES, GANG, GangGenerator, random_profile
from bayplan.simulator.subgroups import world as subgroups
from bayplan.simulator.subgroups.queue_view import random_queues
from bayplan.simulator.subgroups.world import HALL, LEVELS, GroupGenerator

PRIORITIES = {name: value for name, value in pods.PRIORITIES.items() if name} | subgroups.PRIORITIES
CPUS = ("4", "4", "8", "8")  # a pod of a queued job requests 4
AT_RACK = 0.3  # the share of worlds whose queues have a topology that ends at the rack
MIXED = 0.3  # among those without racks or zones, the share whose queues have topologies of both kinds
ZONED = 0.3  # among the others, the share of worlds whose nodes have NUMA zones
COARSE = "coarse"  # a flavor and its topology
SAME_MOMENT = 0.4  # seconds between arrivals of one moment


class SlotLevel(Enum):
    """Where admitted gangs have slots."""

    HOSTS = auto()
    RACKS = auto()
    BOTH = auto()  # on hosts or in racks, by queue


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The nodes at the start, and the objects of one API family that are created later."""

    nodes: list[Object]
    arrivals: list[TimedObject]


@dataclass(frozen=True, slots=True)
class SharedWorld:
    """The objects at the start, and what arrives later, by API family."""

    version: str  # of the gang API
    profile: Profile  # of the scheduler
    with_grouper: bool
    settings: SeedSettings  # of admission
    rules: list[tuple[Kind, Object]]
    jobs: JobsWorld
    groups: Arrivals
    gangs: Arrivals  # and plain pods

    @property
    def nodes(self) -> list[Object]:
        return self.jobs.nodes


class SharedGenerator(GangGenerator):
    """Generates gangs of the gang API, and plain pods that all name our scheduler.

    Their priority classes are among `classes`: the checkers of groups know no others.
    """

    def __init__(
        self, rng: Random, version: str, arrivals: list[TimedObject], classes: Mapping[str, int]
    ) -> None:
        super().__init__(rng, version, arrivals)
        self.classes = classes

    def _template(self, key: str, name: str) -> Object:
        pod = super()._template(key, name)
        if pod["spec"].get("priorityClassName") not in self.classes:
            pod["spec"].pop("priorityClassName", None)
        return pod

    def lone(self, name: str, when: float) -> None:
        pod = self._template(GANG, name)
        self._pods(name, self.rng.choice((1, 1, 2, 4)), when, pod, {}, 1)


def drawn_kind(seed: int, slots: SlotLevel | None, with_zones: bool | None) -> tuple[SlotLevel, bool]:
    """Where gangs have slots, and whether nodes have zones, as far as the seed decides."""
    kinds = Random(f"levels {seed}")
    drawn = SlotLevel.RACKS if kinds.random() < AT_RACK else SlotLevel.HOSTS
    level = drawn if slots is None else slots
    on_hosts = level is SlotLevel.HOSTS
    has_zones = on_hosts and kinds.random() < ZONED if with_zones is None else with_zones
    if slots is None and on_hosts and not has_zones and kinds.random() < MIXED:
        level = SlotLevel.BOTH
    return level, has_zones


def drawn_world(rng: Random, until: float, pace: Random | None, level: SlotLevel) -> SharedWorld:
    """A world with these slots; `pace`: a dense one."""
    world = shared_world(rng, until)
    if pace is not None:
        world = dense(world, pace, until)
    match level:
        case SlotLevel.RACKS:
            return ending_at_racks(world)
        case SlotLevel.BOTH:
            return mixing_topologies(world)
    return world


def shared_world(rng: Random, until: float) -> SharedWorld:
    """Hosts in racks with little CPU, and arrivals of all kinds that compete for it."""
    queued = jobs_world(rng, until)
    nodes = [_with_cpu(rng, node) for node in queued.nodes[: rng.randint(3, 8)]]
    jobs = [Arrival(arrival.when, _named_scheduler(arrival.job)) for arrival in queued.arrivals]
    version = rng.choice(VERSIONS)
    queues, leaves = random_queues(rng, nodes) if rng.random() < 0.6 else ([], ())
    groups: list[TimedObject] = []
    gangs: list[TimedObject] = []
    with_grouper = rng.random() < 0.5  # it makes groups of plain pods
    classes = subgroups.PRIORITIES if with_grouper else PRIORITIES
    gang_generator = SharedGenerator(rng, version, gangs, classes)
    generators = (
        (0.3, "gang", gang_generator.gang),
        (0.36, "basic", gang_generator.basic),
        (0.66, "tree", GroupGenerator(rng, leaves, groups).tree),
        (1.0, "lone", gang_generator.lone),
    )
    generate_arrivals(rng, until, (4, 11), generators)
    gangs = [_beside_a_job(rng, arrival, jobs) for arrival in gangs]
    for arrivals in (groups, gangs):
        arrivals.sort(key=lambda arrival: arrival.when)
    levels = [{"nodeLabel": level} for level in LEVELS]
    topology = (names.TOPOLOGY, {"metadata": {"name": HALL}, "spec": {"levels": levels}})
    rules = [*queued.rules, topology, *_classes(), *((names.QUEUE, _accepted(queue)) for queue in queues)]
    queued = JobsWorld(nodes, queued.rules, jobs, queued.settings)
    return SharedWorld(
        version, random_profile(rng), with_grouper, queued.settings, rules,
        queued, Arrivals(nodes, groups), Arrivals(nodes, gangs),
    )  # fmt: skip


def dense(world: SharedWorld, rng: Random, until: float) -> SharedWorld:
    """The world with few nodes, and with small jobs and plain pods that arrive at the same moments.

    Most of them end soon, so that admission and binding often decide on the same free capacity at the same
    time.
    """
    nodes = world.nodes[: rng.randint(2, 4)]
    moments = [rng.uniform(2, until * 0.9) for _ in range(rng.randint(6, 9))]
    jobs = []
    for number in range(rng.randint(8, 12)):
        job = _small(rng, rng.choice(world.jobs.arrivals).job, f"job-{number}")
        jobs.append(Arrival(rng.choice(moments) + rng.uniform(0, SAME_MOMENT), job))
    jobs.sort(key=lambda one: one.when)
    gangs = [*_some(rng, world.gangs.arrivals, moments), *_plain_pods(rng, moments)]
    groups = _some(rng, world.groups.arrivals, moments)
    return replace(
        world,
        jobs=replace(world.jobs, nodes=nodes, arrivals=jobs),
        groups=Arrivals(nodes, sorted(groups, key=lambda one: one.when)),
        gangs=Arrivals(nodes, sorted(gangs, key=lambda one: one.when)),
    )


def ending_at_racks(world: SharedWorld) -> SharedWorld:
    """The world with queues whose topology ends at the rack: admitted gangs have no hosts yet."""

    def shortened(kind: Kind, obj: Object) -> Object:
        if kind != api_kinds.TOPOLOGIES:
            return obj
        levels = [level for level in obj["spec"]["levels"] if level["nodeLabel"] != HOSTNAME]
        return {**obj, "spec": {**obj["spec"], "levels": levels}}

    return replace(world, rules=[(kind, shortened(kind, obj)) for kind, obj in world.rules])


def mixing_topologies(world: SharedWorld) -> SharedWorld:
    """The world with every second queue on a flavor of the same nodes with a topology that ends at the rack.

    Slots on hosts and slots in racks then compete for the same nodes. With one queue nothing changes.
    """
    hall = next(obj for kind, obj in world.rules if kind == api_kinds.TOPOLOGIES)
    levels = [level for level in hall["spec"]["levels"] if level["nodeLabel"] != HOSTNAME]
    flavor = next(obj for kind, obj in world.rules if kind == api_kinds.FLAVORS)
    spec = {**flavor["spec"], "topologyName": COARSE}
    added = [
        (api_kinds.TOPOLOGIES, {**hall, "metadata": {"name": COARSE}, "spec": {"levels": levels}}),
        (api_kinds.FLAVORS, {**flavor, "metadata": {"name": COARSE}, "spec": spec}),
    ]
    queues = [obj["metadata"]["name"] for kind, obj in world.rules if kind == api_kinds.CLUSTER_QUEUES]

    def on_racks(kind: Kind, obj: Object) -> Object:
        if kind != api_kinds.CLUSTER_QUEUES or obj["metadata"]["name"] not in queues[1::2]:
            return obj
        made = copy.deepcopy(obj)
        for group in made["spec"]["resourceGroups"]:
            group["flavors"] = [{**group["flavors"][0], "name": COARSE}]
        return made

    return replace(world, rules=[*added, *((kind, on_racks(kind, obj)) for kind, obj in world.rules)])


def _some(rng: Random, arrivals: Sequence[TimedObject], moments: Sequence[float]) -> Iterator[TimedObject]:
    """Some of the gangs, all objects of a gang at the same moment."""
    starts: dict[str, float | None] = {}
    for arrival in arrivals:
        gang = "-".join(arrival.obj["metadata"]["name"].split("-")[:2])
        if gang not in starts:
            starts[gang] = rng.choice(moments) if rng.random() < 0.4 else None
        if (when := starts[gang]) is not None:
            yield replace(arrival, when=when + rng.uniform(0, SAME_MOMENT))


def _small(rng: Random, job: Object, name: str) -> Object:
    """The job with this name; a Job without segments gets one to three pods that run for a short time."""
    job = copy.deepcopy(job)
    job["metadata"]["name"] = name
    spec = job["spec"]
    if job["kind"] != "Job" or SEGMENT_SIZE in spec["template"]["metadata"]["annotations"]:
        return job
    size = rng.choice((1, 2, 2, 3))
    for annotation in (MINIMUM, SYNCED):
        (job["metadata"].get("annotations") or {}).pop(annotation, None)
    spec |= {"parallelism": size, "completions": size}
    spec["template"]["metadata"]["annotations"][pods.RUN_SECONDS] = rng.choice(("3", "3", "10"))
    return job


def _plain_pods(rng: Random, moments: Sequence[float]) -> Iterator[TimedObject]:
    """Up to three plain pods for each moment, large enough for a small host; most of them end soon."""
    for at, when in enumerate(moments):
        for number in range(rng.randint(1, 3)):
            seconds = rng.choice(("5", "15", "40", "60", ""))
            meta: Object = {"name": f"plain-{at}-{number}", "namespace": NAMESPACE, "labels": {}}
            meta["annotations"] = {pods.RUN_SECONDS: seconds} if seconds else {}
            spec: Object = {"schedulerName": SCHEDULER, "containers": [pods.worker(rng.choice(("2", "4")))]}
            made = {"metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 1}}
            yield TimedObject(when + rng.uniform(0, 1.5), PLAIN_PODS, made)  # Workloads come a little later


def _beside_a_job(rng: Random, arrival: TimedObject, jobs: Sequence[Arrival]) -> TimedObject:
    """Some arrive at the same time as a job, when admission and binding are most likely to meet."""
    if rng.random() < 0.3:
        return arrival
    return replace(arrival, when=rng.choice(jobs).when + rng.uniform(0, 1.5))


def _with_cpu(rng: Random, node: Object) -> Object:
    """The node with so little CPU that gangs of all kinds compete for it."""
    node = copy.deepcopy(node)
    cpu = rng.choice(CPUS)
    node["status"]["capacity"]["cpu"] = node["status"]["allocatable"]["cpu"] = cpu
    return node


def _named_scheduler(job: Object) -> Object:
    """The job with pods that name our scheduler."""
    job = copy.deepcopy(job)
    if job["kind"] == "JobSet":
        templates = [part["template"]["spec"]["template"] for part in job["spec"]["replicatedJobs"]]
    else:
        templates = [job["spec"]["template"]]
    for template in templates:
        template["spec"]["schedulerName"] = SCHEDULER
    return job


def _accepted(queue: Object) -> Object:
    """The queue with a limit that is not below its quota, as our webhook demands."""
    cpu = queue["spec"]["resources"]["cpu"]
    limit = -1 if cpu["quota"] < 0 or cpu["limit"] < 0 else max(cpu["quota"], cpu["limit"])
    resources = {**queue["spec"]["resources"], "cpu": {**cpu, "limit": limit}}
    return {**queue, "spec": {**queue["spec"], "resources": resources}}


def _classes() -> list[tuple[Kind, Object]]:
    """The PriorityClasses of all families; one of them never preempts."""
    return [(CLASSES, pods.priority_class(name, value)) for name, value in PRIORITIES.items()]
