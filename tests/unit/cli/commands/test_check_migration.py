"""`bayplan check-migration` on a cluster in memory with objects of other schedulers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.dialects.kueue.names import api_kinds
from tests.support.api_objects import api_object
from tests.support.migrating_cluster import EXPECTED, foreign_objects, volcano_definition
from tests.support.queued_cluster import JOBS, RACK, QueuedCluster, furnish, queued_cluster, queued_job

KAI_CONFIGURATION = (
    "apiVersion: bayplan.dev/v1\nkind: Configuration\nschedulers: {bayplan: {}, kai-scheduler: {}}\n"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("migration")) as made:
        furnish(made)
        made.put(DEFINITIONS, volcano_definition())
        made.put(api_kinds.NAMESPACES, api_object("v1", "Namespace", "kueue-system"))
        for kind, obj in foreign_objects():
            made.put(kind, obj)
        yield made


def test_each_object_is_judged(cluster: QueuedCluster) -> None:
    result = cluster.run("check-migration", "-o", "json")
    assert result.exit_code == 3, result.output
    found = json.loads(result.stdout)
    judged = {(one["kind"], one["name"]): (one["family"], one["carries"]) for one in found["objects"]}
    assert {key: judged.get(key) for key in EXPECTED} == EXPECTED
    assert found["total"]["not"] == 5 and found["unread"] == []


def test_the_table_says_why_an_object_does_not_carry_over(
    cluster: QueuedCluster,
) -> None:
    lines = cluster.run("check-migration").stdout.splitlines()
    text = "\n".join(lines)
    assert "not dispatched to other clusters" in text and "by priority and time, not by past usage" in text
    assert "asks for a part of a GPU (gpu-fraction); pods take whole devices" in text
    assert "manageJobsWithoutQueueName is not used" in text
    assert "extenders are not called" in text
    assert " plain " not in text, "what works the same is not listed"
    assert any(line.startswith("Kueue: ") and "see docs/migrate/kueue.md" in line for line in lines)


def test_all_lists_what_works_the_same_as_well(cluster: QueuedCluster) -> None:
    text = cluster.run("check-migration", "--all").stdout
    assert "waits in queue left" in text and "starts as a gang of the scheduler bayplan" in text


def test_what_a_configuration_adds_is_counted(cluster: QueuedCluster, tmp_path: Path) -> None:
    path = tmp_path / "configuration.yaml"
    path.write_text(KAI_CONFIGURATION)
    found = json.loads(cluster.run("check-migration", "-o", "json", "--config", str(path)).stdout)
    (kai,) = [one for one in found["objects"] if one["name"] == "kai"]
    assert (
        kai["family"] == "Bayplan" and kai["remarks"][-1] == "starts as a gang of the scheduler kai-scheduler"
    )


def test_what_our_webhooks_refuse_does_not_work(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        made.put(
            JOBS, queued_job("torn", 2, 1, podset_required_topology=RACK, podset_preferred_topology=RACK)
        )
        found = json.loads(made.run("check-migration", "-o", "json").stdout)
    (torn,) = [one for one in found["objects"] if one["name"] == "torn"]
    assert torn["carries"] == "not" and torn["remarks"][0].startswith("would be refused: spec.template")


def test_an_empty_cluster_is_told_so(tmp_path: Path) -> None:
    with queued_cluster(tmp_path, defined=False) as made:
        result = made.run("check-migration")
    assert result.exit_code == 0 and result.stdout.startswith("no objects of Kueue, KAI or Volcano")
