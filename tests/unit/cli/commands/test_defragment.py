"""`bayplan defragment` on a cluster in memory: which gangs would move, where to, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayplan.dialects.kube.fields.times import timestamp
from tests.support.defragment_site import protect, run_job, run_workload
from tests.support.queued_cluster import NOW, RACK, QueuedCluster, furnish, golden, queued_cluster

RACKFUL = "gang of 8 gpu in one rack"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueuedCluster]:
    """Four racks of two hosts with four GPUs: no rack is empty, though half of the GPUs are free."""
    with queued_cluster(tmp_path) as made:
        furnish(made)
        run_job(made, "old", ["h1"], 4, ago=7200)
        run_job(made, "young", ["h3"], 4, ago=60)
        run_job(made, "wide", ["h5", "h7"], 2, ago=600)
        yield made


def answer(cluster: QueuedCluster, *options: str) -> dict[str, Any]:
    result = cluster.run("defragment", "-o", "json", *options)
    assert result.exit_code in (0, 3), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def moved(cluster: QueuedCluster, *options: str) -> dict[str, dict[str, int]]:
    return {one["gang"]: one["to"] for one in answer(cluster, "--for", RACKFUL, *options)["moves"]}


def staying(cluster: QueuedCluster) -> dict[str, str]:
    return {one["gang"]: one["reason"] for one in answer(cluster, "--for", RACKFUL)["staying"]}


def test_the_plan_is_shown_with_cost_and_drawn_before_and_after(cluster: QueuedCluster) -> None:
    result = cluster.run("defragment", "--for", RACKFUL)
    assert result.exit_code == 0, result.output
    golden("defragment", result.stdout)


def test_the_gang_that_loses_least_moves(cluster: QueuedCluster) -> None:
    found = answer(cluster, "--for", RACKFUL)
    assert [one["gang"] for one in found["moves"]] == ["ml/young"]
    assert (found["slotsBefore"], found["slotsAfter"], found["cheapest"]) == (0, 1, True)
    assert found["gpuHoursLost"] == round(4 * (60 + 300) / 3600, 2)


def test_nothing_is_written(cluster: QueuedCluster) -> None:
    before = cluster.store.version
    cluster.run("defragment", "--for", RACKFUL)
    assert cluster.store.version == before


def test_a_whole_rack_is_as_much_as_the_largest_rack_has(cluster: QueuedCluster) -> None:
    found = answer(cluster, "--level", "rack")
    assert found["wanted"] == "an empty rack: 2 pods of 4 gpu in one rack"
    assert [one["gang"] for one in found["moves"]] == ["ml/young"]


def test_a_gang_that_fits_needs_no_moves(cluster: QueuedCluster) -> None:
    result = cluster.run("defragment", "--for", "gang of 4 gpu in one rack")
    assert result.stdout.startswith("1 pod of 4 gpu in one rack: fits now: ")


def test_no_moves_help_if_there_is_too_little(cluster: QueuedCluster) -> None:
    result = cluster.run("defragment", "--for", "gang of 12 x 4 gpu")
    assert result.exit_code == 3
    assert "if every movable gang left, 8 of 12 pods would fit" in result.stdout


def test_a_recent_checkpoint_makes_a_gang_cheap(cluster: QueuedCluster) -> None:
    run_job(cluster, "saved", ["h8"], 2, notes={"bayplan.dev/last-checkpoint": timestamp(NOW - 5)}, ago=7200)
    host = "gang of 1 x 4 gpu in one host"
    assert answer(cluster, "--for", host)["moves"] == []
    for name in ("h2", "h4", "h6"):
        run_job(cluster, f"unsaved-{name}", [name], 2, ago=7200)
    (move,) = answer(cluster, "--for", host)["moves"]
    assert (move["gang"], move["gpuHoursLost"]) == ("ml/saved", round(2 * (5 + 300) / 3600, 2))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"labels": {"bayplan.dev/movable": "false"}}, "labelled as not movable"),
        ({"notes": {"bayplan.dev/movable": "no"}}, "bayplan.dev/movable is 'no'; give true or false"),
        ({"notes": {"bayplan.dev/move-not-before": timestamp(NOW + 60)}}, "not to be moved before "),
        ({"owned": False}, "has pods without a controller that would create them again"),
    ],
)
def test_a_gang_that_may_not_move_stays_and_says_why(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        for rank, host in enumerate(("h1", "h3", "h5", "h7")):
            run_job(
                made, f"job{rank}", [host], 4, ago=60 if rank == 1 else 7200, **(more if rank == 1 else {})
            )
        assert "ml/job1" not in moved(made)
        name = "ml/job1" if more.get("owned", True) else "ml/job1-0"
        assert staying(made)[name].startswith(why)


def test_a_disruption_budget_that_allows_a_part_of_a_gang_keeps_the_whole(cluster: QueuedCluster) -> None:
    protect(cluster, "careful", {"job-name": "wide"}, 1)
    protect(cluster, "lenient", {"job-name": "young"}, 0)
    assert staying(cluster)["ml/wide"] == (
        "PodDisruptionBudget ml/careful allows 1 of its 2 pods to be evicted at once"
    )
    (move,) = answer(cluster, "--for", RACKFUL)["moves"]
    assert (move["gang"], move["budgets"]) == ("ml/young", ["ml/lenient"])


def test_a_job_moves_as_a_whole_within_its_level(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        run_job(made, "pair", ["h1", "h2"], 2, ago=60, required=RACK)
        run_job(made, "b", ["h3"], 2, ago=7200)
        run_job(made, "b2", ["h4"], 3, ago=7200)
        run_job(made, "c", ["h5", "h6"], 2, ago=7200)
        run_job(made, "d", ["h7"], 3, ago=7200)
        run_job(made, "d2", ["h8"], 2, ago=7200)
        found = answer(made, "--for", RACKFUL)
        assert [(one["gang"], one["to"]) for one in found["moves"]] == [("ml/pair", {"h5": 1, "h6": 1})]


def test_a_queued_gang_moves_as_a_whole_within_its_level(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        run_workload(made, "pair", ["h1", "h2"], 2, ago=60, required=RACK)
        run_job(made, "b", ["h3", "h4"], 3, ago=7200)
        run_job(made, "c", ["h5", "h6"], 2, ago=7200)
        run_job(made, "d", ["h7", "h8"], 3, ago=7200)
        found = answer(made, "--for", RACKFUL)
        assert [(one["gang"], one["to"]) for one in found["moves"]] == [("ml/pair", {"h5": 1, "h6": 1})]
        assert found["commands"][1:3] == [
            'kubectl patch workload -n ml pair --type=merge -p \'{"spec":{"active":false}}\'',
            'kubectl patch workload -n ml pair --type=merge -p \'{"spec":{"active":true}}\'',
        ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "give either --for or --level"),
        (("--for", "gang of gpu"), "--for 'gang of gpu' is not understood"),
        (("--for", "gang of 0 gpu"), "give a gang of 1 to 100,000 pods"),
        (("--for", "gang of 2 x 5 gpu"), "a pod of 5 gpu fits no node; the largest has 4"),
        (("--for", "gang of 2 tpu"), "no node has the resource tpu"),
        (("--for", "gang of 2 gpu in one rak"), "there is no level rak; did you mean rack?"),
        (("--level", "room"), "there is no level room; levels are block, rack, host"),
        (("--for", "ml/nothing"), "ml/nothing"),
        (("--for", "ml/old"), "does not wait for room"),
        (("--level", "rack", "--assume-checkpoint", "soon"), "--assume-checkpoint is 'soon'"),
    ],
)
def test_bad_input_is_one_clear_error(cluster: QueuedCluster, options: tuple[str, ...], error: str) -> None:
    result = cluster.run("defragment", *options)
    assert result.exit_code in (1, 2)
    assert error in result.stderr, result.output
    assert "Traceback" not in result.output
