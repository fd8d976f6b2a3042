"""`bayplan run` on a real control plane: gangs of real Jobs and JobSets are bound whole, in rank order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.assembly.rbac import COMMON_RULES, ROLES, rules
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE
from tests.end_to_end.objects import Object, bind, eventually, kwok_node, namespace
from tests.support.journal_replay import check_replay

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOSTS = [f"{block}-{rack}-h{host}" for block in ("b1", "b2") for rack in ("r1", "r2") for host in (1, 2)]


@pytest.fixture(scope="module")
def data_centre(cluster: Cluster) -> Iterator[Cluster]:
    """Two blocks of two racks of two hosts with four GPUs each, a topology, and rights for our user."""
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    eventually(
        lambda: "topologies" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    cluster.apply(namespace("bayplan-system"))
    cluster.apply(topology(), *rights())
    cluster.apply(*(kwok_node(name, 4, **_place(name)) for name in HOSTS))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", *HOSTS)
    yield cluster
    cluster.kubectl("delete", "node", *HOSTS)
    cluster.kubectl("delete", "topologies.kueue.x-k8s.io", "data-centre")


def rights() -> list[Object]:
    """All that the scheduler's user may do: the rules that `bayplan install` gives its role."""
    return [
        *_granted("Cluster", rules(ROLES["scheduler"].clusterwide)),
        *_granted("", rules(COMMON_RULES.namespaced + ROLES["scheduler"].namespaced)),
    ]


def _granted(scope: str, what: list[Object]) -> list[Object]:
    api, name = "rbac.authorization.k8s.io", "bayplan-scheduler-test"
    metadata = {"name": name} | ({} if scope else {"namespace": "bayplan-system"})
    role = {"apiGroup": api, "kind": f"{scope}Role", "name": name}
    user = {"apiGroup": api, "kind": "User", "name": "bayplan"}
    shared = {"apiVersion": f"{api}/v1", "metadata": metadata}
    return [
        {**shared, "kind": f"{scope}Role", "rules": what},
        {**shared, "kind": f"{scope}RoleBinding", "roleRef": role, "subjects": [user]},
    ]


def _place(name: str) -> dict[str, str]:
    block, rack, _ = name.split("-")
    return {BLOCK: block, RACK: rack}


@contextmanager
def scheduler(cluster: Cluster, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A scheduler process as its own user, ended as a kubelet would end it."""
    command = [
        sys.executable, "-m", "bayplan", "run", "--kubeconfig", str(cluster.kubeconfig_of("bayplan")),
        "--roles", "scheduler", "--journal", str(folder / "journal"), *options,
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    with (folder / "run.log").open("a") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def pods_by_rank(cluster: Cluster, name: str) -> list[Object]:
    pods = cluster.get("pods", "-n", "default", "-l", f"job-name={name}")["items"]
    index = "batch.kubernetes.io/job-completion-index"
    return sorted(pods, key=lambda pod: int(pod["metadata"]["annotations"][index]))


def nodes_by_rank(cluster: Cluster, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in pods_by_rank(cluster, name)]


def is_complete(cluster: Cluster, name: str) -> bool:
    conditions = cluster.get("job", "-n", "default", name)["status"].get("conditions") or []
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


def test_gangs_run_whole_in_rank_order_and_as_our_own_user(data_centre: Cluster, tmp_path: Path) -> None:
    with scheduler(data_centre, tmp_path):
        data_centre.apply(job("one-rack", 8, 1, {REQUIRED: RACK}, seconds=4))
        eventually(lambda: is_complete(data_centre, "one-rack"), "the job in one rack completes")
        hosts = nodes_by_rank(data_centre, "one-rack")
        assert hosts == sorted(hosts)
        assert len({host[:5] for host in hosts}) == 1
        notes = {REQUIRED: BLOCK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "4"}
        data_centre.apply(job("segments", 8, 2, notes, seconds=4))
        eventually(lambda: is_complete(data_centre, "segments"), "the job in segments completes")
        hosts = nodes_by_rank(data_centre, "segments")
        assert [len({host[:5] for host in hosts[first : first + 4]}) for first in (0, 4)] == [1, 1]
    check_replay(tmp_path / "journal")


def test_what_does_not_fit_is_left_whole_with_the_reason(data_centre: Cluster, tmp_path: Path) -> None:
    with scheduler(data_centre, tmp_path):
        data_centre.apply(job("wide", 3, 4, {REQUIRED: RACK}, seconds=2))

        def told() -> bool:
            events = data_centre.get(
                "events", "-n", "default", "--field-selector", "involvedObject.name=wide"
            )
            return any(
                "allows to fit only 2 out of 3 pod(s)" in event["message"] for event in events["items"]
            )

        eventually(told, "the job is told why it waits")
        assert set(nodes_by_rank(data_centre, "wide")) == {""}
    data_centre.kubectl("delete", "job", "-n", "default", "wide")


def test_in_the_shadow_nothing_is_written(data_centre: Cluster, tmp_path: Path) -> None:
    data_centre.apply(job("shadowed", 2, 1, {}, seconds=2))

    def decided() -> bool:
        files = (tmp_path / "journal").glob("*.jsonl")
        return any('"is":"Bind"' in file.read_text() for file in files)

    with scheduler(data_centre, tmp_path, "--shadow"):
        eventually(decided, "it decides")  # however long a busy machine takes to start it
    assert nodes_by_rank(data_centre, "shadowed") == ["", ""]  # it finished what it wrote, had it written
    data_centre.kubectl("delete", "job", "-n", "default", "shadowed")


@pytest.mark.parametrize("seconds", [2, 40], ids=["over-before-it-is-back", "still-running"])
def test_killed_at_any_moment_it_goes_on_where_it_was(
    data_centre: Cluster, tmp_path: Path, seconds: int
) -> None:
    names = [f"flow-{seconds}-{number}" for number in range(4)]  # as many as there are racks
    data_centre.apply(*(job(name, 4, 2, {REQUIRED: RACK}, seconds=seconds) for name in names))
    for round_ in range(3):
        with scheduler(data_centre, tmp_path / f"round-{round_}") as process:
            time.sleep(2.5 + 0.4 * round_)
            process.kill()
    with scheduler(data_centre, tmp_path / "last"):
        eventually(lambda: all(is_complete(data_centre, name) for name in names), "all complete", seconds=180)
    for name in names:
        assert len({host[:5] for host in nodes_by_rank(data_centre, name)}) == 1


def test_the_rest_of_a_gang_goes_where_its_first_pods_ended(data_centre: Cluster, tmp_path: Path) -> None:
    data_centre.apply(job("split", 4, 2, {REQUIRED: RACK}, seconds=1))
    eventually(lambda: len(nodes_by_rank(data_centre, "split")) == 4, "the pods are there")
    for pod in pods_by_rank(data_centre, "split")[:2]:  # as by a scheduler that was killed in the middle
        bind(data_centre, "default", pod["metadata"]["name"], "b2-r2-h1")

    def ended() -> int:
        return sum(pod["status"]["phase"] == "Succeeded" for pod in pods_by_rank(data_centre, "split"))

    eventually(lambda: ended() == 2, "the first pods end")
    with scheduler(data_centre, tmp_path):
        eventually(lambda: is_complete(data_centre, "split"), "the job completes")
    assert {host[:5] for host in nodes_by_rank(data_centre, "split")} == {"b2-r2"}


def test_a_job_set_is_one_gang(data_centre: Cluster, tmp_path: Path) -> None:
    template = job("unused", 2, 4, {REQUIRED: BLOCK}, seconds=3)["spec"]
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "pretrain", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": template}}]},
    }
    with scheduler(data_centre, tmp_path):
        data_centre.apply(body)

        def complete() -> bool:
            status = data_centre.get("jobset", "-n", "default", "pretrain").get("status") or {}
            return any(
                c["type"] == "Completed" and c["status"] == "True" for c in status.get("conditions") or []
            )

        eventually(complete, "the JobSet completes")
        label = "jobset.sigs.k8s.io/jobset-name=pretrain"
        pods = data_centre.get("pods", "-n", "default", "-l", label)["items"]
        assert len(pods) == 4
        assert len({pod["spec"]["nodeName"][:2] for pod in pods}) == 1, json.dumps(
            [pod["spec"]["nodeName"] for pod in pods]
        )
