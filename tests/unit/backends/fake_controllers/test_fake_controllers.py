"""Stage hands on a cluster in memory: jobs get their pods, pods run and end, sets make jobs, nodes go."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import OPERATORS, FakeControllerManager
from bayplan.backends.fake_controllers.crds import foreign_crds
from bayplan.backends.fake_controllers.manifests import job, node
from bayplan.backends.fake_controllers.objects import (
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    MPI_JOBS,
    NODES,
    PODS,
)
from bayplan.dialects.api import Kind

Object = dict[str, Any]
START = 1_700_000_000.0


class Stage:
    """A store, its simulated controllers, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = START
        numbers = count()
        self.store = new_store(lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: "abcde")
        for definition in foreign_crds():
            self.store.create(DEFINITIONS, definition)
        for number in range(2):
            self.store.create(NODES, node(f"n{number}", "b", "r", 8))
        self.controllers = FakeControllerManager(EmbeddedBackend(self.store))

    def play(self, seconds: float) -> None:
        """Let the time pass in small steps."""
        end = self.now + seconds
        while self.now < end:
            self.controllers.step(self.now)
            self.now += 0.25

    def pods(self) -> list[Object]:
        return self.store.list(PODS).items

    def bind_all(self, to: str = "n0") -> None:
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                name = pod["metadata"]["name"]
                target = {"target": {"kind": "Node", "name": to}, "metadata": {"name": name}}
                self.store.connect(PODS, "default", name, "binding", target)

    def status(self, kind: Kind, name: str) -> Object:
        found: Object = self.store.get(kind, "default", name).get("status") or {}
        return found


@pytest.fixture
def stage() -> Stage:
    return Stage()


def phases(stage: Stage) -> list[str]:
    return [pod["status"]["phase"] for pod in stage.pods()]


def test_a_job_gets_its_pods_and_they_wait_for_a_node(stage: Stage) -> None:
    stage.store.create(JOBS, job("train", 3, 1, {}, 5))
    stage.play(5)
    assert phases(stage) == ["Pending"] * 3
    indexes = [pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in stage.pods()]
    assert indexes == ["0", "1", "2"]
    assert stage.status(JOBS, "train")["active"] == 3


def test_bound_pods_run_for_their_time_and_the_job_completes(stage: Stage) -> None:
    stage.store.create(JOBS, job("train", 2, 1, {}, 5))
    stage.play(1)
    stage.bind_all()
    stage.play(2)
    assert phases(stage) == ["Running"] * 2
    stage.play(8)
    assert phases(stage) == ["Succeeded"] * 2
    assert stage.status(JOBS, "train")["conditions"][0]["type"] == "Complete"


def test_a_failing_job_tries_again_and_then_gives_up(stage: Stage) -> None:
    stage.store.create(JOBS, job("doomed", 1, 1, {}, 1, fails=True))
    for _ in range(8):
        stage.play(3)
        stage.bind_all()
    status = stage.status(JOBS, "doomed")
    assert status["conditions"][0]["type"] == "Failed"
    assert status["failed"] == 4


def test_a_suspended_job_has_no_pods(stage: Stage) -> None:
    body = job("held", 2, 1, {}, 5)
    body["spec"]["suspend"] = True
    stage.store.create(JOBS, body)
    stage.play(2)
    assert stage.pods() == []
    stage.store.patch(JOBS, "default", "held", {"spec": {"suspend": False}})
    stage.play(2)
    assert len(stage.pods()) == 2
    stage.store.patch(JOBS, "default", "held", {"spec": {"suspend": True}})
    stage.play(4)
    assert stage.pods() == []


def test_pods_of_a_lost_node_come_back_elsewhere(stage: Stage) -> None:
    stage.store.create(JOBS, job("train", 2, 1, {}, 600))
    stage.play(1)
    stage.bind_all("n1")
    stage.play(2)
    stage.store.delete(NODES, "", "n1")
    stage.play(3)
    assert phases(stage) == ["Pending"] * 2
    assert all(not pod["spec"].get("nodeName") for pod in stage.pods())


def test_a_deleted_job_takes_its_pods_along(stage: Stage) -> None:
    stage.store.create(JOBS, job("train", 2, 1, {}, 600))
    stage.play(1)
    stage.bind_all()
    stage.play(2)
    stage.store.delete(JOBS, "default", "train", Deletion(propagation="Background"))  # as kubectl does
    stage.play(4)
    assert stage.pods() == []


def test_a_job_set_makes_labelled_jobs_and_completes_with_them(stage: Stage) -> None:
    template = job("unused", 2, 1, {}, 2)["spec"]
    part = {"name": "workers", "replicas": 2, "template": {"spec": template}}
    body = {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default"},
    }
    stage.store.create(JOB_SETS, {**body, "spec": {"replicatedJobs": [part]}})
    stage.play(2)
    assert [found["metadata"]["name"] for found in stage.store.list(JOBS).items] == [
        "set-workers-0",
        "set-workers-1",
    ]
    labels = stage.pods()[-1]["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/jobset-name"] == "set"
    assert labels["jobset.sigs.k8s.io/job-index"] == "1"
    stage.bind_all()
    stage.play(8)
    assert stage.status(JOB_SETS, "set")["conditions"][0]["type"] == "Completed"


def test_a_leader_worker_set_makes_groups(stage: Stage) -> None:
    pod = job("unused", 1, 1, {}, 600)["spec"]["template"]
    pod["spec"]["restartPolicy"] = "Always"
    body = {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "lws", "namespace": "default"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}},
    }
    stage.store.create(LEADER_WORKER_SETS, body)
    stage.play(2)
    assert [found["metadata"]["name"] for found in stage.pods()] == ["lws-0", "lws-0-1", "lws-1", "lws-1-1"]
    stage.bind_all()
    stage.play(2)
    assert stage.status(LEADER_WORKER_SETS, "lws")["readyReplicas"] == 2


MPI = "training.kubeflow.org/"


def mpi_job(clean: str = "Running", **spec: Any) -> Object:
    """A launcher that runs for 5 s, and two workers that run until they are deleted."""
    launcher, worker = (job("unused", 1, 1, {}, 5)["spec"]["template"] for _ in range(2))
    del worker["metadata"]["annotations"]["bayplan.dev/run-seconds"]
    specs = {"Launcher": {"template": launcher}, "Worker": {"replicas": 2, "template": worker}}
    return {
        "apiVersion": MPI_JOBS.api_version,
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "default"},
        "spec": {"runPolicy": {"cleanPodPolicy": clean}, "mpiReplicaSpecs": specs, **spec},
    }


def roles(stage: Stage) -> list[tuple[str, str | None]]:
    labels = [pod["metadata"]["labels"] for pod in stage.pods()]
    return sorted((one[f"{MPI}job-role"], one.get(f"{MPI}replica-index")) for one in labels)


def holding(stage: Stage, name: str) -> set[str]:
    conditions = stage.status(MPI_JOBS, name)["conditions"]
    return {entry["type"] for entry in conditions if entry["status"] == "True"}


def test_a_launcher_that_works_has_number_0_and_its_end_ends_the_mpi_job(stage: Stage) -> None:
    stage.store.create(MPI_JOBS, mpi_job(runLauncherAsWorker=True))
    stage.play(1)
    assert roles(stage) == [("launcher", "0"), ("worker", "1"), ("worker", "2")]
    assert {pod["metadata"]["labels"][f"{MPI}job-name"] for pod in stage.pods()} == {"ring"}
    assert sorted(pod["metadata"]["name"] for pod in stage.pods())[1:] == ["ring-worker-0", "ring-worker-1"]
    stage.bind_all()
    stage.play(2)
    assert holding(stage, "ring") == {"Created", "Running"}
    counts = stage.status(MPI_JOBS, "ring")["replicaStatuses"]
    assert (counts["Launcher"]["active"], counts["Worker"]["active"]) == (1, 2)
    stage.play(8)
    assert "Succeeded" in holding(stage, "ring")
    assert phases(stage) == ["Succeeded"], "only the launcher is left"


def test_a_launcher_that_only_launches_has_no_number_and_workers_may_stay(stage: Stage) -> None:
    stage.store.create(MPI_JOBS, mpi_job("None"))
    stage.play(1)
    assert roles(stage) == [("launcher", None), ("worker", "0"), ("worker", "1")]
    stage.bind_all()
    stage.play(10)
    assert "Succeeded" in holding(stage, "ring")
    assert sorted(phases(stage)) == ["Running", "Running", "Succeeded"]


def test_a_suspended_mpi_job_has_no_pods_and_goes_on_with_the_template_it_has_then(stage: Stage) -> None:
    body = mpi_job()
    body["spec"]["runPolicy"]["suspend"] = True
    stage.store.create(MPI_JOBS, body)
    stage.play(1)
    assert stage.pods() == [] and holding(stage, "ring") == {"Created", "Suspended"}
    for held, selector in ((False, {"a": "1"}), (True, {"a": None, "b": "2"}), (False, {})):
        launcher = {"template": {"spec": {"nodeSelector": selector}}}
        change = {"runPolicy": {"suspend": held}, "mpiReplicaSpecs": {"Launcher": launcher}}
        stage.store.patch(MPI_JOBS, "default", "ring", {"spec": change})
        stage.play(2)
        assert len(stage.pods()) == (0 if held else 3)
        assert ("Suspended" in holding(stage, "ring")) is held
    (told,) = [pod for pod in stage.pods() if pod["metadata"]["name"].startswith("ring-launcher-")]
    assert told["spec"]["nodeSelector"] == {"b": "2"}


def test_operators_alone_leave_jobs_pods_and_nodes_to_other_controllers(stage: Stage) -> None:
    stage.controllers = FakeControllerManager(EmbeddedBackend(stage.store), OPERATORS, hosts=False)
    stage.store.create(MPI_JOBS, mpi_job())
    stage.store.create(JOBS, job("train", 3, 1, {}, 5))
    stage.play(1)
    assert roles(stage) == [("worker", "0"), ("worker", "1")]
    assert len(stage.store.list(JOBS).items) == 2
    stage.bind_all("n1")
    stage.store.delete(NODES, "", "n1")
    stage.play(5)
    assert phases(stage) == ["Pending"] * 2


def test_the_controllers_are_idle_when_nothing_is_due(stage: Stage) -> None:
    stage.controllers.step(stage.now)
    version = stage.store.version
    assert stage.controllers.step(stage.now + 100) == float("inf")
    assert stage.store.version == version
    assert replace(PODS) == PODS


def test_a_job_whose_pods_rest_is_written_no_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.store.create(JOBS, job("one", 2, 1, {}, 60), "default")
    stage.play(5)
    written: list[str] = []
    patch = stage.store.patch

    def noted(kind: Kind, *place: Any, **options: Any) -> Object:
        written.append(kind.plural)
        return patch(kind, *place, **options)

    monkeypatch.setattr(stage.store, "patch", noted)
    stage.play(5)
    assert written == []
    stage.bind_all()
    stage.play(5)
    assert set(written) == {"pods", "jobs"}
