"""Everybody around queued jobs: people who bring, stop and delete them, and nodes and pods that fail."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, is_leaving, phase_of
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.model.node_rules import Taint
from bayplan.simulator.core.fake_scheduler import tolerates
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.jobs.world import TROUBLE, JobsWorld

T = TypeVar("T")
NEVER = float("inf")
WORKLOADS = api_kinds.WORKLOADS
FORCED = Deletion.from_body({"gracePeriodSeconds": 0})
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})


class JobActors:
    """Acts on the store at moments that the seed chose; nothing between it and the API fails."""

    def __init__(self, store: Store, rng: Random, world: JobsWorld, start: float, until: float) -> None:
        self.store, self.rng, self.now, self.calm = store, rng, start, False
        self.nodes = {node["metadata"]["name"]: node for node in world.nodes}
        self.written: dict[str, Object] = {}  # jobs as they were kept at first, by uid
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.broken: dict[str, int] = {}  # how many accidents a node has not recovered from
        self.tainted: dict[tuple[str, str], float] = {}  # when a pod met a taint that it bears for a while
        self.injected: dict[str, int] = {}
        for arrival in world.arrivals:
            self.plan(start + arrival.when, partial(self._bring, arrival.job))
        accidents = (
            self._not_ready, self._not_ready, self._not_ready, self._lose_node, self._lose_node,
            self._taint, self._taint, self._cordon, self._fail_pod, self._fail_pod, self._delete_pod,
        )  # fmt: skip
        people = (
            self._delete_job, self._deactivate, self._deactivate, self._delete_workload, self._change_quota,
            self._stop_queue,
        )  # fmt: skip
        for _ in range(rng.randint(2, 10)):
            self.plan(start + rng.uniform(0, until), rng.choice(accidents))
        for _ in range(rng.randint(0, 4)):
            self.plan(start + rng.uniform(0, until), rng.choice(people))
        self.gone_for_good = rng.random() < 0.15

    def plan(self, when: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self.count += 1
        self.agenda.append((when, self.count, do))

    def step(self, now: float) -> float:
        """Do what is due; return when something will be."""
        self.now = now
        due = sorted((entry for entry in self.agenda if entry[0] <= now), key=lambda entry: entry[:2])
        for entry in due:
            self.agenda.remove(entry)
            entry[2]()
        return min([when for when, _, _ in self.agenda] + [self._evict_from_tainted()])

    def recover_all(self) -> None:
        """The storm is over: nodes work again and are back, except perhaps one."""
        there = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        gone = [name for name in self.nodes if name not in there]
        for name in gone[1:] if self.gone_for_good else gone:
            self.store.create(PLAIN_NODES, self.nodes[name])
        for node in self.store.list(PLAIN_NODES).items:
            self._recover(node["metadata"]["name"])
        self.broken.clear()
        self.calm = True

    # ── nodes ──

    def _not_ready(self) -> None:
        """Its kubelet is silent; somebody may give up on its pods, or it may only flap."""
        for name in self._one_of(self._there()):
            self._note("not_ready")
            told = {"type": "Ready", "status": "False", "reason": "Simulated", "message": "silent"}
            if self.rng.random() < 0.5:
                told["lastTransitionTime"] = timestamp(self.now)
            self._ready(name, told)
            if self.rng.random() < 0.5:
                taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
                self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            if self.rng.random() < 0.5:
                self.plan(self.now + self.rng.uniform(1, 40), partial(self._give_up_on, name))
            self._later(name)

    def _lose_node(self) -> None:
        there = self._there()
        for name in self._one_of(there if len(there) > 2 else []):
            self._note("node_lost")
            self.store.delete(PLAIN_NODES, "", name)
            self.plan(self.now + self.rng.uniform(5, 80), partial(self._bring_back, name))

    def _taint(self) -> None:
        for name in self._one_of(self._there()):
            self._note("tainted")
            effect = self.rng.choice(("NoSchedule", "NoExecute"))
            taint = {"key": TROUBLE, "value": "yes", "effect": effect}
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            self._later(name)

    def _cordon(self) -> None:
        """And perhaps drained."""
        for name in self._one_of(self._there()):
            self._note("cordoned")
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"unschedulable": True}})
            if self.rng.random() < 0.5:
                self.plan(self.now + self.rng.uniform(0, 5), partial(self._drain, name))
            self._later(name)

    def _later(self, name: str) -> None:
        self.broken[name] = self.broken.get(name, 0) + 1
        self.plan(self.now + self.rng.uniform(2, 80), partial(self._recovered, name))

    def _recovered(self, name: str) -> None:
        self.broken[name] = self.broken.get(name, 1) - 1
        if self.broken[name] <= 0:
            self._recover(name)

    def _recover(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is None:
            return
        self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": None, "unschedulable": None}})
        self._ready(name, {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""})

    def _ready(self, name: str, told: Object) -> None:
        patch = {"status": {"conditions": [told]}}
        self.store.patch(PLAIN_NODES, "", name, patch, subresource="status")

    def _bring_back(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is None and not self.calm:
            self.store.create(PLAIN_NODES, self.nodes[name])

    def _give_up_on(self, name: str) -> None:
        """Pods of a node that is still silent are removed by force."""
        node = self.store.find(PLAIN_NODES, "", name)
        if node is not None and node["status"]["conditions"][0]["status"] != "True":
            for pod in self._pods(on=name):
                self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], FORCED)

    def _drain(self, name: str) -> None:
        for pod in self._pods(on=name):
            self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    def _evict_from_tainted(self) -> float:
        """As the taint manager does: pods that do not bear a NoExecute taint go, some after a while."""
        due = NEVER
        for node in self.store.list(PLAIN_NODES).items:
            hard = [t for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"]
            for pod in self._pods(on=node["metadata"]["name"]) if hard else ():
                when = min(self._bears_until(pod, taint) for taint in hard)
                if when <= self.now and not is_leaving(pod):
                    self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])
                elif when > self.now:
                    due = min(due, when)
        return due

    def _bears_until(self, pod: Object, taint: Object) -> float:
        if not tolerates(pod, Taint(taint["key"], taint.get("value", ""), taint["effect"])):
            return self.now
        limits = [
            one["tolerationSeconds"]
            for one in pod["spec"].get("tolerations") or ()
            if one.get("key") == taint["key"] and "tolerationSeconds" in one
        ]
        met = self.tainted.setdefault((pod["metadata"]["uid"], taint["key"]), self.now)
        return met + float(min(limits)) if limits else NEVER

    # ── pods ──

    def _fail_pod(self) -> None:
        running = [pod for pod in self._pods() if phase_of(pod) == "Running"]
        for pod in self._one_of(running):
            self._note("pod_failed")
            patch = {"status": {"phase": "Failed", "reason": "Simulated"}}
            self.store.patch(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], patch, subresource="status")

    def _delete_pod(self) -> None:
        for pod in self._one_of(self._pods()):
            self._note("pod_deleted")
            self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    # ── people ──

    def _bring(self, job: Object) -> None:
        made = self.store.create(resource(job["kind"]), job, NAMESPACE)
        self.written[made["metadata"]["uid"]] = copy.deepcopy(made)

    def _delete_job(self) -> None:
        for job in self._one_of(self._jobs()):
            self._note("job_deleted")
            self.store.delete(resource(job["kind"]), NAMESPACE, job["metadata"]["name"], BACKGROUND)

    def _jobs(self) -> list[Object]:
        found = [*self.store.list(resource("Job")).items, *self.store.list(resource("JobSet")).items]
        return [job for job in found if job["metadata"]["uid"] in self.written]

    def _deactivate(self) -> None:
        """For a while, or for good."""
        for workload in self._one_of(self._workloads()):
            name = workload["metadata"]["name"]
            self._patch(WORKLOADS, NAMESPACE, name, {"spec": {"active": False}})
            if self.rng.random() < 0.9:
                again = {"spec": {"active": True}}
                self.plan(
                    self.now + self.rng.uniform(2, 40),
                    partial(self._patch, WORKLOADS, NAMESPACE, name, again),
                )

    def _delete_workload(self) -> None:
        for workload in self._one_of(self._workloads()):
            self.store.delete(WORKLOADS, NAMESPACE, workload["metadata"]["name"])

    def _workloads(self) -> list[Object]:
        found = self.store.list(WORKLOADS).items
        return [one for one in found if not is_leaving(one) and not is_true(one, FINISHED)]

    def _change_quota(self) -> None:
        for queue in self._one_of(self.store.list(api_kinds.CLUSTER_QUEUES).items):
            groups = copy.deepcopy(queue["spec"]["resourceGroups"])
            flavor = self.rng.choice(groups[0]["flavors"])
            flavor["resources"][1]["nominalQuota"] = self.rng.choice(("4", "12", "32"))
            name = queue["metadata"]["name"]
            self._patch(api_kinds.CLUSTER_QUEUES, "", name, {"spec": {"resourceGroups": groups}})

    def _stop_queue(self) -> None:
        for queue in self._one_of(self.store.list(api_kinds.CLUSTER_QUEUES).items):
            name, how = queue["metadata"]["name"], self.rng.choice(("Hold", "HoldAndDrain"))
            self._patch(api_kinds.CLUSTER_QUEUES, "", name, {"spec": {"stopPolicy": how}})
            again = {"spec": {"stopPolicy": "None"}}
            self.plan(
                self.now + self.rng.uniform(2, 40),
                partial(self._patch, api_kinds.CLUSTER_QUEUES, "", name, again),
            )

    # ── the store ──

    def _patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> None:
        if self.store.find(kind, namespace, name) is not None:
            self.store.patch(kind, namespace, name, patch)

    def _pods(self, on: str = "") -> list[Object]:
        found = [pod for pod in self.store.list(PLAIN_PODS).items if phase_of(pod) not in OVER]
        return [pod for pod in found if not on or pod["spec"].get("nodeName") == on]

    def _there(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items]

    def _one_of(self, choices: list[T]) -> list[T]:
        """One of them, if there are any."""
        return [self.rng.choice(choices)] if choices else []

    def _note(self, accident: str) -> None:
        self.injected[accident] = self.injected.get(accident, 0) + 1
