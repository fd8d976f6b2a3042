"""Groups with sub-groups as the API shows them: their leaves, required domains and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.fake_controllers.objects import is_terminating
from bayplan.dialects.kai.api import names
from bayplan.simulator.core.checkers import pod_requests
from bayplan.simulator.core.documents import once_per_document, once_per_listing
from bayplan.simulator.pods.gang_view import is_bound, is_pending, priority_of
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView
from bayplan.simulator.subgroups.world import DEFAULT_PRIORITY, HALL, LEVELS, PRIORITIES

Object = dict[str, Any]
List = Callable[[str], Sequence[Object]]
Labels = Mapping[str, Mapping[str, str]]
NO_SUB_GROUP = ""
"""The leaf of pods without a valid sub-group; in a group without sub-groups, the only one."""
NON_PREEMPTIBLE_FROM = 100  # the priority from which on a group is not preemptible unless it says so


@dataclass(frozen=True, slots=True)
class SharedDomain:
    """All pods of these leaves are required to be in one domain of a level."""

    name: str
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
    non_preemptible: bool = False
    invalid: bool = False  # it asks for what cannot be
    minimums: dict[str, int] = field(default_factory=dict)
    shared_domains: list[SharedDomain] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)

    def without_pods(self) -> GroupView:
        """The same group, to which pods can be added."""
        return GroupView(
            self.name, self.uid, self.known, self.queue, self.priority, self.non_preemptible, self.invalid,
            self.minimums, self.shared_domains,
        )  # fmt: skip

    def leaf_of(self, pod: Object) -> str:
        """The leaf of a pod."""
        value = (pod["metadata"].get("labels") or {}).get(names.SUB_GROUP_NAME, NO_SUB_GROUP)
        return value if value in self.minimums else NO_SUB_GROUP

    def bound_pods(self) -> list[Object]:
        return [pod for pod in self.pods if is_bound(pod)]

    def pending_pods(self) -> list[Object]:
        """Pending pods without scheduling gates."""
        return [pod for pod in self.pods if is_pending(pod) and not pod["spec"].get("schedulingGates")]

    def missing_pods(self, pods: Sequence[Object]) -> dict[str, int]:
        """By leaf, how many pods are missing to its minimum."""
        counts: dict[str, int] = {}
        for pod in pods:
            leaf = self.leaf_of(pod)
            counts[leaf] = counts.get(leaf, 0) + 1
        return {leaf: minimum - counts.get(leaf, 0) for leaf, minimum in self.minimums.items()
                if counts.get(leaf, 0) < minimum}  # fmt: skip


def group_of(pod: Object) -> str:
    """The group of a pod; empty if none."""
    return str((pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME) or "")


def group_views(objects: List) -> Mapping[str, GroupView]:
    """All groups with their pods, including groups whose object does not exist."""
    return _group_views(objects("groups"), objects("pods"))


@once_per_listing
def _group_views(groups: Sequence[Object], pods: Sequence[Object]) -> Mapping[str, GroupView]:
    views = {
        group["metadata"]["name"]: _group_view(group).without_pods()
        for group in groups
        if not is_terminating(group)
    }
    for pod in pods:
        name = group_of(pod)
        if name:
            views.setdefault(name, GroupView(name)).pods.append(pod)
    return views


@once_per_document
def _group_view(group: Object) -> GroupView:
    """A group without its pods."""
    spec, meta = group["spec"], group["metadata"]
    parts = spec.get("subGroups") or []
    parents = {part.get("parent") for part in parts}
    minimums = {part["name"]: _minimum(part) for part in parts if part["name"] not in parents}
    priority = _priority(spec)
    value = spec.get("preemptibility")
    return GroupView(
        meta["name"], meta["uid"], True, spec.get("queue") or "", priority,
        non_preemptible=value == names.NON_PREEMPTIBLE or (not value and priority >= NON_PREEMPTIBLE_FROM),
        invalid=names.FLAW in (meta.get("annotations") or {}),
        minimums={**minimums, NO_SUB_GROUP: 0} if parts else {NO_SUB_GROUP: _minimum(spec)},
        shared_domains=list(_shared_domains(meta["name"], spec, parts)),
    )  # fmt: skip


def _minimum(value: Object) -> int:
    minimum = value.get("minMember")
    return 1 if minimum is None else int(minimum)


def _priority(spec: Object) -> int:
    return PRIORITIES.get(spec.get("priorityClassName") or "", DEFAULT_PRIORITY)


def _shared_domains(name: str, spec: Object, parts: Sequence[Object]) -> Iterator[SharedDomain]:
    leaves_below: dict[str, set[str]] = {}
    parents = {part["name"]: part.get("parent") or "" for part in parts}
    for leaf in parents.keys() - set(parents.values()):
        node = leaf
        while node:
            leaves_below.setdefault(node, set()).add(leaf)
            node = parents[node]
    all_leaves = frozenset(parents.keys() - set(parents.values())) | {NO_SUB_GROUP}
    for owner, constraint, leaves in (
        (name, spec.get("topologyConstraint"), all_leaves),
        *(
            (part["name"], part.get("topologyConstraint"), frozenset(leaves_below[part["name"]]))
            for part in parts
        ),
    ):
        level = (constraint or {}).get("requiredTopologyLevel")
        if level and (constraint or {}).get("topology") == HALL:
            yield SharedDomain(owner, level, leaves)


def domain_of(labels: Mapping[str, str], level: str) -> tuple[str, ...] | None:
    """The domain of a host; None if it is outside of the topology."""
    if any(not labels.get(one) for one in LEVELS):
        return None
    return tuple(labels[one] for one in LEVELS[: LEVELS.index(level) + 1])


def check_shared_domains(view: GroupView, labels: Labels) -> Iterator[str]:
    """All bound pods are in the required domains of their group and sub-groups."""
    placed = [pod for pod in view.bound_pods() if pod["spec"]["nodeName"] in labels]
    for shared in view.shared_domains:
        nodes = [pod["spec"]["nodeName"] for pod in placed if view.leaf_of(pod) in shared.leaves]
        domains = {domain_of(labels[node], shared.level) for node in nodes}
        if len(domains) > 1 or None in domains:
            where = sorted(map(str, domains))
            yield f"{view.name}: {shared.name} must be in one {shared.level} and is in {where}"


def queue_usage(objects: List, views: Mapping[str, GroupView]) -> QueueUsageView:
    """The usage of queues by bound pods that are not terminating."""
    usage = QueueUsageView.of(objects("queues"))
    for view in views.values():
        for pod in view.pods:
            if view.known and uses_node(pod):
                usage.take(view.queue, pod_requests(pod).get(CPU, 0), non_preemptible=view.non_preemptible)
    return usage


def uses_node(pod: Object) -> bool:
    """Whether a pod uses resources of a node and is not terminating."""
    return is_bound(pod) and (pod.get("status") or {}).get("phase") != "Succeeded"


def priority_in_group(pod: Object, view: GroupView | None) -> int:
    """The priority of the pod's group, or of the pod itself without one."""
    return view.priority if view is not None and view.known else priority_of(pod)
