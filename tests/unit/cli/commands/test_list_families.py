"""`bayplan list gangs` and `bayplan explain` for gangs of every family, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP as KAI_GROUP
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kube.gang_api.gates import GROUP, V1BETA1
from tests.support.queued_cluster import (
    JOBS,
    NOW,
    Object,
    QueuedCluster,
    furnish,
    queued_cluster,
    queued_job,
    queued_workload,
    template,
)

GROUPS = Kind(GROUP, V1BETA1, "PodGroup", "podgroups")


def our_pod(name: str, gpus: int = 1, **spec: Any) -> Object:
    """A pod that names our scheduler."""
    made = {**template(gpus)["spec"], "schedulerName": "bayplan", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": made}


def our_job(name: str, pods: int, *, suspend: bool = False, scheduler: str = "bayplan") -> Object:
    made = queued_job(name, pods, 1, queue="")
    made["spec"]["suspend"] = suspend
    made["spec"]["template"]["spec"]["schedulerName"] = scheduler
    return made


def put_job(made: QueuedCluster, obj: Object, nodes: tuple[str, ...] = ()) -> None:
    """A Job with its pods; the first ones have these nodes and started five minutes ago."""
    name = obj["metadata"]["name"]
    uid = made.put(JOBS, obj)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    if obj["spec"]["suspend"]:
        return
    for number in range(obj["spec"]["parallelism"]):
        node = {"nodeName": nodes[number]} if number < len(nodes) else {}
        body = our_pod(f"{name}-{number}", **{**obj["spec"]["template"]["spec"], **node})
        body["metadata"]["ownerReferences"] = [owner]
        made.put(PODS_KIND, body)
        if node:
            status = {"phase": "Running", "startTime": timestamp(NOW - 300)}
            made.store.patch(PODS_KIND, "ml", f"{name}-{number}", {"status": status}, subresource="status")


def put_group(made: QueuedCluster, name: str, pods: int) -> None:
    policy = {"gang": {"minCount": pods}}
    origin = {"workloadName": "w", "templateName": "t"}
    spec = {"schedulingPolicy": policy, "workloadRef": origin}
    made.put(GROUPS, {"metadata": {"name": name, "namespace": "ml"}, "spec": spec})
    for number in range(pods):
        made.put(PODS_KIND, our_pod(f"{name}-p{number}", 4, schedulingGroup={"podGroupName": name}))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("families")) as made:
        furnish(made)
        made.submit(queued_workload("waits", 1, 4, "small"))
        put_job(made, our_job("train", 4), ("h1", "h1", "h2", "h2"))
        put_job(made, our_job("asleep", 2, suspend=True))
        put_job(made, our_job("elsewhere", 1, scheduler="default-scheduler"))
        put_job(made, queued_job("unseen", 2, 1))
        put_group(made, "ring", 9)
        made.put(PODS_KIND, our_pod("solo"))
        made.put(PODS_KIND, our_pod("placed", nodeName="h5"))
        done = our_job("done", 1, suspend=True)
        made.put(JOBS, done)
        over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(NOW - 60)}
        made.store.patch(JOBS, "ml", "done", {"status": {"conditions": [over]}}, subresource="status")
        group: Object = {"metadata": {"name": "pg-a-b-1", "namespace": "ml"}, "spec": {"minMember": 1}}
        made.put(KAI_GROUP, group)
        body = our_pod("a-b-0")
        body["metadata"]["annotations"] = {"pod-group-name": "pg-a-b-1"}
        made.put(PODS_KIND, body)
        yield made


def told(cluster: QueuedCluster, name: str) -> list[str]:
    result = cluster.run("explain", name)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def refused(cluster: QueuedCluster, *arguments: str) -> str:
    result = cluster.run(*arguments)
    assert result.exit_code == 1 and result.stdout == "", result.output
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    return result.stderr.removeprefix("Error: ").rstrip()


def test_gangs_of_every_api_are_listed_once(cluster: QueuedCluster) -> None:
    records = json.loads(cluster.run("list", "gangs", "-n", "ml", "-o", "json").stdout)
    states = {(one["kind"], one["name"]): one["state"] for one in records}
    assert states == {
        ("Workload", "waits"): "pending",
        ("PodGroup", "pg-a-b-1"): "unknown",
        ("Job", "train"): "running",
        ("Job", "asleep"): "suspended",
        ("Job", "unseen"): "pending",
        ("PodGroup", "ring"): "pending",
        ("Pod", "solo"): "pending",
        ("Pod", "placed"): "running",
    }
    assert len(records) == len(states)


def test_the_table_says_why_each_waits_and_where_each_runs(cluster: QueuedCluster) -> None:
    lines = cluster.run("list", "gangs", "-n", "ml", "-o", "wide").stdout.splitlines()
    rows = {line.split()[2]: line for line in lines if line.startswith("ml")}
    assert "rack b1/r1, 2 hosts" in rows["train"]
    assert "spec.suspend is true" in rows["asleep"]
    assert "names the queue left and has no Workload yet" in rows["unseen"]
    assert "of 9 pods fit" in rows["ring"]


def test_a_running_job_is_explained_by_its_hosts_rack_and_start(cluster: QueuedCluster) -> None:
    assert told(cluster, "ml/train") == [
        "Job ml/train: running",
        "  needs 4 pods at once",
        "  4 pods with a node, 0 without",
        "where: rack b1/r1, 2 hosts",
        "  h1: 2 pods",
        "  h2: 2 pods",
        "running since: 2027-01-15 07:55:00 UTC, 5m ago",
    ]


def test_a_pod_of_a_job_stands_for_it(cluster: QueuedCluster) -> None:
    assert told(cluster, "ml/train-1") == told(cluster, "ml/train")
    assert told(cluster, "ml/pod/train-1") == told(cluster, "ml/job/train")


def test_a_pod_alone_that_runs_says_where(cluster: QueuedCluster) -> None:
    lines = told(cluster, "ml/placed")
    assert lines[0] == "Pod ml/placed: running" and "where: rack b2/r1, host h5" in lines


def test_jobs_that_are_in_no_queue_say_why(cluster: QueuedCluster) -> None:
    assert told(cluster, "ml/asleep")[0] == "Job ml/asleep: suspended"
    assert told(cluster, "ml/done")[0] == "Job ml/done: finished (Complete)"
    foreign = told(cluster, "ml/elsewhere")
    assert foreign[0] == "Job ml/elsewhere: not scheduled by Bayplan"
    assert "schedulerName: bayplan" in foreign[2]
    assert "has no Workload yet" in told(cluster, "ml/unseen")[1]


def test_groups_of_another_job_are_not_told(cluster: QueuedCluster) -> None:
    assert told(cluster, "ml/a-b")[0].startswith("PodGroup ml/pg-a-b-1")
    assert "there is no Workload, pod group, job or pod ml/a" in refused(cluster, "explain", "ml/a")


def test_several_objects_of_one_name_are_listed(cluster: QueuedCluster) -> None:
    put_group(cluster, "train", 1)
    try:
        assert refused(cluster, "explain", "ml/train") == (
            "ml/train is the name of a Job, a PodGroup;"
            " explain one of them: ml/job/train or ml/podgroup/train"
        )
        assert told(cluster, "ml/podgroup/train")[0].startswith("PodGroup ml/train")
        assert told(cluster, "ml/job/train")[0] == "Job ml/train: running"
    finally:
        cluster.store.delete(GROUPS, "ml", "train")
        cluster.store.delete(PODS_KIND, "ml", "train-p0")


def test_what_is_not_there_is_told_with_what_comes_close(cluster: QueuedCluster) -> None:
    see = "see: bayplan list gangs -n"
    nothing = "there is no Workload, pod group, job or pod"
    assert refused(cluster, "explain", "ml/trian") == f"{nothing} ml/trian; did you mean train?; {see} ml"
    assert refused(cluster, "explain", "asleep").startswith(
        f"{nothing} default/asleep; there is one in namespace ml; "
    )
    assert refused(cluster, "explain", "mll/train") == "there is no namespace mll; did you mean ml?"
    for text in ("", "ml/", "/train", "  "):
        assert refused(cluster, "explain", text) == f"{text!r} names no gang; give NAME or NAMESPACE/NAME"


def test_a_cluster_without_queues_lists_gangs_of_other_families(tmp_path: Path) -> None:
    with queued_cluster(tmp_path, defined=False) as bare:
        bare.put(PODS_KIND, {**our_pod("solo"), "metadata": {"name": "solo", "namespace": "default"}})
        listed = bare.run("list", "gangs")
        assert listed.exit_code == 0 and "Pod    solo   pending" in listed.stdout
        assert told(bare, "solo")[0] == "Pod default/solo: pending"
        for what in ("queues", "topologies"):
            assert "has no queues: it does not serve workloads" in refused(bare, "list", what)
