"""Everybody around groups with sub-groups: people who change their minds, pods that go, nodes that fail."""

from __future__ import annotations

import copy
from random import Random

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.kai.api import names
from bayplan.simulator.pods.actors import NEVER, InitialObjects, PodActors
from bayplan.simulator.subgroups.group_view import group_of
from bayplan.simulator.subgroups.queue_view import changed_queue

MADE = "pg-"
"""How names of groups begin that were made for their pods."""
RANKS = (None, "low", "high")
RULING_SECONDS = 150.0  # so long after the storm they may still change their minds
OF_THE_GROUPER = (names.POD_GROUP_NAME, names.SUB_GROUP_NAME, names.FLAW)


class SubgroupActors(PodActors):
    """The same deeds, in the words of these groups."""

    def __init__(
        self, store: Store, rng: Random, world: InitialObjects, start: float, storm: float, minds: Random
    ) -> None:
        super().__init__(store, rng, world, names.POD_GROUP, start, storm)
        self.minds = minds  # that people change, also when the storm is over
        self.ruled = -NEVER  # when rules that everybody counts by were changed last
        for _ in range(minds.choice((0, 0, 1, 3))):
            deed = minds.choice((self._rank, self._rank, self._rule))
            self.plan(start + minds.uniform(0, storm + RULING_SECONDS), deed)

    def _rank(self) -> None:
        """A group is more or less important, and may be made to go."""
        groups = [one for one in self.store.list(names.POD_GROUP).items if _is_told(one)]
        for group in groups and [self.minds.choice(groups)]:
            spec = {"priorityClassName": self.minds.choice(RANKS), "preemptibility": names.PREEMPTIBLE}
            self.store.patch(names.POD_GROUP, NAMESPACE, group["metadata"]["name"], {"spec": spec})
            self._ruled("group_ranked")

    def _rule(self) -> None:
        """A queue has another quota, weight and priority."""
        queues = self.store.list(names.QUEUE).items
        for queue in queues and [self.minds.choice(queues)]:
            spec = changed_queue(self.minds, queue)
            self.store.patch(names.QUEUE, "", queue["metadata"]["name"], {"spec": spec})
            self._ruled("queue_changed")

    def _ruled(self, what: str) -> None:
        self._note(what)
        self.ruled = self.now

    def lowers(self, spec: Object) -> bool:
        parts = [part for part in spec.get("subGroups") or [spec] if part.get("minMember", 1) > 1]
        if not parts:
            return False
        self.rng.choice(parts)["minMember"] -= 1
        return True

    def gang_of(self, pod: Object) -> str:
        name = group_of(pod)
        return f"{names.POD_GROUP.kind}/{name}" if name else ""

    def recreate(self, pod: Object, number: int) -> None:
        """A pod that somebody put into a group comes again without it."""
        if group_of(pod).startswith(MADE):
            pod = copy.deepcopy(pod)
            for key in ("labels", "annotations"):
                kept = pod["metadata"].get(key) or {}
                pod["metadata"][key] = {
                    name: text for name, text in kept.items() if name not in OF_THE_GROUPER
                }
        super().recreate(pod, number)


def _is_told(group: Object) -> bool:
    """Whether people say what a group is, and nobody else does."""
    return not group["metadata"]["name"].startswith(MADE) and not group["metadata"].get("deletionTimestamp")
