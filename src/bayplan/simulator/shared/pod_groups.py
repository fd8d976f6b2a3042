"""Queued groups of plain pods: their pods, those that replace them, and how the groups have to end.

No job gathers these pods, so the scheduler decides on each of them by itself. That a group does not start in
part follows from its slots alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import BLOCK, GPU, NAMESPACE, RACK, Object
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import (
    IS_GROUP_WORKLOAD,
    POD_GROUP,
    POD_GROUP_COUNT,
    PREFERRED,
    QUEUE,
    REQUIRED,
    UNCONSTRAINED,
)
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import PodKey
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.core.documents import once_per_document, once_per_listing
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.pods.world import RUN_SECONDS, worker
from bayplan.simulator.queues.workload_view import conditions_of
from bayplan.simulator.shared.world import SharedWorld

NEVER = float("inf")
List = Callable[[str], Sequence[Object]]
POD_GROUPS = 0.6  # the share of worlds with queued groups of plain pods, among those without a grouper
STOP_SECONDS = 0.5  # a pod takes so long to stop
INTRUSION = 0.6  # the share of groups that find another pod on one of their hosts
INTRUDER_SECONDS = "20"


@dataclass(frozen=True, slots=True)
class QueuedPods:
    """A group of equal pods that is created at some time."""

    name: str
    when: float
    size: int
    pod: Object


def random_pod_groups(
    rng: Random, queues: Sequence[str], moments: Sequence[float], *, small: bool
) -> list[QueuedPods]:
    """Two to five groups of two or three pods, most of which arrive at one of these moments."""
    found = []
    for number in range(rng.randint(2, 5)):
        name, size = f"pods-{number}", rng.choice((2, 2, 3))
        gpus = rng.choice(("", "", "1", "2"))
        resources = {"requests": {"cpu": "4"} | ({GPU: gpus} if gpus else {})}
        resources |= {"limits": {GPU: gpus}} if gpus else {}
        topology = rng.choice(
            ({REQUIRED: BLOCK}, {REQUIRED: RACK}, {PREFERRED: RACK}, {UNCONSTRAINED: "true"})
        )
        seconds = rng.choice(("3", "3", "10") if small else ("3", "10", "25", "60"))
        meta: Object = {
            "namespace": NAMESPACE,
            "labels": {QUEUE: rng.choice(queues), POD_GROUP: name},
            "annotations": {POD_GROUP_COUNT: str(size), RUN_SECONDS: seconds, **topology},
        }
        spec: Object = {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.invalid/worker", "resources": resources}],
            "terminationGracePeriodSeconds": 1,
        }
        when = max(0.0, rng.choice(moments) - rng.uniform(0, 1.5))
        found.append(QueuedPods(name, when, size, {"metadata": meta, "spec": spec}))
    return found


class PodGroupActors:
    """Creates the pods of each group, and others for those that failed or were deleted."""

    def __init__(
        self,
        store: Store,
        seed: int,
        world: SharedWorld,
        start: float,
        wanted: bool | None,
        *,
        small: bool,
        intrudes: bool,
    ) -> None:
        """If it is not said whether groups are wanted, some worlds without a grouper have them.

        With `intrudes`, another scheduler binds pods to hosts where pods of a group are expected.
        """
        self.store, self.rng = store, Random(f"pod groups {seed}")
        by_seed = self.rng.random() < POD_GROUPS and not world.with_grouper
        self.groups: list[QueuedPods] = []
        if by_seed if wanted is None else wanted:
            queues = [obj["metadata"]["name"] for kind, obj in world.rules if kind is api_kinds.LOCAL_QUEUES]
            moments = [arrival.when for arrival in world.gangs.arrivals or world.jobs.arrivals]
            self.groups = random_pod_groups(self.rng, queues, moments, small=small)
        self.intrusions = {group.name for group in self.groups if intrudes and self.rng.random() < INTRUSION}
        self.due = {group.name: start + group.when for group in self.groups}  # when pods are created
        self.stopped: dict[str, float] = {}  # when a pod that is being deleted stops, by uid
        self.created = 0

    def step(self, now: float) -> float:
        """Create the pods that are due; return when the next ones are."""
        pods = _of_groups(self.store.everything(PLAIN_PODS))
        self._stop(pods, now)
        self._intrude(pods)
        for group in self.groups:
            when = self.due.get(group.name)
            there = [pod for pod in pods if group_of(pod) == group.name and _counts(pod)]
            if when is not None and when <= now:
                del self.due[group.name]
                for _ in range(len(there), group.size):
                    self._create(group)
            elif when is None and len(there) < group.size and not self._is_finished(group.name):
                self.due[group.name] = now + self.rng.uniform(0.5, 4.0)
        return min([*self.due.values(), *self.stopped.values()], default=NEVER)

    def _create(self, group: QueuedPods) -> None:
        self.created += 1
        pod = copy.deepcopy(group.pod)
        pod["metadata"]["name"] = f"{group.name}-{self.created}"
        self.store.create(PLAIN_PODS, pod, NAMESPACE)

    def _stop(self, pods: Sequence[Object], now: float) -> None:
        """Pods that are being deleted stop, as on a kubelet. A finalizer keeps them until others follow."""
        leaving = {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for pod in pods
            if is_terminating(pod) and pod["spec"].get("nodeName") and phase_of(pod) not in OVER
        }
        self.stopped = {uid: self.stopped.get(uid, now + STOP_SECONDS) for uid in leaving}
        for uid in [uid for uid, when in self.stopped.items() if when <= now]:
            patch = {"status": {"phase": "Failed", "reason": "Stopped"}}
            self.store.patch(PLAIN_PODS, NAMESPACE, leaving[uid], patch, subresource="status")
            del self.stopped[uid]

    def _intrude(self, pods: Sequence[Object]) -> None:
        """Bind a pod to the host of one of several pods that are about to be bound, if it is free there."""
        for name in sorted(self.intrusions):
            waiting = [pod for pod in pods if group_of(pod) == name and _is_expected(pod)]
            hosts = sorted({pod["spec"]["nodeSelector"][HOSTNAME] for pod in waiting})
            nodes = {one["metadata"]["name"]: one for one in self.store.list(PLAIN_NODES).items}
            host = self.rng.choice(hosts) if len(hosts) > 1 else ""
            if host not in nodes:
                continue
            self.intrusions.remove(name)
            intruder: Object = {
                "metadata": {"name": f"intruder-{name}", "annotations": {RUN_SECONDS: INTRUDER_SECONDS}},
                "spec": {"schedulerName": "other", "nodeName": host, "containers": [worker("4")]},
            }
            there = [pod for pod in self.store.list(PLAIN_PODS).items if pod["spec"].get("nodeName") == host]
            used = used_by([*pods_on_nodes(there), intruder])
            if all(amount <= limit for _, _, amount, limit in use_of([nodes[host]], used)):
                self.store.create(PLAIN_PODS, intruder, NAMESPACE)

    def _is_finished(self, name: str) -> bool:
        workload = self.store.find(api_kinds.WORKLOADS, NAMESPACE, name)
        return workload is not None and is_true(workload, FINISHED)


def group_of(pod: Object) -> str:
    """The queued group of a plain pod; empty if it has none."""
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP, ""))


@once_per_document
def key_of(pod: Object) -> PodKey:
    """The key of a pod."""
    return PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"])


def is_of_pods(workload: Object) -> bool:
    """Whether a Workload stands for a group of plain pods."""
    return (workload["metadata"].get("annotations") or {}).get(IS_GROUP_WORKLOAD) == "true"


def final_violations(objects: List, groups: Sequence[QueuedPods]) -> Iterator[str]:
    """At the end each group is finished, or pending without quota, and no pod is left over."""
    workloads = {one["metadata"]["name"]: one for one in objects("workloads") if is_of_pods(one)}
    for group in groups:
        workload = workloads.get(group.name)
        conditions = conditions_of(workload or {})
        if workload is None:
            yield f"pod group {group.name} has no workload"
        elif not conditions.get("Finished") and conditions.get("QuotaReserved"):
            yield f"pod group {group.name} has quota and does not finish"
    for pod in objects("pods"):
        if not group_of(pod) or not is_terminating(pod):
            continue
        is_over = conditions_of(workloads.get(group_of(pod), {})).get("Finished")
        if is_over or phase_of(pod) != "Succeeded":  # those that succeeded count until the group is finished
            yield f"pod {pod['metadata']['name']} is being deleted forever"


@once_per_listing
def _of_groups(pods: Sequence[Object]) -> tuple[Object, ...]:
    return tuple([pod for pod in pods if group_of(pod)])


def _is_expected(pod: Object) -> bool:
    """Whether a pod may be bound to its host at any moment."""
    spec = pod["spec"]
    is_free = not spec.get("nodeName") and not spec.get("schedulingGates") and not is_terminating(pod)
    return is_free and HOSTNAME in (spec.get("nodeSelector") or {})


def _counts(pod: Object) -> bool:
    """Whether no other pod has to replace this one."""
    return not is_terminating(pod) and phase_of(pod) != "Failed"
