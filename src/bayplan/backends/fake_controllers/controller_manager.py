"""Simulated controllers and kubelets: watch the cluster in memory and write what the real ones would."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from bayplan.backends.fake_controllers.deployments import reconcile_deployment
from bayplan.backends.fake_controllers.device_claims import FakeClaimController
from bayplan.backends.fake_controllers.job_sets import reconcile_job_set
from bayplan.backends.fake_controllers.jobs import reconcile_job
from bayplan.backends.fake_controllers.kubelet import stage_of
from bayplan.backends.fake_controllers.leader_worker_sets import reconcile_leader_worker_set
from bayplan.backends.fake_controllers.mpi_jobs import reconcile_mpi_job
from bayplan.backends.fake_controllers.objects import (
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    MPI_JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Object,
    delete,
    is_owned_by,
    is_terminating,
    name_of,
    uid_of,
)  # fmt: skip
from bayplan.backends.fake_controllers.replica_sets import reconcile_replica_set
from bayplan.backends.fake_controllers.stateful_sets import reconcile_stateful_set
from bayplan.dialects.api import Backend, Ended, Event, Happened, Kind, Write

Reconcile = Callable[[Object, Sequence[Object], str], Iterator[Write]]
Failed = Callable[[Exception, str, str], object]  # told the error, and kind and name of the object
Key = tuple[str, str, str]  # plural, namespace, name
RETRY_SECONDS = 1.0
WRITES_MAX = 500  # for one object in one step; the rest follows in later steps


@dataclass(frozen=True, slots=True)
class FakeController:
    """The controller of one kind: the kinds it creates, and its reconcile function."""

    kind: Kind
    makes: tuple[Kind, ...]
    reconcile: Reconcile


OPERATORS = (
    FakeController(LEADER_WORKER_SETS, (PODS,), reconcile_leader_worker_set),
    FakeController(MPI_JOBS, (PODS, JOBS), reconcile_mpi_job),
)
"""Controllers that are not part of a control plane."""
CONTROLLERS = (
    FakeController(JOBS, (PODS,), reconcile_job),
    FakeController(JOB_SETS, (JOBS,), reconcile_job_set),
    FakeController(STATEFUL_SETS, (PODS,), reconcile_stateful_set),
    FakeController(REPLICA_SETS, (PODS,), reconcile_replica_set),
    FakeController(DEPLOYMENTS, (REPLICA_SETS,), reconcile_deployment),
    *OPERATORS,
)


class FakeControllerManager:
    """Runs the controllers step by step on its own backend; deterministic."""

    def __init__(
        self,
        backend: Backend,
        controllers: Sequence[FakeController] = CONTROLLERS,
        *,
        hosts: bool = True,
        failed: Failed | None = None,
    ) -> None:
        self.backend, self.failed = backend, failed  # without `failed`, errors of controllers are raised
        self.controllers = {one.kind.plural: one for one in controllers}
        self.hosts = hosts  # whether kubelets, pod garbage collector and claim controller are played
        self.objects: dict[Key, Object] = {}
        self.children: dict[str, dict[Key, None]] = {}  # by the owner's uid
        self.dirty: dict[Key, None] = {}
        self.due: dict[Key, tuple[float, str, str]] = {}  # pod → (when, stage, uid)
        self.agenda: list[tuple[float, Key]] = []  # a heap; entries that `due` contradicts are void
        self.claims = FakeClaimController()
        kinds = [kind for one in controllers for kind in (*one.makes, one.kind)]
        others = [NODES, PODS, *self.claims.kinds] if hosts else []
        backend.watch(tuple(dict.fromkeys([*others, *kinds])))

    def step(self, now: float) -> float:
        """Run the work that is due; return when the next is."""
        for event in self.backend.events():
            self._note(event, now)
            if self.hosts:
                self.claims.note(event)
        for outcome in self.backend.outcomes():
            if outcome.ended is not Ended.DONE:  # look at the object again; of what is done there is news
                self.dirty.setdefault(self._owner_key(outcome.write))
            self.claims.look_again(outcome.write)
        if not (self.dirty or self.claims.is_dirty() or (self.agenda and self.agenda[0][0] <= now)):
            return self.agenda[0][0] if self.agenda else float("inf")
        text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        writes = [*self._controllers(text), *self.claims.writes(), *self._kubelets(now, text)]
        if writes:
            self.backend.submit(writes)
        return self.agenda[0][0] if self.agenda else float("inf")

    def _note(self, event: Event, now: float) -> None:
        if event.happened is Happened.SYNCED:
            return
        found: Object = event.object
        key = (event.kind.plural, *name_of(found))
        owners = [r["uid"] for r in found["metadata"].get("ownerReferences") or []]
        if event.happened is Happened.GONE:
            self.objects.pop(key, None)
            self.due.pop(key, None)
            for owner in owners:
                self.children.get(owner, {}).pop(key, None)
        else:
            self.objects[key] = found
            for owner in owners:
                self.children.setdefault(owner, {})[key] = None
        if event.kind.plural in self.controllers:
            self.dirty[key] = None
        for reference in found["metadata"].get("ownerReferences") or []:
            self.dirty[(f"{reference['kind'].lower()}s", key[1], reference["name"])] = None
        if self.hosts:
            self._note_host(event, key, now)

    def _note_host(self, event: Event, key: Key, now: float) -> None:
        found: Object = event.object
        if event.kind is PODS and event.happened is Happened.SEEN:
            self._plan_stage(key, found, now)
            if found["spec"].get("nodeName"):
                self.dirty[("nodes", "", found["spec"]["nodeName"])] = None
        if event.kind is NODES and event.happened is Happened.GONE:
            self.dirty[key] = None

    def _plan_stage(self, key: Key, pod: Object, now: float) -> None:
        stage = stage_of(pod)
        if stage is None or stage.seconds(pod) == float("inf"):
            self.due.pop(key, None)
        elif self.due.get(key, (0.0, "", ""))[1:] != (stage.name, uid_of(pod)):
            self._schedule(key, now + stage.seconds(pod), stage.name, uid_of(pod))

    def _schedule(self, key: Key, when: float, stage: str, uid: str) -> None:
        self.due[key] = (when, stage, uid)
        heapq.heappush(self.agenda, (when, key))

    def _controllers(self, now: str) -> Iterator[Write]:
        dirty, self.dirty = list(self.dirty), {}
        for key in dirty:
            if key[0] == "nodes":
                yield from self._lost_node(key[2])
            found, controller = self.objects.get(key), self.controllers.get(key[0])
            if found is None or controller is None:
                continue
            made = {kind.plural for kind in controller.makes}
            mine = [
                self.objects[child]
                for child in self.children.get(uid_of(found), {})
                if child[0] in made and child in self.objects
            ]
            owned = [child for child in mine if is_owned_by(child, found)]
            try:
                writes = list(islice(controller.reconcile(found, owned, now), WRITES_MAX))
            except Exception as error:  # an object that makes no sense holds up no other
                if self.failed is None:
                    raise
                self.failed(error, controller.kind.kind, "/".join(name_of(found)))
                continue
            if len(writes) == WRITES_MAX:
                self.dirty[key] = None
            yield from writes

    def _lost_node(self, name: str) -> Iterator[Write]:
        """Delete the pods of a node that does not exist, as the pod garbage collector does."""
        if ("nodes", "", name) in self.objects:
            return
        for key, pod in list(self.objects.items()):
            if key[0] == "pods" and pod["spec"].get("nodeName") == name:
                yield delete(PODS, pod, grace=0)

    def _kubelets(self, now: float, text: str) -> Iterator[Write]:
        while self.agenda and self.agenda[0][0] <= now:
            when, key = heapq.heappop(self.agenda)
            planned, pod = self.due.get(key), self.objects.get(key)
            if planned is None or planned[0] != when or pod is None:
                continue
            stage = stage_of(pod)
            if stage is None or (stage.name, uid_of(pod)) != planned[1:]:
                del self.due[key]
                continue
            self._schedule(key, now + RETRY_SECONDS, *planned[1:])
            if ("nodes", "", pod["spec"]["nodeName"]) in self.objects or is_terminating(pod):
                yield stage.write(pod, text)

    def _owner_key(self, write: Write) -> Key:
        if write.kind is PODS:
            references = (write.body.get("metadata") or {}).get("ownerReferences") or [{}]
            kind = str(references[0].get("kind", "pod")).lower()
            return (f"{kind}s", write.namespace, str(references[0].get("name", write.name)))
        return (write.kind.plural, write.namespace, write.name)
