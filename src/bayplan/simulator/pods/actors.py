"""Actors around the scheduler: users, another scheduler, nodes that come and go, slow termination."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.simulator.core.arrivals import TimedObject
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.core.documents import LastLook, once_per_listing
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.pods.gang_view import gang_of, is_ours
from bayplan.simulator.pods.world import WAIT_GATE

T = TypeVar("T")
NEVER = float("inf")
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})
SLOW = "example.com/slow"  # a finalizer: the pod takes its time to go
RECREATED_MAX = 6  # so many pods of a gang that are gone come back, where a controller owns it


class InitialObjects(Protocol):
    """The nodes at the start, and the objects that are created later."""

    @property
    def nodes(self) -> list[Object]: ...

    @property
    def arrivals(self) -> list[TimedObject]: ...


class PodActors:
    """Acts on the store at random times, without injected faults."""

    def __init__(
        self,
        store: Store,
        rng: Random,
        world: InitialObjects,
        groups: Kind,
        start: float,
        fault_seconds: float,
    ) -> None:
        self.store, self.rng, self.groups, self.now = store, rng, groups, start
        self.calm = False
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.injected: Counter[str] = Counter()
        self.disturbed: dict[str, None] = {}  # gangs whose pods others than we have taken away
        self.disturbed_at = start  # when an actor last changed something unforeseeable
        self.recreated: Counter[str] = Counter()
        self.handled: set[str] = set()  # uids of pods that had to go
        self.slow_until: dict[str, float] = {}  # by uid: when a slow pod is let go
        self.last_look = LastLook()
        self.nodes = {node["metadata"]["name"]: node for node in world.nodes}
        self.managed = {c.obj["metadata"]["name"] for c in world.arrivals if rng.random() < 0.4}
        for arrival in world.arrivals:
            self.plan(start + arrival.when, partial(self._create, arrival))
        actions = (
            self._delete_pod, self._delete_pod, self._delete_group, self._delete_all, self._lower,
            self._taint, self._taint, self._cordon, self._lose_node, self._lose_node, self._new_node,
            self._fail_pod,
        )  # fmt: skip
        for _ in range(rng.choice((0, 2, 5, 9))):
            self.plan(start + rng.uniform(0, fault_seconds), rng.choice(actions))

    def plan(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self.count += 1
        self.agenda.append((when, self.count, action))

    def step(self, now: float) -> float:
        """Run the actions that are due; return when the next one is."""
        self.now = now
        for entry in sorted((one for one in self.agenda if one[0] <= now), key=lambda one: one[:2]):
            self.agenda.remove(entry)
            entry[2]()
        self._finish_termination()
        self._bind_foreign_pods()
        return min([when for when, _, _ in self.agenda] + list(self.slow_until.values()), default=NEVER)

    def recover_all(self) -> None:
        """End the faulty phase: nodes are as at the start, and no more disturbances follow."""
        self.calm = True
        present = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        for name, node in self.nodes.items():
            if name not in present:
                self.store.create(PLAIN_NODES, node)
            else:
                self._recover(name)
        for pod in self._pods():
            if any(gate["name"] == WAIT_GATE for gate in pod["spec"].get("schedulingGates") or ()):
                self._ungate(pod["metadata"]["name"])
        self.disturbed_at = self.now

    # ── people ──

    def _create(self, arrival: TimedObject) -> None:
        obj = arrival.obj
        if arrival.kind is PLAIN_PODS:
            obj = copy.deepcopy(obj)
            if self.rng.random() < 0.3:
                obj["metadata"]["finalizers"] = [SLOW]
            if obj["spec"].get("schedulingGates"):
                after = self.now + self.rng.uniform(0, 30)
                self.plan(after, partial(self._ungate, obj["metadata"]["name"]))
        self.store.create(arrival.kind, obj, NAMESPACE)

    def _ungate(self, name: str) -> None:
        if self.store.find(PLAIN_PODS, NAMESPACE, name) is not None:
            self.store.patch(PLAIN_PODS, NAMESPACE, name, {"spec": {"schedulingGates": None}})

    def _delete_pod(self) -> None:
        for pod in self._one_of(self._pods()):
            self._delete(pod, "pod_deleted")

    def _fail_pod(self) -> None:
        for pod in self._one_of([pod for pod in self._pods() if phase_of(pod) == "Running"]):
            self._count_fault("pod_failed", pod)
            patch = {"status": {"phase": "Failed", "reason": "Simulated"}}
            self.store.patch(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], patch, subresource="status")

    def _delete_group(self) -> None:
        """Delete the object of a gang but not its pods; usually it is created again later."""
        for group in self._one_of(self.store.list(self.groups).items):
            name = group["metadata"]["name"]
            self._count_fault("group_deleted")
            for pod in self._pods():
                self.disturbed.update({self.gang_of(pod): None} if name in self.gang_of(pod) else {})
            self._remove_group(group)
            if self.rng.random() < 0.7:
                meta = {key: group["metadata"].get(key) for key in ("name", "namespace", "annotations")}
                spec = {key: value for key, value in group["spec"].items() if key != "priority"}
                fresh = {"metadata": meta, "spec": spec}
                self.plan(self.now + self.rng.uniform(1, 20), partial(self._create_again, fresh))

    def _create_again(self, group: Object) -> None:
        if self.store.find(self.groups, NAMESPACE, group["metadata"]["name"]) is None:
            self.store.create(self.groups, group, NAMESPACE)

    def _remove_group(self, group: Object) -> None:
        name = group["metadata"]["name"]
        if self.store.find(self.groups, NAMESPACE, name) is not None:  # it may be gone with whom it is for
            self.store.delete(self.groups, NAMESPACE, name)
        if self.store.find(self.groups, NAMESPACE, name) is not None:
            self.store.patch(self.groups, NAMESPACE, name, {"metadata": {"finalizers": None}})

    def _delete_all(self) -> None:
        """Delete a gang with all its pods, or a job."""
        jobs = [one for kind in ("Job", "JobSet") for one in self.store.list(resource(kind)).items]
        jobs = [job for job in jobs if not job["metadata"].get("ownerReferences")]
        for owner in self._one_of([*self.store.list(self.groups).items, *jobs]):
            self._count_fault("gang_deleted")
            name = owner["metadata"]["name"]
            self.managed.discard(name)
            if owner in jobs:
                self.store.delete(resource(owner["kind"]), NAMESPACE, name, BACKGROUND)
                continue
            for pod in self._pods():
                if self.gang_of(pod).split("/")[1:2] == [name]:
                    self._delete(pod, "pod_deleted")
            self._remove_group(owner)

    def _lower(self) -> None:
        """Lower the minimum of a gang, where the API accepts that."""
        for group in self._one_of(self.store.list(self.groups).items):
            name, spec = group["metadata"]["name"], copy.deepcopy(group["spec"])
            if self.lower_minimum(spec):
                try:
                    self.store.patch(self.groups, NAMESPACE, name, {"spec": spec})
                    self._count_fault("minimum_lowered")
                except StatusError:
                    self.injected["minimum_kept"] += 1

    def lower_minimum(self, spec: Object) -> bool:
        """Lower a minimum in the spec of a gang; returns whether there was one."""
        first = spec["podGroups"][0]["policy"] if "podGroups" in spec else spec["schedulingPolicy"]
        gang = first.get("gang", {})
        if gang.get("minCount", 1) <= 1:
            return False
        gang["minCount"] -= 1
        return True

    def gang_of(self, pod: Object) -> str:
        """The gang of a pod, as kind and name; empty if none."""
        return gang_of(pod)

    def _delete(self, pod: Object, fault: str) -> None:
        self._count_fault(fault, pod)
        self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    # ── controllers of pods ──

    def _finish_termination(self) -> None:
        pods = self.store.everything(PLAIN_PODS)
        if self.last_look.repeats(pods) and not self.slow_until:
            return
        for pod in _terminating(pods):
            meta = pod["metadata"]
            if meta["uid"] not in self.handled:
                self._plan_replacement(pod)
            if SLOW not in meta.get("finalizers", ()):
                continue
            if meta["uid"] not in self.slow_until:
                self.slow_until[meta["uid"]] = self.now + self.rng.choice((0.5, 5.0, 20.0, 40.0))
            if self.slow_until[meta["uid"]] <= self.now:
                del self.slow_until[meta["uid"]]
                self.store.patch(PLAIN_PODS, NAMESPACE, meta["name"], {"metadata": {"finalizers": None}})
        if self.slow_until:
            present = {pod["metadata"]["uid"] for pod in _terminating(self.store.everything(PLAIN_PODS))}
            self.slow_until = {uid: when for uid, when in self.slow_until.items() if uid in present}

    def _plan_replacement(self, pod: Object) -> None:
        """Plan a replacement for a pod of a managed gang."""
        meta = pod["metadata"]
        self.handled.add(meta["uid"])
        gang = (meta.get("labels") or {}).get("example.com/gang", "")
        if gang in self.managed and not meta.get("ownerReferences"):
            self.recreated[gang] += 1
            if self.recreated[gang] <= RECREATED_MAX:
                self.plan(
                    self.now + self.rng.uniform(1, 10), partial(self.recreate, pod, self.recreated[gang])
                )

    def recreate(self, pod: Object, number: int) -> None:
        """Create a pod that differs from another only in its name."""
        meta = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
        spec = {k: v for k, v in pod["spec"].items() if k not in ("nodeName", "priority", "preemptionPolicy")}
        replacement = {"metadata": {**meta, "name": f"{pod['metadata']['name']}-{number}"}, "spec": spec}
        self.store.create(PLAIN_PODS, {**replacement, "status": {}}, NAMESPACE)

    def _bind_foreign_pods(self) -> None:
        """Bind pods of another scheduler, which considers requests only, and sometimes overcommits."""
        for pod in _foreign_pending(self.store.everything(PLAIN_PODS)):
            if self.rng.random() < 0.7:
                continue
            for node in self._one_of(self.store.list(PLAIN_NODES).items):
                name = node["metadata"]["name"]
                present = [one for one in pods_on_nodes(self._pods()) if one["spec"]["nodeName"] == name]
                present.append({**pod, "spec": {**pod["spec"], "nodeName": name}})
                fits = all(amount <= limit for _, _, amount, limit in use_of([node], used_by(present)))
                if fits or (not self.calm and self.rng.random() < 0.1):
                    self._count_fault("bound_by_another")
                    body = {
                        "metadata": {"name": pod["metadata"]["name"]},
                        "target": {"kind": "Node", "name": name},
                    }
                    self.store.connect(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], "binding", body)

    # ── nodes ──

    def _taint(self) -> None:
        for name in self._one_of(self._node_names()):
            self._count_fault("tainted")
            taint = {"key": "example.com/trouble", "effect": "NoSchedule"}
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            self.plan(self.now + self.rng.uniform(2, 60), partial(self._recover, name))

    def _cordon(self) -> None:
        for name in self._one_of(self._node_names()):
            self._count_fault("cordoned")
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"unschedulable": True}})
            self.plan(self.now + self.rng.uniform(2, 60), partial(self._recover, name))

    def _lose_node(self) -> None:
        present = self._node_names()
        for name in self._one_of(present if len(present) > 2 else []):
            self._count_fault("node_lost")
            for pod in self._pods():
                if pod["spec"].get("nodeName") == name:
                    self._count_fault("pod_lost", pod)
                    self._plan_replacement(pod)
            self.store.delete(PLAIN_NODES, "", name)
            self.plan(self.now + self.rng.uniform(1, 60), partial(self._restore_node, name))

    def _restore_node(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is None:
            self._count_fault("node_back")
            self.store.create(PLAIN_NODES, self.nodes[name])

    def _new_node(self) -> None:
        for node in self._one_of(list(self.nodes.values())):
            fresh = copy.deepcopy(node)
            name = fresh["metadata"]["name"] = f"x{len(self.nodes):02d}"
            fresh["metadata"]["labels"]["kubernetes.io/hostname"] = name
            self.nodes[name] = fresh
            self._count_fault("node_new")
            self.store.create(PLAIN_NODES, fresh)

    def _recover(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is not None:
            first = self.nodes[name]["spec"]
            spec = {"taints": first.get("taints"), "unschedulable": first.get("unschedulable")}
            self.store.patch(PLAIN_NODES, "", name, {"spec": spec})
            self.disturbed_at = self.now

    # ── the store ──

    def _pods(self) -> list[Object]:
        return [pod for pod in self.store.list(PLAIN_PODS).items if phase_of(pod) not in OVER]

    def _node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items]

    def _one_of(self, choices: list[T]) -> list[T]:
        """A list of one random choice; empty if there is none."""
        return [self.rng.choice(choices)] if choices else []

    def _count_fault(self, fault: str, pod: Object | None = None) -> None:
        self.injected[fault] += 1
        self.disturbed_at = self.now
        if pod is not None and (gang := self.gang_of(pod)):
            self.disturbed[gang] = None


@once_per_listing
def _terminating(pods: Sequence[Object]) -> tuple[Object, ...]:
    return tuple([pod for pod in pods if is_terminating(pod)])


@once_per_listing
def _foreign_pending(pods: Sequence[Object]) -> tuple[Object, ...]:
    """Pods that another scheduler may bind. Those with claims wait for an actor that allocates devices."""
    found = []
    for pod in pods:
        spec = pod["spec"]
        held = spec.get("nodeName") or spec.get("schedulingGates") or spec.get("resourceClaims")
        if not (held or is_ours(pod) or is_terminating(pod) or phase_of(pod) in OVER):
            found.append(pod)
    return tuple(found)
