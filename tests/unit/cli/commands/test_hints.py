"""Misspelt keys and levels, and queues that admit nothing: what people are told of them, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.assembly.webhooks import registry
from bayplan.backends.embedded.api.options import Options
from bayplan.dialects.kai.api import hints as kai
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.closest_name import closest, closest_key
from bayplan.dialects.kueue.fields.hints import object_hints
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.reviews import LookUps
from bayplan.runtime.webhooks.admission_review import admit
from tests.support.queued_cluster import (
    JOBS,
    RACK,
    Object,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_job,
    queued_workload,
)

RAK = RACK.removesuffix("ck") + "k"
MEANT = f"{RAK} is no level of a topology; did you mean {RACK}?"
MISTYPED = (
    "spec.template.metadata.annotations: kueue.x-k8s.io/podset-requried-topology is not known and has no"
    " effect; did you mean kueue.x-k8s.io/podset-required-topology?"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        yield made


def mistyped() -> Object:
    return queued_job("typo", 1, 1, podset_requried_topology=RACK)


def test_a_mistyped_key_is_told_with_the_one_that_was_meant() -> None:
    assert object_hints(mistyped()) == [MISTYPED]
    group = {"kind": "Pod", "metadata": {"annotations": {"kai.scheduler/segment-siez": "2"}}}
    (told,) = kai.advise(group)
    assert told.endswith("did you mean kai.scheduler/segment-size?")


@pytest.mark.parametrize(
    ("place", "key", "told"),
    [
        ("labels", "kueue.x-k8s.io/queue-nmae", "did you mean kueue.x-k8s.io/queue-name?"),
        ("labels", "kueue.x-k8.io/queue-name", "did you mean kueue.x-k8s.io/queue-name?"),
        ("annotations", "kueue.x-k8s.io/queue-name", "did you mean a label of that name?"),
        ("labels", "kueue.x-k8s.io/podset-required-topology", "did you mean an annotation of that name?"),
        ("annotations", "kueue.x-k8s.io/podset-required-topology", "did you mean spec.template.metadata"),
    ],
)
def test_keys_in_the_wrong_place_are_told(place: str, key: str, told: str) -> None:
    made = queued_job("x", 1, 1, "")
    made["metadata"][place] = {key: "left"}
    assert any(told in hint for hint in object_hints(made)), object_hints(made)


def test_keys_of_others_and_keys_that_are_like_none_of_ours_are_not_told() -> None:
    made = queued_job("x", 1, 1, podset_required_topology=RACK)
    notes = {"example.com/podset-required-topology": "x", "kueue.x-k8s.io/brand-new": "x", "queue-name": "x"}
    made["metadata"]["annotations"] = notes
    assert object_hints(made, {RACK}) == kai.advise(made) == []


def test_a_name_is_close_only_if_it_is_alike() -> None:
    assert closest("rak", ["rack", "block"]) == "rack"
    assert closest_key("a.b/rak", ["a.b/rack"]) == closest_key("rack", ["a.b/rack"]) == "a.b/rack"
    assert closest_key("a.b/zone", ["a.b/rack"]) == ""
    assert (
        closest("rack", ["rack"]) == closest("zone", ["rack"]) == closest("x" * 10_000, ["x" * 9_999]) == ""
    )


def test_a_webhook_warns_of_keys_and_levels() -> None:
    asked = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "CREATE",
            "object": mistyped(),
        },
    }
    rules = registry(LookUps(levels=lambda: {RACK}))
    assert admit(json.dumps(asked).encode(), rules, mutating=False).body["response"]["warnings"] == [MISTYPED]
    asked["request"]["object"] = queued_job("far", 1, 1, podset_required_topology=RAK)  # type: ignore[index]
    response = admit(json.dumps(asked).encode(), rules, mutating=False).body["response"]
    assert response["allowed"] and response["warnings"] == [MEANT]


def test_advice_that_fails_refuses_nothing() -> None:
    def broken() -> set[str]:
        raise KeyError("levels")

    resource = {"group": "batch", "version": "v1", "resource": "jobs"}
    kind = {"group": "batch", "version": "v1", "kind": "Job"}
    asked = {"uid": "1", "kind": kind, "resource": resource, "operation": "CREATE", "object": mistyped()}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
    answer = admit(body.encode(), registry(LookUps(levels=broken)), mutating=False)
    assert answer.body["response"]["allowed"] and isinstance(answer.failure, KeyError)


def test_the_cluster_in_memory_warns_too(cluster: QueuedCluster) -> None:
    register_webhooks(cluster.store)
    options = Options()
    cluster.store.create(JOBS, queued_job("far", 1, 1, podset_required_topology=RAK), "ml", options)
    assert MEANT in options.warnings


def test_plan_and_explain_tell_what_was_meant(cluster: QueuedCluster) -> None:
    planned = cluster.run("plan", "-f", "-", stdin=yaml.safe_dump(mistyped()))
    assert f"note: {MISTYPED}" in planned.stdout
    planned = cluster.run("plan", "-f", "-", stdin=yaml.safe_dump(queued_workload("far", 1, 1, required=RAK)))
    assert planned.exit_code == 3 and f"note: {MEANT}" in planned.stdout
    cluster.submit(queued_workload("far", 1, 1, required=RAK))
    assert f"note: {MEANT}" in cluster.run("explain", "ml/far").stdout


def test_a_job_of_the_scheduler_is_explained_with_what_was_meant(cluster: QueuedCluster) -> None:
    made = queued_job("far", 1, 1, "", podset_required_topology=RAK)
    made["spec"]["template"]["spec"]["schedulerName"] = "bayplan"
    made["spec"]["suspend"] = False
    cluster.put(JOBS, made)
    assert f"note: {MEANT}" in cluster.run("explain", "ml/far").stdout


def test_a_local_queue_is_active_only_if_its_cluster_queue_admits(cluster: QueuedCluster) -> None:
    def entrances() -> dict[str, Object]:
        found = json.loads(cluster.run("list", "queues", "-o", "json").stdout)
        return {one["name"]: one for one in found["localQueues"]}

    assert all(one["active"] and not one["reason"] for one in entrances().values())
    cluster.store.patch(api_kinds.CLUSTER_QUEUES, "", "left-queue", {"spec": {"stopPolicy": "Hold"}})
    cluster.store.patch(api_kinds.LOCAL_QUEUES, "ml", "right", {"spec": {"stopPolicy": "Hold"}})
    cluster.store.delete(api_kinds.CLUSTER_QUEUES, "", "small-queue")
    found = entrances()
    assert not any(one["active"] for one in found.values())
    assert found["left"]["reason"] == "ClusterQueue left-queue is not active: it is stopped (spec.stopPolicy)"
    assert found["right"]["reason"] == "it is stopped (spec.stopPolicy)"
    assert found["small"]["reason"] == "there is no ClusterQueue small-queue"
    (row,) = [line for line in cluster.run("list", "queues").stdout.splitlines() if " left  " in line]
    assert row.endswith("no       ClusterQueue left-queue is not active: it is stopped (spec.stopPolicy)")


def test_an_admitted_gang_without_topology_says_on_which_hosts_its_pods_run(cluster: QueuedCluster) -> None:
    status = admitted("small-queue", "plain", {"cpu": "16"}, {"h1": 2})
    del status["admission"]["podSetAssignments"][0]["topologyAssignment"]
    cluster.submit(queued_workload("flat", 2, 0, "small"), status)
    for number in range(2):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"flat-{number}", "namespace": "ml"}}
        body["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "flat"}  # type: ignore[index]
        body["spec"] = {"nodeName": "h3", "containers": [{"name": "c", "image": "i"}]}
        cluster.put(PODS_KIND, body)
    assert "pods run on: h3 (2 pods)" in cluster.run("explain", "ml/flat").stdout
    by_pod = cluster.run("explain", "ml/flat-1")
    assert by_pod.stdout == cluster.run("explain", "ml/flat").stdout
