"""`bayplan list` on a cluster in memory: gangs, queues and topologies, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayplan.dialects.kueue.names import api_kinds
from tests.support.queued_cluster import (
    GPU,
    RACK,
    QueuedCluster,
    admitted,
    condition,
    furnish,
    golden,
    queued_cluster,
    queued_workload,
)


def use(pods: int, gpus: int) -> dict[str, str]:
    return {"cpu": str(8 * pods), GPU: str(pods * gpus)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("list")) as made:
        furnish(made)
        placed = {"h1": 2, "h2": 2}
        made.submit(
            queued_workload("train-a", 4, 2, required=RACK), admitted("left-queue", "a100", use(4, 2), placed)
        )
        placed = {"h3": 2, "h4": 1, "h5": 2, "h6": 1}
        made.submit(queued_workload("train-b", 6, 2), admitted("left-queue", "a100", use(6, 2), placed))
        leaving = admitted("right-queue", "a100", use(1, 2), {"h8": 1})
        leaving["conditions"].append(condition("Evicted", 60, "Preempted", "somebody needs the room"))
        made.submit(queued_workload("going", 1, 2, "right"), leaving)
        made.submit(queued_workload("wide", 3, 4, "right", required=RACK))
        made.submit(queued_workload("huge", 100, 4, "right"))
        made.submit(queued_workload("narrow", 2, 4, "left", required=RACK, priority=-1))
        made.submit(queued_workload("first", 1, 4, "small", priority=5))
        made.submit(queued_workload("second", 1, 1, "small"))
        made.submit(queued_workload("lost", 1, 1, "nowhere"))
        made.submit(queued_workload("off", 1, 1, active=False))
        yield made


def test_gangs_are_listed_with_their_one_reason(cluster: QueuedCluster) -> None:
    golden("list-gangs", cluster.run("list", "gangs", "-n", "ml").stdout)


def test_wide_adds_where_gangs_are(cluster: QueuedCluster) -> None:
    golden("list-gangs-wide", cluster.run("list", "gangs", "-A", "-o", "wide").stdout)


def test_gangs_as_json(cluster: QueuedCluster) -> None:
    found = {one["name"]: one for one in json.loads(cluster.run("list", "gangs", "-A", "-o", "json").stdout)}
    assert found["train-a"]["state"] == "admitted" and found["train-a"]["where"] == "rack b1/r1, 2 hosts"
    assert found["second"]["position"] == 2 and found["second"]["queueLength"] == 2
    assert found["huge"]["reason"] == "ExceedsMaxQuota"
    assert found["lost"]["reason"] == "Misconfigured"
    assert found["going"]["state"] == "evicting"
    assert found["off"]["state"] == "inactive"


def test_the_namespace_of_the_context_is_where_to_look(cluster: QueuedCluster) -> None:
    result = cluster.run("list", "gangs")
    assert result.stdout == ""
    assert result.stderr == "no gangs in namespace default; -A lists all namespaces\n"
    assert result.exit_code == 0


def test_queues_are_listed_with_quota_and_local_queues(cluster: QueuedCluster) -> None:
    golden("list-queues", cluster.run("list", "queues").stdout)


def test_wide_queues_show_their_limits(cluster: QueuedCluster) -> None:
    golden("list-queues-wide", cluster.run("list", "queues", "-o", "wide").stdout)


def test_queues_as_json(cluster: QueuedCluster) -> None:
    found = json.loads(cluster.run("list", "queues", "-o", "json").stdout)
    left = next(one for one in found["clusterQueues"] if one["name"] == "left-queue")
    (gpu,) = [one for one in left["quota"] if one["resource"] == GPU]
    assert left["cohort"] == "all/team"
    assert {one["resource"]: one["unit"] for one in left["quota"]} == {GPU: "count", "cpu": "millicores"}
    assert left["active"] and left["queueingStrategy"] == "BestEffortFIFO"
    assert (gpu["used"], gpu["nominal"], gpu["borrowed"]) == (20, 16, 4)
    assert left["fairSharing"]["weightedShare"] == 125
    assert {one["name"] for one in found["localQueues"]} == {"left", "right", "small"}


def test_topologies_show_the_largest_gang_that_fits(cluster: QueuedCluster) -> None:
    golden("list-topologies", cluster.run("list", "topologies").stdout)


def test_topologies_as_json(cluster: QueuedCluster) -> None:
    (hall,) = json.loads(cluster.run("list", "topologies", "-o", "json").stdout)
    assert [one["domains"] for one in hall["levels"]] == [2, 4, 8]
    assert hall["levels"][1]["largestHosts"] == 1
    gpus = {one["resource"]: one for one in hall["levels"][0]["resources"]}[GPU]
    assert (gpus["free"], gpus["total"], gpus["largest"], gpus["unit"]) == (10, 32, 8, "count")
    assert hall["podRequests"] == {"cpuMillis": 8000, GPU: 4}


def test_a_queue_that_cannot_work_says_why(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as cluster:
        furnish(cluster)
        cluster.store.delete(api_kinds.FLAVORS, "", "plain")
        cluster.submit(queued_workload("stuck", 1, 1, "small"))
        told = "ClusterQueue small-queue is not active: there is no ResourceFlavor plain"
        assert told in cluster.run("list", "queues").stdout
        assert told in cluster.run("list", "gangs", "-A").stdout


def test_a_gang_that_is_pending_in_a_stopped_queue_is_listed_and_explained(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as cluster:
        furnish(cluster)
        policy = {"spec": {"stopPolicy": "HoldAndDrain"}}
        cluster.store.patch(api_kinds.CLUSTER_QUEUES, "", "small-queue", policy)
        drained = [
            condition("QuotaReserved", 60, "Pending", "The ClusterQueue is stopped", "False"),
            condition("Evicted", 60, "ClusterQueueStopped", "The ClusterQueue is stopped"),
            condition("Requeued", 60, "ClusterQueueStopped", "The ClusterQueue is stopped", "False"),
        ]
        cluster.submit(queued_workload("drained", 1, 1, "small"), {"conditions": drained})
        told = "on hold: ClusterQueue small-queue is not active: it is stopped"
        listed = cluster.run("list", "gangs", "-A")
        assert listed.exit_code == 0 and told in listed.stdout
        explained = cluster.run("explain", "drained", "-n", "ml")
        assert explained.exit_code == 0 and "is stopped" in explained.stdout


def test_one_sentence_when_something_is_wrong(cluster: QueuedCluster, tmp_path: Path) -> None:
    assert cluster.run("list", "gangs", "-n", "typo").stderr == "Error: there is no namespace typo\n"
    nowhere = QueuedCluster(cluster.store, tmp_path / "missing")
    result = nowhere.run("list", "queues")
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "missing" in result.stderr


def test_a_cluster_without_our_kinds_is_reported(tmp_path: Path) -> None:
    with queued_cluster(tmp_path, defined=False) as bare:
        result = bare.run("list", "queues")
    assert result.exit_code == 1
    assert "has no queues: it does not serve workloads of kueue.x-k8s.io" in result.stderr
    assert "bayplan install" in result.stderr and result.stderr.count("\n") == 1


def test_a_server_that_is_gone_is_reported(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as cluster:
        pass
    result = cluster.run("list", "gangs")
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert "no connection to" in result.stderr and result.stderr.count("\n") == 1


def test_empty_clusters_have_nothing_to_list(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as cluster:
        assert cluster.run("list", "gangs", "-A").stderr == "no gangs\n"
        assert cluster.run("list", "queues").stderr == "no ClusterQueue is defined\n"
        assert cluster.run("list", "topologies").stderr == "no Topology is defined\n"
