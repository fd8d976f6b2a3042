"""`bayplan list` and `bayplan explain` for pod groups and their queues, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from bayplan.cli.live.list_groups import fair_queue_records
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE, TOPOLOGY
from bayplan.dialects.kai.api.wire import QueueSpecWire, QueueWire
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.dialects.kube.fields.times import timestamp
from tests.support.api_objects import container, job, pod
from tests.support.queued_cluster import JOBS, NOW, Object, QueuedCluster, queued_cluster

NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
RACK = "example.com/rack"
IN_RACK = {"topology": "hall", "requiredTopologyLevel": RACK}


AMPLE = {"cpu": {"quota": -1, "limit": -1}}


def grouped_pod(name: str, sub_group: str = "", group: str = "pg-train-1", **spec: str) -> Object:
    labels = {"kai.scheduler/subgroup-name": sub_group} if sub_group else {}
    notes = {"pod-group-name": group}
    whole: Object = {"schedulerName": "bayplan", **spec}
    return pod(name, {"cpu": "2"}, namespace="default", labels=labels, annotations=notes, **whole)


@contextmanager
def two_racks(folder: Path) -> Iterator[QueuedCluster]:
    """Two racks of one node for two pods."""
    with queued_cluster(folder) as made:
        for name in ("n1", "n2"):
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "conditions": ready}
            labels = {RACK: f"rack-{name}", "kubernetes.io/hostname": name}
            made.put(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        made.put(TOPOLOGY, {"metadata": {"name": "hall"}, "spec": {"levels": [{"nodeLabel": RACK}]}})
        made.put(QUEUE, {"metadata": {"name": "team"}, "spec": {"resources": AMPLE}})
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """A group of two segments of which one is too large."""
    with two_racks(tmp_path_factory.mktemp("groups")) as made:
        parts = [
            {"name": name, "minMember": count, "topologyConstraint": IN_RACK}
            for name, count in (("head", 2), ("tail", 3))
        ]
        meta: Object = {"name": "pg-train-1", "namespace": "default"}
        spec: Object = {"queue": "team", "minMember": 5, "subGroups": parts}
        said = {"type": "UnschedulableOnNodePool", "reason": "PodSchedulingErrors", "message": "no room"}
        made.put(POD_GROUP, {"metadata": meta, "spec": spec})
        told = {"status": {"phase": "Pending", "pending": 5, "schedulingConditions": [said]}}
        made.store.patch(POD_GROUP, "default", "pg-train-1", told, subresource="status")
        for number in range(5):
            made.put(PODS, grouped_pod(f"p{number}", "head" if number < 2 else "tail"))
        yield made


def run(cluster: QueuedCluster, *arguments: str) -> Any:
    result = cluster.run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_groups_are_listed_with_what_they_wait_for(cluster: QueuedCluster) -> None:
    lines = [line.split() for line in run(cluster, "list", "gangs", "-n", "default").splitlines()]
    assert lines[-2][:3] == ["NAMESPACE", "PODGROUP", "QUEUE"]
    assert lines[-1][:3] == ["default", "pg-train-1", "team"]
    assert lines[-1][-3:] == ["PodSchedulingErrors:", "no", "room"]
    (record,) = json.loads(run(cluster, "list", "gangs", "-n", "default", "-o", "json"))
    assert (record["kind"], record["state"], record["pending"]) == ("PodGroup", "pending", 5)
    assert record["expectedStart"]["message"].startswith("never as things are"), "three pods fit in no rack"


def test_a_group_is_expected_to_start_when_the_job_before_it_has_used_its_limit(tmp_path: Path) -> None:
    with two_racks(tmp_path) as made:
        shape = {"spec": {"restartPolicy": "Never", "containers": [container({"cpu": "2"})]}}
        owner = made.put(JOBS, job("before", shape, 4, namespace="default", activeDeadlineSeconds=3600))
        uid = owner["metadata"]["uid"]
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "before",
            "uid": uid,
            "controller": True,
        }
        put_group(made, "first", 0, minMember=4)
        for number in range(4):
            one = grouped_pod(f"first-{number}", group="first", nodeName=f"n{number // 2 + 1}")
            one["metadata"]["ownerReferences"] = [reference]
            made.put(PODS, one)
            begun = {"phase": "Running", "startTime": timestamp(NOW - 600)}
            made.store.patch(PODS, "default", f"first-{number}", {"status": begun}, subresource="status")
        put_group(made, "next", 2)
        records = json.loads(run(made, "list", "gangs", "-n", "default", "-o", "json"))
        found = {one["name"]: one["expectedStart"] for one in records if one["kind"] == "PodGroup"}
        assert found["next"]["latest"] == timestamp(NOW + 3000) and found["next"]["after"] == [
            "default/first"
        ]
        assert "EXPECTED START" in run(made, "list", "gangs", "-n", "default")
        assert "expected start: likely " in run(made, "explain", "default/next")


def test_queues_of_groups_are_listed_with_what_is_theirs(cluster: QueuedCluster) -> None:
    lines = run(cluster, "list", "queues").splitlines()
    assert lines[-1].split() == ["team", "-", "100", "cpu", "unlimited", "unlimited", "0", "0", "-"]
    assert json.loads(run(cluster, "list", "queues", "-o", "json"))["queues"][0]["queue"] == "team"


def test_a_queue_that_leads_nowhere_is_listed_with_why(cluster: QueuedCluster) -> None:
    cluster.put(QUEUE, {"metadata": {"name": "stray"}, "spec": {"parentQueue": "gone"}})
    said = {"type": "Active", "status": "False", "reason": "ParentQueueDoesNotExist", "message": "no parent"}
    cluster.store.patch(QUEUE, "", "stray", {"status": {"conditions": [said]}}, subresource="status")
    line = next(one for one in run(cluster, "list", "queues").splitlines() if one.startswith("stray"))
    cluster.store.delete(QUEUE, "", "stray")
    assert line.split() == ["stray", "gone", *"------", "ParentQueueDoesNotExist:", "no", "parent"]


@pytest.mark.parametrize("name", ["pg-train-1", "p3", "train"])
def test_a_group_is_explained_part_by_part(cluster: QueuedCluster, name: str) -> None:
    lines = run(cluster, "explain", f"default/{name}").splitlines()
    assert lines[:5] == [
        "PodGroup default/pg-train-1: pending",
        "  needs 5 pods at once",
        "  in queue team",
        "  head: 2 pods, 0 with a node, 2 needed, in one example.com/rack",
        "  tail: 3 pods, 0 with a node, 3 needed, in one example.com/rack",
    ]
    told = " ".join(lines[next(n for n, line in enumerate(lines) if line.startswith("reason: ")) :])
    assert "subgroup tail" in told and "topology hall" in told, "and not the head, which fits"
    assert "can allocate only 2 of 3 required pods" in told, "the nearest miss"
    assert "  5 x 2 cpu, priority 50" in lines, "that of the group"
    assert "closest: rack-n1 has room for 2 of 3 pods; it lacks 2 cpu" in lines


def put_group(made: QueuedCluster, name: str, pods: int, flaw: str = "", **spec: Any) -> None:
    notes = {"bayplan.dev/flaw": flaw} if flaw else {}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    made.put(POD_GROUP, {"metadata": meta, "spec": {"queue": "team", "minMember": pods, **spec}})
    for number in range(pods):
        made.put(PODS, grouped_pod(f"{name}-{number}", group=name))


def test_an_explanation_says_what_was_requested_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    with two_racks(tmp_path) as made:
        small = {"cpu": {"quota": 1000, "limit": 1000}}
        made.put(QUEUE, {"metadata": {"name": "small"}, "spec": {"resources": small}})
        put_group(made, "elastic", 2, minMember=1)
        made.put(PODS, grouped_pod("elastic-2", group="elastic", nodeName="n1"))
        put_group(made, "large", 3, topologyConstraint=IN_RACK)
        put_group(made, "costly", 2, queue="small")
        put_group(made, "lost", 1, queue="nowhere")
        put_group(made, "bad", 1, flaw="invalid segment size x on pod default/bad-0, err: no")
        told = {
            name: run(made, "explain", f"default/{name}").splitlines()
            for name in ("elastic", "large", "costly", "lost", "bad")
        }
    assert told["elastic"][0] == "PodGroup default/elastic: partly running"
    assert told["elastic"][1] == "  needs 1 pod at once, and takes 2 more if there is room"
    assert told["bad"][0] == "PodGroup default/bad: invalid"
    assert "reason: Queue 'nowhere' does not exist: create it, or set spec.queue" in " ".join(told["lost"])
    todo = {name: next((one for one in lines if one.startswith("what")), "") for name, lines in told.items()}
    assert todo["large"].startswith(
        f"what to do: wait until there is one {RACK} with capacity for 3 pods, or "
    )
    assert todo["costly"].startswith(
        "what to do: raise spec.resources.cpu.limit of queue small, or request le"
    )
    assert todo["bad"].startswith(
        "what to do: set kai.scheduler/segment-size to a whole number above 0 in the "
    )
    assert not any(line.startswith("gang API") for lines in told.values() for line in lines), "another family"


def test_what_a_rack_lacks_is_explained_if_pods_ask_for_different_resources(tmp_path: Path) -> None:
    with two_racks(tmp_path) as made:
        ample = {**AMPLE, "gpu": AMPLE["cpu"]}
        made.put(QUEUE, {"metadata": {"name": "devices"}, "spec": {"resources": ample}})
        put_group(made, "mixed", 2, queue="devices", minMember=3, topologyConstraint=IN_RACK)
        body = grouped_pod("mixed-gpu", group="mixed")
        body["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        made.put(PODS, body)
        lines = run(made, "explain", "default/mixed").splitlines()
    told = next(line for line in lines if line.startswith("reason: "))
    assert (
        "in the cluster to allocate the job. rack-n1 didn't have enough resource: GPUs, requested: 1, "
        in told
    )
    assert "rack-n1 didn't have enough resources: CPU cores, requested: 6, available: 4" in told
    assert "closest: rack-n1 has room for 2 of 3 pods; it lacks 1 gpu" in lines


def test_large_amounts_are_listed_to_the_last_digit() -> None:
    memory = {"quota": 12345678, "limit": 0.5}
    made = QueueWire(
        metadata=Metadata(name="big"), spec=convert({"resources": {"memory": memory}}, QueueSpecWire)
    )
    (row,) = fair_queue_records([made])
    assert (row["quota"], row["limit"]) == ("12345678M", "0.5M")


def test_a_limit_that_is_not_given_is_the_quota_and_a_queue_without_amounts_is_listed_too() -> None:
    own = QueueWire(
        metadata=Metadata(name="own"), spec=convert({"resources": {"gpu": {"quota": 4}}}, QueueSpecWire)
    )
    bare = QueueWire(metadata=Metadata(name="bare"))
    (of_own, of_bare) = fair_queue_records([own, bare])
    assert (of_own["quota"], of_own["limit"]) == ("4", "4")
    assert (of_bare["queue"], of_bare["quota"]) == ("bare", "")
