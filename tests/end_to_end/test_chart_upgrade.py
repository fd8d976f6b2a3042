"""The chart under a real helm on a real API server: install, upgrade, roll back, uninstall."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.helm_chart import write_chart
from tests.end_to_end.objects import eventually
from tests.support.missing_parts import lacking
from tools.controlplane.build import build, find
from tools.controlplane.plan import DEFAULT_KUBE, HELM

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.minutes(1)
HOME = "chart-test"
OPEN = ("--set=webhooks.failurePolicy=Ignore",)  # no kubelet runs a replica that could answer
Object = dict[str, Any]

FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "chart-test"},
}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "chart-test"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "chart-test", "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
            }
        ],
    },
}


class Release:
    """A release of the chart, driven by helm."""

    def __init__(self, program: str, cluster: Cluster) -> None:
        self.program, self.cluster = program, cluster

    def helm(self, *arguments: str) -> str:
        command = [self.program, *arguments, "--kubeconfig", str(self.cluster.kubeconfig), "-n", HOME]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def deployment(self) -> Object:
        return self.cluster.get("deployment", "bayplan", "-n", HOME)


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Release]:
    """helm, and afterwards no release and none of the objects that the test made."""
    if not (find(HELM, DEFAULT_KUBE) or shutil.which("go")):
        lacking("there is neither helm nor a go command to build it")
    made = Release(str(build(DEFAULT_KUBE, (HELM,))[HELM.name]), cluster)
    _delete_definitions(cluster)  # helm takes over none that tests before this one left
    yield made
    made.helm("uninstall", "bayplan", "--ignore-not-found")
    for one in ("clusterqueue.kueue.x-k8s.io", "resourceflavor.kueue.x-k8s.io"):
        cluster.kubectl("delete", one, "chart-test", "--ignore-not-found")
    cluster.kubectl("delete", "namespace", HOME, "--ignore-not-found")
    _delete_definitions(cluster)


def _delete_definitions(cluster: Cluster) -> None:
    crds = [f"crd/{path.stem}" for path in (Path(__file__).parents[2] / "deploy/chart/crds").iterdir()]
    converted = ("admissionchecks", "clusterqueues", "cohorts", "localqueues", "workloads")
    cluster.kubectl(
        "delete", "--ignore-not-found", *crds, *(f"crd/{one}.kueue.x-k8s.io" for one in converted)
    )


def newer(folder: Path) -> Path:
    """The chart under a later version, with a definition that has one more label."""
    write_chart(folder)
    chart = folder / "Chart.yaml"
    chart.write_text(chart.read_text().replace("version: 0.1.0\n", "version: 0.2.0\n", 1))
    crd = folder / "templates" / "clusterqueues.kueue.x-k8s.io.yaml"
    text = crd.read_text()
    crd.write_text(text.replace("  labels:\n", "  labels:\n    example.com/newer: 'yes'\n", 1))
    return folder


def test_queues_survive_an_upgrade_a_rollback_and_the_end_of_the_release(
    release: Release, tmp_path: Path
) -> None:
    write_chart(tmp_path / "old")
    release.helm("install", "bayplan", str(tmp_path / "old"), "--create-namespace", *OPEN)
    cluster = release.cluster
    eventually(
        lambda: "clusterqueues" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    cluster.apply(FLAVOR, QUEUE)
    before = cluster.get("clusterqueue.kueue.x-k8s.io", "chart-test")

    values = ("--set=nodeSelector.pool=system", "--set=replicas=3")
    release.helm("upgrade", "bayplan", str(newer(tmp_path / "new")), *OPEN, *values)
    upgraded = release.deployment()["spec"]
    assert upgraded["replicas"] == 3
    assert upgraded["template"]["spec"]["nodeSelector"] == {"pool": "system"}
    crd = cluster.get("crd", "clusterqueues.kueue.x-k8s.io")
    assert crd["metadata"]["labels"]["example.com/newer"] == "yes"
    assert crd["status"]["storedVersions"] == ["v1beta2"]
    assert cluster.get("clusterqueue.kueue.x-k8s.io", "chart-test")["spec"] == before["spec"]

    release.helm("rollback", "bayplan", "1")
    assert release.deployment()["spec"]["replicas"] == 2
    assert "nodeSelector" not in release.deployment()["spec"]["template"]["spec"]
    crd = cluster.get("crd", "clusterqueues.kueue.x-k8s.io")
    assert "example.com/newer" not in crd["metadata"]["labels"]
    assert (
        cluster.get("clusterqueue.kueue.x-k8s.io", "chart-test")["metadata"]["uid"]
        == before["metadata"]["uid"]
    )

    release.helm("uninstall", "bayplan", "--wait")
    assert cluster.get("clusterqueue.kueue.x-k8s.io", "chart-test")["spec"] == before["spec"]
    left = cluster.get("validatingwebhookconfigurations,mutatingwebhookconfigurations,deployments", "-A")
    assert "bayplan" not in json.dumps([one["metadata"]["name"] for one in left["items"]])
