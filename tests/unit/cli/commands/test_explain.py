"""`bayplan explain` on a cluster in memory: the explanation of one gang."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from tests.support.queued_cluster import (
    EVENTS,
    GPU,
    JOBS,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    admitted,
    condition,
    furnish,
    golden,
    queued_cluster,
    queued_job,
    queued_workload,
    ruled,
    running_pod,
)


def use(pods: int, gpus: int) -> dict[str, str]:
    return {"cpu": str(8 * pods), GPU: str(pods * gpus)}


def owned(made: QueuedCluster, found: Object, name: str) -> Object:
    """A Workload of a Job that exists."""
    held = made.store.find(JOBS, "ml", name) or made.put(JOBS, queued_job(name, 1, 1))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
    owner["uid"] = held["metadata"]["uid"]
    return {**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}}


def event(name: str, about: str, ago: float, reason: str, message: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "involvedObject": {"kind": "Workload", "namespace": "ml", "name": about},
        "reason": reason,
        "message": message,
        "type": "Normal",
        "lastTimestamp": timestamp(NOW - ago),
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("explain")) as made:
        furnish(made)
        first = owned(made, queued_workload("job-train-1a2b3", 4, 2, required=RACK), "train")
        made.submit(first, admitted("left-queue", "a100", use(4, 2), {"h1": 2, "h2": 2}))
        made.submit(
            queued_workload("b", 6, 1),
            admitted("left-queue", "a100", use(6, 1), {"h3": 2, "h4": 1, "h5": 2, "h7": 1}),
        )
        made.put(PODS_KIND, running_pod("stray", "h8", 2))
        made.put(
            EVENTS, event("one", "job-train-1a2b3", 290, "Admitted", "Admitted by ClusterQueue left-queue")
        )
        made.put(EVENTS, event("other", "b", 290, "Admitted", "of somebody else"))
        said = condition("QuotaReserved", 120, "TopologyPlacementFailed", "no place", status="False")
        made.submit(
            owned(made, queued_workload("narrow", 2, 4, "right", required=RACK), "fit"),
            {"conditions": [said]},
        )
        made.submit(queued_workload("urgent", 2, 4, "left", required=RACK, priority=10))
        made.submit(queued_workload("first", 2, 2, "small", priority=5))
        made.submit(queued_workload("second", 2, 1, "small"))
        done = [condition("Finished", 200, "Succeeded", "Job finished successfully")]
        made.submit(queued_workload("done", 1, 1), {"conditions": done})
        for number in (1, 2):
            made.submit(owned(made, queued_workload(f"twin-{number}", 1, 0, "small"), "twins"))
        yield made


def test_an_admitted_gang_is_drawn_where_it_is(cluster: QueuedCluster) -> None:
    golden("explain-admitted", cluster.run("explain", "ml/job-train-1a2b3").stdout)


def test_a_job_is_explained_by_its_workload(cluster: QueuedCluster) -> None:
    by_job = cluster.run("explain", "train", "-n", "ml")
    assert by_job.stdout == cluster.run("explain", "ml/job-train-1a2b3").stdout
    assert by_job.exit_code == 0


def test_no_room_names_the_nearest_place_and_who_holds_it(cluster: QueuedCluster) -> None:
    golden("explain-no-room", cluster.run("explain", "ml/fit").stdout)


def test_who_has_to_leave_is_named(cluster: QueuedCluster) -> None:
    golden("explain-preempts", cluster.run("explain", "ml/urgent").stdout)


def test_a_gang_that_fits_shows_where_it_would_go(cluster: QueuedCluster) -> None:
    printed = cluster.run("explain", "ml/first").stdout
    assert "reason: fits; expected in the next scheduling cycle (PendingEvaluation)" in printed


def test_short_quota_tells_who_uses_it(cluster: QueuedCluster) -> None:
    golden("explain-quota", cluster.run("explain", "ml/second").stdout)


def test_a_gang_that_is_over_says_since_when(cluster: QueuedCluster) -> None:
    golden("explain-finished", cluster.run("explain", "ml/done").stdout)


def test_the_explanation_as_json(cluster: QueuedCluster) -> None:
    found = json.loads(cluster.run("explain", "ml/narrow", "-o", "json").stdout)
    assert found["name"] == "narrow" and found["job"] == "Job/fit"
    assert found["state"] == "pending" and found["position"] == 1
    lines = {one["title"]: one["lines"] for one in found["explanation"]}
    assert any("comes closest" in line for line in lines["closest domain"])
    assert json.loads(cluster.run("explain", "ml/done", "-o", "json").stdout)["state"] == "finished"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            "ml/nobody",
            "there is no Workload, pod group, job or pod ml/nobody; see: bayplan list gangs -n ml",
        ),
        ("mars/train", "there is no namespace mars"),
        ("ml/twins", "ml/twins has several Workloads, name one of them: twin-1, twin-2"),
    ],
)
def test_one_sentence_for_what_cannot_be_explained(cluster: QueuedCluster, asked: str, told: str) -> None:
    result = cluster.run("explain", asked)
    assert (result.exit_code, result.stderr) == (1, f"Error: {told}\n")


def test_checks_that_are_not_ready_are_named(cluster: QueuedCluster) -> None:
    check = {"controllerName": "example.com/budget"}
    cluster.put(*ruled(api_kinds.CHECKS, "budget", check))
    status = admitted("small-queue", "plain", {"cpu": "8"}, {"h1": 1})
    status["conditions"] = status["conditions"][:1]
    del status["admission"]["podSetAssignments"][0]["topologyAssignment"]
    status["admissionChecks"] = [
        {"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": timestamp(NOW - 60)}
    ]
    cluster.submit(queued_workload("checked", 1, 0, "small"), status)
    printed = cluster.run("explain", "ml/checked").stdout
    cluster.store.delete(api_kinds.WORKLOADS, "ml", "checked")  # other tests count what the queue holds
    assert "Workload ml/checked: quota reserved" in printed
    assert "reason: quota reserved, waiting for check budget" in printed
