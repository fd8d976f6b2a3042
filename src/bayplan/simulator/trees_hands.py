"""Everybody around groups with sub-groups: people who change their minds, pods that go, nodes that fail."""

from __future__ import annotations

import copy
from random import Random

from bayplan.backends.embedded.store import Store
from bayplan.dialects.kai import names
from bayplan.simulator.objects import Object
from bayplan.simulator.pods_hands import PodHands, Scene
from bayplan.simulator.trees_gangs import group_of

MADE = "pg-"
"""How names of groups begin that were made for their pods."""
OF_THE_GROUPER = (names.POD_GROUP_NAME, names.SUB_GROUP_NAME, names.FLAW)


class TreeHands(PodHands):
    """The same deeds, in the words of these groups."""

    def __init__(self, store: Store, rng: Random, world: Scene, start: float, storm: float) -> None:
        super().__init__(store, rng, world, names.POD_GROUP, start, storm)

    def lowers(self, spec: Object) -> bool:
        parts = [part for part in spec.get("subGroups") or [spec] if part.get("minMember", 1) > 1]
        if not parts:
            return False
        self.rng.choice(parts)["minMember"] -= 1
        return True

    def gang_of(self, pod: Object) -> str:
        name = group_of(pod)
        return f"{names.POD_GROUP.kind}/{name}" if name else ""

    def make_again(self, pod: Object, number: int) -> None:
        """A pod that somebody put into a group comes again without it."""
        if group_of(pod).startswith(MADE):
            pod = copy.deepcopy(pod)
            for key in ("labels", "annotations"):
                kept = pod["metadata"].get(key) or {}
                pod["metadata"][key] = {
                    name: text for name, text in kept.items() if name not in OF_THE_GROUPER
                }
        super().make_again(pod, number)
