"""The pod grouper on Ray clusters and Grove PodGangs, and its errors."""

from __future__ import annotations

import pytest

from bayplan.dialects.kai.api.names import PREEMPTIBILITY, PREFERRED, PRIORITY_LABEL, REQUIRED, TOPOLOGY_NAME
from bayplan.dialects.kai.api.pod_group import Constraint
from tests.support.kai_owners import Object, group, made, owned_pod, thing

HALL = {TOPOLOGY_NAME: "hall", REQUIRED: "rack"}


def pod_gang(spec: Object | None = None, labels: Object | None = None, notes: Object | None = None) -> Object:
    parts = [{"name": "a", "minReplicas": 2, "podReferences": [{"namespace": "ns", "name": "pod"}]}]
    return thing(
        "scheduler.grove.io/v1alpha1", "PodGang", {"podgroups": parts, **(spec or {})}, labels, notes, "gang"
    )


CLIQUE = owned_pod({"grove.io/podgang": "gang"})
SET = thing("grove.io/v1alpha1", "PodCliqueSet", name="set")


def test_pod_gangs_inherit_from_their_pod_clique_set() -> None:
    labels = {PRIORITY_LABEL: "high", PREEMPTIBILITY: "preemptible", "team": "x", "kept": "far"}
    owner = thing("grove.io/v1alpha1", "PodCliqueSet", labels=labels, notes=HALL)
    found = group(CLIQUE, owner, around=(pod_gang({"priorityClassName": "low"}, labels={"kept": "near"}),))
    assert (found.priority_class, found.preemptibility) == ("high", "preemptible")
    assert found.labels == {**labels, "kept": "near"}
    assert (found.constraint, found.minimum) == (Constraint("hall", "rack"), 2)


def test_pod_gangs_inherit_from_their_dynamo_graph_deployment() -> None:
    graph = thing("nvidia.com/v1alpha1", "DynamoGraphDeployment", labels={PREEMPTIBILITY: "preemptible"})
    assert group(CLIQUE, SET, graph, around=(pod_gang(),)).preemptibility == "preemptible"


def test_a_pod_gang_may_name_a_kai_topology() -> None:
    packed = {"topologyConstraint": {"packConstraint": {"preferred": "host"}}}
    found = group(CLIQUE, SET, around=(pod_gang(packed, notes={TOPOLOGY_NAME: "hall"}),))
    assert found.constraint == Constraint("hall", "", "host")


PART: Object = {"name": "a", "minReplicas": 1, "podReferences": []}


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ({"minReplicas": None}, "missing required 'minReplicas' field"),
        ({"minReplicas": 0}, "invalid 'minReplicas' field. Must be greater than 0"),
        ({"podReferences": None}, "missing required 'podReferences' field"),
        ({"name": None}, "missing required 'name' field"),
        (
            {"podReferences": [{"namespace": "other", "name": "p"}]},
            "cross-namespace pod reference not allowed",
        ),
        ({"topologyConstraint": {"packConstraint": {"required": "rack"}}}, "topology name cannot be empty"),
    ],
)
def test_an_invalid_part_of_a_pod_gang_is_an_error_with_its_index(part: Object, wanted: str) -> None:
    found = made(CLIQUE, SET, around=(pod_gang({"podgroups": [PART, {**PART, **part}]}),))
    assert found.group is None and wanted in found.error
    assert found.error.startswith("failed to parse spec.podgroups[1] from PodGang ns/gang. Err: ")


# ── Ray ────────────────────────────────────────────────────────────────────────────────────────────


def ray(*workers: Object) -> Object:
    return thing(
        "ray.io/v1", "RayCluster", {"headGroupSpec": {}, "workerGroupSpecs": list(workers)}, name="rc"
    )


def test_worker_groups_without_replicas_do_not_count_for_the_minimum() -> None:
    found = group(owned_pod(), ray({"groupName": "a"}, {"groupName": "b", "replicas": 0}, {"replicas": 2}))
    assert [(one.name, one.minimum) for one in found.sub_groups] == [("headgroup", 1), ("worker-group-2", 2)]
    assert found.minimum == 3


def test_a_level_without_a_topology_is_a_flaw() -> None:
    workers = {
        "groupName": "a",
        "replicas": 1,
        "template": {"metadata": {"annotations": {PREFERRED: "rack"}}},
    }
    found = made(owned_pod(), ray(workers))
    assert found.group is not None and found.group.flaw == found.error
    assert found.error.startswith(f"topology annotation ({TOPOLOGY_NAME}) is required for workerGroupSpecs.a")


def test_the_active_cluster_of_a_service_comes_before_the_pending_one() -> None:
    status = {f"{state}ServiceStatus": {"rayClusterName": state} for state in ("pending", "active")}
    owner = {**thing("ray.io/v1", "RayService"), "status": status}
    active, pending = ray({"replicas": 4}), ray({"replicas": 8})
    active["metadata"]["name"], pending["metadata"]["name"] = "active", "pending"
    assert group(owned_pod(), owner, around=(active, pending)).minimum == 5


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_a_ray_job_without_a_cluster_is_an_error(kind: str) -> None:
    found = made(owned_pod(), thing("ray.io/v1", kind, {"suspend": False}))
    assert found.group is None and found.error.startswith(
        f"failed to extract rayClusterName for ns/own of kind {kind}."
    )
