"""Nodes with NUMA zones: kubelets that align the GPUs of pods, their reports, and what may be promised.

Each node has two zones with half of its GPUs. A kubelet gives a pod the lowest zone with room, and refuses
a pod for which no zone has room.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.backends.fake_controllers.manifests import GPU, NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, phase_of
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.nrt.fingerprint import ATTRIBUTE, fingerprint_with
from bayplan.dialects.nrt.wire import TOPOLOGIES
from bayplan.simulator.core.arrivals import TimedObject
from bayplan.simulator.core.documents import LastLook
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.pods.world import RUN_SECONDS
from bayplan.simulator.shared.world import Arrivals, SharedWorld
from bayplan.state.cluster.numa_state import expected_fingerprint

NEVER = float("inf")
ZONES = 2
CPUS = "32"  # GPUs are scarce, not CPUs
GPUS = "6"  # enough for three pods of two, but each of two zones has room for one of them
REPORT_SECONDS = 1.0


def zoned(world: SharedWorld, rng: Random) -> SharedWorld:
    """The world with enough CPUs on all nodes, and with plain pods that compete for GPUs."""
    nodes = [copy.deepcopy(node) for node in world.nodes]
    for node in nodes:
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts |= {"cpu": CPUS, GPU: GPUS}
    moments = [arrival.when for arrival in world.jobs.arrivals]
    plain = []
    for number in range(rng.randint(4, 10)):
        gpus = rng.choice(("1", "2", "2"))
        resources = {"requests": {"cpu": "1", GPU: gpus}, "limits": {GPU: gpus}}
        seconds = rng.choice(("3", "10", "25", "60"))
        meta = {"name": f"gpu-{number}", "namespace": NAMESPACE, "annotations": {RUN_SECONDS: seconds}}
        container = {"name": "main", "image": "example.invalid/worker", "resources": resources}
        spec = {"schedulerName": SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 1}
        when = rng.choice(moments) + rng.uniform(0, 2.5)
        plain.append(TimedObject(when, PLAIN_PODS, {"metadata": {**meta, "labels": {}}, "spec": spec}))
    gangs = sorted([*world.gangs.arrivals, *plain], key=lambda arrival: arrival.when)
    return replace(
        world,
        jobs=replace(world.jobs, nodes=nodes),
        groups=Arrivals(nodes, world.groups.arrivals),
        gangs=Arrivals(nodes, gangs),
    )


class ZoneActors:
    """The kubelets of nodes with zones. Without nodes nothing happens."""

    def __init__(self, store: Store, rng: Random, nodes: Sequence[Object], start: float) -> None:
        self.store, self.rng = store, rng
        self.sizes = {node["metadata"]["name"]: _gpus_of_node(node) // ZONES for node in nodes}
        self.zone_of: dict[str, int] = {}  # by uid of the pod
        self.pods: dict[str, list[Object]] = {name: [] for name in self.sizes}  # as last seen
        self.last_look = LastLook()
        self.refused: list[str] = []
        self.due = start
        if nodes:
            store.create(DEFINITIONS, _definition())
        self.reported: dict[str, Object] = {}
        self._report()

    def step(self, now: float) -> float:
        """Admit pods to their zones, and report a while later; return when the next report is due."""
        if not self.sizes:
            return NEVER
        self._look()
        present = {pod["metadata"]["uid"] for pods in self.pods.values() for pod in pods}
        self.zone_of = {uid: zone for uid, zone in self.zone_of.items() if uid in present}
        for name in self.sizes:
            fresh = self._not_admitted(name)
            for pod in self.rng.sample(fresh, len(fresh)):  # in which order a kubelet hears of them is open
                self._admit(name, pod)
        if now >= self.due:
            self._report()
            self.due = NEVER
        elif self.due == NEVER and any(self._body(name) != self.reported[name] for name in self.sizes):
            self.due = now + REPORT_SECONDS
        return self.due

    def _look(self) -> None:
        found = self.store.everything(PLAIN_PODS)
        if self.last_look.repeats(found):
            return
        for name in self.sizes:
            self.pods[name] = [pod for pod in found if pod["spec"].get("nodeName") == name]

    def _not_admitted(self, name: str) -> list[Object]:
        """The pods of a node that have no zone yet and need one."""
        return [pod for pod in self.pods[name] if _uses(pod) and pod["metadata"]["uid"] not in self.zone_of]

    def free(self, name: str) -> list[int]:
        """The free GPUs of each zone of a node."""
        used = [0] * ZONES
        for pod in self.pods[name]:
            zone = self.zone_of.get(pod["metadata"]["uid"])
            if zone is not None and phase_of(pod) not in OVER:
                used[zone] += gpus_of(pod["spec"])
        return [self.sizes[name] - amount for amount in used]

    def _admit(self, node: str, pod: Object) -> None:
        gpus, meta = gpus_of(pod["spec"]), pod["metadata"]
        zone = next((at for at, free in enumerate(self.free(node)) if free >= gpus), None)
        if zone is not None:
            self.zone_of[meta["uid"]] = zone
            return
        self.refused.append(f"pod {meta['name']} was refused by {node}: free in zones {self.free(node)}")
        patch = {"status": {"phase": "Failed", "reason": "TopologyAffinityError"}}
        self.store.patch(PLAIN_PODS, NAMESPACE, meta["name"], patch, subresource="status")

    def _report(self) -> None:
        for name in self.sizes:
            body = self._body(name)
            if self.reported.get(name) == body:
                continue
            known = self.store.find(TOPOLOGIES, "", name)
            if known is None:
                self.store.create(TOPOLOGIES, body)
            else:
                self.store.update(TOPOLOGIES, "", name, {**body, "metadata": known["metadata"]})
            self.reported[name] = body

    def _body(self, name: str) -> Object:
        pods = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.pods[name]]
        return _report(name, self.sizes[name], self.free(name), fingerprint_with(expected_fingerprint(pods)))

    def crowded(self, promised: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, str]]:
        """The nodes whose zones have no room for the pods that they are promised to, and a sentence."""
        if not self.sizes:
            return
        present = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        self._look()
        for name in sorted(present & self.sizes.keys()):
            bound = [gpus_of(pod["spec"]) for pod in self._not_admitted(name)]
            pods = sorted([*promised.get(name, ()), *bound], reverse=True)
            if not fits(self.free(name), pods):
                yield name, f"node {name} has {self.free(name)} GPUs in zones, promised to pods of {pods}"


def fits(free: Sequence[int], pods: Sequence[int]) -> bool:
    """Whether pods, the largest first, find zones in some way."""
    if not pods:
        return True
    rest = pods[1:]
    return any(
        amount >= pods[0] and fits([*free[:at], amount - pods[0], *free[at + 1 :]], rest)
        for at, amount in enumerate(free)
    )


def gpus_of(spec: Object) -> int:
    """The GPUs that a pod requests."""
    containers = spec.get("containers") or ()
    return sum(int(((one.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for one in containers)


def _uses(pod: Object) -> bool:
    return phase_of(pod) not in OVER and gpus_of(pod["spec"]) > 0


def _gpus_of_node(node: Object) -> int:
    return int(node["status"]["allocatable"].get(GPU, 0))


def _definition() -> Object:
    """The definition of reports: any fields, for the whole cluster."""
    made = schemaless_crd(TOPOLOGIES)
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.invalid/approved"}
    made["spec"]["scope"] = "Cluster"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made["spec"]["versions"][0] |= {"schema": {"openAPIV3Schema": anything}, "subresources": {}}
    return made


def _report(node: str, size: int, free: Sequence[int], sign: str) -> Object:
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container"}
    amounts = [
        {"name": GPU, "capacity": str(size), "allocatable": str(size), "available": str(amount)}
        for amount in free
    ]
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": node},
        "attributes": [{"name": k, "value": v} for k, v in {**attributes, ATTRIBUTE: sign}.items()],
        "zones": [
            {"name": f"node-{at}", "type": "Node", "resources": [one]} for at, one in enumerate(amounts)
        ],
    }
