"""What `bayplan up` shows of gangs that wait: the words of `bayplan place`, not those of the API."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from bayplan.cli.explain import brief
from bayplan.cli.home_cluster import HomeCluster, Shape
from bayplan.cli.live_view import picture
from bayplan.dialects.kueue.annotations import REQUIRED
from bayplan.model.assignment import Code, Exclusions, Misfit
from bayplan.model.node import HOSTNAME, Topology
from bayplan.runtime.clock import SystemClock
from bayplan.simulator.objects import RACK, job

RACKS = Topology("dc", ("rack", HOSTNAME))


@pytest.fixture
def cluster() -> HomeCluster:
    """One block of two racks of two hosts with four GPUs, stepped by hand."""
    return HomeCluster(Shape(1, 2, 2, 4), SystemClock())


def shown(cluster: HomeCluster, submitted: dict[str, object]) -> str:
    cluster.submit(submitted)
    for _ in range(5):
        cluster.crew.step(cluster.clock.wall())
        cluster.loop.step(cluster.clock.wall())
    console = Console(file=StringIO(), width=250)
    console.print(picture(cluster, cluster.clock.wall()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_gang_that_waits_is_shown_with_what_came_closest_and_what_it_lacks(cluster: HomeCluster) -> None:
    text = shown(cluster, job("wide", 3, 4, {REQUIRED: RACK}, 5))
    why = "rack b01/r01 comes closest with room for 2 of 3 pods; it lacks 4 gpu"
    gangs, _, decisions = text.partition("last decisions")
    assert why in gangs and "waits for room" in gangs
    assert f"Job wide waits: {why}" in decisions
    assert "pod(s)" not in text


def test_who_is_out_of_the_question_is_told_when_nothing_fits_at_all() -> None:
    nothing = Misfit(Code.NO_ROOM, ("main",), "dc", asked=2, excluded=Exclusions(4, selector=4))
    assert brief(nothing, RACKS) == "0 of 2 fit; of 4 nodes: 4 not matching the node selector"
    one = Misfit(Code.NO_ROOM, ("main",), "dc", fit=1, asked=2, excluded=Exclusions(4, selector=3))
    assert brief(one, RACKS) == "1 of 2 fit"


def test_pods_that_must_join_others_are_told_so() -> None:
    assert "where the rest of it" in brief(Misfit(Code.NO_REPLACEMENT, ("main",)), RACKS)


def test_a_topology_that_is_gone_does_not_matter(cluster: HomeCluster) -> None:
    assert cluster.why(Misfit(Code.NO_ROOM, ("main",), "gone", fit=1, asked=2)) == "1 of 2 fit"
