"""Actors around queues: controllers of checks, users, administrators, and Workloads that finish."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import GPU, NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    QUOTA_RESERVED,
    is_true,
)
from bayplan.model.node import HOSTNAME
from bayplan.simulator.core.checkers import labels_by_node
from bayplan.simulator.core.documents import once_per_listing
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.queues.world import QueueWorld, unmanaged_pod

T = TypeVar("T")

NEVER = float("inf")
WORKLOADS = api_kinds.WORKLOADS
ANSWERS = ("Ready", "Ready", "Ready", "Ready", "Retry", "Rejected")
UNHEALTHY_AFTER = 5.0


class QueueActors:
    """Acts on the store at random times, without injected faults."""

    def __init__(self, store: Store, rng: Random, world: QueueWorld, start: float, until: float) -> None:
        self.store, self.rng, self.start, self.now = store, rng, start, start
        self.arrivals, self.seconds = list(world.arrivals), world.seconds
        self.count = 0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.lost: dict[str, float] = {}  # nodes that are gone, since when
        self.since: dict[str, float] = {}  # by uid: running since
        self.answers: dict[tuple[str, str, str], tuple[float, str]] = {}
        self.nodes = {node["metadata"]["name"]: node for node in world.nodes}
        actions = (
            self._delete, self._deactivate, self._reactivate, self._change_quota, self._change_quota,
            self._recreate_flavor, self._recreate_topology, self._stop_queue, self._stop_local_queue,
            self._unmanaged_pod, self._shrink, self._restore_node, self._resize_cohort,
        )  # fmt: skip
        for _ in range(rng.randint(2, 9)):
            self.plan(start + rng.uniform(0, until), rng.choice(actions))

    def plan(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self.count += 1
        self.agenda.append((when, self.count, action))

    def step(self, now: float) -> float:
        """Run the actions that are due; return when the next one is."""
        self.now = now
        while self.arrivals and self.arrivals[0].when + self.start <= now:
            self.store.create(WORKLOADS, self.arrivals.pop(0).job, NAMESPACE)
        self._watch_nodes()
        due = sorted((entry for entry in self.agenda if entry[0] <= now), key=lambda entry: entry[:2])
        for entry in due:
            self.agenda.remove(entry)
            entry[2]()
        times = [self._update(workload) for workload in self._workloads()]
        times += [when for when, _, _ in self.agenda] + [
            arrival.when + self.start for arrival in self.arrivals[:1]
        ]
        return min(times, default=NEVER)

    # ── what follows by itself ──

    def _update(self, workload: Object) -> float:
        """Finish a Workload, answer its checks or report its lost nodes; return when it is due next."""
        uid, status = workload["metadata"]["uid"], workload.get("status") or {}
        if is_true(workload, "Finished"):
            return NEVER
        if is_true(workload, DEACTIVATION_TARGET) and workload["spec"].get("active", True):
            self._patch(workload, {"spec": {"active": False}})
            return self.now
        if not is_true(workload, QUOTA_RESERVED) or is_true(workload, EVICTED):
            self.since.pop(uid, None)
            return NEVER
        if not is_true(workload, ADMITTED):
            self.since.pop(uid, None)
            return min(
                (self._answer(workload, check) for check in status.get("admissionChecks") or ()),
                default=NEVER,
            )
        end = self.since.setdefault(uid, self.now) + self.seconds[workload["metadata"]["name"]]
        if end <= self.now:
            self._finish(workload)
            return NEVER
        return min(end, self._report_nodes(workload))

    def _answer(self, workload: Object, check: Object) -> float:
        """Set the state of a check after a random delay."""
        if check["state"] != "Pending":
            return NEVER
        key = (workload["metadata"]["uid"], check["name"], str(_since(workload, QUOTA_RESERVED)))
        if key not in self.answers:
            self.answers[key] = (self.now + self.rng.uniform(0.5, 15), self.rng.choice(ANSWERS))
        when, answer = self.answers[key]
        if when > self.now:
            return when
        status = {
            **check,
            "state": answer,
            "message": "as the seed says",
            "lastTransitionTime": timestamp(self.now),
        }
        if answer == "Retry" and self.rng.random() < 0.5:
            status["requeueAfterSeconds"] = 5
        checks = [status if other is check else other for other in workload["status"]["admissionChecks"]]
        self._patch(workload, {"status": {"admissionChecks": checks}}, "status")
        return self.now

    def _finish(self, workload: Object) -> None:
        ended = {
            "type": "Finished", "status": "True", "reason": "Succeeded", "message": "as planned",
            "lastTransitionTime": timestamp(self.now),
        }  # fmt: skip
        conditions = [*workload["status"]["conditions"], ended]
        self._patch(workload, {"status": {"conditions": conditions}}, "status")

    def _watch_nodes(self) -> None:
        present = labels_by_node(self.store.everything(PLAIN_NODES))
        for name in self.nodes:
            if name not in present:
                self.lost.setdefault(name, self.now)
            else:
                self.lost.pop(name, None)

    def _report_nodes(self, workload: Object) -> float:
        """Write the lost nodes of a Workload into its status after a delay."""
        if not self.lost or workload["status"].get("unhealthyNodes"):
            return NEVER
        own_hosts = _hosts(workload)
        lost = [
            name
            for name, since in self.lost.items()
            if name in own_hosts and since + UNHEALTHY_AFTER <= self.now
        ]
        if lost:
            status = {"status": {"unhealthyNodes": [{"name": name} for name in lost[:1]]}}
            self._patch(workload, status, "status")
        return min(
            (since + UNHEALTHY_AFTER for name, since in self.lost.items() if name in own_hosts), default=NEVER
        )

    # ── what people do ──

    def _delete(self) -> None:
        for workload in self._one_of(self._workloads()):
            self.store.delete(WORKLOADS, NAMESPACE, workload["metadata"]["name"])

    def _deactivate(self) -> None:
        for workload in self._one_of(self._workloads()):
            self._patch(workload, {"spec": {"active": False}})

    def _reactivate(self) -> None:
        inactive = [workload for workload in self._workloads() if workload["spec"].get("active") is False]
        for workload in self._one_of(inactive):
            self._patch(workload, {"spec": {"active": True}})

    def _change_quota(self) -> None:
        for queue in self._one_of(self._rules(api_kinds.CLUSTER_QUEUES)):
            self._resize(api_kinds.CLUSTER_QUEUES, queue)

    def _resize_cohort(self) -> None:
        with_quota = [
            cohort for cohort in self._rules(api_kinds.COHORTS) if cohort["spec"].get("resourceGroups")
        ]
        for cohort in self._one_of(with_quota):
            self._resize(api_kinds.COHORTS, cohort)

    def _resize(self, kind: Kind, obj: Object) -> None:
        groups = copy.deepcopy(obj["spec"]["resourceGroups"])
        flavor = self.rng.choice(groups[0]["flavors"])
        flavor["resources"][1]["nominalQuota"] = self.rng.choice(("0", "4", "12", "32"))
        self.store.patch(kind, "", obj["metadata"]["name"], {"spec": {"resourceGroups": groups}})

    def _recreate_flavor(self) -> None:
        self._recreate(api_kinds.FLAVORS)

    def _recreate_topology(self) -> None:
        self._recreate(api_kinds.TOPOLOGIES)

    def _recreate(self, kind: Kind) -> None:
        """Delete an object, and create it again a little later."""
        for obj in self._one_of(
            [obj for obj in self._rules(kind) if obj["metadata"]["name"] != "data-centre"]
        ):
            name, again = obj["metadata"]["name"], {"metadata": {"name": obj["metadata"]["name"]}}
            self.store.delete(kind, "", name)
            restored = {**{key: obj[key] for key in ("apiVersion", "kind", "spec")}, **again}
            self.plan(self.now + self.rng.uniform(1, 15), partial(self._create_again, kind, restored))

    def _create_again(self, kind: Kind, obj: Object) -> None:
        if self.store.find(kind, "", obj["metadata"]["name"]) is None:
            self.store.create(kind, obj)

    def _stop_queue(self) -> None:
        for queue in self._one_of(self._rules(api_kinds.CLUSTER_QUEUES)):
            self._stop(api_kinds.CLUSTER_QUEUES, "", queue["metadata"]["name"])

    def _stop_local_queue(self) -> None:
        for queue in self._one_of(self._rules(api_kinds.LOCAL_QUEUES)):
            self._stop(api_kinds.LOCAL_QUEUES, NAMESPACE, queue["metadata"]["name"])

    def _stop(self, kind: Kind, namespace: str, name: str) -> None:
        policy = {"spec": {"stopPolicy": self.rng.choice(("Hold", "HoldAndDrain"))}}
        self.store.patch(kind, namespace, name, policy)
        if self.rng.random() < 0.95:
            resumed = {"spec": {"stopPolicy": "None"}}
            self.plan(
                self.now + self.rng.uniform(2, 30),
                lambda: self._patch_if_present(kind, namespace, name, resumed),
            )

    def _patch_if_present(self, kind: Kind, namespace: str, name: str, patch: Object) -> None:
        if self.store.find(kind, namespace, name) is not None:
            self.store.patch(kind, namespace, name, patch)

    def _unmanaged_pod(self) -> None:
        """Run a pod outside of any gang on a host, for a limited time."""
        present = [name for name in self.nodes if name not in self.lost]
        for on in self._one_of(present):
            name = f"stray-{self.store.version}"
            self.store.create(PLAIN_PODS, unmanaged_pod(name, on, self.rng.choice((1, 2))), NAMESPACE)
            self.plan(self.now + self.rng.uniform(5, 60), partial(self._remove_pod, name))

    def _remove_pod(self, name: str) -> None:
        if self.store.find(PLAIN_PODS, NAMESPACE, name) is not None:
            self.store.delete(PLAIN_PODS, NAMESPACE, name)

    def _shrink(self) -> None:
        for name in self._one_of([name for name in self.nodes if name not in self.lost]):
            amounts = self.store.get(PLAIN_NODES, "", name)["status"]["allocatable"]
            less = {"status": {"allocatable": {**amounts, GPU: self.rng.choice(("2", "4", "8"))}}}
            self.store.patch(PLAIN_NODES, "", name, less, subresource="status")

    def _restore_node(self) -> None:
        for name in self._one_of(list(self.lost)):
            self.store.create(PLAIN_NODES, self.nodes[name])
            del self.lost[name]

    # ── the store ──

    def _workloads(self) -> list[Object]:
        return list(_unfinished(self.store.everything(WORKLOADS)))

    def _rules(self, kind: Kind) -> list[Object]:
        return self.store.list(kind).items

    def _one_of(self, choices: list[T]) -> list[T]:
        """A list of one random choice; empty if there is none."""
        return [self.rng.choice(choices)] if choices else []

    def _patch(self, workload: Object, patch: Object, subresource: str = "") -> None:
        self.store.patch(WORKLOADS, NAMESPACE, workload["metadata"]["name"], patch, subresource=subresource)


def _since(workload: Object, kind: str) -> str:
    conditions = workload["status"]["conditions"]
    return next((c.get("lastTransitionTime", "") for c in conditions if c["type"] == kind), "")


def _hosts(workload: Object) -> set[str]:
    hosts: set[str] = set()
    for part in workload["status"]["admission"]["podSetAssignments"]:
        place = decode_assignment(Field(part["topologyAssignment"])) if "topologyAssignment" in part else None
        if place is not None and place.levels[-1] == HOSTNAME:
            hosts |= {share.values[-1] for share in place.shares}
    return hosts


@once_per_listing
def _unfinished(workloads: Sequence[Object]) -> tuple[Object, ...]:
    return tuple([one for one in workloads if not is_true(one, "Finished")])
