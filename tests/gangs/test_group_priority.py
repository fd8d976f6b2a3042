"""From 1.37 on, all pods of a group must have the priority of the group, or it is not scheduled."""

from __future__ import annotations

from bayplan.dialects.kube.gang_api.gates import ALL_GATES, V1ALPHA2, V1BETA1
from tests.conformance.gang_steps_objects import PODS, Dialect
from tests.conformance.gang_steps_stage import Embedded
from tests.gangs.composite_scene import Scene

WORDS = (
    "all pods in a single pod group should have the same priority as the pod group's priority, got {} and {}"
)


def scene_of(version: str) -> Scene:
    scene = Scene(Embedded(Dialect(version), ALL_GATES))
    scene.nodes(4, "n1")
    return scene


def test_another_priority_is_an_error_until_the_pod_is_gone() -> None:
    scene = scene_of(V1BETA1)
    scene.group("g", 2, priority=100)
    scene.pods("g", 1, priority=100)
    scene.pods("g", 1, start=1, priority=7)
    scene.told("g-0", "SchedulerError", WORDS.format(7, 100))
    scene.group_says("g", "False", "SchedulerError")
    scene.bound()
    scene.stage.delete(PODS, "g-1")
    scene.pods("g", 1, start=2, priority=100)
    scene.bound("g-0", "g-2")
    scene.group_says("g", "True", "Scheduled")


def test_in_a_tree_the_priority_of_the_group_on_top_counts() -> None:
    scene = scene_of(V1BETA1)
    scene.composite("top", priority=100)
    scene.group("g", 1, above="top", priority=7)
    scene.pods("g", 1, priority=7)
    scene.told("g-0", "SchedulerError", WORDS.format(7, 100))
    scene.stage.delete(PODS, "g-0")
    scene.pods("g", 1, start=1, priority=100)
    scene.bound("g-1")


def test_before_that_version_the_priority_does_not_matter() -> None:
    scene = scene_of(V1ALPHA2)
    scene.group("g", 1, priority=100)
    scene.pods("g", 1, priority=7)
    scene.bound("g-0")
