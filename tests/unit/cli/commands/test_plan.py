"""`bayplan plan` on a cluster in memory: what would happen to a gang, without submitting it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from bayplan.dialects.api import Kind
from bayplan.dialects.kueue.names import api_kinds
from tests.support.queued_cluster import (
    GPU,
    RACK,
    Object,
    QueuedCluster,
    admitted,
    furnish,
    golden,
    queued_cluster,
    queued_job,
    queued_workload,
    ruled,
)

PRIORITIES = Kind(
    "kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("plan")) as made:
        furnish(made)
        usage = {"cpu": "32", GPU: "16"}
        made.submit(
            queued_workload("a", 4, 4),
            admitted("left-queue", "a100", usage, {"h1": 1, "h2": 1, "h3": 1, "h4": 1}),
        )
        made.put(
            PRIORITIES,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": PRIORITIES.kind,
                "metadata": {"name": "high"},
                "value": 9,
            },
        )
        made.submit(queued_workload("waits", 1, 4, "small"))
        yield made


def plan(cluster: QueuedCluster, *documents: Object, options: tuple[str, ...] = ()) -> Result:
    return cluster.run("plan", "-f", "-", *options, stdin=yaml.safe_dump_all(documents))


def test_a_job_that_fits_is_drawn_where_it_would_go(cluster: QueuedCluster) -> None:
    result = plan(cluster, queued_job("new", 2, 4, "right", podset_required_topology=RACK))
    assert result.exit_code == 0
    golden("plan-admitted", result.stdout)


def test_later_documents_see_what_earlier_ones_took(cluster: QueuedCluster) -> None:
    wish = {"podset_required_topology": RACK}
    result = plan(cluster, *(queued_job(name, 2, 4, "right", **wish) for name in ("one", "two", "three")))
    assert result.exit_code == 3
    golden("plan-in-order", result.stdout)


def test_the_gangs_that_it_would_preempt(cluster: QueuedCluster) -> None:
    result = plan(
        cluster,
        queued_workload("urgent", 4, 4, "left", required="example.com/block", priority=5),
        queued_workload("more", 4, 4, "left", priority=5),
    )
    assert result.exit_code == 3
    golden("plan-preempts", result.stdout)


def test_nothing_is_written(cluster: QueuedCluster) -> None:
    before = cluster.store.version
    plan(cluster, queued_job("new", 2, 4, "right"), queued_workload("urgent", 8, 4, "left", priority=5))
    assert cluster.store.version == before


def test_a_strict_queue_keeps_its_order(cluster: QueuedCluster) -> None:
    cluster.submit(queued_workload("greedy", 8, 4, "small"))
    try:
        result = plan(cluster, queued_workload("tiny", 1, 0, "small"))
        assert result.exit_code == 3
        assert result.stdout.startswith(
            "Workload ml/tiny: would be pending: behind ml/greedy, at position 3 of 3\n"
        )
    finally:
        cluster.store.delete(api_kinds.WORKLOADS, "ml", "greedy")


def test_fewer_pods_that_fit_are_suggested(cluster: QueuedCluster) -> None:
    result = plan(cluster, queued_workload("large", 6, 4, "right"))
    assert result.exit_code == 3
    assert "request 4 instead of 6 pods: that fits now" in result.stdout


def test_priority_classes_count(cluster: QueuedCluster) -> None:
    rest, labelled = queued_workload("rest", 4, 4, "right"), queued_job("vip", 4, 4, "left")
    labelled["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    found = json.loads(plan(cluster, rest, labelled, options=("-o", "json")).stdout)
    assert found["gangs"][1]["preempts"] == ["ml/a"]
    labelled["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "unheard"
    result = plan(cluster, labelled)
    assert (result.exit_code, result.stderr) == (
        2,
        "stdin: line 1: there is no WorkloadPriorityClass unheard\n",
    )


def test_why_no_gang_may_be_preempted(cluster: QueuedCluster) -> None:
    told = plan(cluster, queued_workload("x", 6, 4, "left", priority=9)).stdout
    assert (
        "preempts no gang: it requests more than the nominal quota of left-queue, and may not preempt" in told
    )


def test_the_answer_as_json(cluster: QueuedCluster) -> None:
    found = json.loads(plan(cluster, queued_job("new", 2, 4, "right"), options=("-o", "json")).stdout)
    (gang,) = found["gangs"]
    assert found["exitStatus"] == 0 and gang["admitted"] is True
    (given,) = gang["admission"]["podSetAssignments"]
    assert given["flavors"][GPU] == "a100" and given["topologyAssignment"]["levels"] == [
        "kubernetes.io/hostname"
    ]


def test_the_older_version_is_understood(cluster: QueuedCluster) -> None:
    old = {**queued_workload("old", 1, 4, "right"), "apiVersion": "kueue.x-k8s.io/v1beta1"}
    assert plan(cluster, old).exit_code == 0


def hollow() -> Object:
    made = queued_job("x", 1, 1)
    made["spec"]["template"]["spec"]["containers"] = [None]
    return made


def nameless() -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            queued_job("x", 1, 1, "left2"),
            "Job ml/x: there is no LocalQueue left2 in namespace ml; there are left, right, small",
        ),
        (queued_workload("x", 1, 1, namespace="mars"), "Workload mars/x: there is no namespace mars"),
        (queued_workload("a", 1, 1), "Workload ml/a is in the cluster already; see: bayplan explain ml/a"),
        (nameless(), "Job has no name; set metadata.name"),
        (hollow(), "Job ml/x: spec.template.spec.containers[0]"),
        ({**queued_workload("x", 1, 1), "spec": None}, "Workload ml/x: spec"),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}, "Secret is not a gang"),
    ],
)
def test_bad_input_is_reported_in_one_sentence(cluster: QueuedCluster, document: Object, told: str) -> None:
    result = plan(cluster, document)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"stdin: line 1: {told}") and result.stderr.count("\n") == 1


def test_what_the_api_would_refuse_is_refused(cluster: QueuedCluster) -> None:
    result = plan(cluster, queued_job("x", 1, 1, "left", podset_required_topology="not a label!"))
    assert result.exit_code == 2 and "podset-required-topology" in result.stderr


def test_files_that_cannot_be_read(cluster: QueuedCluster, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    for name, told in (
        (empty, "is empty: there is no object in it"),
        (tmp_path / "no.yaml", "there is no such file"),
    ):
        result = cluster.run("plan", "-f", str(name))
        assert (result.exit_code, result.stderr) == (2, f"{name}: {told}\n")


def test_an_admission_check_is_named(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as cluster:
        furnish(cluster)
        cluster.put(*ruled(api_kinds.CHECKS, "budget", {"controllerName": "example.com/budget"}))
        queue: Any = cluster.store.get(api_kinds.CLUSTER_QUEUES, "", "small-queue")
        queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}
        cluster.store.update(api_kinds.CLUSTER_QUEUES, "", "small-queue", queue)
        result = plan(cluster, queued_workload("x", 1, 0, "small"))
    assert result.exit_code == 0
    assert result.stdout.startswith("Workload ml/x: would be admitted now, and start after check budget\n")
