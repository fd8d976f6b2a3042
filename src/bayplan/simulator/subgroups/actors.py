"""Actors around groups with sub-groups: users who change specs, pods that are deleted, nodes that fail."""

from __future__ import annotations

import copy
from random import Random

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.kai.api import names
from bayplan.simulator.pods.actors import NEVER, InitialObjects, PodActors
from bayplan.simulator.subgroups.group_view import group_of
from bayplan.simulator.subgroups.queue_view import changed_queue

GROUPER_PREFIX = "pg-"
"""Prefix of the names of groups that the pod grouper created."""
PRIORITY_CLASSES = (None, "low", "high")
CHANGE_SECONDS = 150.0  # so long after the storm they may still change their minds
GROUPER_KEYS = (names.POD_GROUP_NAME, names.SUB_GROUP_NAME, names.FLAW)


class SubgroupActors(PodActors):
    """The actors of the pods play, for groups with sub-groups and queues."""

    def __init__(
        self,
        store: Store,
        rng: Random,
        world: InitialObjects,
        start: float,
        fault_seconds: float,
        rng_changes: Random,
    ) -> None:
        super().__init__(store, rng, world, names.POD_GROUP, start, fault_seconds)
        self.rng_changes = rng_changes  # that people change, also when the storm is over
        self.changed_at = -NEVER  # when queues or priority classes last changed
        for _ in range(rng_changes.choice((0, 0, 1, 3))):
            action = rng_changes.choice((self._change_priority, self._change_priority, self._change_queue))
            self.plan(start + rng_changes.uniform(0, fault_seconds + CHANGE_SECONDS), action)

    def _change_priority(self) -> None:
        """Change the priority class of a group, and make it preemptible."""
        groups = [one for one in self.store.list(names.POD_GROUP).items if _is_by_user(one)]
        for group in groups and [self.rng_changes.choice(groups)]:
            spec = {
                "priorityClassName": self.rng_changes.choice(PRIORITY_CLASSES),
                "preemptibility": names.PREEMPTIBLE,
            }
            self.store.patch(names.POD_GROUP, NAMESPACE, group["metadata"]["name"], {"spec": spec})
            self._count_change("group_ranked")

    def _change_queue(self) -> None:
        """Change quota, weight and priority of a queue."""
        queues = self.store.list(names.QUEUE).items
        for queue in queues and [self.rng_changes.choice(queues)]:
            spec = changed_queue(self.rng_changes, queue)
            try:
                self.store.patch(names.QUEUE, "", queue["metadata"]["name"], {"spec": spec})
                self._count_change("queue_changed")
            except StatusError:  # a webhook, where there is one, refuses a quota above the limit
                self.injected["queue_kept"] += 1

    def _count_change(self, what: str) -> None:
        self._count_fault(what)
        self.changed_at = self.now

    def lower_minimum(self, spec: Object) -> bool:
        parts = [part for part in spec.get("subGroups") or [spec] if part.get("minMember", 1) > 1]
        if not parts:
            return False
        self.rng.choice(parts)["minMember"] -= 1
        return True

    def gang_of(self, pod: Object) -> str:
        name = group_of(pod)
        return f"{names.POD_GROUP.kind}/{name}" if name else ""

    def recreate(self, pod: Object, number: int) -> None:
        """Recreate a pod without the group that the pod grouper put it into."""
        if group_of(pod).startswith(GROUPER_PREFIX):
            pod = copy.deepcopy(pod)
            for key in ("labels", "annotations"):
                old = pod["metadata"].get(key) or {}
                pod["metadata"][key] = {name: text for name, text in old.items() if name not in GROUPER_KEYS}
        super().recreate(pod, number)


def _is_by_user(group: Object) -> bool:
    """Whether a user created the group."""
    return not group["metadata"]["name"].startswith(GROUPER_PREFIX) and not group["metadata"].get(
        "deletionTimestamp"
    )
