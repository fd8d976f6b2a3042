"""Short helpers for scenarios with composite pod groups."""

from __future__ import annotations

from typing import Any

from tests.conformance.gang_steps_objects import COMPOSITES, NODES, PODS, Object, ready_node
from tests.conformance.gang_steps_stage import Stage, conditions

FROM = {"workloadName": "w", "templateName": "t"}


class Scene:
    """A test cluster with short methods for each step."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def nodes(self, cpu: int, *names: str, **labels: str) -> None:
        said = {"labels": labels, "allocatable": {"cpu": str(cpu), "pods": "32"}}
        self.stage.create(NODES, *(ready_node({"name": name, **said}) for name in names))

    def composite(self, name: str, least: int = 0, **said: Any) -> None:
        policy = {"gang": {"minGroupCount": least}} if least else {"basic": {}}
        made = {"name": name, "policy": policy, "workloadRef": FROM, **_named(said)}
        self.stage.create(COMPOSITES, self.stage.dialect.composite(made))

    def group(self, name: str, least: int = 0, **said: Any) -> None:
        policy = {"gang": {"minCount": least}} if least else {"basic": {}}
        made = {"name": name, "policy": policy, "workloadRef": FROM, **_named(said)}
        self.stage.create(self.stage.dialect.groups, self.stage.dialect.group(made))

    def pods(self, group: str, *cpus: int, start: int = 0, **said: Any) -> None:
        for number, cpu in enumerate(cpus, start):
            pod = {"name": f"{group}-{number}", "requests": {"cpu": str(cpu)}, "group": group, **said}
            self.stage.create(PODS, self.stage.dialect.pod(pod))

    def bound(self, *expected: str) -> None:
        """Exactly these pods have a node."""

        def wrong() -> list[str]:
            pods = {name: one for (plural, name), one in self.stage.objects.items() if plural == PODS.plural}
            found = sorted(name for name, pod in pods.items() if pod["spec"].get("nodeName"))
            return [] if found == sorted(expected) else [f"bound: {found}"]

        assert self.stage.until(wrong, stays=True) == []

    def told(self, pod: str, reason: str, words: str) -> None:
        """The condition of a pod has this reason and contains this text."""

        def wrong() -> list[str]:
            found = conditions(self.stage.pod(pod), "PodScheduled")
            return [] if found[1] == reason and words in found[2] else [f"told: {found}"]

        assert self.stage.until(wrong) == []

    def group_says(self, name: str, status: str, reason: str) -> None:
        """The condition of a pod group has this status and reason."""

        def wrong() -> list[str]:
            group = self.stage.objects.get((self.stage.dialect.groups.plural, name))
            found = conditions(group, self.stage.dialect.condition)
            return [] if found[:2] == (status, reason) else [f"{name} says {found}"]

        assert self.stage.until(wrong) == []


def _named(said: Object) -> Object:
    above = said.pop("above", None)
    return said if above is None else {**said, "parentCompositePodGroupName": above}


def two_groups_start_together_or_not_at_all(scene: Scene) -> None:
    """Three of four pods fit, then all of them."""
    scene.nodes(3, "n1")
    scene.composite("both", 2)
    for name in ("left", "right"):
        scene.group(name, 2, above="both")
        scene.pods(name, 1, 1)
    scene.told("left-0", "Unschedulable", "pod group is unschedulable: 3 of 4 pods fit")
    scene.bound()
    scene.group_says("left", "False", "Unschedulable")
    scene.nodes(1, "n2")
    scene.bound("left-0", "left-1", "right-0", "right-1")
    for name in ("left", "right"):
        scene.group_says(name, "True", "Scheduled")
