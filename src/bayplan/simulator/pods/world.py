"""A small random cluster, and the gangs, pods and jobs that arrive there, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bayplan.backends.fake_controllers.manifests import BLOCK, NAMESPACE, RACK, Object, topology
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.disruption_budget import BUDGETS
from bayplan.dialects.kube.gang.objects import TOPOLOGY as TOPOLOGY_NOTE
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, VERSIONS
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER, TOPOLOGIES
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import NodeChoice, Profile
from bayplan.simulator.core.arrivals import TimedObject, generate_arrivals, random_job, timed_job
from bayplan.simulator.core.fixtures import PLAIN_PODS

OTHER = "another-scheduler"
POOL, APP, GANG = "example.com/pool", "app", "example.com/gang"
WAIT_GATE = "example.com/wait"  # a scheduling gate that users remove
RUN_SECONDS, EXIT = "bayplan.dev/run-seconds", "bayplan.dev/exit"
DEDICATED = {"key": "example.com/dedicated", "value": "yes", "effect": "NoSchedule"}
PRIORITIES = {"": 0, "low": -10, "high": 100, "top": 1000, "shy": 100}
CLASSES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)
PLAIN_BUDGETS = Kind("policy", "v1", BUDGETS.kind, BUDGETS.plural)


def group_kind(version: str) -> Kind:
    """The kind that declares a gang in this version of the gang API."""
    if version == V1ALPHA1:
        return Kind(GROUP, V1ALPHA1, "Workload", "workloads")
    return Kind(GROUP, version, "PodGroup", "podgroups")


@dataclass(frozen=True, slots=True)
class PodsWorld:
    """The objects at the start, and the objects that are created later."""

    version: str  # of the gang API
    profile: Profile
    nodes: list[Object]
    rules: list[tuple[Kind, Object]]
    arrivals: list[TimedObject]


def pods_world(rng: Random, until: float) -> PodsWorld:
    """Hosts in racks, and arrivals of gangs, pods and jobs of all kinds."""
    version = rng.choice(VERSIONS)
    rules = [(CLASSES, priority_class(name, value)) for name, value in PRIORITIES.items() if name]
    if rng.random() < 0.5:
        rules.append((TOPOLOGIES, topology()))
    rules += [(PLAIN_BUDGETS, _budget(rng, app)) for app in ("a", "b") if rng.random() < 0.5]
    arrivals: list[TimedObject] = []
    generator = GangGenerator(rng, version, arrivals)
    generators = (
        (0.5, "gang", generator.gang),
        (0.62, "basic", generator.basic),
        (0.88, "lone", generator.lone),
    )
    generate_arrivals(rng, until, (6, 16), (*generators, (1.0, "job", generator.job)))
    profile = random_profile(rng)
    arrivals.sort(key=lambda coming: coming.when)
    return PodsWorld(version, profile, random_nodes(rng), rules, arrivals)


def random_profile(rng: Random) -> Profile:
    """A random profile, as an administrator may configure it."""
    return Profile(
        gang_nodes=rng.choice((NodeChoice.PACK, NodeChoice.SPREAD)),
        preemption=rng.random() < 0.9,
        heal_seconds=rng.choice((15.0, 60.0)),
        keep_after_seconds=rng.choice((0.0, 20.0, 300.0)),
    )


def priority_class(name: str, value: int) -> Object:
    """A PriorityClass; the one called shy never preempts."""
    policy = {"preemptionPolicy": "Never"} if name == "shy" else {}
    return {"metadata": {"name": name}, "value": value, **policy}


def _budget(rng: Random, app: str) -> Object:
    spec = {"selector": {"matchLabels": {APP: app}}, "maxUnavailable": rng.choice((0, 1, 1, "50%"))}
    return {"metadata": {"name": app, "namespace": NAMESPACE}, "spec": spec}


def random_nodes(rng: Random) -> list[Object]:
    """One or two blocks of one to three racks of one to three hosts."""
    found: list[Object] = []
    for block in range(rng.randint(1, 2)):
        for rack in range(rng.randint(1, 3)):
            for _ in range(rng.randint(1, 3)):
                found.append(_node(rng, f"n{len(found):02d}", f"b{block}", f"b{block}r{rack}"))
    return found


def _node(rng: Random, name: str, block: str, rack: str) -> Object:
    amounts = {"cpu": rng.choice(("2", "4", "4", "8")), "memory": "64Gi", "pods": rng.choice(("110", "4"))}
    labels = {BLOCK: block, RACK: rack, HOSTNAME: name, POOL: rng.choice(("gold", "silver"))}
    if rng.random() < 0.1:
        del labels[RACK]
    spec: Object = {}
    if rng.random() < 0.1:
        spec["taints"] = [DEDICATED]
    if rng.random() < 0.08:
        spec["unschedulable"] = True
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


class GangGenerator:
    """Generates arrivals with the fields of one version of the gang API."""

    def __init__(self, rng: Random, version: str, arrivals: list[TimedObject]) -> None:
        self.rng, self.version, self.arrivals = rng, version, arrivals
        self.ports = iter(range(8080, 9000))

    def gang(self, name: str, when: float) -> None:
        """A gang with a minimum, possibly required to be in one domain."""
        rng = self.rng
        size = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
        least = size if rng.random() < 0.6 else rng.randint(1, size)
        policy = {"gang": {"minCount": least}}
        copies = [""] if rng.random() < 0.8 or self.version != V1ALPHA1 else ["left", "right"]
        pod = self._template(GANG, name)
        self._group(name, when, policy, pod)
        for copy in copies:
            part = f"{name}-{copy}" if copy else name
            self._pods(part, size, when, pod, self._group_reference(name, copy), least)

    def basic(self, name: str, when: float) -> None:
        """A group without a minimum: its pods are scheduled one by one."""
        size, pod = self.rng.randint(1, 4), self._template(GANG, name)
        self._group(name, when, {"basic": {}}, pod)
        self._pods(name, size, when, pod, self._group_reference(name, ""), 1)

    def lone(self, name: str, when: float) -> None:
        """Pods without a gang; some belong to another scheduler."""
        rng, pod = self.rng, self._template(GANG, name)
        joins: Object = {"schedulerName": OTHER} if rng.random() < 0.35 else {}
        self._pods(name, rng.choice((1, 1, 2, 4)), when, pod, joins, 1)

    def job(self, name: str, when: float) -> None:
        """A Job or a JobSet whose pods name our scheduler."""
        rng, pods = self.rng, self.rng.choice((1, 2, 3, 4))
        pod = self._template(GANG, name)
        wish = rng.choice(({}, {}, {REQUIRED: RACK}, {PREFERRED: BLOCK}))
        annotations = {**pod["metadata"]["annotations"], **wish}
        kind, spec = random_job(rng, pod, annotations, pods, 0.3)
        self.arrivals.append(timed_job(when, kind, name, spec))

    def _group_reference(self, name: str, copy: str) -> Object:
        if self.version != V1ALPHA1:
            return {"schedulingGroup": {"podGroupName": name}}
        key = {"podGroupReplicaKey": copy} if copy else {}
        return {"workloadRef": {"name": name, "podGroup": "main", **key}}

    def _group(self, name: str, when: float, policy: Object, pod: Object) -> None:
        rng, annotations = self.rng, {}
        level = rng.choice((RACK, RACK, BLOCK)) if rng.random() < 0.3 else ""
        if self.version == V1ALPHA1:
            spec: Object = {"podGroups": [{"name": "main", "policy": policy}]}
            annotations = {TOPOLOGY_NOTE: level} if level else {}
        else:
            spec = {"schedulingPolicy": policy}
            if level:
                spec["schedulingConstraints"] = {"topology": [{"key": level}]}
            if rng.random() < 0.35:
                spec["disruptionMode"] = "PodGroup" if self.version == V1ALPHA2 else {"all": {}}
            if "priorityClassName" in pod["spec"]:
                spec["priorityClassName"] = pod["spec"]["priorityClassName"]
        meta = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
        late = rng.choice((0.0, 0.0, rng.uniform(0, 15)))
        self.arrivals.append(
            TimedObject(when + late, group_kind(self.version), {"metadata": meta, "spec": spec})
        )

    def _pods(self, name: str, size: int, when: float, pod: Object, joins: Object, least: int) -> None:
        rng = self.rng
        spread = rng.choice((0.0, 0.0, 3.0, 15.0))
        mixed = rng.random() < 0.2
        for number in range(size):
            meta = {**pod["metadata"], "name": f"{name}-{number}", "namespace": NAMESPACE}
            spec = {"schedulerName": SCHEDULER, **pod["spec"], **joins}
            if mixed and not number:
                spec["containers"] = [worker(rng.choice(("1", "3", "4")))]
            if least < size and rng.random() < 0.1:
                spec["schedulingGates"] = [{"name": WAIT_GATE}]
            made = {"metadata": meta, "spec": spec}
            self.arrivals.append(TimedObject(when + rng.uniform(0, spread), PLAIN_PODS, made))

    def _template(self, key: str, name: str) -> Object:
        """The pod template of one arrival."""
        rng = self.rng
        labels = {key: name, APP: rng.choice(("a", "b", "c"))}
        seconds = rng.choice(("3", "10", "30", "60", "", ""))
        annotations = {RUN_SECONDS: seconds} if seconds else {}
        if rng.random() < 0.05:
            annotations[EXIT] = "1"
        container = worker(rng.choice(("500m", "1", "1", "2", "2", "4")))
        spec: Object = {"containers": [container], "terminationGracePeriodSeconds": rng.choice((0, 1, 5, 30))}
        if wanted := rng.choice(("", "", "low", "high", "high", "top", "shy")):
            spec["priorityClassName"] = wanted
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": DEDICATED["key"], "operator": "Exists"}]
        if rng.random() < 0.12:
            spec["nodeSelector"] = {POOL: rng.choice(("gold", "silver"))}
        if rng.random() < 0.08:
            port = rng.choice((8080, 8081))
            container["ports"] = [{"containerPort": port, "hostPort": port}]
        self._add_pod_constraints(spec, {key: name}, labels[APP])
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}

    def _add_pod_constraints(self, spec: Object, own: Object, app: str) -> None:
        """Add random pod affinity, anti-affinity or topology spread."""
        rng, kind = self.rng, self.rng.random()
        mine = {"matchLabels": own if rng.random() < 0.7 else {APP: app}}
        key = rng.choice((HOSTNAME, RACK))
        term = {"topologyKey": key, "labelSelector": mine}
        if kind < 0.1:
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif kind < 0.15:
            spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif kind < 0.25:
            skew = {"maxSkew": rng.choice((1, 1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**skew, **term}]


def worker(cpu: str) -> Object:
    """The container of a pod with this CPU request."""
    asked = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {"name": "main", "image": "example.invalid/worker", "resources": asked}
