"""`bayplan list`, `explain` and `plan` against a real API server: what they read there is what they tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bayplan.backends.crds import definitions
from bayplan.cli.commands.main import main
from tests.end_to_end.objects import eventually
from tests.support.queued_cluster import GPU, RACK, admitted, furniture, queued_job, queued_workload

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

Object = dict[str, Any]


def unconverted(definition: Object) -> Object:
    """Served in the stored version alone, so that nobody has to convert."""
    spec = {key: value for key, value in definition["spec"].items() if key != "conversion"}
    return {**definition, "spec": {**spec, "versions": [one for one in spec["versions"] if one["storage"]]}}


def listed(objects: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.fixture(scope="module")
def queued(cluster: Cluster) -> Iterator[Cluster]:
    """The API, nodes and queues of the unit tests, a gang that runs and one that waits."""
    kinds, objects = [unconverted(one) for one in definitions()], [obj for _, obj in furniture()]
    names = [one["metadata"]["name"] for one in kinds]
    cluster.kubectl("create", "-f", "-", stdin=listed(kinds))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", *names)
    try:
        eventually(
            lambda: "workloads.kueue.x-k8s.io" in cluster.kubectl("api-resources", "-o", "name"),
            "the kinds are served",
        )
        cluster.kubectl("create", "-f", "-", stdin=listed(objects))
        cluster.kubectl(
            "create",
            "-f",
            "-",
            stdin=listed([queued_workload("a", 4, 4), queued_workload("b", 3, 4, "left", required=RACK)]),
        )
        usage = {"cpu": "32", GPU: "16"}
        status = admitted("left-queue", "a100", usage, {"h1": 1, "h2": 1, "h3": 1, "h4": 1})
        change = json.dumps({"status": status})
        cluster.kubectl(
            "patch",
            "workloads.kueue.x-k8s.io",
            "a",
            "-n",
            "ml",
            "--subresource=status",
            "--type=merge",
            "-p",
            change,
        )
        yield cluster
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait", "crd", *names)
        rest = [one for one in objects if one["kind"] in ("Node", "Namespace")]
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=listed(rest))


def run(cluster: Cluster, *arguments: str, stdin: str | None = None) -> Result:
    found = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(cluster.kubeconfig)], input=stdin)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def plain_job(name: str, pods: int) -> Object:
    """A Job that names our scheduler and no queue."""
    made = queued_job(name, pods, 0, "")
    made["spec"]["template"]["spec"]["schedulerName"] = "bayplan"
    return {
        **made,
        "metadata": {"name": name, "namespace": "default"},
        "spec": made["spec"] | {"suspend": False},
    }


def created_pods(cluster: Cluster, name: str) -> list[str]:
    found = cluster.kubectl("get", "pods", "-n", "default", "-l", f"job-name={name}", "-o", "name")
    return [line.removeprefix("pod/") for line in found.split()]


def test_gangs_without_a_queue_need_no_queue_api(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(plain_job("plain", 2)))
    try:
        eventually(lambda: len(created_pods(cluster, "plain")) == 2, "its pods are there")
        (found,) = [
            one
            for one in json.loads(run(cluster, "list", "gangs", "-n", "default", "-o", "json").stdout)
            if one["name"] == "plain"
        ]
        assert (found["kind"], found["state"], found["pods"]) == ("Job", "pending", 2)
        told = run(cluster, "explain", "default/plain").stdout
        assert told.startswith("Job default/plain: pending\n  needs 2 pods at once\n")
        assert run(cluster, "explain", f"default/{created_pods(cluster, 'plain')[0]}").stdout == told
        planned = run(cluster, "plan", "-f", "-", stdin=yaml.safe_dump(plain_job("other", 2)))
        assert planned.stdout.startswith("Job default/other: would "), planned.output
        refused = run(cluster, "list", "queues")
        assert refused.exit_code == 1 and "has no queues" in refused.stderr
    finally:
        cluster.kubectl("delete", "job", "plain", "-n", "default", "--cascade=foreground")


def test_somebody_without_the_rights_is_told_which_to_ask_for(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("create", "serviceaccount", "tenant", "-n", "default")
    try:
        token = cluster.kubectl("create", "token", "tenant", "-n", "default").strip()
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        for command in (("list", "gangs"), ("list", "queues"), ("explain", "x")):
            given = [*command, "--kubeconfig", str(tmp_path / "config")]
            result = CliRunner().invoke(main, given)
            assert result.exit_code == 1 and result.stderr.count("\n") == 1, result.output
            assert "cannot list resource" in result.stderr and "(RBAC)" in result.stderr
    finally:
        cluster.kubectl("delete", "serviceaccount", "tenant", "-n", "default")


def test_lists_are_read_from_a_real_server(queued: Cluster) -> None:
    found = {
        one["name"]: one for one in json.loads(run(queued, "list", "gangs", "-n", "ml", "-o", "json").stdout)
    }
    assert found["a"]["state"] == "admitted" and found["a"]["where"] == "block b1, 4 hosts"
    assert found["b"]["message"] == "no room: 2 of 3 pods fit in rack b2/r1, the closest"
    assert "left-queue     all/team" in run(queued, "list", "queues").stdout
    assert "hall: 8 nodes" in run(queued, "list", "topologies").stdout


def test_a_gang_is_explained(queued: Cluster) -> None:
    assert "require one block instead of one rack: that fits" in run(queued, "explain", "ml/b").stdout


def test_a_job_is_planned(queued: Cluster) -> None:
    wish = {"podset_required_topology": RACK}
    result = run(queued, "plan", "-f", "-", stdin=yaml.safe_dump(queued_job("new", 2, 4, "right", **wish)))
    assert result.exit_code == 0, result.output
    assert "rack r1           8 of 8       8" in result.stdout
