"""What `bayplan up` shows of gangs that wait: the words of `bayplan place`, not those of the API."""

from __future__ import annotations

from io import StringIO

import pytest
import yaml
from rich.console import Console, RenderableType

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job
from bayplan.cli.commands.up_view import Rack, ViewSize, picture, rack_table
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.dialects.kueue.names.annotations import REQUIRED
from bayplan.explanation.misfit import brief
from bayplan.model.assignment import Code, Exclusions, Misfit
from bayplan.model.node import HOSTNAME, Topology
from bayplan.runtime.core.clock import SystemClock
from tests.unit.assembly.test_local_cluster import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    QUEUE_KINDS,
    QUICKSTART,
    SAMPLE_JOB,
    World,
    deployment,
)

RACKS = Topology("dc", ("rack", HOSTNAME))


@pytest.fixture
def cluster() -> LocalCluster:
    """One block of two racks of two hosts with four GPUs, stepped by hand."""
    return LocalCluster(ClusterShape(1, 2, 2, 4), SystemClock())


def shown(cluster: LocalCluster, submitted: dict[str, object]) -> str:
    cluster.submit(submitted)
    for _ in range(5):
        cluster.controller_manager.step(cluster.clock.wall())
        cluster.loop.step(cluster.clock.wall())
    console = Console(file=StringIO(), width=250)
    console.print(picture(cluster, cluster.clock.wall()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_pending_gang_is_shown_with_what_came_closest_and_what_it_lacks(cluster: LocalCluster) -> None:
    text = shown(cluster, job("wide", 3, 4, {REQUIRED: RACK}, 5))
    why = "rack b01/r01 comes closest with room for 2 of 3 pods; it lacks 4 gpu"
    gangs, _, decisions = text.partition("last decisions")
    assert why in gangs and "unschedulable" in gangs
    assert f"Job wide is pending: {why}" in decisions
    assert "pod(s)" not in text


def drawn(world: World) -> str:
    console = Console(file=StringIO(), width=250)
    console.print(picture(world.home, world.home.clock.wall()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def line_of(world: World, name: str) -> str:
    gangs, _, _ = drawn(world).partition("last decisions")
    return next((line for line in gangs.splitlines() if f" {name} " in line), "")


def test_a_job_that_ended_is_finished_and_one_that_runs_runs() -> None:
    world = World()
    world.home.submit(job("short", 2, 1, {}, 2))
    world.home.submit(job("long", 2, 1, {}, 900))
    world.play(10)
    assert "finished" in line_of(world, "short") and "running" not in line_of(world, "short")
    assert "running" in line_of(world, "long")
    lines = drawn(world).splitlines()
    order = [next(i for i, line in enumerate(lines) if f"Job {name} " in line) for name in ("long", "short")]
    assert order == sorted(order), "finished rows come last"


def test_a_gang_that_is_pending_in_a_queue_is_shown_with_the_reason() -> None:
    world = World()
    for found in yaml.safe_load_all(QUICKSTART):
        world.store.create(QUEUE_KINDS[found["kind"]], found, found["metadata"].get("namespace", ""))
    for _ in range(4):  # 3 CPUs each; the quota is 9
        world.store.create(JOBS, yaml.safe_load(SAMPLE_JOB), "default")
    world.play(5)
    gangs, _, _ = drawn(world).partition("last decisions")
    rows = [line for line in gangs.splitlines() if "Job sample-job-" in line]
    assert len(rows) == 4 and sum("3 pods" in line for line in rows) == 4
    assert sum("running" in line for line in rows) == 3
    waits = next(line for line in rows if "pending in queue user-queue" in line)
    assert "insufficient unused quota" in waits


def test_pods_of_a_deployment_are_one_row() -> None:
    world = World()
    world.store.create(DEPLOYMENTS, deployment(), "default")
    world.play(5)
    assert "3 pods" in line_of(world, "web") and "Deployment web" in line_of(world, "web")


def test_nodes_that_come_later_are_shown_whatever_their_labels() -> None:
    world = World()
    amounts = {"cpu": "4", "pods": "10", "nvidia.com/gpu": "2"}
    ready = [{"type": "Ready", "status": "True"}]
    places: list[dict[str, str]] = [{}, {BLOCK: "b07", RACK: "r09"}, {"hall": "h1", "aisle": "a2"}]
    levels = [{"nodeLabel": label} for label in ("hall", "aisle", "kubernetes.io/hostname")]
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "halls"}}
    world.store.create(scheduled_jobs.TOPOLOGIES, {**topology, "spec": {"levels": levels}})
    for number, labels in enumerate(places):
        metadata = {"name": f"new{number}", "labels": {"kubernetes.io/hostname": f"new{number}", **labels}}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        world.store.create(NODES, {"metadata": metadata, "status": status})
    world.play(1)
    text = drawn(world)
    assert "7 nodes, 0 of 22 GPUs in use" in text
    assert "b07" in text and "r09" in text and "h1" in text and "a2" in text
    assert "no topology" in text and "1 node " in text


def test_a_name_cannot_steer_the_terminal() -> None:
    world = World()
    world.home.decision_log.lines.append((0.0, "Job \x1b[2Jbad waits: \x07"))
    assert "\x1b[2J" not in drawn(world) and "\\x1b[2J" in drawn(world)


def test_excluded_nodes_are_counted_when_no_pod_fits() -> None:
    nothing = Misfit(Code.NO_ROOM, ("main",), "dc", asked=2, excluded=Exclusions(4, selector=4))
    assert brief(nothing, RACKS) == "0 of 2 fit; of 4 nodes: 4 not matching the node selector"
    one = Misfit(Code.NO_ROOM, ("main",), "dc", fit=1, asked=2, excluded=Exclusions(4, selector=3))
    assert brief(one, RACKS) == "1 of 2 fit"


def test_pods_that_must_join_running_ones_are_told_so() -> None:
    assert "the domain of its running pods" in brief(Misfit(Code.NO_REPLACEMENT, ("main",)), RACKS)


def test_a_topology_that_is_gone_does_not_matter(cluster: LocalCluster) -> None:
    assert cluster.misfit_text(Misfit(Code.NO_ROOM, ("main",), "gone", fit=1, asked=2)) == "1 of 2 fit"


def at_80_by_24(shown: RenderableType) -> list[str]:
    console = Console(file=StringIO(), width=80, height=24)
    console.print(shown)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("blocks", "racks", "legend"), [(10, 32, "2 racks"), (400, 1, "2 racks"), (3, 3, "")]
)
def test_ten_thousand_nodes_are_marks_with_a_legend_where_bars_do_not_fit(
    blocks: int, racks: int, legend: str
) -> None:
    total = 80_000 // (blocks * racks)
    shown = [
        Rack(f"b{block:03d}", f"r{rack:02d}", total if block < 2 else 0, total)
        for block in range(blocks)
        for rack in range(racks)
    ]
    lines = at_80_by_24(rack_table(shown, ViewSize.of(80, 24)))
    assert len(lines) <= 6 and max(map(len, lines)) <= 76
    assert "█" in lines[0] and lines[0].startswith("b000")
    assert (f"one mark: {legend}" in lines[-1]) == bool(legend)
    if legend:
        assert " of " in lines[0] and "· free" in lines[-1]


def test_a_frame_with_many_gangs_fits_a_terminal_of_80_by_24(cluster: LocalCluster) -> None:
    for number in range(12):
        cluster.submit(job(f"a-gang-with-a-long-name-{number}", 3, 4, {REQUIRED: RACK}, 900))
    for _ in range(5):
        cluster.controller_manager.step(cluster.clock.wall())
        cluster.loop.step(cluster.clock.wall())
    lines = at_80_by_24(picture(cluster, cluster.clock.wall(), ViewSize.of(80, 24)))
    assert len(lines) <= 23 and max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "a-gang-with-a-long-name-0" in text and "… 7 more" in text and "last decisions" in text
