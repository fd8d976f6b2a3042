"""Snapshots of the dashboard have the records that the commands print, and hosts as the cluster has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayplan.backends.remote.backend import connect
from bayplan.cli.commands.dashboard_source import DashboardSource
from bayplan.cli.watching.watched import WatchedCluster
from bayplan.dashboard.host_map import GangKey
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.questions import BadQuestion
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.containment import Containment
from tests.support.queued_cluster import (
    GPU,
    NOW,
    RACK,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_workload,
    rack_node,
    running_pod,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        use = {"cpu": "32", GPU: "8"}
        made.submit(
            queued_workload("train", 4, 2, required=RACK),
            admitted("left-queue", "a100", use, {"h1": 2, "h2": 2}),
        )
        made.submit(queued_workload("wide", 3, 4, "right", required=RACK))
        made.put(PODS_KIND, running_pod("alone", "h5", 3))
        yield made


@pytest.fixture
def source(cluster: QueuedCluster) -> Iterator[DashboardSource]:
    backend = connect(cluster.kubeconfig)
    failures: list[str] = []
    contained = Containment(lambda sentence, error, **facts: failures.append(f"{sentence} {error!r}"))
    watched = WatchedCluster(backend, VirtualClock(wall=NOW), containment=contained)
    source = DashboardSource(watched, SnapshotHub(), contained)
    catch_up(source)
    source.forecasts.forecast()  # a thread of their own makes them
    yield source
    backend.close(0)
    assert not failures


def catch_up(source: DashboardSource) -> None:
    """Take in everything that the server has to tell."""
    idle = 0
    while source.cluster.loop.unsynced or idle < 3:
        source.cluster.backend.wait(0.1)
        idle = 0 if source.cluster.step() else idle + 1


def test_gangs_queues_and_topologies_are_the_objects_that_the_commands_print(
    cluster: QueuedCluster, source: DashboardSource
) -> None:
    shown = source.snapshot()
    assert [dict(one.record) for one in shown.gangs.values()] == json.loads(
        cluster.run("list", "gangs", "-A", "-o", "json").stdout
    )
    assert shown.queues == json.loads(cluster.run("list", "queues", "-A", "-o", "json").stdout)
    assert list(shown.topologies) == json.loads(cluster.run("list", "topologies", "-o", "json").stdout)


def test_an_explanation_is_that_of_the_command(cluster: QueuedCluster, source: DashboardSource) -> None:
    told = json.loads(cluster.run("explain", "ml/wide", "-o", "json").stdout)
    found = source.explain(GangKey("ml", "Workload", "wide"))
    assert found is not None
    assert {name: found[name] for name in told} == told
    assert source.explain(GangKey("ml", "Workload", "nothing")) is None


def test_new_forecasts_are_shown_without_any_other_change(
    cluster: QueuedCluster, source: DashboardSource
) -> None:
    whole = {f"h{number}": 1 for number in range(3, 9)}
    cluster.submit(
        queued_workload("long", 6, 4, maximumExecutionTimeSeconds=3600),
        admitted("left-queue", "a100", {"cpu": "48", GPU: "24"}, whole, ago=600.0),
    )
    cluster.submit(queued_workload("next", 2, 4))
    catch_up(source)
    source.forecasts.take_news()
    before = [one.record["expectedStart"] for one in source.snapshot().gangs.values()]
    source.forecasts.forecast()
    assert source.forecasts.take_news() and not source.forecasts.take_news()
    after = {one.key.name: one.record["expectedStart"] for one in source.snapshot().gangs.values()}
    assert after["next"]["from"] == "2027-01-15T08:50:00Z" and after["next"] not in before
    source.forecasts.forecast()
    assert not source.forecasts.take_news()


def test_a_cluster_without_queues_is_shown_all_the_same(tmp_path: Path) -> None:
    with queued_cluster(tmp_path, defined=False) as made:
        made.put(api_kinds.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        made.put(NODES, rack_node("h1", "b1", "r1", {}))
        made.put(PODS_KIND, running_pod("alone", "h1", 3))
        backend = connect(made.kubeconfig)
        watched = WatchedCluster(backend, VirtualClock(wall=NOW))
        source = DashboardSource(watched, SnapshotHub(), Containment())
        catch_up(source)
        (shown,) = source.snapshot().maps
        assert (shown.layout.hosts, shown.layers["free"].tolist()) == (("h1",), [1])
        backend.close(0)


def test_hosts_show_the_gangs_that_hold_them_and_pods_of_no_gang(source: DashboardSource) -> None:
    shown = source.snapshot()
    (hall,) = shown.maps
    train = source.maker.id_of(GangKey("ml", "Workload", "train"))
    assert hall.layout.hosts == tuple(f"h{n}" for n in range(1, 9))
    assert [int(one) for one in hall.layers["gang"]] == [train, train, 0, 0, 0, 0, 0, 0]
    assert [int(one) for one in hall.layers["free"]] == [0, 0, 4, 4, 1, 4, 4, 4]
    assert [level.label for level in hall.layout.levels] == ["example.com/block", RACK]
    assert [entry.pending for entry in shown.gangs.values()] == [False, True]


def test_domains_that_a_pending_gang_nearly_fits_are_named_with_what_they_lack(
    source: DashboardSource,
) -> None:
    found = source.explain(GangKey("ml", "Workload", "wide"))
    assert found is not None and found["near"] is not None
    best = found["near"]["domains"][0]
    assert (best["domain"], best["fits"], best["lacks"], best["hosts"]) == (["b1", "r2"], 2, 1, [2, 4])
    last = found["near"]["domains"][-1]
    assert (last["domain"], last["holders"]) == (["b1", "r1"], ["ml/train"])


def test_a_node_that_is_cordoned_or_deleted_changes_on_the_map(
    cluster: QueuedCluster, source: DashboardSource
) -> None:
    source.hub.publish(source.snapshot())
    cluster.store.patch(NODES, "", "h3", {"spec": {"unschedulable": True}})
    catch_up(source)
    assert int(source.snapshot().maps[0].layers["flags"][2]) == 1
    cluster.store.delete(NODES, "", "h3")
    catch_up(source)
    assert "h3" not in source.snapshot().maps[0].layout.hosts


def test_a_plan_is_that_of_the_command_and_leaves_the_cluster_as_it_is(
    cluster: QueuedCluster, source: DashboardSource, tmp_path: Path
) -> None:
    manifest = json.dumps(queued_workload("new", 2, 4, "right", required=RACK))
    file = tmp_path / "new.json"
    file.write_text(manifest)
    before = source.snapshot()
    found = source.plan(manifest, lambda namespace: True)
    told = json.loads(cluster.run("plan", "-f", str(file), "-o", "json").stdout)
    assert {name: found[name] for name in told} == told
    assert found["answers"][0]["nodes"] == {"h3": 1, "h4": 1}
    assert source.hub.publish(before) and not source.hub.publish(source.snapshot())
    assert cluster.store.find(api_kinds.WORKLOADS, "ml", "new") is None


@pytest.mark.parametrize("text", ["", "- 1", "kind: [", "{}", "kind: Sandwich\nmetadata: {name: x}"])
def test_manifests_that_cannot_be_read_are_refused_with_a_sentence(
    source: DashboardSource, text: str
) -> None:
    with pytest.raises(BadQuestion, match=r"\w"):
        source.plan(text, lambda namespace: True)


def test_a_namespace_that_one_may_not_see_cannot_be_planned_in(source: DashboardSource) -> None:
    with pytest.raises(BadQuestion, match="may not see the namespace ml"):
        source.plan(json.dumps(queued_workload("new", 1, 1)), lambda namespace: namespace != "ml")
