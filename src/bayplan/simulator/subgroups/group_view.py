"""Groups with sub-groups as objects show them: their leaves, the domains they must be in, and their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.fake_controllers.objects import is_leaving
from bayplan.dialects.kai.api import names
from bayplan.simulator.pods.gang_view import priority_of, stands, waits
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView, amounts_of_pod
from bayplan.simulator.subgroups.world import DEFAULT_PRIORITY, HALL, LEVELS, PRIORITIES

Object = dict[str, Any]
List = Callable[[str], Sequence[Object]]
Labels = Mapping[str, Mapping[str, str]]
STRAYS = ""
"""The leaf of pods that name none there is; of a group without sub-groups, the only one."""
LASTS_FROM = 100  # the priority from which on a group is not preemptible unless it says so


@dataclass(frozen=True, slots=True)
class SharedDomain:
    """All pods of these leaves must be in one domain of a level."""

    whose: str
    level: str
    leaves: frozenset[str]


@dataclass(slots=True)
class GroupView:
    """One group with its pods."""

    name: str
    uid: str = ""
    known: bool = False  # its object is there
    queue: str = ""
    priority: int = 0
    lasting: bool = False
    flawed: bool = False  # it asks for what cannot be
    minima: dict[str, int] = field(default_factory=dict)
    bonds: list[SharedDomain] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)

    def leaf_of(self, pod: Object) -> str:
        """Where a pod belongs."""
        said = (pod["metadata"].get("labels") or {}).get(names.SUB_GROUP_NAME, STRAYS)
        return said if said in self.minima else STRAYS

    def standing(self) -> list[Object]:
        return [pod for pod in self.pods if stands(pod)]

    def waiting(self) -> list[Object]:
        """Those that want a node and are not held back."""
        return [pod for pod in self.pods if waits(pod) and not pod["spec"].get("schedulingGates")]

    def short(self, pods: Sequence[Object]) -> dict[str, int]:
        """By leaf, how many more than these it cannot do without."""
        counts: dict[str, int] = {}
        for pod in pods:
            leaf = self.leaf_of(pod)
            counts[leaf] = counts.get(leaf, 0) + 1
        return {leaf: least - counts.get(leaf, 0) for leaf, least in self.minima.items()
                if counts.get(leaf, 0) < least}  # fmt: skip


def group_of(pod: Object) -> str:
    """The group that a pod is joined to; empty: none."""
    return str((pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME) or "")


def group_views(objects: List) -> dict[str, GroupView]:
    """All groups, with their pods; groups that only pods know too."""
    found = {
        group["metadata"]["name"]: _group_view(group) for group in objects("groups") if not is_leaving(group)
    }
    for pod in objects("pods"):
        name = group_of(pod)
        if name:
            found.setdefault(name, GroupView(name)).pods.append(pod)
    return found


def _group_view(group: Object) -> GroupView:
    spec, meta = group["spec"], group["metadata"]
    parts = spec.get("subGroups") or []
    parents = {part.get("parent") for part in parts}
    minima = {part["name"]: _least(part) for part in parts if part["name"] not in parents}
    priority = _priority(spec)
    said = spec.get("preemptibility")
    return GroupView(
        meta["name"], meta["uid"], True, spec.get("queue") or "", priority,
        lasting=said == names.NON_PREEMPTIBLE or (not said and priority >= LASTS_FROM),
        flawed=names.FLAW in (meta.get("annotations") or {}),
        minima={**minima, STRAYS: 0} if parts else {STRAYS: _least(spec)},
        bonds=list(_bonds(meta["name"], spec, parts)),
    )  # fmt: skip


def _least(said: Object) -> int:
    least = said.get("minMember")
    return 1 if least is None else int(least)


def _priority(spec: Object) -> int:
    return PRIORITIES.get(spec.get("priorityClassName") or "", DEFAULT_PRIORITY)


def _bonds(name: str, spec: Object, parts: Sequence[Object]) -> Iterator[SharedDomain]:
    below: dict[str, set[str]] = {}
    parents = {part["name"]: part.get("parent") or "" for part in parts}
    for leaf in parents.keys() - set(parents.values()):
        at = leaf
        while at:
            below.setdefault(at, set()).add(leaf)
            at = parents[at]
    everybody = frozenset(parents.keys() - set(parents.values())) | {STRAYS}
    for whose, asked, leaves in (
        (name, spec.get("topologyConstraint"), everybody),
        *((part["name"], part.get("topologyConstraint"), frozenset(below[part["name"]])) for part in parts),
    ):
        level = (asked or {}).get("requiredTopologyLevel")
        if level and (asked or {}).get("topology") == HALL:
            yield SharedDomain(whose, level, leaves)


def domain_of(labels: Mapping[str, str], level: str) -> tuple[str, ...] | None:
    """The domain of a host; None if it is outside of the topology."""
    if any(not labels.get(one) for one in LEVELS):
        return None
    return tuple(labels[one] for one in LEVELS[: LEVELS.index(level) + 1])


def check_shared_domains(view: GroupView, labels: Labels) -> Iterator[str]:
    """Everybody who stands is where all levels of the tree want it."""
    placed = [pod for pod in view.standing() if pod["spec"]["nodeName"] in labels]
    for bond in view.bonds:
        nodes = [pod["spec"]["nodeName"] for pod in placed if view.leaf_of(pod) in bond.leaves]
        found = {domain_of(labels[node], bond.level) for node in nodes}
        if len(found) > 1 or None in found:
            where = sorted(map(str, found))
            yield f"{view.name}: {bond.whose} must be in one {bond.level} and is in {where}"


def books(objects: List, found: Mapping[str, GroupView]) -> QueueUsageView:
    """What queues have by the pods that hold room and are not leaving."""
    kept = QueueUsageView.of(objects("queues"))
    for view in found.values():
        for pod in view.pods:
            if view.known and holds(pod):
                kept.take(view.queue, amounts_of_pod(pod).get(CPU, 0), lasting=view.lasting)
    return kept


def holds(pod: Object) -> bool:
    """Whether a pod takes room and is not about to give it up."""
    return stands(pod) and (pod.get("status") or {}).get("phase") != "Succeeded"


def priority_in_group(pod: Object, view: GroupView | None) -> int:
    """How important a pod is: as its group is, if it has one."""
    return view.priority if view is not None and view.known else priority_of(pod)
