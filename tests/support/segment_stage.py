"""A drawn cluster in memory with webhooks, grouper, scheduler, operators and kubelets at work on segments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.definitions import DEFINITIONS, definitions, is_of_groups
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import (
    CONTROLLERS,
    FakeController,
    FakeControllerManager,
    Reconcile,
)
from bayplan.backends.fake_controllers.definitions import schemaless_crd
from bayplan.backends.fake_controllers.objects import (
    annotations_of,
    create,
    is_terminating,
    labels_of,
    name_of,
    owner_reference,
)
from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.jobs.part import REPLICA_INDEX
from bayplan.dialects.kai.api.names import POD_GROUP, TOPOLOGY
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME
from bayplan.dialects.kai.grouper.training import JOB_NAME, REPLICA_TYPE
from bayplan.dialects.kueue.names.api_kinds import LOCAL_QUEUES
from bayplan.model.node import Node
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.testing import World
from tests.support import ray_controllers
from tests.support.kai_site import OPERATED, Site
from tests.support.pod_site import NODES, PODS, Object

HALL = "hall"
OWN = Kind("example.com", "v1", "Trainer", "trainers")
OWN_INDEX = "example.com/index"
TRAINING = ("PyTorchJob", "TFJob", "JAXJob", "XGBoostJob")
FURTHER = ("MPIJob", "LeaderWorkerSet", "JobSet", "RayCluster", "RayJob")
KINDS = {kind.kind: kind for kind in (*BY_NAME.values(), OWN, TOPOLOGY)}
STEP_SECONDS, QUIET_SECONDS, SETTLE_SECONDS = 0.25, 6, 120
"""Quiet for longer than anybody waits before trying again."""


class Stage(Site):
    """What users see of it is pods and groups; the drawing is the topology `hall`."""

    def __init__(self, drawn: World) -> None:
        super().__init__((), grouper=PodGrouperController(), defined=False)
        register_webhooks(self.store)
        for definition in definitions():
            if is_of_groups(definition) or definition["spec"]["names"]["kind"] == LOCAL_QUEUES.kind:
                self.store.create(DEFINITIONS, definition)  # the rest takes longer than most scenarios
        for name in (*TRAINING, *FURTHER):
            if name not in OPERATED:
                self.store.create(DEFINITIONS, schemaless_crd(KINDS[name]))
        self.store.create(DEFINITIONS, schemaless_crd(OWN))
        for node in drawn.nodes:
            self.store.create(NODES, node_object(node))
        self.labels = {node.name: node.labels for node in drawn.nodes}
        self.topology(HALL, drawn.topology.levels[:-1])
        operators = [FakeController(KINDS[name], (PODS,), operate) for name in TRAINING]
        own = FakeController(OWN, (PODS,), number)
        ray = [replace(one, reconcile=numbered(one.reconcile)) for one in ray_controllers.OPERATORS]
        self.crew = FakeControllerManager(EmbeddedBackend(self.store), (*CONTROLLERS, *operators, *ray, own))

    # ── what people do ─────────────────────────────────────────────────────────────────────────────

    def apply(self, manifest: Object) -> None:
        """As kubectl does; a template that names no scheduler and asks for nothing has ours, and one CPU."""
        wanted = filled(manifest)
        kind, name = KINDS[wanted["kind"]], wanted["metadata"]["name"]
        namespace = "default" if kind.namespaced else ""
        if self.store.find(kind, namespace, name) is None:
            self.store.create(kind, wanted, namespace)
        else:
            self.store.patch(kind, namespace, name, wanted)

    def make(self, name: str) -> None:
        """The operator makes a pod that the job does not count (any more, or yet)."""
        job, replica_type, index = name.rsplit("-", 2)
        found = next(
            one
            for kind in TRAINING
            for one in self.store.list(KINDS[kind]).items
            if one["metadata"]["name"] == job
        )
        self.store.create(PODS, training_pod(found, replica_type, int(index)), "default")

    def drop(self, name: str) -> None:
        """A node dies."""
        self.store.delete(NODES, "", name, Deletion(grace=0))

    def cordon(self, name: str, closed: bool) -> None:
        self.store.patch(NODES, "", name, {"spec": {"unschedulable": closed}})

    def kill(self, name: str) -> None:
        (pod,) = self.pods(name)
        self.store.delete(PODS, "default", pod["metadata"]["name"], Deletion(grace=0))

    # ── time ───────────────────────────────────────────────────────────────────────────────────────

    def run(self, seconds: float = 2.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.crew.step(self.now)
            self.loop.step(self.now)
            self.now += STEP_SECONDS

    def settle(self) -> None:
        """Until nobody has anything to write any more."""
        quiet = 0
        for _ in range(SETTLE_SECONDS):
            before = self.store.version
            self.run(1.0)
            quiet = quiet + 1 if self.store.version == before else 0
            if quiet == QUIET_SECONDS:
                return
        raise AssertionError("they never come to rest")

    # ── what people see ────────────────────────────────────────────────────────────────────────────

    def pods(self, name: str) -> list[Object]:
        """By name, `*` for anything; the letters that a Job adds to names need not be known."""
        alive = [pod for pod in self.store.list(PODS).items if not is_terminating(pod)]
        return [pod for pod in alive if fnmatchcase(short(pod), name)]

    def domain(self, pod: Object, level: str) -> str:
        """Where a pod is; nothing if nowhere."""
        return self.labels.get(pod["spec"].get("nodeName", ""), {}).get(level, "")

    def group_of(self, job: str) -> Object:
        """The group that was made for a job."""
        made = self.store.list(POD_GROUP).items
        (found,) = (one for one in made if one["metadata"]["ownerReferences"][0]["name"] == job)
        return found


def short(pod: Object) -> str:
    """A pod's name without the letters that a Job adds."""
    name: str = pod["metadata"]["name"]
    return re.sub(r"-[a-z0-9]{5}$", "", name) if "job-name" in labels_of(pod) else name


def node_object(node: Node) -> Object:
    amounts = {name: str(amount) for name, amount in node.allocatable.items()}
    ready = [{"type": "Ready", "status": "True" if node.ready else "False"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    spec = {"unschedulable": True} if not node.schedulable else {}
    return {"metadata": {"name": node.name, "labels": dict(node.labels)}, "spec": spec, "status": status}


def filled(manifest: Object) -> Object:
    """With everything about pods that no scenario is about."""
    found = deepcopy(manifest)
    for spec in pod_specs(found):
        spec.setdefault("schedulerName", "bayplan")
        for container in spec["containers"]:
            container.setdefault("image", "registry.example.com/train:1")
            container.setdefault("resources", {"requests": {"cpu": "1"}})
    return found


def pod_specs(found: object) -> Iterator[Object]:
    if isinstance(found, dict):
        if "containers" in found:
            yield found
        for inner in found.values():
            yield from pod_specs(inner)
    elif isinstance(found, list):
        for inner in found:
            yield from pod_specs(inner)


# ── operators ──────────────────────────────────────────────────────────────────────────────────────


def operate(job: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """What the training operator does: a pod for each number of a replica type, and another if one goes."""
    there = {name_of(pod)[1] for pod in pods}
    for replica_type, part in replica_specs(job).items():
        for index in range(part["replicas"]):
            pod = training_pod(job, replica_type, index)
            if name_of(pod)[1] not in there:
                yield create(PODS, pod)


def number(thing: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """What the operator of a kind that nobody knows does: numbered pods."""
    there = {name_of(pod)[1] for pod in pods}
    for index in range(thing["spec"]["replicas"]):
        name, labels = f"{name_of(thing)[1]}-{index}", {OWN_INDEX: str(index)}
        if name not in there:
            yield create(PODS, made_pod(thing, OWN, thing["spec"]["template"], name, labels))


def numbered(reconcile: Reconcile) -> Reconcile:
    """The same operator in a cluster where pods are given the number at the end of their names as a label."""

    def more(found: Object, children: Sequence[Object], now: str) -> Iterator[Write]:
        for write in reconcile(found, children, now):
            at_end = re.search(r"\d+$", write.name)
            if write.kind.kind == "Pod" and write.verb is Verb.CREATE and at_end:
                write.body["metadata"]["labels"][OWN_INDEX] = at_end[0]
            yield write

    return more


def replica_specs(job: Object) -> Mapping[str, Object]:
    return next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))


def training_pod(job: Object, replica_type: str, index: int) -> Object:
    kind, name = KINDS[job["kind"]], name_of(job)[1]
    part = next(one for key, one in replica_specs(job).items() if key.lower() == replica_type.lower())
    labels = {JOB_NAME: name, REPLICA_TYPE: replica_type.lower(), REPLICA_INDEX: str(index)}
    return made_pod(job, kind, part["template"], f"{name}-{replica_type.lower()}-{index}", labels)


def made_pod(owner: Object, kind: Kind, template: Object, name: str, labels: Mapping[str, str]) -> Object:
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {**labels_of(template), **labels},
        "annotations": dict(annotations_of(template)),
        "ownerReferences": [owner_reference(owner, kind)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": deepcopy(template["spec"])}
