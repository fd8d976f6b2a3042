"""Our account starts and stops jobs of every kind that it holds back, and can change nothing else of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Ended, WriteOutcome
from bayplan.dialects.jobs.injection import Injected
from bayplan.dialects.jobs.kinds import KINDS, SUSPENDED, parts
from bayplan.dialects.jobs.start_stop import is_suspended, resource, restored, started, suspended
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.writes import patch_object
from tests.end_to_end.admission_site import Site, installed
from tests.end_to_end.objects import Object, eventually, namespace

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME, SPACE = "account-test", "account-tenant"
BUILT_IN = ("Job", "JobSet")
"""Kinds whose definitions the control plane has."""


def template(image: str = "none") -> Object:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container], "nodeSelector": {"mine": "x"}}
    return {"metadata": {"labels": {"app": "mine"}}, "spec": spec}


def ray_cluster(**more: Any) -> Object:
    workers = {"replicas": 2, "minReplicas": 0, "maxReplicas": 4, "rayStartParams": {"num-cpus": "1"}}
    return {
        "rayVersion": "2.9.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": [{**workers, "groupName": name, "template": template()} for name in ("a", "b")],
        **more,
    }


def training(kind: str) -> Object:
    replica = {"replicas": 2, "restartPolicy": "OnFailure", "template": template()}
    types = ("Launcher", "Worker") if kind == "MPIJob" else ("Master", "Worker")
    replicas = {KINDS[kind].replica_specs: {name: copy.deepcopy(replica) for name in types}}
    policy = {"cleanPodPolicy": "None", "backoffLimit": 3, "suspend": True}
    return {"runPolicy": policy, **({"slotsPerWorker": 2} if kind == "MPIJob" else {}), **replicas}


def _spark() -> Object:
    volume = {"name": "v", "emptyDir": {}}
    container = {"name": "spark-kubernetes-executor", "image": "none"}
    inner = {
        "metadata": {"labels": {"app": "mine"}},
        "spec": {"volumes": [volume], "containers": [container]},
    }
    driver = {"cores": 1, "coreRequest": "100m", "memory": "512m", "labels": {"app": "mine"}}
    executor = {"instances": 2, "memory": "512m", "template": inner}
    return {"type": "Python", "suspend": True, "image": "none", "driver": driver, "executor": executor}


def specs() -> dict[str, Object]:
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 3, "suspend": True, "template": template()}
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": job}
    other = {"manager": "example.com/other", "trainingRuntimeSpec": {"template": {"metadata": {}}}}
    submitted = {"entrypoint": "python main.py", "submissionMode": "K8sJobMode", "suspend": True}
    return {
        "Job": job,
        "JobSet": {
            "suspend": True,
            "replicatedJobs": [
                {"name": name, "replicas": 1, "template": {"spec": {"template": template()}}}
                for name in ("a", "b")
            ],
        },
        **{name: training(name) for name, kind in KINDS.items() if kind.replica_specs},
        "TrainJob": {"runtimeRef": {"name": "torch"}, "suspend": True, "runtimePatches": [other]},
        "RayCluster": ray_cluster(suspend=True),
        "RayJob": {**submitted, "rayClusterSpec": ray_cluster()},
        "RayService": {"serveConfigV2": "text", "rayClusterConfig": ray_cluster(suspend=True)},
        "AppWrapper": {"suspend": True, "components": [{"template": wrapped}, {"template": wrapped}]},
        "SparkApplication": _spark(),
    }


class Writer:
    """Writes as our account, which was installed."""

    def __init__(self, site: Site) -> None:
        self.site, self.backend = site, RemoteBackend(load(site.kubeconfig, None))

    def get(self, kind: str, name: str) -> Object:
        entry = KINDS[kind]
        found = self.site.cluster.get(f"{entry.plural}.{entry.group}", name, "-n", SPACE)
        return {**found, "apiVersion": entry.api_version, "kind": kind}

    def told(self, before: Object, after: Object, subresource: str = "") -> str:
        """What the account is told that changes a job; nothing if it was changed."""
        write = patch_object(resource(before["kind"]), before, after, subresource=subresource).write
        self.backend.submit([write])
        found: list[WriteOutcome] = []

        def has_ended() -> bool:
            found.extend(self.backend.outcomes())
            return bool(found)

        eventually(has_ended, "the write ends")
        return "" if found[0].ended is Ended.DONE else found[0].message or str(found[0].ended)


@pytest.fixture(scope="module")
def writer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    """Jobs of all kinds in a namespace, and our account."""
    definitions = [schemaless_crd(resource(kind)) for kind in SUSPENDED if kind not in BUILT_IN]
    for one in definitions:
        one["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    names = [one["metadata"]["name"] for one in definitions]
    cluster.apply(*definitions)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
    with installed(cluster, HOME, tmp_path_factory.mktemp("account")) as site:
        site.apply(namespace(SPACE))
        site.apply(*(job_of(kind, name) for kind in SUSPENDED for name in ("moves", "stays")))
        found = Writer(site)
        probe = found.get("Job", "stays")
        foreign = {**probe, "spec": {**probe["spec"], "backoffLimit": 0}}
        eventually(lambda: "bayplan may" in found.told(found.get("Job", "stays"), foreign), "policies hold")
        yield found
        found.backend.close()
        for kind in SUSPENDED:
            site.kubectl("delete", f"{KINDS[kind].plural}.{KINDS[kind].group}", "--all", "-n", SPACE)
        site.kubectl("delete", "namespace", SPACE, "--wait=false")
    cluster.kubectl("delete", "crd", *names, "--wait=false")


def job_of(kind: str, name: str) -> Object:
    meta = {"name": name, "namespace": SPACE}
    return {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": meta, "spec": specs()[kind]}


def additions(job: Object) -> list[Injected]:
    """All that a job may be given when it is admitted."""
    names = [part.name for part in parts(Field(job))] or ["node"]
    return [
        Injected(
            name,
            2,
            labels={"kueue.x-k8s.io/podset": name},
            annotations={"kueue.x-k8s.io/workload": "some"},
            node_selector={"pool": "fast"},
            tolerations=({"key": "pool", "operator": "Exists", "effect": "NoSchedule"},),
            gates=("kueue.x-k8s.io/topology",),
        )
        for name in names
    ]


@pytest.mark.parametrize("kind", SUSPENDED)
def test_our_account_can_start_and_stop_a_job(writer: Writer, kind: str) -> None:
    before = writer.get(kind, "moves")
    originals: list[Any] = [copy.deepcopy(part.template.value) for part in parts(Field(before))]
    assert is_suspended(before)
    assert not writer.told(before, started(before, additions(before)))
    runs = writer.get(kind, "moves")
    assert not is_suspended(runs) and "fast" in json.dumps(runs["spec"]), "it runs where it was admitted"
    if kind in BUILT_IN:
        return  # their controllers are at work by now, and they are stopped in steps
    assert not writer.told(runs, restored(suspended(runs), originals))
    stopped = writer.get(kind, "moves")
    assert is_suspended(stopped) and "fast" not in json.dumps(stopped["spec"])


Change = Callable[[Object], None]


def other_image(obj: object) -> int:
    """Change the image of every container in an object; how many there were."""
    found = 0
    if isinstance(obj, dict):
        for key, value in obj.items():
            if key == "containers" and isinstance(value, list):
                found += len(value)
                for one in value:
                    one["image"] = "other"
            else:
                found += other_image(value)
    elif isinstance(obj, list):
        found += sum(other_image(one) for one in obj)
    return found


@pytest.mark.parametrize("kind", [one for one in SUSPENDED if one not in ("Job", "TrainJob")])
def test_our_account_cannot_change_the_images_of_a_job(writer: Writer, kind: str) -> None:
    """Those of a Job nobody can change, and a TrainJob has none of its own."""

    def change(job: Object) -> None:
        assert other_image(job["spec"])

    refused(writer, kind, change)


@pytest.mark.parametrize("kind", SUSPENDED)
@pytest.mark.parametrize("field", ["spec", "finalizers", "ownerReferences"])
def test_our_account_cannot_change_a_foreign_field_of_a_job(writer: Writer, kind: str, field: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}

    def change(job: Object) -> None:
        if field == "spec":
            job["spec"]["ttlSecondsAfterFinished"] = 7
        else:
            job["metadata"][field] = ["example.com/mine"] if field == "finalizers" else [owner]

    refused(writer, kind, change)


def _set(*path: Any, to: Any) -> Change:
    """Set a field; steps that are not there are made."""

    def change(job: Object) -> None:
        below: Any = job["spec"]
        for step in path[:-1]:
            below = below[step] if isinstance(below, list) else below.setdefault(step, {})
        below[path[-1]] = to

    return change


HEAD = ("headGroupSpec", "template", "spec", "serviceAccountName")
SUBMITTER = {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "ray-job-submitter", "image": "none"}]}
}
JOBS_OF_OURS = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {}}}}]}
OUR_PATCH = {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": JOBS_OF_OURS}}}


def _patched(**pod: Any) -> Change:
    def change(job: Object) -> None:
        ours = copy.deepcopy(OUR_PATCH)
        first = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]  # type: ignore[index]
        first["template"]["spec"]["template"]["spec"] = pod
        job["spec"]["runtimePatches"].append(ours)

    return change


def _submitted(**more: Any) -> Change:
    def change(job: Object) -> None:
        made = copy.deepcopy(SUBMITTER)
        made["spec"] |= more
        job["spec"]["submitterPodTemplate"] = made

    return change


DEEP: list[tuple[str, Change]] = [
    ("RayCluster", _set(*HEAD, to="other")),
    ("RayCluster", _set("workerGroupSpecs", 1, "replicas", to=9)),
    ("RayJob", _set("rayClusterSpec", *HEAD, to="other")),
    ("RayJob", _set("entrypoint", to="other")),
    ("RayJob", _submitted(serviceAccountName="other")),
    ("RayJob", _submitted(containers=[{"name": "ray-job-submitter", "image": "none", "command": ["x"]}])),
    ("RayJob", _submitted(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
    ("RayService", _set("rayClusterConfig", *HEAD, to="other")),
    ("PyTorchJob", _set("runPolicy", "cleanPodPolicy", to="All")),
    ("PyTorchJob", _set("pytorchReplicaSpecs", "Worker", "replicas", to=9)),
    ("MPIJob", _set("slotsPerWorker", to=9)),
    ("TrainJob", _set("runtimePatches", to=[])),
    ("TrainJob", _set("runtimePatches", 0, "trainingRuntimeSpec", to={})),
    ("TrainJob", _patched(serviceAccountName="other")),
    ("TrainJob", _patched(containers=[{"name": "main", "env": [{"name": "A", "value": "b"}]}])),
    ("AppWrapper", _set("components", 1, "podSets", to=[{"path": "template.spec", "replicas": 9}])),
    ("AppWrapper", _set("components", 1, "template", "spec", "parallelism", to=9)),
    ("SparkApplication", _set("driver", "serviceAccount", to="other")),
    ("SparkApplication", _set("driver", "template", "spec", "initContainers", to=[{"name": "x"}])),
    ("SparkApplication", _set("executor", "template", "spec", "serviceAccountName", to="other")),
]


@pytest.mark.parametrize(("kind", "change"), DEEP, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(DEEP)])
def test_our_account_cannot_change_what_a_job_runs_in_any_of_its_parts(
    writer: Writer, kind: str, change: Change
) -> None:
    refused(writer, kind, change)


def refused(writer: Writer, kind: str, change: Change) -> None:
    before = writer.get(kind, "stays")
    after = copy.deepcopy(before)
    change(after)
    assert after != before
    told = writer.told(before, after)
    assert f"bayplan may change only the suspend flag of a {kind}" in told


def test_our_account_can_let_a_job_begin_anew_but_not_end_it(writer: Writer) -> None:
    before = writer.get("Job", "stays")
    status = before.get("status") or {}
    ended = {**before, "status": {**status, "failed": 3}}
    assert "bayplan may change only startTime in the status of a Job" in writer.told(before, ended, "status")
    assert not writer.told(before, {**before, "status": {**status, "startTime": None}}, "status")
