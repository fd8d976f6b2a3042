"""When a queued gang is expected to start, as `explain`, `list gangs` and `plan` tell it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.run_limits import EXPECTED_RUNTIME
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.change import QueuedGangLost, QueuedGangSeen
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.journal import FileJournal
from tests.support.api_objects import job, pod
from tests.support.queued_cluster import (
    GPU,
    JOBS,
    NOW,
    QueuedCluster,
    admitted,
    condition,
    furnish,
    queued_cluster,
    queued_workload,
    ruled,
    template,
)

WHOLE = {"h1": 1, "h2": 1, "h3": 1, "h4": 1, "h5": 1, "h6": 1, "h7": 1, "h8": 1}
USED = {"cpu": "64", GPU: "32"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path) as one:
        furnish(one)
        yield one


def runs_everywhere(cluster: QueuedCluster, name: str = "all", **spec: Any) -> None:
    """A gang on all hosts for half an hour by now; NOW is 08:00 UTC."""
    cluster.submit(
        queued_workload(name, 8, 4, **spec), admitted("left-queue", "a100", USED, WHOLE, ago=1800.0)
    )


def finished(cluster: QueuedCluster, name: str, seconds: float, ago: float) -> None:
    """A gang that ran for so long, and ended a while ago."""
    cluster.submit(
        queued_workload(name, 8, 4),
        {
            "conditions": [
                condition("QuotaReserved", ago + seconds, "Finished", status="False"),
                condition("Admitted", ago + seconds, "Admitted"),
                condition("Finished", ago, "Succeeded"),
            ]
        },
    )


def expected(cluster: QueuedCluster, name: str, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.run("explain", f"ml/{name}", "-o", "json", *more).stdout)[
        "expectedStart"
    ]
    return found


def test_the_limit_of_the_running_gang_gives_the_start(cluster: QueuedCluster) -> None:
    runs_everywhere(cluster, maximumExecutionTimeSeconds=5400)
    cluster.submit(queued_workload("next", 2, 4, maximumExecutionTimeSeconds=3600))
    found = expected(cluster, "next")
    assert found["from"] == found["to"] == found["latest"] == "2027-01-15T09:00:00Z"
    assert (found["after"], found["unknown"], found["latestByLimits"]) == (["ml/all"], [], True)
    assert found["message"] == (
        "likely 09:00 UTC, by 09:00 if running jobs use their limits and nothing overtakes; after `ml/all`"
    )
    assert "expected start: likely 09:00 UTC" in cluster.run("explain", "ml/next").stdout
    assert "09:00 " in cluster.run("list", "gangs", "-n", "ml").stdout


@pytest.mark.parametrize(("text", "start"), [("5400", "09:00"), ("2h", "09:30"), ("1h45m", "09:15")])
def test_an_annotation_of_the_gang_counts_as_its_limit(cluster: QueuedCluster, text: str, start: str) -> None:
    running = queued_workload("all", 8, 4)
    running["metadata"]["annotations"] = {EXPECTED_RUNTIME: text}
    cluster.submit(running, admitted("left-queue", "a100", USED, WHOLE, ago=1800.0))
    cluster.submit(queued_workload("next", 2, 4))
    assert f"likely {start} UTC" in expected(cluster, "next")["message"]


def test_the_queue_has_a_default_for_gangs_without_a_limit(cluster: QueuedCluster) -> None:
    kind, queue = ruled(api_kinds.LOCAL_QUEUES, "timed", {"clusterQueue": "left-queue"}, "ml")
    queue["metadata"]["annotations"] = {EXPECTED_RUNTIME: "1h"}
    cluster.put(kind, queue)
    runs_everywhere(cluster, queue="timed")
    cluster.submit(queued_workload("next", 2, 4))
    assert expected(cluster, "next")["from"] == "2027-01-15T08:30:00Z"


def test_without_limit_and_history_the_gangs_are_named(cluster: QueuedCluster) -> None:
    runs_everywhere(cluster)
    cluster.submit(queued_workload("next", 2, 4))
    found = expected(cluster, "next")
    assert found["from"] is None and found["unknown"] == ["ml/all"]
    assert found["message"] == "no estimate: `ml/all` has neither a limit nor history"
    assert "unknown" in cluster.run("list", "gangs", "-n", "ml").stdout


def test_a_gang_that_never_fits_is_told_so(cluster: QueuedCluster) -> None:
    cluster.submit(queued_workload("huge", 9, 4))
    assert expected(cluster, "huge")["message"].startswith("never as things are")


def test_finished_gangs_of_the_series_give_the_run_time(cluster: QueuedCluster) -> None:
    for number, seconds in enumerate((3000.0, 3600.0, 4200.0, 3600.0)):
        finished(cluster, f"train-{number}", seconds, ago=50_000.0 - 5000 * number)
    runs_everywhere(cluster, "train-9")
    cluster.submit(queued_workload("next", 2, 4))
    found = expected(cluster, "next")
    assert "2027-01-15T08:15:00Z" <= found["from"] <= found["to"] <= "2027-01-15T08:45:00Z"
    assert found["after"] == ["ml/train-9"] and found["latest"] is None


def test_the_journal_gives_run_times_of_gangs_that_are_gone(cluster: QueuedCluster, tmp_path: Path) -> None:
    from bayplan.dialects.kube.fields.reader import Field
    from bayplan.dialects.kueue.decode.workloads import decode_workload

    journal = FileJournal(tmp_path / "journal")
    for number in range(4):
        obj = queued_workload(f"train-{number}", 8, 4)
        obj["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": "2027-01-14T08:00:00Z"}
        at = NOW - 50_000.0 + 5000.0 * number
        obj["status"] = admitted("left-queue", "a100", USED, WHOLE, ago=NOW - at)
        gang = decode_workload(Field(obj))
        journal.record(at, "change", QueuedGangSeen(gang), AdmissionController.name)
        journal.record(at + 3600.0, "change", QueuedGangLost(gang.gang.source), AdmissionController.name)
    journal.close()
    runs_everywhere(cluster, "train-9")
    cluster.submit(queued_workload("next", 2, 4))
    assert expected(cluster, "next")["unknown"] == ["ml/train-9"]
    found = expected(cluster, "next", "--journal", str(tmp_path / "journal"))
    assert found["from"] == found["to"] == "2027-01-15T08:30:00Z"


def test_plan_tells_the_expected_start_of_what_would_be_pending(cluster: QueuedCluster) -> None:
    runs_everywhere(cluster, maximumExecutionTimeSeconds=5400)
    draft = json.dumps(queued_workload("draft", 2, 4))
    answer = cluster.run("plan", "-f", "-", "-o", "json", stdin=draft)
    found = json.loads(answer.stdout)["gangs"][0]["expectedStart"]
    assert found["from"] == "2027-01-15T09:00:00Z" and found["after"] == ["ml/all"]
    assert "expected start: likely 09:00 UTC" in cluster.run("plan", "-f", "-", stdin=draft).stdout


# ── gangs without a queue ──────────────────────────────────────────────────────────────────────────


def submit_job(
    cluster: QueuedCluster, name: str, hosts: list[str], started: float = 0.0, **spec: Any
) -> None:
    """A job in no queue whose pods take whole hosts; they are bound if it has started."""
    shape = template(4)
    shape["spec"]["schedulerName"] = "bayplan"
    made = cluster.put(JOBS, job(name, shape, len(hosts), namespace="ml", **spec))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
    for number, host in enumerate(hosts):
        one = pod(f"{name}-{number}", namespace="ml", **shape["spec"])
        if started:
            one["spec"]["nodeName"] = host
        one["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
        cluster.put(PODS_KIND, one)
        if started:
            status = {"status": {"phase": "Running", "startTime": timestamp(started)}}
            cluster.store.patch(
                replace(PODS_KIND, wire=None), "ml", f"{name}-{number}", status, subresource="status"
            )


def test_a_gang_of_the_scheduler_starts_when_a_running_one_reaches_its_deadline(
    cluster: QueuedCluster,
) -> None:
    hosts = list(WHOLE)
    submit_job(cluster, "all", hosts, NOW - 1800.0, activeDeadlineSeconds=5400)
    submit_job(cluster, "next", hosts[:2])
    found = expected(cluster, "next")
    assert (found["from"], found["after"]) == ("2027-01-15T09:00:00Z", ["ml/all"])
    assert "expected start: likely 09:00 UTC" in cluster.run("explain", "ml/next").stdout
    listed = json.loads(cluster.run("list", "gangs", "-n", "ml", "-o", "json").stdout)
    assert {one["name"]: one["expectedStart"] for one in listed} == {"all": None, "next": found}


def test_a_gang_of_the_scheduler_without_limit_and_history_names_what_it_waits_for(
    cluster: QueuedCluster,
) -> None:
    hosts = list(WHOLE)
    submit_job(cluster, "all", hosts, NOW - 1800.0)
    submit_job(cluster, "next", hosts[:2])
    assert expected(cluster, "next")["unknown"] == ["ml/all"]
