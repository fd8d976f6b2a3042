"""Defaults of queued jobs, their Workloads, and pods that join one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.role_hash import role_hash
from bayplan.dialects.kueue.jobs.injection import injection_for
from bayplan.dialects.kueue.jobs.pod_adoption import with_workload_metadata
from bayplan.dialects.kueue.jobs.pod_group import excess_pods, group_workload
from bayplan.dialects.kueue.jobs.workload import job_workload, updated_workload, workload_name
from bayplan.dialects.kueue.webhooks.job_defaults import JobSurroundings, default_job
from tests.support.api_objects import job, pod

Object = dict[str, Any]
K = "kueue.x-k8s.io/"
QUEUED = {K + "queue-name": "q"}
TEMPLATE: Object = {"spec": {"containers": [{"name": "c"}]}}


def made(kind: str, spec: Object, **metadata: Any) -> Object:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "n", "uid": "u", **metadata}, "spec": spec}


def queued_job(**metadata: Any) -> Object:
    known = {"uid": "u", **metadata}
    return job("x", copy.deepcopy(TEMPLATE), namespace="n", metadata=known, parallelism=2)


def grouped_pod(name: str, created: str = "", cpu: str = "1", **labels: str) -> Object:
    return pod(
        name,
        {"cpu": cpu},
        namespace="n",
        labels={**QUEUED, K + "pod-group-name": "g", **labels},
        annotations={K + "pod-group-total-count": "2"},
        metadata={"uid": name, "creationTimestamp": created},
    )


def test_a_queued_job_is_suspended_and_any_other_is_unchanged() -> None:
    assert default_job(queued_job(labels=QUEUED))["spec"]["suspend"] is True
    assert default_job(queued_job()) == queued_job()
    assert default_job(queued_job(labels=QUEUED), JobSurroundings(owned=True)) == queued_job(labels=QUEUED)
    assert default_job(queued_job(), JobSurroundings(default_queue=True))["metadata"]["labels"] == {
        K + "queue-name": "default"
    }


def test_pods_of_a_deployment_are_gated_one_by_one() -> None:
    given = made("Deployment", {"template": copy.deepcopy(TEMPLATE)}, labels=QUEUED)
    metadata = default_job(given)["spec"]["template"]["metadata"]
    assert metadata["labels"] == {**QUEUED, K + "managed": "true"}
    assert metadata["annotations"] == {K + "pod-suspending-parent": "deployment"}
    assert "metadata" not in given["spec"]["template"], "the one given is not changed"


def test_pods_of_an_elastic_job_are_gated() -> None:
    found = default_job(queued_job(labels=QUEUED, annotations={K + "elastic-job": "true"}))
    assert found["spec"]["template"]["spec"]["schedulingGates"] == [{"name": K + "elastic-job"}]
    assert default_job(found) == found


def test_names_of_workloads_differ_for_every_job_and_fit_a_label() -> None:
    names = {workload_name("Job", "x", uid) for uid in "abc"} | {workload_name("JobSet", "x", "a")}
    assert len(names) == 4
    assert workload_name("Job", "x", "a", "2") not in names
    assert len(workload_name("LeaderWorkerSet", "y" * 200, "a")) == 63


def test_a_job_controls_its_workload() -> None:
    labels = {**QUEUED, K + "max-exec-time-seconds": "60"}
    found = job_workload(Field(queued_job(labels=labels)))
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "u", True)
    assert (found["spec"]["queueName"], found["spec"]["maximumExecutionTimeSeconds"]) == ("q", 60)
    assert found["metadata"]["labels"] == {K + "job-uid": "u"}


def test_each_replica_of_a_leader_worker_set_has_its_own_workload() -> None:
    group = {"size": 3, "workerTemplate": TEMPLATE}
    given = Field(made("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": group}))
    first, second = (job_workload(given, index) for index in range(2))
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert second["metadata"]["annotations"][K + "component-workload-index"] == "1"
    assert "controller" not in first["metadata"]["ownerReferences"][0]


def test_a_workload_is_rewritten_until_quota_is_reserved() -> None:
    today = job_workload(Field(queued_job(labels=QUEUED)))
    assert updated_workload(today, today) is None
    moved = job_workload(Field(queued_job(labels={K + "queue-name": "r"})))
    again = updated_workload(today, moved)
    assert again is not None and again["spec"]["queueName"] == "r"
    assert updated_workload(today, moved, serving=True) is None
    grown = copy.deepcopy(today)
    grown["spec"]["podSets"][0]["count"] = 5
    waiting = {**today, "metadata": {"name": "kept"}}
    assert updated_workload(waiting, grown) == {**waiting, "spec": grown["spec"]}
    reserved = {**waiting, "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}
    assert updated_workload(reserved, grown) is grown


def test_a_group_has_a_pod_set_for_each_role_and_leaves_out_the_youngest_excess() -> None:
    pods = [
        grouped_pod("a", "2026-01-01T00:00:03Z"),
        grouped_pod("b", "2026-01-01T00:00:01Z", cpu="2"),
        grouped_pod("c", "2026-01-01T00:00:02Z"),
    ]
    fields = [Field(one) for one in pods]
    assert [one.at("metadata", "name").text() for one in excess_pods(fields)] == ["a"]
    found = group_workload(fields)
    assert sorted(one["count"] for one in found["spec"]["podSets"]) == [1, 1]
    assert {one["name"] for one in found["metadata"]["ownerReferences"]} == {"b", "c"}
    assert found["metadata"]["name"] == "g"


@pytest.mark.parametrize("index", ["2", "-1", "x"])
def test_a_pod_index_must_be_below_the_group_size(index: str) -> None:
    with pytest.raises(ValueError, match="pod-group-pod-index"):
        group_workload([Field(grouped_pod("a", **{K + "pod-group-pod-index": index}))])


def test_roles_differ_by_what_decides_where_a_pod_can_run() -> None:
    spec: Object = {"containers": [{"name": "c", "image": "i"}]}
    assert role_hash(spec) == role_hash({"containers": [{"name": "d", "image": "j"}]})
    assert role_hash(spec) != role_hash({**spec, "nodeSelector": {"a": "b"}})
    ways = ({"key": "a", "operator": "Exists"}, {"operator": "Exists", "key": "a"})
    assert len({role_hash({**spec, "tolerations": [way]}) for way in ways}) == 1


def test_pods_of_a_queued_stateful_set_join_its_workload_once() -> None:
    owner = made("StatefulSet", {"replicas": 3, "template": TEMPLATE}, labels=QUEUED)
    alone: Object = {"kind": "Pod", "metadata": {"name": "x-0"}, "spec": {}}
    found = with_workload_metadata(alone, owner)
    assert found["metadata"]["annotations"][K + "pod-group-name"] == workload_name("StatefulSet", "x", "u")
    assert with_workload_metadata(found, owner) == found
    assert with_workload_metadata(alone, made("StatefulSet", {"template": TEMPLATE})) == alone


def test_a_pod_set_gets_the_labels_and_tolerations_of_its_flavors() -> None:
    flavor = {"spec": {"nodeLabels": {"a": "b"}, "tolerations": [{"key": "t"}]}}
    given = Field({"name": "main", "count": 2, "flavors": {"cpu": "f", "memory": "f"}})
    found = injection_for(given, Field({"count": 4}), {"f": flavor})
    assert (found.count, found.node_selector, found.tolerations) == (2, {"a": "b"}, ({"key": "t"},))
    assert found.gates == ()
