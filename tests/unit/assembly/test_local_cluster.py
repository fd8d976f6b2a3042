"""What `bayplan up` starts, stepped by hand: pods of the default scheduler and Deployments run there, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import yaml

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers import controller_manager
from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES
from bayplan.dialects.api import Kind
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.journal import Journal

Object = dict[str, Any]

PODS = Kind("", "v1", "Pod", "pods")
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
JOBS = Kind("batch", "v1", "Job", "jobs")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
POD_GROUPS = Kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SETS = Kind("apps", "v1", "ReplicaSet", "replicasets")
QUEUE_KINDS = {
    "ResourceFlavor": Kind(
        "kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors", namespaced=False
    ),
    "ClusterQueue": Kind("kueue.x-k8s.io", "v1beta2", "ClusterQueue", "clusterqueues", namespaced=False),
    "LocalQueue": Kind("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues"),
}
QUICKSTART = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata:
  name: "default-flavor"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: "cluster-queue"
spec:
  namespaceSelector: {} # match all.
  resourceGroups:
  - coveredResources: ["cpu", "memory"]
    flavors:
    - name: "default-flavor"
      resources:
      - name: "cpu"
        nominalQuota: 9
      - name: "memory"
        nominalQuota: 36Gi
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  namespace: "default"
  name: "user-queue"
spec:
  clusterQueue: "cluster-queue"
"""
SAMPLE_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  generateName: sample-job-
  namespace: default
  labels:
    kueue.x-k8s.io/queue-name: user-queue
spec:
  parallelism: 3
  completions: 3
  suspend: true
  template:
    spec:
      containers:
      - name: dummy-job
        image: registry.example.com/agnhost:2.53
        command: [ "/bin/sh" ]
        args: [ "-c", "sleep 60" ]
        resources:
          requests:
            cpu: 1
            memory: "200Mi"
      restartPolicy: Never
"""


class World:
    """One block of two racks of two hosts with four GPUs, in virtual time."""

    def __init__(self, journal: Journal | None = None, devices: int = 0) -> None:
        clock = VirtualClock(wall=1_800_000_000.0)
        self.home = LocalCluster(ClusterShape(1, 2, 2, 4, devices), clock, journal=journal)
        self.store = self.home.store

    def play(self, seconds: float = 5.0) -> None:
        for _ in range(int(seconds * 2)):
            for _ in range(8):
                self.home.step()
            assert isinstance(self.home.clock, VirtualClock)
            self.home.clock.advance(0.5)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(60):
            if holds():
                return
            self.play(1)
        raise AssertionError([self.phases(), self.store.list(DEPLOYMENTS).items])

    def phases(self) -> list[str]:
        return [one["status"].get("phase", "") for one in self.store.list(PODS, "default").items]

    def images(self) -> list[str]:
        return [one["spec"]["containers"][0]["image"] for one in self.store.list(PODS, "default").items]


@pytest.fixture
def world() -> World:
    return World()


def container(image: str = "web:1", **more: Any) -> Object:
    return {"name": "main", "image": image, **more}


def deployment(replicas: int = 3, **more: Any) -> Object:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **more}
    return {"metadata": {"name": "web"}, "spec": spec}


def test_the_quickstart_of_kueue_runs_to_its_end_as_it_is_written(world: World) -> None:
    for found in yaml.safe_load_all(QUICKSTART):
        world.store.create(QUEUE_KINDS[found["kind"]], found, found["metadata"].get("namespace", ""))
    for _ in range(2):
        world.store.create(JOBS, yaml.safe_load(SAMPLE_JOB), "default")
    world.until(lambda: world.phases() == ["Running"] * 6)
    world.play(60)
    world.until(lambda: all(one["status"].get("succeeded") == 3 for one in world.home.jobs()))


def test_pods_get_devices_by_claim_and_give_them_back() -> None:
    world = World(devices=2)
    ask = {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    template = {"metadata": {"name": "two"}, "spec": {"spec": {"devices": {"requests": [ask]}}}}
    world.store.create(TEMPLATES, template, "default")
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    spec = {"containers": [container(command=["sleep", "5"])], "resourceClaims": claims}
    for number in range(6):
        body = {"metadata": {"name": f"p{number}"}, "spec": {**spec, "restartPolicy": "Never"}}
        world.store.create(PODS, body, "default")
    world.until(lambda: world.phases().count("Running") == 4)
    world.until(lambda: world.phases() == ["Succeeded"] * 6)
    world.until(lambda: world.store.list(CLAIMS, "default").items == [])


def test_a_pod_that_names_no_scheduler_runs(world: World) -> None:
    world.store.create(
        PODS, {"metadata": {"name": "alone"}, "spec": {"containers": [container()]}}, "default"
    )
    world.until(lambda: world.phases() == ["Running"])


def test_a_job_of_the_default_scheduler_starts_pod_by_pod(world: World) -> None:
    whole = container(resources={"limits": {"nvidia.com/gpu": "4"}})
    template = {"spec": {"restartPolicy": "Never", "containers": [whole]}}
    spec = {"parallelism": 6, "completions": 6, "template": template}
    world.store.create(JOBS, {"metadata": {"name": "wide"}, "spec": spec}, "default")
    world.until(lambda: sorted(world.phases()) == ["Pending"] * 2 + ["Running"] * 4)


def test_a_deployment_makes_pods_and_says_how_many_are_ready(world: World) -> None:
    world.store.create(DEPLOYMENTS, deployment(), "default")
    world.until(lambda: world.phases() == ["Running"] * 3)
    world.play()
    status = world.store.get(DEPLOYMENTS, "default", "web")["status"]
    assert (status["replicas"], status["availableReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert conditions["Available"] == ("True", "MinimumReplicasAvailable")
    assert conditions["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_deployment_follows_its_replicas_up_and_down(world: World) -> None:
    world.store.create(DEPLOYMENTS, deployment(), "default")
    for replicas in (5, 1, 0, 2):
        world.store.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": replicas}})
        wanted = ["Running"] * replicas
        world.until(partial(lambda wanted: world.phases() == wanted, wanted))


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
def test_a_new_template_takes_the_place_of_the_old_one_and_can_be_undone(world: World, strategy: str) -> None:
    world.store.create(DEPLOYMENTS, deployment(4, strategy={"type": strategy}), "default")
    world.until(lambda: world.phases() == ["Running"] * 4)
    for image in ("web:2", "web:1"):
        change = {"spec": {"template": {"spec": {"containers": [container(image)]}}}}
        world.store.patch(DEPLOYMENTS, "default", "web", change)
        seen: list[int] = []

        def rolled(image: str = image, seen: list[int] = seen) -> bool:
            seen.append(world.phases().count("Running"))
            return world.images() == [image] * 4 and world.phases() == ["Running"] * 4

        world.until(rolled)
        if strategy == "RollingUpdate":
            assert min(seen) >= 3, "a quarter may be missing"
    sets = world.store.list(REPLICA_SETS, "default").items
    revisions = [one["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for one in sets]
    assert sorted(revisions) == ["2", "3"]


def test_what_a_deployment_made_goes_with_it(world: World) -> None:
    world.store.create(DEPLOYMENTS, deployment(), "default")
    world.until(lambda: world.phases() == ["Running"] * 3)
    world.store.delete(DEPLOYMENTS, "default", "web")
    world.until(lambda: not world.phases() and not world.store.list(REPLICA_SETS, "default").items)


def test_a_pod_of_a_deployment_that_is_deleted_is_replaced(world: World) -> None:
    world.store.create(DEPLOYMENTS, deployment(2), "default")
    world.until(lambda: world.phases() == ["Running"] * 2)
    first = world.store.list(PODS, "default").items[0]["metadata"]
    world.store.delete(PODS, "default", first["name"])
    world.play()
    world.until(lambda: world.phases() == ["Running"] * 2)
    assert first["uid"] not in {one["metadata"]["uid"] for one in world.store.list(PODS, "default").items}


def test_many_replicas_come_in_several_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_manager, "WRITES_MAX", 10)
    world.store.create(DEPLOYMENTS, deployment(35), "default")
    world.home.step()
    world.home.step()
    world.home.step()
    assert 0 < len(world.phases()) < 35
    world.until(lambda: len(world.phases()) == 35)


def test_an_object_that_no_controller_understands_holds_up_no_other(world: World) -> None:
    odd = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "odd"}}
    hooks = world.store.admission.hooks
    world.store.admission.hooks = tuple(
        hook for hook in hooks if ("jobset.x-k8s.io", "jobsets") not in hook.resources
    )
    world.store.create(JOB_SETS, {**odd, "spec": {"replicatedJobs": "many"}}, "default")
    world.store.create(DEPLOYMENTS, deployment(), "default")
    for _ in range(20):
        world.home.controller_manager.step(world.home.clock.wall())
    assert len(world.phases()) == 3


@pytest.mark.parametrize(
    ("command", "args", "phase"),
    [
        (["sleep", "3"], [], "Succeeded"),
        (["/bin/sh"], ["-c", "echo hello; sleep 3s && echo world"], "Succeeded"),
        ([], ["entrypoint-tester", "hello", "world"], "Succeeded"),
        (["false"], [], "Failed"),
        (["sh", "-c", "sleep 'for ever"], [], "Running"),
        (["sleep", "infinity"], [], "Running"),
        (["train"], ["--epochs", "3"], "Running"),
        ([], [], "Running"),
    ],
)
def test_pods_of_well_known_programs_end_as_those_do(
    world: World, command: list[str], args: list[str], phase: str
) -> None:
    spec = {"restartPolicy": "Never", "containers": [container(command=command, args=args)]}
    world.store.create(PODS, {"metadata": {"name": "program"}, "spec": spec}, "default")
    world.play(10)
    assert world.phases() == [phase]


def test_a_running_time_that_is_no_number_is_for_ever(world: World) -> None:
    metadata = {"name": "odd", "annotations": {"bayplan.dev/run-seconds": "nan"}}
    world.store.create(PODS, {"metadata": metadata, "spec": {"containers": [container()]}}, "default")
    world.play(5)
    assert world.phases() == ["Running"]


@pytest.mark.parametrize(
    ("key", "pods", "told"),
    [
        ("topology.bayplan.dev/rack", 3, "rack r01 comes closest with room for 2 of 3 pods"),
        ("example.com/row", 1, "no usable node"),
    ],
)
def test_a_group_that_fits_in_no_domain_of_the_label_it_names_is_told_so_and_others_start(
    world: World, key: str, pods: int, told: str
) -> None:
    constraints = {"topology": [{"key": key}]}
    spec = {"schedulingPolicy": {"gang": {"minCount": pods}}, "schedulingConstraints": constraints}
    world.store.create(POD_GROUPS, {"metadata": {"name": "large"}, "spec": spec}, "default")
    main = container(resources={"limits": {"nvidia.com/gpu": "4"}})
    for number in range(pods):
        pod = {"schedulingGroup": {"podGroupName": "large"}, "containers": [main]}
        world.store.create(PODS, waiting(f"large-{number}", pod), "default")
    world.play(2)
    world.store.create(PODS, waiting("other", {"containers": [main]}), "default")
    world.until(lambda: "Running" in world.phases())
    lines = [line for _, line in world.home.decision_log.lines]
    assert any(line.startswith("PodGroup large is pending: ") and told in line for line in lines), lines
    assert not world.home.containment.last


def waiting(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name}, "spec": {"schedulerName": "bayplan", **spec}}
