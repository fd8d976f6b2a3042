"""The whole way on a real control plane: image, chart, jobs of every API family, and nothing left behind.

The image is built and unpacked, the chart installed by helm, and each pod of its Deployment run from the
image with the arguments, volumes and account that the Deployment gives it. The commands are those of
docs/getting-started.md. Played are the kubelets of the nodes (kwok), and that the API server finds the
webhooks, since no network leads to pods.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.end_to_end.admission_site import Site, trusted
from tests.end_to_end.deployed_pods import running_pods
from tests.end_to_end.objects import eventually, kwok_node
from tests.end_to_end.test_image import archive, assembled
from tests.end_to_end.test_kueue_api import point
from tests.support.documented_commands import ROOT, FencedBlock, blocks
from tests.support.missing_parts import lacking
from tests.support.unpacked_image import UnpackedImage
from tests.unit.assembly.test_local_cluster import QUICKSTART, SAMPLE_JOB
from tools.controlplane import start
from tools.controlplane.build import build, find, unavailable
from tools.controlplane.plan import DEFAULT_KUBE, HELM, SCHEDULER, Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

__all__ = ["archive", "assembled"]  # fixtures
pytestmark = [pytest.mark.real, pytest.mark.minutes(4)]
Object = dict[str, Any]
PAGE = ROOT / "docs" / "getting-started.md"
ME = "tests/end_to_end/test_whole_way.py"
HOME = "bayplan-system"
RACK = "topology.example.com/rack"
ROLES = "{admission,scheduler,webhooks,grouper}"
"""With the grouper, which the page leaves out: it brings the kinds of the KAI API."""
PEER = ROOT / "tests" / "benchmarks" / "peer"
"""The Go module that pins the version of Kueue whose own manifests are applied."""
CHANGING = {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}
"""Kinds whose objects come and go by themselves."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of its own, with kube-scheduler: the cluster is to be the same before and after."""
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        lacking(f"No real control plane: {reason}")
    if not shutil.which("go") and not all(find(one, kube) for one in (HELM, SCHEDULER)):
        lacking("there is no go command to build helm and kube-scheduler")
    with start.control_plane(kube, tmp_path_factory.mktemp("plane"), scheduler=True) as started:
        yield started


class Typist:
    """Types the commands of the page in a folder that has its files."""

    def __init__(self, cluster: Cluster, folder: Path, helm: Path) -> None:
        self.cluster, self.folder = cluster, folder
        tools = folder / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(cluster.kubectl_path)
        (tools / "helm").symlink_to(helm)
        paths = (str(tools), str(Path(sys.executable).parent), os.environ["PATH"])
        self.environment = os.environ | {
            "PATH": os.pathsep.join(paths), "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder),
        }  # fmt: skip
        (folder / "deploy").symlink_to(ROOT / "deploy")
        found = list(blocks(PAGE))
        for block in found:
            if block.mark == "file":
                (folder / block.said).write_text(block.text, encoding="utf-8")
        self.sections: Iterator[FencedBlock] = (one for one in found if one.said == ME)

    def next_block(self) -> list[str]:
        """The commands of the next block that this test runs."""
        return next(self.sections).commands()

    def run(self, command: str) -> str:
        shell = ["sh", "-c", command]
        ran = subprocess.run(
            shell, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout


def listed(cluster: Cluster) -> set[str]:
    """Every object of the cluster, as kind, namespace and name; nothing while kinds disappear."""
    kinds = set(cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()) - CHANGING
    try:
        found = cluster.get(",".join(sorted(kinds)), "-A")["items"]
    except Trouble:
        return set()
    return {
        f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found
    }


def containers_end(cluster: Cluster, selector: str, count: int) -> list[Object]:
    """Wait until so many pods run, then have their containers end; the pods as they ran."""

    def running() -> list[Object]:
        pods = cluster.get("pods", "-n", "default", "-l", selector)["items"]
        return [one for one in pods if one["status"]["phase"] == "Running"]

    eventually(lambda: len(running()) == count, f"{count} pods with {selector} run")
    pods = running()
    cluster.kubectl(
        "annotate", "pods", "-n", "default", "-l", selector, "bayplan.dev/run-seconds=1", "--overwrite"
    )
    return pods


def racks(cluster: Cluster, pods: list[Object]) -> set[str]:
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in cluster.get("nodes")["items"]}
    return {labels[pod["spec"]["nodeName"]][RACK] for pod in pods}


def gang_pod(name: str, group: str, **more: Any) -> Object:
    """A pod of Bayplan's scheduler that asks for a CPU."""
    metadata = {"name": name, "namespace": "default", "labels": {"group": group}, **more.pop("metadata", {})}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "bayplan", "restartPolicy": "Never", "containers": [container], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def kai_group() -> list[Object]:
    """A PodGroup of the KAI API with its queue, and three pods that name it."""
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "kai-research"},
        "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), unlimited)},
    }
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "of-kai", "namespace": "default"},
        "spec": {"minMember": 3, "queue": "kai-research"},
    }
    metadata = {"annotations": {"pod-group-name": "of-kai"}, "labels": {"group": "of-kai"}}
    return [queue, group, *(gang_pod(f"of-kai-{n}", "of-kai", metadata=metadata) for n in range(3))]


def gang_api(kube: str) -> list[Object]:
    """A gang of three pods in the gang API of a version of Kubernetes: PodGroups exist from 1.36 on."""
    minor = int(kube.split(".")[1])
    meta = {"name": "of-gang", "namespace": "default"}
    if minor == 35:
        policy = {"name": "workers", "policy": {"gang": {"minCount": 3}}}
        made: Object = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": meta}
        made["spec"] = {"podGroups": [policy]}
        named: Object = {"workloadRef": {"name": "of-gang", "podGroup": "workers"}}
    else:
        version = "v1alpha2" if minor == 36 else "v1beta1"
        made = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": meta}
        made["spec"] = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        named = {"schedulingGroup": {"podGroupName": "of-gang"}}
    return [made, *(gang_pod(f"of-gang-{n}", "of-gang", **named) for n in range(3))]


def job_set() -> Object:
    """A JobSet in the queue of the page: a driver and three workers, all in one rack."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}

    def part(name: str, pods: int) -> Object:
        notes = {"kueue.x-k8s.io/podset-required-topology": RACK, "kueue.x-k8s.io/podset-group-name": "all"}
        pod = {"restartPolicy": "Never", "schedulerName": "bayplan", "containers": [container]}
        template = {"metadata": {"annotations": notes}, "spec": pod}
        spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": True, "replicatedJobs": [part("driver", 1), part("workers", 3)]},
    }


def manifests_of_kueue() -> Path:
    """Manifests that Kueue ships with its dashboard, from the module that the benchmarks pin."""
    asked = ["go", "mod", "download", "-json", "sigs.k8s.io/kueue"]
    try:
        found = subprocess.run(asked, cwd=PEER, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as trouble:
        lacking(f"the module of Kueue cannot be downloaded: {getattr(trouble, 'stderr', None) or trouble}")
    return Path(json.loads(found.stdout)["Dir"]) / "cmd" / "kueueviz" / "examples"


def test_from_the_image_to_running_gangs_and_back(
    plane: Cluster, assembled: UnpackedImage, tmp_path: Path
) -> None:
    typist = Typist(plane, tmp_path, build(DEFAULT_KUBE, (HELM,))[HELM.name])
    plane.apply(*(kwok_node(f"node-{n}") for n in range(1, 5)))
    plane.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", "--all")
    before = listed(plane)

    (install,) = typist.next_block()
    typist.run(f"{install} --set roles={shlex.quote(ROLES)}")
    plane.kubectl("wait", "--for=condition=Available", "--timeout=120s", "deploy/bayplan", "-n", HOME)
    with running_pods(plane, assembled, HOME, "app.kubernetes.io/name=bayplan", tmp_path / "pods") as pods:
        assert len(pods) == 2
        point(plane, f"https://{pods[0].addresses['webhook-listen']}")
        eventually(lambda: trusted(Site(plane, HOME, plane.kubeconfig)), "the cluster trusts the webhooks")
        follow_the_page(typist)
        each_family_runs(typist)
        upstream_manifests_run(typist)
        clean_up(typist)
        assert not [one.name for one in pods if "forbidden" in one.log.read_text()]
        delete, uninstall, *rest = typist.next_block()
        typist.run(delete)
        typist.run(uninstall)
    remove(typist, before, *rest)


def follow_the_page(typist: Typist) -> None:
    """Labels, queue and the first gang, as the page has them."""
    cluster = typist.cluster
    for command in (*typist.next_block(), *typist.next_block()):
        told = typist.run(command)
    assert "data-centre" in told
    for command in typist.next_block():
        if command.startswith("kubectl wait"):
            pods = containers_end(cluster, "job-name=first", 4)
            assert len(racks(cluster, pods)) == 1
        typist.run(command)


def each_family_runs(typist: Typist) -> None:
    """The quickstart of Kueue, a KAI PodGroup, a gang of the gang API, and a JobSet."""
    cluster, folder = typist.cluster, typist.folder
    (folder / "quickstart.yaml").write_text(QUICKSTART)
    (folder / "sample.yaml").write_text(SAMPLE_JOB)
    typist.run("kubectl apply -f quickstart.yaml && kubectl create -f sample.yaml")
    found = cluster.get("jobs", "-n", "default", "-l", "kueue.x-k8s.io/queue-name=user-queue")["items"]
    (sample,) = [one["metadata"]["name"] for one in found]
    containers_end(cluster, f"job-name={sample}", 3)
    typist.run(f"kubectl wait --for=condition=Complete --timeout=120s job/{sample}")

    for name, objects in (("of-kai", kai_group()), ("of-gang", gang_api(cluster.kube))):
        cluster.apply(*objects)
        containers_end(cluster, f"group={name}", 3)
        typist.run(
            f"kubectl wait --for=jsonpath='{{.status.phase}}'=Succeeded --timeout=120s pods -l group={name}"
        )

    cluster.apply(job_set())
    pods = containers_end(cluster, "jobset.sigs.k8s.io/jobset-name=set", 4)
    assert len(racks(cluster, pods)) == 1
    typist.run("kubectl wait --for=condition=Completed --timeout=120s jobset/set")


def upstream_manifests_run(typist: Typist) -> None:
    """Queues, priorities and a job of Kueue's own, applied from its module without a change."""
    cluster, folder = typist.cluster, manifests_of_kueue()
    setup = [path for path in sorted(folder.glob("*.yaml")) if yaml_kinds(path).isdisjoint({"Job"})]
    typist.run(f"kubectl apply -n default {' '.join(f'-f {path}' for path in setup)}")
    (job,) = folder.glob("*llm-job.yaml")
    name = typist.run(f"kubectl create -n default -f {job} -o name").strip().partition("/")[2]
    containers_end(cluster, f"job-name={name}", 3)
    typist.run(f"kubectl wait -n default --for=condition=Complete --timeout=120s job/{name}")
    typist.run(f"kubectl delete -n default job/{name}")
    listing = " ".join(f"-f {path}" for path in reversed(setup))
    typist.run(f"kubectl delete -n default --wait=false {listing}")  # the quickstart uses a flavor of these


def yaml_kinds(path: Path) -> set[str]:
    return {one["kind"] for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one}


def clean_up(typist: Typist) -> None:
    """Delete what users made, while Bayplan is there to remove its finalizers."""
    typist.run("kubectl delete jobset/set")
    typist.run("kubectl delete jobs -l kueue.x-k8s.io/queue-name=user-queue")
    typist.run("kubectl delete -f quickstart.yaml --ignore-not-found")
    for objects in (kai_group(), gang_api(typist.cluster.kube)):
        listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        typist.cluster.kubectl("delete", "-f", "-", stdin=listing)


def remove(typist: Typist, before: set[str], definitions: str, namespace: str) -> None:
    """The end of the page; before that, what is kept by design: definitions and the namespace."""
    cluster = typist.cluster
    typist.run("bayplan uninstall")

    def kept() -> set[str]:
        return {one.split()[0] for one in listed(cluster) - before if f" {HOME}/" not in one}

    by_design = {"APIService", "CustomResourceDefinition", "Namespace"}  # a definition has an APIService
    eventually(lambda: kept() == by_design, "only definitions and the namespace are left")
    typist.run(definitions)
    typist.run(namespace)
    with suppress(AssertionError):  # the difference says more
        eventually(lambda: listed(cluster) == before, "all is as before")
    assert sorted(listed(cluster) ^ before) == []
