"""`bayplan uninstall` on a real API server: nothing of Bayplan blocks users afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.objects import eventually, kwok_pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.minutes(1)
HOME = "uninstall-test"
USERS = "uninstall-users"
IN_USE = "kueue.x-k8s.io/resource-in-use"
QUEUE = "clusterqueue.kueue.x-k8s.io"
Object = dict[str, Any]


def bayplan(cluster: Cluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "bayplan", *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    ran = subprocess.run([*command, "--namespace", HOME], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def installed(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Bayplan as it is installed, with what its replicas would have left on objects of users."""
    values = tmp_path / "values.yaml"
    values.write_text("webhooks: {failurePolicy: Ignore}\n")  # no kubelet runs a replica that could answer
    bayplan(cluster, "install", "--values", str(values))
    eventually(
        lambda: "clusterqueues" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    pod = kwok_pod(USERS, "gated", {})
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}, {"name": "example.com/mine"}]
    pod["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "uninstall-test", "finalizers": [IN_USE]},
        "spec": {"namespaceSelector": {}},
    }
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}})
    eventually(lambda: "default" in cluster.kubectl("get", "sa", "-n", USERS), "the service account is there")
    cluster.apply(pod, queue)
    yield cluster
    bayplan(cluster, "uninstall", "--crds")
    cluster.kubectl("delete", "namespace", USERS, "--wait=false")


def of_bayplan(cluster: Cluster) -> list[str]:
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies"
    kinds += ",validatingadmissionpolicybindings,clusterroles,clusterrolebindings"
    found = cluster.get(kinds, "-l", "app.kubernetes.io/part-of=bayplan")["items"]
    return [one["metadata"]["name"] for one in found]


def test_no_webhook_gate_or_finalizer_is_left(installed: Cluster) -> None:
    before = json.dumps([installed.get("pod", "gated", "-n", USERS)["spec"], sorted(of_bayplan(installed))])
    assert "pod/uninstall-users/gated would be released" in bayplan(installed, "uninstall", "--dry-run")
    after = json.dumps([installed.get("pod", "gated", "-n", USERS)["spec"], sorted(of_bayplan(installed))])
    assert before == after, "a dry run changes nothing"

    told = bayplan(installed, "uninstall")
    assert "kept: " in told and "--crds deletes them" in told
    assert of_bayplan(installed) == []
    pod = installed.get("pod", "gated", "-n", USERS)
    assert pod["spec"]["schedulingGates"] == [{"name": "example.com/mine"}], "gates of others stay"
    assert "finalizers" not in pod["metadata"]
    assert "finalizers" not in installed.get(QUEUE, "uninstall-test")["metadata"]
    crd = installed.get("crd", "clusterqueues.kueue.x-k8s.io")["spec"]
    assert crd["conversion"] == {"strategy": "None"}
    assert [one["name"] for one in crd["versions"] if one["served"]] == ["v1beta2"]
    eventually(
        lambda: HOME not in installed.kubectl("get", "namespaces", "-o", "name"), "its namespace is gone"
    )

    installed.kubectl("delete", "pod", "gated", "-n", USERS, "--wait", "--timeout=60s")
    bayplan(installed, "uninstall", "--crds")
    eventually(
        lambda: "kueue.x-k8s.io" not in installed.kubectl("get", "crd", "-o", "name"),
        "the definitions are gone",
    )
    assert bayplan(installed, "uninstall") == "", "there is nothing left to remove"
