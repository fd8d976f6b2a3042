"""`bayplan plan` with changes that were not made: more hosts, fewer nodes, other quotas, a gang less."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from click.testing import Result

from tests.support.queued_cluster import (
    GPU,
    RACK,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_job,
    queued_workload,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """Eight hosts of four GPUs; `a` has half of them; `waits` and `narrow` need more quota than there is."""
    with queued_cluster(tmp_path_factory.mktemp("what-if")) as made:
        furnish(made)
        usage = {"cpu": "32", GPU: "16"}
        made.submit(
            queued_workload("a", 4, 4),
            admitted("left-queue", "a100", usage, {"h1": 1, "h2": 1, "h3": 1, "h4": 1}),
        )
        made.submit(queued_workload("waits", 5, 4, "left"))
        made.submit(queued_workload("narrow", 2, 4, "small"))
        yield made


def plan(cluster: QueuedCluster, *options: str, stdin: str = "") -> Result:
    return cluster.run("plan", *options, stdin=stdin)


def test_without_a_gang_the_one_that_waits_for_its_quota_would_start(cluster: QueuedCluster) -> None:
    result = plan(cluster, "--without", "gang/ml/a")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "Assumed:\n"
        "  without ml/a: 0 pods removed\n"
        "Pending gangs that would start because of that: 1\n"
        "  ml/waits\n"
        "Gangs that would still be pending: 1\n"
    )


def test_more_quota_lets_a_pending_gang_start(cluster: QueuedCluster) -> None:
    result = plan(cluster, "--set-quota", f"small-queue/{GPU}=8")
    assert "quota of small-queue for nvidia.com/gpu of plain: 4 to 8" in result.stdout, result.output
    assert "  ml/narrow\n" in result.stdout


def test_a_gang_larger_than_a_rack_would_start_in_a_rack_that_is_added(cluster: QueuedCluster) -> None:
    job = yaml.safe_dump(queued_job("wide", 3, 4, "right", podset_required_topology=RACK))
    assert plan(cluster, "-f", "-", stdin=job).exit_code == 3
    result = plan(cluster, "-f", "-", "--add", "rack=b2/r9 hosts=3 gpu=4", "-o", "json", stdin=job)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["gangs"][0]["admitted"] is True
    assert answer["changes"] == ["rack b2/r9: 3 hosts added, like h5, with gpu 4"]
    assert answer["startsOfPending"] == []
    assert answer["stillPending"] == 2


def test_hosts_that_are_drained_cannot_be_used(cluster: QueuedCluster) -> None:
    job = yaml.safe_dump(queued_job("pair", 2, 4, "right", podset_required_topology=RACK))
    assert plan(cluster, "-f", "-", stdin=job).exit_code == 0
    result = plan(cluster, "-f", "-", "--drain", "node/h5", "--drain", "h7", stdin=job)
    assert result.exit_code == 3
    assert "node h5 drained: 0 pods removed" in result.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--drain", "h55"), "--drain h55: there is no node h55; did you mean h5?"),
        (("--add", "rack=b2"), "--add rack=b2: give the rack as rack=BLOCK/RACK"),
        (
            ("--add", "shelf=b2/r9"),
            "--add shelf=b2/r9: no topology has shelf as its lowest level above the host",
        ),
        (("--add", "rack=b2/r9 hosts=0"), "hosts is 0; give 1 to 100,000"),
        (("--add", "rack=b2/r9 gpu=many"), "many is no amount of gpu"),
        (("--add", "rack"), "give a domain and amounts of a host"),
        (
            ("--set-quota", "lef-queue/a100/cpu=3"),
            "there is no ClusterQueue lef-queue; did you mean left-queue?",
        ),
        (("--set-quota", "left-queue/a100/cpu=x"), "x is no amount"),
        (("--set-quota", "left-queue/none/cpu=3"), "it has no quota for none/cpu"),
        (("--set-quota", "left-queue"), "give QUEUE/FLAVOR/RESOURCE=AMOUNT"),
        (("--without", "gang/ml/nosuch"), "nosuch"),
        ((), "give gangs with -f, or a change with --add"),
    ],
)
def test_a_change_that_cannot_be_made_is_answered_in_a_sentence(
    cluster: QueuedCluster, options: tuple[str, ...], sentence: str
) -> None:
    result = plan(cluster, *options)
    assert result.exit_code in (1, 2)
    assert sentence in result.output
