"""PodGroups below CompositePodGroups, decoded together as one gang with a tree.

The gang is named after the root group. A pod names only its PodGroup, so that its gang may change when a
group above becomes known. The changes are published once for each batch of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.dialects.kube.gang.objects import COMPOSITE, DIALECT, POD_GROUP
from bayplan.model.change import (
    Change,
    GangSpecLost,
    GangSpecSeen,
    PodLost,
    PodSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Group, PodSet, Ref, pods_to_minimum
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Topology
from bayplan.model.pod import Pod, PodKey

CYCLE = "cycle detected in the hierarchy of composite pod groups"
DEPTH_MAX = 4
"""The most levels of groups, including PodGroups: as many as the templates of a Workload may have."""
TOO_DEEP = f"maximum hierarchy depth of composite pod groups is {DEPTH_MAX}"
PRIORITY_MISMATCH = (
    "all pods in a single pod group should have the same priority as the pod group's priority, got {} and {}"
)
TOPOLOGIES = f"{DIALECT}/"
"""The name prefix of topologies that consist of the node labels in a tree, from the top down."""


@dataclass(slots=True)
class GroupNode:
    """A PodGroup or CompositePodGroup. After its object is deleted, its parent is remembered."""

    parent: str = ""
    spec: GangSpec | None = None  # of this group alone; `minimum` counts pods, or groups
    exact: bool = False  # all pods must have the priority of the group
    below: dict[Ref, None] = field(default_factory=dict)
    pods: dict[PodKey, Pod] = field(default_factory=dict)


class CompositeGroups:
    """All groups that have a parent or children, and the pods of all PodGroups."""

    def __init__(self) -> None:
        self.nodes: dict[Ref, GroupNode] = {}
        self.published: dict[Ref, GangSpec] = {}  # the last published spec of each gang, by root group
        self.pod_groups: dict[PodKey, Ref] = {}  # the PodGroup that a pod names
        self.positions: dict[PodKey, tuple[Ref, str]] = {}  # gang and pod set, as last published
        self.mismatched: set[Ref] = set()  # PodGroups without parent that have pods of another priority
        self._dirty: dict[Ref, None] = {}

    # ── changes ────────────────────────────────────────────────────────────────────────────────────

    def seen(self, ref: Ref, parent: str, spec: GangSpec, *, exact: bool = True) -> None:
        """A group was added or updated."""
        node = self._node(ref)
        node.exact = exact
        if node.parent == parent and node.spec == spec:
            return
        node.spec = spec
        self._dirty[ref] = None
        if node.parent != parent:
            self._dirty[self.root_of(ref)] = None
            before, node.parent = node.parent, parent
            self._unlink(ref, before)
            if parent:
                self._node(_above(ref, parent)).below[ref] = None

    def lost(self, ref: Ref) -> None:
        """A group was deleted."""
        if ref in self.nodes:
            self.nodes[ref].spec = None
            self._dirty |= {ref: None, self.root_of(ref): None}  # without pods it is removed too

    def position_pods(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes, with each pod in the gang of its PodGroup."""
        for change in changes:
            match change:
                case PodSeen(pod) if pod.gang is not None and _is_pod_group(pod.gang):
                    if self.pod_groups.get(pod.key, pod.gang) != pod.gang:
                        self._remove_pod(pod.key)
                    self.pod_groups[pod.key] = pod.gang
                    self._node(pod.gang).pods[pod.key] = pod
                    change = PodSeen(self._positioned(pod))
                    self._check_priority(change.pod)
                case PodLost(key):
                    self._remove_pod(key)
            yield change

    def flush(self) -> Iterator[Change]:
        """The changes of all affected gangs and pods. Called once after a batch of events.

        After a failure, the next call continues with the remaining groups.
        """
        dirty, self._dirty = self._dirty, {}
        failing = None
        try:
            for ref, change in self._flush(dirty):
                failing = ref
                if change is not None:
                    yield change
            dirty = {}
        finally:
            self._dirty |= {ref: None for ref in dirty if failing not in (ref, self.root_of(ref))}

    def _flush(self, dirty: Mapping[Ref, None]) -> Iterator[tuple[Ref, Change | None]]:
        """Each group before it is processed, and then its changes."""
        known: dict[Ref, Ref] = {}
        roots = dict.fromkeys(self.root_of(ref, known) for ref in dirty) | {
            ref: None for ref in dirty if ref in self.published
        }
        self.mismatched.difference_update(dirty.keys() - roots.keys())  # they have a parent now
        for root in roots:
            yield root, None
            for change in self._publish(root):
                yield root, change
        visited: dict[Ref, None] = {}
        for ref in dirty:
            yield ref, None
            for pod in self._pods_below(ref, visited):
                if self.positions.get(pod.key) != self._position(pod):
                    yield ref, PodSeen(self._positioned(pod))
        for ref in dirty:
            self._prune(ref)

    # ── trees ──────────────────────────────────────────────────────────────────────────────────────

    def root_of(self, ref: Ref, known: dict[Ref, Ref] | None = None) -> Ref:
        """The root group; in a cycle, the first by name of the groups in it.

        `known` caches results and is extended, so that each part of a long chain is visited once.
        """
        cache = {} if known is None else known
        path = {ref: None}
        while ref not in cache and (node := self.nodes.get(ref)) is not None and node.parent:
            ref = _above(ref, node.parent)
            if ref in path:
                cycle = list(path)
                ref = min(cycle[cycle.index(ref) :], key=lambda one: one.name)
                break
            path[ref] = None
        root = cache.get(ref, ref)
        cache |= dict.fromkeys(path, root)
        return root

    def leaves(self, root: Ref) -> Iterator[GangSpec]:
        """The existing PodGroups of a gang."""
        for ref in self._below(root):
            spec = self.nodes[ref].spec
            if ref.kind == POD_GROUP and spec is not None:
                yield spec

    def _below(self, ref: Ref, visited: dict[Ref, None] | None = None) -> Iterator[Ref]:
        """A group and all groups below it, each once, except those visited before."""
        seen = {} if visited is None else visited
        stack = [] if ref in seen else [ref]
        seen[ref] = None
        while stack:
            one = stack.pop()
            yield one
            node = self.nodes.get(one)
            for child in node.below if node is not None else ():
                if child not in seen:
                    seen[child] = None
                    stack.append(child)

    def _publish(self, root: Ref) -> Iterator[Change]:
        """The spec of one gang, if it changed."""
        if root.kind != COMPOSITE:
            yield from self._publish_single(root)
            return
        before, now = self.published.get(root), self._gang_spec(root)
        if now == before:
            return
        new_topology, old_topology = ("" if one is None else one.topology for one in (now, before))
        if new_topology and all(one.topology != new_topology for one in self.published.values()):
            assert now is not None and now.tree is not None
            yield TopologySeen(Topology(new_topology, tuple(_levels(now.tree))))
        if now is None:
            self.published.pop(root, None)
            yield GangSpecLost(root)
        else:
            self.published[root] = now
            yield GangSpecSeen(now)
        if old_topology and all(one.topology != old_topology for one in self.published.values()):
            yield TopologyLost(old_topology)

    def _publish_single(self, ref: Ref) -> Iterator[Change]:
        """A PodGroup without parent was published when it was seen, but without its pods' priorities."""
        node = self.nodes.get(ref)
        if node is None or node.spec is None:
            self.mismatched.discard(ref)
            return
        flaw = self._priority_error(ref)
        if flaw or ref in self.mismatched:
            yield GangSpecSeen(replace(node.spec, flaw=flaw))
        (self.mismatched.add if flaw else self.mismatched.discard)(ref)

    def _gang_spec(self, root: Ref) -> GangSpec | None:
        node = self.nodes.get(root)
        if node is None or node.spec is None:
            return None
        if node.parent:
            in_cycle = self.root_of(root) == root
            return replace(node.spec, flaw=CYCLE) if in_cycle else None
        if self._is_too_deep(root):
            return replace(node.spec, flaw=TOO_DEEP)
        tree, spec = self._group(root, node.spec), node.spec
        levels = _levels(tree)
        return GangSpec(
            source=root,
            minimum=pods_to_minimum(tree, {}) or spec.minimum,
            priority=spec.priority,
            preempts=spec.preempts,
            tree=tree,
            topology=TOPOLOGIES + ",".join(levels) if levels else "",
            created=spec.created,
            uid=spec.uid,
            flaw=self._priority_error(root),
            quorum=True,
            disrupted_with=dict(self._disruption_units(root, "")),
            started=any(leaf.started for leaf in self.leaves(root)),
        )

    def _is_too_deep(self, root: Ref) -> bool:
        """Whether the tree has more than DEPTH_MAX levels; deeper levels are not visited."""
        level = [root]
        for _ in range(DEPTH_MAX):
            level = [one for ref in level for one, _ in self._members(ref)]
        return bool(level)

    def _members(self, ref: Ref) -> list[tuple[Ref, GangSpec]]:
        """The existing groups directly below."""
        members = [(one, spec) for one in self.nodes[ref].below if (spec := self.nodes[one].spec) is not None]
        return sorted(members, key=lambda member: (member[1].created, member[0].name, member[0].kind))

    def _group(self, ref: Ref, spec: GangSpec) -> Group:
        members = tuple(
            self._group(one, child) if one.kind == COMPOSITE else _pod_set(one, child)
            for one, child in self._members(ref)
        )
        return Group(part_name(ref), members, spec.minimum, spec.locality)

    def _disruption_units(self, ref: Ref, outer_unit: str) -> Iterator[tuple[str, str]]:
        """PodGroups that are preempted as a whole, and the largest part of the tree that goes with each."""
        spec = self.nodes[ref].spec
        unit = outer_unit or (part_name(ref) if spec is not None and spec.disrupt_together else "")
        if ref.kind == POD_GROUP and unit:
            yield ref.name, unit
        for child, _ in self._members(ref):
            yield from self._disruption_units(child, unit)

    # ── pods ───────────────────────────────────────────────────────────────────────────────────────

    def _position(self, pod: Pod) -> tuple[Ref, str]:
        pod_group = self.pod_groups[pod.key]
        root = self.root_of(pod_group)
        return root, pod_group.name if root != pod_group else ""

    def _positioned(self, pod: Pod) -> Pod:
        gang, pod_set = self.positions[pod.key] = self._position(pod)
        return pod if gang == pod.gang else replace(pod, gang=gang, pod_set=pod_set)

    def _pods_below(self, ref: Ref, visited: dict[Ref, None] | None = None) -> Iterator[Pod]:
        for one in self._below(ref, visited):
            if (node := self.nodes.get(one)) is not None:
                yield from node.pods.values()

    def _remove_pod(self, key: PodKey) -> None:
        pod_group = self.pod_groups.pop(key, None)
        self.positions.pop(key, None)
        if pod_group is not None:
            root = self.root_of(pod_group)
            if self._is_flawed(root):
                self._dirty[root] = None
            self.nodes[pod_group].pods.pop(key, None)
            self._prune(pod_group)

    def _check_priority(self, pod: Pod) -> None:
        """Decode the gang of a pod again if its priority differs, or that of another pod did."""
        assert pod.gang is not None
        root = self.nodes.get(pod.gang)
        if root is not None and (_has_other_priority(pod, root) or self._is_flawed(pod.gang)):
            self._dirty[pod.gang] = None

    def _is_flawed(self, root: Ref) -> bool:
        return root in self.mismatched or (root in self.published and bool(self.published[root].flaw))

    def _priority_error(self, root: Ref) -> str:
        """The error if a pod has another priority than the root group."""
        node = self.nodes[root]
        mismatches = [pod for pod in self._pods_below(root) if _has_other_priority(pod, node)]
        if not mismatches or node.spec is None:
            return ""
        first = min(mismatches, key=lambda pod: pod.key.name)
        return PRIORITY_MISMATCH.format(first.spec.priority, node.spec.priority)

    # ── nodes of the trees ─────────────────────────────────────────────────────────────────────────

    def _node(self, ref: Ref) -> GroupNode:
        return self.nodes.setdefault(ref, GroupNode())

    def _unlink(self, ref: Ref, parent: str) -> None:
        above = _above(ref, parent)
        if parent and above in self.nodes:
            self.nodes[above].below.pop(ref, None)
            self._prune(above)

    def _prune(self, ref: Ref) -> None:
        """Remove groups without objects and pods; the groups of a cycle only refer to each other."""
        nodes = self.nodes
        if ref not in nodes or any(nodes[one].spec or nodes[one].pods for one in self._below(ref)):
            return
        parents = {one: nodes[one].parent for one in self._below(ref)}
        for one in parents:
            del nodes[one]
        for one, parent in parents.items():
            self._unlink(one, parent)


def _is_pod_group(gang: Ref) -> bool:
    return gang.dialect == DIALECT and gang.kind == POD_GROUP


def _has_other_priority(pod: Pod, root: GroupNode) -> bool:
    """Whether a pod has another priority than its group; finished and terminating pods are ignored."""
    if root.spec is None or root.spec.priority is None or not root.exact or pod.finished or pod.terminating:
        return False
    return pod.spec.priority != root.spec.priority


def part_name(ref: Ref) -> str:
    """The name of a group in the tree: a PodGroup may have the same name as a group above it."""
    return ref.name if ref.kind == POD_GROUP else f"{ref.kind}/{ref.name}"


def _above(ref: Ref, parent: str) -> Ref:
    return Ref(DIALECT, COMPOSITE, ref.namespace, parent)


def _pod_set(ref: Ref, spec: GangSpec) -> PodSet:
    """A PodGroup as a pod set; a basic group counts once one of its pods is placed."""
    minimum = max(spec.minimum, 1)
    return PodSet(ref.name, minimum, minimum, locality=spec.locality)


def _levels(tree: Group) -> list[str]:
    """The node labels that a tree names, outer ones first; they are assumed to be nested in that order."""
    levels: list[str] = []

    def gather(member: Group | PodSet, after: int) -> None:
        level = member.locality.required
        if level is not None:
            if level not in levels:
                levels.insert(after, level)
            after = levels.index(level) + 1
        if isinstance(member, Group):
            for child in member.members:
                gather(child, after)

    gather(tree, 0)
    return sorted(levels, key=lambda level: level == HOSTNAME)[: LEVELS_MAX - 1]
