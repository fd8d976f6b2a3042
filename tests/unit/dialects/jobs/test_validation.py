"""Jobs with fields of the wrong type: they stay pending with an error, and other jobs are not affected."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.jobs.validation import DEPTH_MAX, flaws
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.webhooks.validate import errors
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.core.loop import Loop
from tests.support.job_world import EVENTS, Silent

Object = dict[str, Any]

LABELS = {"kueue.x-k8s.io/queue-name": "main"}
TEMPLATE: Object = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
SPECS: dict[str, Object] = {
    "JobSet": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]},
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"template": TEMPLATE}}},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}}},
    "RayCluster": {"headGroupSpec": {"template": TEMPLATE}},
    "RayJob": {
        "rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}},
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": TEMPLATE,
    },
    "RayService": {"rayClusterConfig": {"headGroupSpec": {"template": TEMPLATE}}},
    "SparkApplication": {"driver": {"coreRequest": "1", "template": TEMPLATE}, "executor": {"instances": 1}},
    "AppWrapper": {"components": [{"podSets": [{"path": "template"}], "template": TEMPLATE}]},
}
ODD: tuple[Any, ...] = (
    None,
    "text",
    7,
    True,
    [],
    ["text"],
    {"spec": "text"},
    {"spec": {"containers": "text"}},
    {"metadata": []},
)


class World:
    """An API that stores any job, and the jobs controller."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        numbers = iter(range(1, 10_000))
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}"
        )
        define(self.store)
        for kind in SPECS:
            self.store.create(DEFINITIONS, schemaless_crd(resource(kind)))
        self.loop = Loop(EmbeddedBackend(self.store), (JobsController(),), Silent())

    def create(self, kind: str, name: str, spec: object) -> None:
        self.store.create(resource(kind), job_of(kind, name, spec), "default")

    def run(self) -> None:
        for _ in range(6):
            self.loop.step(self.now)
            self.now += 1.0

    def queued(self) -> set[str]:
        """The jobs that have Workloads."""
        found = self.store.list(api_kinds.WORKLOADS, "default").items
        return {one["metadata"]["ownerReferences"][0]["name"] for one in found}

    def told(self, name: str) -> list[str]:
        found = self.store.list(EVENTS).items
        return [one["message"] for one in found if one["involvedObject"]["name"] == name]


def job_of(kind: str, name: str, spec: object) -> Object:
    meta = {"name": name, "namespace": "default", "labels": LABELS}
    return {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": meta, "spec": spec}


def replaced(value: Any, odd: object) -> list[Any]:
    """The value with one of its templates replaced by an invalid value, or removed."""
    if isinstance(value, list):
        return [
            [*value[:at], one, *value[at + 1 :]]
            for at in range(len(value))
            for one in replaced(value[at], odd)
        ]
    if not isinstance(value, dict):
        return []
    found = []
    for key, inner in value.items():
        if inner is TEMPLATE:
            found.append({**value, key: odd})
            if odd is None:
                found.append({other: one for other, one in value.items() if other != key})
        else:
            found += [{**value, key: one} for one in replaced(inner, odd)]
    return found


def suspended(kind: str, spec: Any) -> Object:
    """The job as the webhook suspends it."""
    made: Object = copy.deepcopy(spec)
    path = KINDS[kind].suspend[1:]
    below = made
    for key in path[:-1]:
        below = below.setdefault(key, {})
    if path:
        below[path[-1]] = True
    return made


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_a_job_with_an_invalid_template_stays_pending_with_an_event(kind: str) -> None:
    world = World()
    world.create(kind, "sound", suspended(kind, SPECS[kind]))
    odd = [spec for value in ODD for spec in replaced(SPECS[kind], value)]
    for number, spec in enumerate(odd):
        world.create(kind, f"odd{number}", suspended(kind, spec))
    world.run()
    assert "sound" in world.queued()
    for number, spec in enumerate(odd):
        name = f"odd{number}"
        if flaws(job_of(kind, name, suspended(kind, spec))):
            assert name not in world.queued(), spec
            assert any("cannot be queued as it is written" in one for one in world.told(name)), spec
    assert len(world.queued()) < len(odd) + 1


@pytest.mark.parametrize("spec", [None, {}, {"runPolicy": "text"}])
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_a_job_without_a_spec_does_not_stop_other_jobs(kind: str, spec: object) -> None:
    world = World()
    world.create(kind, "odd", spec)
    world.create("JobSet", "sound", suspended("JobSet", SPECS["JobSet"]))
    world.run()
    assert "sound" in world.queued()
    if flaws(world.store.get(resource(kind), "default", "odd")):
        assert "odd" not in world.queued()
        assert any("cannot be queued as it is written" in one for one in world.told("odd"))


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_the_webhook_names_the_invalid_template_field(kind: str) -> None:
    for spec in replaced(SPECS[kind], "text"):
        made = job_of(kind, "odd", spec)
        if flaws(made, complete=False):
            assert any("must be a mapping, not text" in str(one) for one in errors(made)), spec


def test_a_job_that_is_nested_too_deeply_is_rejected() -> None:
    deep: Object = {}
    for _ in range(2000):
        deep = {"deeper": deep}
    found = flaws(job_of("RayCluster", "deep", {**SPECS["RayCluster"], "free": deep}))
    assert [str(one) for one in found] == [f"is nested more than {DEPTH_MAX} levels deep: write it flatter"]
    assert flaws(job_of("RayCluster", "sound", SPECS["RayCluster"])) == ()
