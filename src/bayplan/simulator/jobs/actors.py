"""Actors around queued jobs: users who create, stop and delete them, and nodes and pods that fail."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.model.node_rules import Taint
from bayplan.simulator.core.documents import once_per_listing
from bayplan.simulator.core.fake_scheduler import tolerates
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.jobs.world import TROUBLE, JobsWorld

T = TypeVar("T")
NEVER = float("inf")
WORKLOADS = api_kinds.WORKLOADS
FORCED = Deletion.from_body({"gracePeriodSeconds": 0})
BACKGROUND = Deletion.from_body({"propagationPolicy": "Background"})


class JobActors:
    """Acts on the store at random times, without injected faults."""

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
            self.plan(start + arrival.when, partial(self._create, arrival.job))
        node_actions = (
            self._not_ready, self._not_ready, self._not_ready, self._lose_node, self._lose_node,
            self._taint, self._taint, self._cordon, self._fail_pod, self._fail_pod, self._delete_pod,
        )  # fmt: skip
        user_actions = (
            self._delete_job, self._deactivate, self._deactivate, self._delete_workload, self._change_quota,
            self._stop_queue,
        )  # fmt: skip
        for _ in range(rng.randint(2, 10)):
            self.plan(start + rng.uniform(0, until), rng.choice(node_actions))
        for _ in range(rng.randint(0, 4)):
            self.plan(start + rng.uniform(0, until), rng.choice(user_actions))
        self.loses_one_node = rng.random() < 0.15

    def plan(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self.count += 1
        self.agenda.append((when, self.count, action))

    def step(self, now: float) -> float:
        """Run the actions that are due; return when the next one is."""
        self.now = now
        due = sorted((entry for entry in self.agenda if entry[0] <= now), key=lambda entry: entry[:2])
        for entry in due:
            self.agenda.remove(entry)
            entry[2]()
        return min([when for when, _, _ in self.agenda] + [self._evict_by_taints()])

    def recover_all(self) -> None:
        """End the faulty phase: all nodes recover or come back, except possibly one."""
        present = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        missing = [name for name in self.nodes if name not in present]
        for name in missing[1:] if self.loses_one_node else missing:
            self.store.create(PLAIN_NODES, self.nodes[name])
        for node in self.store.list(PLAIN_NODES).items:
            self._recover(node["metadata"]["name"])
        self.broken.clear()
        self.calm = True

    # ── nodes ──

    def _not_ready(self) -> None:
        """The kubelet of a node stops reporting; its pods may be deleted by force, or the node recovers."""
        for name in self._one_of(self._node_names()):
            self._count_fault("not_ready")
            condition = {"type": "Ready", "status": "False", "reason": "Simulated", "message": "silent"}
            if self.rng.random() < 0.5:
                condition["lastTransitionTime"] = timestamp(self.now)
            self._ready(name, condition)
            if self.rng.random() < 0.5:
                taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
                self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            if self.rng.random() < 0.5:
                self.plan(self.now + self.rng.uniform(1, 40), partial(self._force_delete_pods, name))
            self._plan_recovery(name)

    def _lose_node(self) -> None:
        present = self._node_names()
        for name in self._one_of(present if len(present) > 2 else []):
            self._count_fault("node_lost")
            self.store.delete(PLAIN_NODES, "", name)
            self.plan(self.now + self.rng.uniform(5, 80), partial(self._restore_node, name))

    def _taint(self) -> None:
        for name in self._one_of(self._node_names()):
            self._count_fault("tainted")
            effect = self.rng.choice(("NoSchedule", "NoExecute"))
            taint = {"key": TROUBLE, "value": "yes", "effect": effect}
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"taints": [taint]}})
            self._plan_recovery(name)

    def _cordon(self) -> None:
        """Cordon a node, and possibly drain it."""
        for name in self._one_of(self._node_names()):
            self._count_fault("cordoned")
            self.store.patch(PLAIN_NODES, "", name, {"spec": {"unschedulable": True}})
            if self.rng.random() < 0.5:
                self.plan(self.now + self.rng.uniform(0, 5), partial(self._drain, name))
            self._plan_recovery(name)

    def _plan_recovery(self, name: str) -> None:
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

    def _ready(self, name: str, condition: Object) -> None:
        patch = {"status": {"conditions": [condition]}}
        self.store.patch(PLAIN_NODES, "", name, patch, subresource="status")

    def _restore_node(self, name: str) -> None:
        if self.store.find(PLAIN_NODES, "", name) is None and not self.calm:
            self.store.create(PLAIN_NODES, self.nodes[name])

    def _force_delete_pods(self, name: str) -> None:
        """Delete the pods of a node that is still not ready, by force."""
        node = self.store.find(PLAIN_NODES, "", name)
        if node is not None and node["status"]["conditions"][0]["status"] != "True":
            for pod in self._pods(on=name):
                self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], FORCED)

    def _drain(self, name: str) -> None:
        for pod in self._pods(on=name):
            self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    def _evict_by_taints(self) -> float:
        """Evict pods that do not tolerate a NoExecute taint, as the taint manager does."""
        due = NEVER
        for node in _hard_tainted(self.store.everything(PLAIN_NODES)):
            hard = [taint for taint in node["spec"]["taints"] if taint["effect"] == "NoExecute"]
            for pod in self._pods(on=node["metadata"]["name"]):
                when = min(self._tolerated_until(pod, taint) for taint in hard)
                if when <= self.now and not is_terminating(pod):
                    self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])
                elif when > self.now:
                    due = min(due, when)
        return due

    def _tolerated_until(self, pod: Object, taint: Object) -> float:
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
            self._count_fault("pod_failed")
            patch = {"status": {"phase": "Failed", "reason": "Simulated"}}
            self.store.patch(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"], patch, subresource="status")

    def _delete_pod(self) -> None:
        for pod in self._one_of(self._pods()):
            self._count_fault("pod_deleted")
            self.store.delete(PLAIN_PODS, NAMESPACE, pod["metadata"]["name"])

    # ── people ──

    def _create(self, job: Object) -> None:
        created = self.store.create(resource(job["kind"]), job, NAMESPACE)
        self.written[created["metadata"]["uid"]] = copy.deepcopy(created)

    def _delete_job(self) -> None:
        for job in self._one_of(self._jobs()):
            self._count_fault("job_deleted")
            self.store.delete(resource(job["kind"]), NAMESPACE, job["metadata"]["name"], BACKGROUND)

    def _jobs(self) -> list[Object]:
        found = [*self.store.list(resource("Job")).items, *self.store.list(resource("JobSet")).items]
        return [job for job in found if job["metadata"]["uid"] in self.written]

    def _deactivate(self) -> None:
        """Deactivate a Workload, usually for a limited time."""
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
        return [one for one in found if not is_terminating(one) and not is_true(one, FINISHED)]

    def _change_quota(self) -> None:
        for queue in self._one_of(self.store.list(api_kinds.CLUSTER_QUEUES).items):
            groups = copy.deepcopy(queue["spec"]["resourceGroups"])
            flavor = self.rng.choice(groups[0]["flavors"])
            flavor["resources"][1]["nominalQuota"] = self.rng.choice(("4", "12", "32"))
            name = queue["metadata"]["name"]
            self._patch(api_kinds.CLUSTER_QUEUES, "", name, {"spec": {"resourceGroups": groups}})

    def _stop_queue(self) -> None:
        for queue in self._one_of(self.store.list(api_kinds.CLUSTER_QUEUES).items):
            name, policy = queue["metadata"]["name"], self.rng.choice(("Hold", "HoldAndDrain"))
            self._patch(api_kinds.CLUSTER_QUEUES, "", name, {"spec": {"stopPolicy": policy}})
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

    def _node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items]

    def _one_of(self, choices: list[T]) -> list[T]:
        """A list of one random choice; empty if there is none."""
        return [self.rng.choice(choices)] if choices else []

    def _count_fault(self, fault: str) -> None:
        self.injected[fault] = self.injected.get(fault, 0) + 1


@once_per_listing
def _hard_tainted(nodes: Sequence[Object]) -> tuple[Object, ...]:
    """Nodes with a taint that pods have to tolerate to stay."""
    return tuple(
        [
            node
            for node in nodes
            if any(taint["effect"] == "NoExecute" for taint in node["spec"].get("taints") or ())
        ]
    )
