"""Composite pod groups as users see them: in memory and in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bayplan.dialects.kube.gang_api.gates import ALL_GATES, V1BETA1
from tests.conformance.gang_steps_objects import COMPOSITES, PODS, Dialect
from tests.conformance.gang_steps_stage import Embedded
from tests.gangs.composite_scene import Scene, two_groups_start_together_or_not_at_all


@pytest.fixture
def scene() -> Scene:
    return Scene(Embedded(Dialect(V1BETA1), ALL_GATES))


def test_two_groups_start_together_or_not_at_all(scene: Scene) -> None:
    two_groups_start_together_or_not_at_all(scene)


def test_a_group_waits_for_the_others_of_its_tree(scene: Scene) -> None:
    scene.nodes(8, "n1")
    scene.composite("both", 2)
    scene.group("left", 2, above="both")
    scene.pods("left", 1, 1)
    quorum = 'waiting for composite pod group "both" tree to meet quorum'
    scene.told("left-0", "WaitingForGang", f'{quorum}: composite pod group "both" has too few groups')
    scene.group("right", 2, above="both")
    scene.pods("right", 1)
    scene.told("left-1", "WaitingForGang", f'{quorum}: of pod group "right", 1 of 2 pods are there')
    scene.pods("right", 1, start=1)
    scene.bound("left-0", "left-1", "right-0", "right-1")


def test_a_group_waits_for_the_one_that_it_names(scene: Scene) -> None:
    scene.nodes(8, "n1")
    scene.group("left", 1, above="both")
    scene.pods("left", 1)
    awaited = 'waiting for composite pod group "{}" to appear in scheduling queue: create it'
    scene.told("left-0", "WaitingForGang", awaited.format("both"))
    scene.composite("both", above="top")
    scene.told("left-0", "WaitingForGang", awaited.format("top"))
    scene.composite("top")
    scene.bound("left-0")


def test_of_three_groups_the_two_that_fit_together_are_bound(scene: Scene) -> None:
    scene.nodes(4, "n1")
    scene.composite("two", 2)
    for name, cpus in {"a": (3,), "b": (2,), "c": (2,)}.items():
        scene.group(name, 1, above="two")
        scene.pods(name, *cpus)
    scene.bound("b-0", "c-0")
    scene.group_says("a", "False", "Unschedulable")
    scene.group_says("b", "True", "Scheduled")
    scene.nodes(3, "n2")
    scene.bound("a-0", "b-0", "c-0")
    scene.group_says("a", "True", "Scheduled")


def test_any_pods_of_a_group_that_fit_make_up_its_minimum(scene: Scene) -> None:
    scene.nodes(4, "n1")
    scene.composite("both", 2)
    scene.group("left", 2, above="both")
    scene.pods("left", 9, 1, 1)
    scene.group("right", 1, above="both")
    scene.pods("right", 1)
    scene.bound("left-1", "left-2", "right-0")


def test_groups_that_share_a_domain_choose_one_that_holds_them_all(scene: Scene) -> None:
    scene.nodes(2, "n1", "n2", rack="r1")
    scene.nodes(3, "n3", "n4", rack="r2")
    scene.composite("both", 2, topologyKey="rack")
    for name in ("left", "right"):
        scene.group(name, 1, above="both")
        scene.pods(name, 3)
    scene.bound("left-0", "right-0")


def test_a_group_whose_pods_are_in_several_domains_cannot_be_joined(scene: Scene) -> None:
    scene.nodes(2, "n1", rack="r1")
    scene.nodes(2, "n2", rack="r2")
    scene.composite("one", topologyKey="rack")
    scene.group("left", 3, above="one")
    scene.pods("left", 1, nodeName="n1")
    scene.pods("left", 1, start=1, nodeName="n2")
    scene.pods("left", 1, start=2)
    scene.told("left-2", "SchedulerError", "cannot determine domain for already scheduled pods")


def test_a_circle_of_groups_is_reported_and_starts_no_pod(scene: Scene) -> None:
    scene.nodes(2, "n1")
    scene.composite("a", above="b")
    scene.composite("b", above="a")
    scene.group("left", 1, above="a")
    scene.pods("left", 1)
    scene.told("left-0", "SchedulerError", "cycle detected in the hierarchy")


@pytest.mark.parametrize("length", [4, 400])
def test_a_chain_that_is_too_long_is_reported_and_starts_no_pod(scene: Scene, length: int) -> None:
    scene.nodes(2, "n1")
    scene.composite("c0")
    for number in range(1, length):
        scene.composite(f"c{number}", above=f"c{number - 1}")
    scene.group("left", 1, above=f"c{length - 1}")
    scene.pods("left", 1)
    scene.told("left-0", "SchedulerError", "maximum hierarchy depth of composite pod groups is 4")
    scene.bound()


def test_a_chain_of_as_many_groups_as_allowed_starts(scene: Scene) -> None:
    scene.nodes(2, "n1")
    scene.composite("c0")
    scene.composite("c1", above="c0")
    scene.composite("c2", above="c1")
    scene.group("left", 1, above="c2")
    scene.pods("left", 1)
    scene.bound("left-0")


def test_a_group_in_front_of_a_circle_reports_the_circle(scene: Scene) -> None:
    scene.nodes(2, "n1")
    scene.composite("a", above="b")
    scene.composite("c", above="b")
    scene.group("left", 1, above="a")
    scene.pods("left", 1)
    scene.told("left-0", "WaitingForGang", 'composite pod group "b" to appear')
    scene.composite("b", above="c")
    scene.told("left-0", "SchedulerError", "cycle detected in the hierarchy")


def test_a_circle_that_was_deleted_is_forgotten_and_its_groups_can_be_made_again(scene: Scene) -> None:
    scene.nodes(2, "n1")
    scene.composite("a", above="b")
    scene.composite("b", above="a")
    scene.bound()
    for name in "ab":
        scene.stage.delete(COMPOSITES, name, None)
    scene.bound()
    scene.composite("a")
    scene.group("left", 1, above="a")
    scene.pods("left", 1)
    scene.bound("left-0")


def test_a_group_deleted_with_its_last_pod_leaves_the_tree(scene: Scene) -> None:
    scene.nodes(4, "n1")
    scene.composite("both", 2)
    for name in ("left", "right"):
        scene.group(name, 1, above="both")
    scene.pods("left", 1)
    scene.pods("right", 9)
    scene.told("left-0", "Unschedulable", "pod group is unschedulable")
    scene.stage.delete(scene.stage.dialect.groups, "right", None)
    scene.stage.delete(PODS, "right-0", None)
    quorum = 'tree to meet quorum: composite pod group "both" has too few groups'
    scene.told("left-0", "WaitingForGang", quorum)


def test_pods_stay_while_the_group_above_them_is_missing(scene: Scene) -> None:
    scene.nodes(4, "n1")
    scene.composite("both", 1)
    scene.group("left", 1, above="both")
    scene.pods("left", 1)
    scene.bound("left-0")
    scene.stage.delete(COMPOSITES, "both", None)
    scene.pods("left", 1, start=1)
    scene.told("left-1", "WaitingForGang", "to appear in scheduling queue")
    scene.bound("left-0")
    scene.composite("both", 1)
    scene.bound("left-0", "left-1")


def again(scene: Scene) -> None:
    assert isinstance(scene.stage, Embedded)
    scene.stage.start_scheduler()


def test_an_unrecorded_group_of_a_running_tree_is_recorded_after_a_restart(
    scene: Scene,
) -> None:
    scene.nodes(4, "n1")
    scene.composite("any")
    scene.group("first", 1, above="any")
    scene.pods("first", 1)
    scene.group_says("first", "True", "Scheduled")
    scene.group("second", 1, above="any")
    scene.pods("second", 1, nodeName="n1")  # as by a scheduler that was killed right after
    scene.bound("first-0", "second-0")
    again(scene)
    scene.group_says("second", "True", "Scheduled")


@pytest.mark.parametrize("between", [lambda scene: None, again], ids=["at once", "after a restart"])
def test_a_late_group_of_a_running_tree_starts_as_a_whole(
    scene: Scene, between: Callable[[Scene], None]
) -> None:
    scene.nodes(4, "n1")
    scene.composite("any")
    scene.group("first", 1, above="any")
    scene.pods("first", 1)
    scene.bound("first-0")
    between(scene)
    scene.group("second", 2, above="any")
    scene.pods("second", 1)
    scene.bound("first-0")
    scene.pods("second", 3, start=1)
    scene.bound("first-0")
    scene.pods("second", 1, start=2)
    scene.bound("first-0", "second-0", "second-2")
    scene.group_says("second", "True", "Scheduled")
