"""Everybody around our scheduler: people, another scheduler, nodes that come and go, pods that end slowly."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, is_leaving, phase_of
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.simulator.core.arrivals import TimedObject
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.pods.gang_view import gang_of, is_ours

T = TypeVar("T")
NEVER = float("inf")
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})
SLOW = "example.com/slow"  # a finalizer: the pod takes its time to go
RECREATED_MAX = 6  # so many pods of a gang that are gone come back, where somebody looks after it


class InitialObjects(Protocol):
    """What hands are given: what there is at the start, and what comes when."""

    @property
    def nodes(self) -> list[Object]: ...

    @property
    def arrivals(self) -> list[TimedObject]: ...


class PodActors:
    """Acts on the store at moments that the seed chose; nothing between it and the API fails."""

    def __init__(
        self, store: Store, rng: Random, world: InitialObjects, groups: Kind, start: float, storm: float
    ) -> None:
        self.store, self.rng, self.groups, self.now = store, rng, groups, start
        self.calm = False
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.injected: Counter[str] = Counter()
        self.disturbed: dict[str, None] = {}  # gangs whose pods others than we have taken away
        self.disturbed_at = start  # when somebody did something that nobody could foresee
        self.recreated: Counter[str] = Counter()
        self.noticed: set[str] = set()  # uids of pods that had to go
        self.leaving: dict[str, float] = {}  # by uid: when a slow pod is let go
        self.nodes = {node["metadata"]["name"]: node for node in world.nodes}
        self.managed = {c.obj["metadata"]["name"] for c in world.arrivals if rng.random() < 0.4}
        for arrival in world.arrivals:
            self.plan(start + arrival.when, partial(self._bring, arrival))
        deeds = (
            self._delete_pod, self._delete_pod, self._delete_group, self._delete_all, self._lower,
            self._taint, self._taint, self._cordon, self._lose_node, self._lose_node, self._new_node,
            self._fail_pod,
        )  # fmt: skip
        for _ in range(rng.choice((0, 2, 5, 9))):
            self.plan(start + rng.uniform(0, storm), rng.choice(deeds))

    def plan(self, when: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self.count += 1
        self.agenda.append((when, self.count, do))

    def step(self, now: float) -> float:
        """Do what is due; return when something will be."""
        self.now = now
        for entry in sorted((one for one in self.agenda if one[0] <= now), key=lambda one: one[:2]):
            self.agenda.remove(entry)
            entry[2]()
        self._end_slowly()
        self._bind_others()
        return min([when for when, _, _ in self.agenda] + list(self.leaving.values()), default=NEVER)

    def recover_all(self) -> None:
        """The storm is over: nodes are as they were at first, and nobody meddles any more."""
        self.calm = True
        there = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        for name, node in self.nodes.items():
            if name not in there:
                self.store.create(PLAIN_NODES, node)
            else:
                self._recover(name)
        for pod in self._pods():
            if pod["spec"].get("schedulingGates"):
                self._ungate(pod["metadata"]["name"])
        self.disturbed_at = self.now

    # ── people ──

    def _bring(self, arrival: TimedObject) -> None:
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
            self._take_away(pod, "pod_deleted")

    def _fail_pod(self) -> None:
        for pod in self._one_of([pod for pod in self._pods() if phase_of(pod) == "Running"]):
            self._note("pod_failed", pod)
            patch = {"status": {"phase": "Failed", "reason": "Simulated"}}
            self.store.patch(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], patch, subresource="status")

    def _delete_group(self) -> None:
        """Its rules go, its pods stay; perhaps somebody sees the mistake."""
        for group in self._one_of(self.store.list(self.groups).items):
            name = group["metadata"]["name"]
            self._note("group_deleted")
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
        """A gang with all its pods, or a job."""
        jobs = [one for kind in ("Job", "JobSet") for one in self.store.list(resource(kind)).items]
        jobs = [job for job in jobs if not job["metadata"].get("ownerReferences")]
        for thing in self._one_of([*self.store.list(self.groups).items, *jobs]):
            self._note("gang_deleted")
            name = thing["metadata"]["name"]
            self.managed.discard(name)
            if thing in jobs:
                self.store.delete(resource(thing["kind"]), NAMESPACE, name, BACKGROUND)
                continue
            for pod in self._pods():
                if self.gang_of(pod).split("/")[1:2] == [name]:
                    self._take_away(pod, "pod_deleted")
            self._remove_group(thing)

    def _lower(self) -> None:
        """A smaller minimum, where the API takes that."""
        for group in self._one_of(self.store.list(self.groups).items):
            name, spec = group["metadata"]["name"], copy.deepcopy(group["spec"])
            if self.lowers(spec):
                try:
                    self.store.patch(self.groups, NAMESPACE, name, {"spec": spec})
                    self._note("minimum_lowered")
                except StatusError:
                    self.injected["minimum_kept"] += 1

    def lowers(self, spec: Object) -> bool:
        """Lower a minimum in the rules of a gang; whether there was one to lower."""
        first = spec["podGroups"][0]["policy"] if "podGroups" in spec else spec["schedulingPolicy"]
        gang = first.get("gang", {})
        if gang.get("minCount", 1) <= 1:
            return False
        gang["minCount"] -= 1
        return True

    def gang_of(self, pod: Object) -> str:
        """The gang of a pod, as kind and name; empty: none."""
        return gang_of(pod)

    def _take_away(self, pod: Object, what: str) -> None:
        self._note(what, pod)
        self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    # ── whoever looks after pods ──

    def _end_slowly(self) -> None:
        for pod in self.store.list(PLAIN_PODS).items:
            meta = pod["metadata"]
            if not is_leaving(pod):
                continue
            if meta["uid"] not in self.noticed:
                self._gone(pod)
            if SLOW not in meta.get("finalizers", ()):
                continue
            if meta["uid"] not in self.leaving:
                self.leaving[meta["uid"]] = self.now + self.rng.choice((0.5, 5.0, 20.0, 40.0))
            if self.leaving[meta["uid"]] <= self.now:
                del self.leaving[meta["uid"]]
                self.store.patch(PLAIN_PODS, NAMESPACE, meta["name"], {"metadata": {"finalizers": None}})
        present = {pod["metadata"]["uid"] for pod in self.store.list(PLAIN_PODS).items}
        self.leaving = {uid: when for uid, when in self.leaving.items() if uid in present}

    def _gone(self, pod: Object) -> None:
        """Somebody may want another one in its stead."""
        meta = pod["metadata"]
        self.noticed.add(meta["uid"])
        whose = (meta.get("labels") or {}).get("example.com/gang", "")
        if whose in self.managed and not meta.get("ownerReferences"):
            self.recreated[whose] += 1
            if self.recreated[whose] <= RECREATED_MAX:
                self.plan(
                    self.now + self.rng.uniform(1, 10), partial(self.recreate, pod, self.recreated[whose])
                )

    def recreate(self, pod: Object, number: int) -> None:
        """Another pod that is the same but for its name."""
        meta = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
        spec = {k: v for k, v in pod["spec"].items() if k not in ("nodeName", "priority", "preemptionPolicy")}
        made = {"metadata": {**meta, "name": f"{pod['metadata']['name']}-{number}"}, "spec": spec}
        self.store.create(PLAIN_PODS, {**made, "status": {}}, NAMESPACE)

    def _bind_others(self) -> None:
        """Another scheduler looks at requests alone, and sometimes not even at those."""
        for pod in self._pods():
            if is_ours(pod) or pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"):
                continue
            if is_leaving(pod) or self.rng.random() < 0.7:
                continue
            for node in self._one_of(self.store.list(PLAIN_NODES).items):
                name = node["metadata"]["name"]
                there = [one for one in pods_on_nodes(self._pods()) if one["spec"]["nodeName"] == name]
                there.append({**pod, "spec": {**pod["spec"], "nodeName": name}})
                fits = all(amount <= limit for _, _, amount, limit in use_of([node], used_by(there)))
                if fits or (not self.calm and self.rng.random() < 0.1):
                    self._note("bound_by_another")
                    body = {
                        "metadata": {"name": pod["metadata"]["name"]},
                        "target": {"kind": "Node", "name": name},
                    }
                    self.store.connect(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], "binding", body)

    # ── nodes ──

    def _taint(self) -> None:
        for name in self._one_of(self._there()):
            self._note("tainted")
            taint = {"key": "example.com/trouble", "effect": "NoSchedule"}
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            self.plan(self.now + self.rng.uniform(2, 60), partial(self._recover, name))

    def _cordon(self) -> None:
        for name in self._one_of(self._there()):
            self._note("cordoned")
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"unschedulable": True}})
            self.plan(self.now + self.rng.uniform(2, 60), partial(self._recover, name))

    def _lose_node(self) -> None:
        there = self._there()
        for name in self._one_of(there if len(there) > 2 else []):
            self._note("node_lost")
            for pod in self._pods():
                if pod["spec"].get("nodeName") == name:
                    self._note("pod_lost", pod)
                    self._gone(pod)
            self.store.delete(PLAIN_NODES, "", name)
            self.plan(self.now + self.rng.uniform(1, 60), partial(self._bring_back, name))

    def _bring_back(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is None:
            self._note("node_back")
            self.store.create(PLAIN_NODES, self.nodes[name])

    def _new_node(self) -> None:
        for node in self._one_of(list(self.nodes.values())):
            fresh = copy.deepcopy(node)
            name = fresh["metadata"]["name"] = f"x{len(self.nodes):02d}"
            fresh["metadata"]["labels"]["kubernetes.io/hostname"] = name
            self.nodes[name] = fresh
            self._note("node_new")
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

    def _there(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items]

    def _one_of(self, choices: list[T]) -> list[T]:
        """One of them, if there are any."""
        return [self.rng.choice(choices)] if choices else []

    def _note(self, deed: str, pod: Object | None = None) -> None:
        self.injected[deed] += 1
        self.disturbed_at = self.now
        if pod is not None and (gang := self.gang_of(pod)):
            self.disturbed[gang] = None
