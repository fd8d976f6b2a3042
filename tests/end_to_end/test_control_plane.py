"""The control plane itself: does what the other end-to-end tests stand on hold?"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.objects import Object, bind, eventually, job_spec, kwok_node, kwok_pod
from tools.controlplane.plan import Trouble, switches

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-").removeprefix("test-")[:60].rstrip("-")
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[list[str]]:
    names = [f"smoke-{number}" for number in range(3)]
    cluster.apply(*(kwok_node(name) for name in names))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", *names)
    yield names
    cluster.kubectl("delete", "node", *names)


def pods_of(cluster: Cluster, namespace: str) -> list[Object]:
    found: list[Object] = cluster.get("pods", "-n", namespace)["items"]
    return found


def phase(cluster: Cluster, namespace: str, name: str) -> str:
    return str(cluster.get("pod", "-n", namespace, name)["status"]["phase"])


def test_it_has_the_version_and_the_gang_api_that_were_asked_for(cluster: Cluster) -> None:
    assert f'"gitVersion": "v{cluster.kube}"' in cluster.kubectl("get", "--raw", "/version")
    served = cluster.kubectl("api-versions").split()
    asked = {setting.removesuffix("=true") for setting in switches(cluster.kube).runtime_config.split(",")}
    assert asked <= set(served)


def test_nodes_keep_what_they_were_created_with_and_lose_their_taints(
    cluster: Cluster, nodes: list[str]
) -> None:
    eventually(lambda: "taints" not in cluster.get("node", nodes[0])["spec"], "the taint not-ready is lifted")
    assert cluster.get("node", nodes[0])["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_node_that_falls_silent_is_tainted(cluster: Cluster) -> None:
    cluster.apply(kwok_node("silent"))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", "silent")
    cluster.kubectl("annotate", "node", "silent", "bayplan.dev/node=down")
    cluster.kubectl("wait", "--for=condition=Ready=Unknown", "--timeout=120s", "node", "silent")
    eventually(
        lambda: "node.kubernetes.io/unreachable" in str(cluster.get("node", "silent")["spec"].get("taints")),
        "the node lifecycle controller taints the node",
    )
    cluster.kubectl("annotate", "node", "silent", "bayplan.dev/node-")
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", "silent")
    cluster.kubectl("delete", "node", "silent")


def test_six_pods_of_a_job_are_bound_and_complete(cluster: Cluster, nodes: list[str], namespace: str) -> None:
    metadata = {"name": "six", "namespace": namespace}
    spec = job_spec(6, {"run-seconds": "1"})
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    eventually(lambda: len(pods_of(cluster, namespace)) == 6, "the Job controller makes six pods")
    for number, found in enumerate(pods_of(cluster, namespace)):
        bind(cluster, namespace, found["metadata"]["name"], nodes[number % len(nodes)])
    cluster.kubectl("wait", "-n", namespace, "--for=condition=Complete", "--timeout=120s", "job/six")
    assert {found["spec"]["nodeName"] for found in pods_of(cluster, namespace)} == set(nodes)
    assert all(found["status"]["podIP"] for found in pods_of(cluster, namespace))


def test_a_pod_ends_with_the_exit_code_it_was_given(
    cluster: Cluster, nodes: list[str], namespace: str
) -> None:
    cluster.apply(kwok_pod(namespace, "fails", {"run-seconds": "0", "exit": "3"}))
    bind(cluster, namespace, "fails", nodes[0])
    eventually(lambda: phase(cluster, namespace, "fails") == "Failed", "the pod fails")
    status = cluster.get("pod", "-n", namespace, "fails")["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["exitCode"] == 3


def test_a_pod_without_an_end_runs_until_it_is_deleted(
    cluster: Cluster, nodes: list[str], namespace: str
) -> None:
    cluster.apply(kwok_pod(namespace, "runs", {}))
    bind(cluster, namespace, "runs", nodes[0])
    cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", "--timeout=120s", "pod/runs")
    cluster.kubectl("delete", "-n", namespace, "--timeout=120s", "pod", "runs")


def test_a_jobset_makes_its_child_jobs(cluster: Cluster, namespace: str) -> None:
    replicated = [
        {"name": "driver", "replicas": 1, "template": {"spec": job_spec(1, {})}},
        {"name": "workers", "replicas": 2, "template": {"spec": job_spec(2, {})}},
    ]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"replicatedJobs": replicated},
    }
    cluster.apply(jobset)
    eventually(lambda: len(pods_of(cluster, namespace)) == 5, "five pods of three jobs")
    jobs = [job["metadata"]["name"] for job in cluster.get("jobs", "-n", namespace)["items"]]
    assert sorted(jobs) == ["train-driver-0", "train-workers-0", "train-workers-1"]


def test_a_jobset_that_is_wrong_is_refused_by_its_webhook(cluster: Cluster, namespace: str) -> None:
    workers = {"name": "workers", "replicas": 1, "template": {"spec": job_spec(1, {})}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "x" * 60, "namespace": namespace},
        "spec": {"replicatedJobs": [workers]},
    }
    with pytest.raises(Trouble, match="JobSet name is too long"):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(jobset))


def test_the_user_bayplan_may_do_nothing_until_a_role_says_so(cluster: Cluster) -> None:
    for one in cluster.get("clusterrolebindings")["items"]:  # other tests have given it rights
        if any(subject["name"] == "bayplan" for subject in one.get("subjects") or ()):
            cluster.kubectl("delete", "clusterrolebinding", one["metadata"]["name"])
    eventually(lambda: not _allowed(cluster, "list", "nodes"), "nothing is allowed any more")
    with pytest.raises(Trouble, match='User "bayplan" cannot list resource "nodes"'):
        cluster.kubectl("get", "nodes", user="bayplan")
    cluster.kubectl("create", "clusterrole", "smoke-nodes", "--verb=list", "--resource=nodes")
    cluster.kubectl(
        "create", "clusterrolebinding", "smoke-nodes", "--clusterrole=smoke-nodes", "--user=bayplan"
    )
    eventually(lambda: _allowed(cluster, "list", "nodes"), "the binding takes effect")
    cluster.kubectl("get", "nodes", user="bayplan")
    assert not _allowed(cluster, "delete", "nodes")
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "smoke-nodes")


def test_tls_is_verified_and_tokens_work_too(cluster: Cluster) -> None:
    assert "insecure" not in cluster.kubeconfig.read_text()
    trust = ssl.create_default_context(cafile=str(cluster.authority))
    header = {"Authorization": f"Bearer {cluster.token_of('admin')}"}
    request = urllib.request.Request(f"{cluster.server}/api/v1/nodes", headers=header)
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_beyond_loopback(cluster: Cluster) -> None:
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # listening
                sockets[f"socket:[{fields[9]}]"] = fields[1].partition(":")
    ours = {
        sockets[target]
        for process in cluster.processes
        for link in Path(f"/proc/{process.pid}/fd").iterdir()
        if (target := str(link.readlink())) in sockets
    }
    assert {int(port, 16) for _, _, port in ours} <= set(cluster.ports.values())
    assert {address for address, _, _ in ours} == {"0100007F"}
    assert max(cluster.ports.values()) < 32768


def _allowed(cluster: Cluster, verb: str, resource: str) -> bool:
    try:
        return cluster.kubectl("auth", "can-i", verb, resource, user="bayplan").strip() == "yes"
    except Trouble:
        return False
