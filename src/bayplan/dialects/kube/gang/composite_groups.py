"""Groups of groups: PodGroups below CompositePodGroups, read together as one gang with a tree.

The gang is named after the group on top. Its pods are known by the PodGroup that they name, so what a pod
belongs to may change when a group above it becomes known. That is told once for all that happened at once.
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
from bayplan.model.gang import GangSpec, Group, PodSet, Ref, fewest_more
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Topology
from bayplan.model.pod import Pod, PodKey

CYCLE = "cycle detected in the hierarchy of composite pod groups"
DEPTH_MAX = 4
"""Levels of groups, those of pods included: as many as the templates of a Workload may have."""
TOO_DEEP = f"maximum hierarchy depth of composite pod groups is {DEPTH_MAX}"
ODD_PRIORITY = (
    "all pods in a single pod group should have the same priority as the pod group's priority, got {} and {}"
)
TOPOLOGIES = f"{DIALECT}/"
"""How the names of topologies begin that consist of the labels which a tree names, from the top down."""


@dataclass(slots=True)
class GroupNode:
    """A PodGroup or CompositePodGroup. If its object is gone, who its parent was is remembered."""

    parent: str = ""
    charter: GangSpec | None = None  # of the object by itself; `minimum` counts pods, or groups
    exact: bool = False  # all pods have to have the priority that it says
    below: dict[Ref, None] = field(default_factory=dict)
    pods: dict[PodKey, Pod] = field(default_factory=dict)


class CompositeGroups:
    """All groups that have one above them, or below, and the pods of all PodGroups."""

    def __init__(self) -> None:
        self.branches: dict[Ref, GroupNode] = {}
        self.told: dict[Ref, GangSpec] = {}  # what was said of each gang, by the group on top
        self.homes: dict[PodKey, Ref] = {}  # the PodGroup that a pod names
        self.places: dict[PodKey, tuple[Ref, str]] = {}  # gang and pod set, as last told
        self.odd: set[Ref] = set()  # PodGroups that stand alone, and have pods of another priority
        self._dirty: dict[Ref, None] = {}

    # ── what happens ───────────────────────────────────────────────────────────────────────────────

    def seen(self, ref: Ref, parent: str, charter: GangSpec, *, exact: bool = True) -> None:
        """A group is there, as it is now."""
        branch = self._branch(ref)
        branch.exact = exact
        if branch.parent == parent and branch.charter == charter:
            return
        branch.charter = charter
        self._dirty[ref] = None
        if branch.parent != parent:
            self._dirty[self.root_of(ref)] = None
            before, branch.parent = branch.parent, parent
            self._unlink(ref, before)
            if parent:
                self._branch(_above(ref, parent)).below[ref] = None

    def lost(self, ref: Ref) -> None:
        """A group is no more."""
        if ref in self.branches:
            self.branches[ref].charter = None
            self._dirty |= {ref: None, self.root_of(ref): None}  # if its last pod goes too, it is forgotten

    def follow(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes, with each pod in the gang that its PodGroup is a part of."""
        for change in changes:
            match change:
                case PodSeen(pod) if pod.gang is not None and _is_ours(pod.gang):
                    if self.homes.get(pod.key, pod.gang) != pod.gang:
                        self._leave(pod.key)
                    self.homes[pod.key] = pod.gang
                    self._branch(pod.gang).pods[pod.key] = pod
                    change = PodSeen(self._placed(pod))
                    self._note_priority(change.pod)
                case PodLost(key):
                    self._leave(key)
            yield change

    def gathered(self) -> Iterator[Change]:
        """What only all that happened says together.

        After a failure, asked again, it goes on with the others.
        """
        dirty, self._dirty = self._dirty, {}
        failing = None
        try:
            for ref, change in self._gathered(dirty):
                failing = ref
                if change is not None:
                    yield change
            dirty = {}
        finally:
            self._dirty |= {ref: None for ref in dirty if failing not in (ref, self.root_of(ref))}

    def _gathered(self, dirty: Mapping[Ref, None]) -> Iterator[tuple[Ref, Change | None]]:
        """Each group before anything is made of it, and then the changes that it means."""
        known: dict[Ref, Ref] = {}
        roots = dict.fromkeys(self.root_of(ref, known) for ref in dirty) | {
            ref: None for ref in dirty if ref in self.told
        }
        self.odd.difference_update(dirty.keys() - roots.keys())  # they stand alone no longer
        for root in roots:
            yield root, None
            for change in self._tell(root):
                yield root, change
        visited: dict[Ref, None] = {}
        for ref in dirty:
            yield ref, None
            for pod in self._pods_below(ref, visited):
                if self.places.get(pod.key) != self._place(pod):
                    yield ref, PodSeen(self._placed(pod))
        for ref in dirty:
            self._tidy(ref)

    # ── trees ──────────────────────────────────────────────────────────────────────────────────────

    def root_of(self, ref: Ref, known: dict[Ref, Ref] | None = None) -> Ref:
        """The group on top; if there is a circle, the first by name of those that stand in it.

        `known` holds what was found before, and is added to: of a long chain each part is gone up once.
        """
        found = {} if known is None else known
        way = {ref: None}
        while ref not in found and (branch := self.branches.get(ref)) is not None and branch.parent:
            ref = _above(ref, branch.parent)
            if ref in way:
                circle = list(way)
                ref = min(circle[circle.index(ref) :], key=lambda one: one.name)
                break
            way[ref] = None
        root = found.get(ref, ref)
        found |= dict.fromkeys(way, root)
        return root

    def leaves(self, root: Ref) -> Iterator[GangSpec]:
        """The PodGroups of a gang that are there."""
        for ref in self._below(root):
            charter = self.branches[ref].charter
            if ref.kind == POD_GROUP and charter is not None:
                yield charter

    def _below(self, ref: Ref, visited: dict[Ref, None] | None = None) -> Iterator[Ref]:
        """A group and all below it, each once; without those that were visited before."""
        found = {} if visited is None else visited
        line = [] if ref in found else [ref]
        found[ref] = None
        while line:
            one = line.pop()
            yield one
            branch = self.branches.get(one)
            for inner in branch.below if branch is not None else ():
                if inner not in found:
                    found[inner] = None
                    line.append(inner)

    def _tell(self, root: Ref) -> Iterator[Change]:
        """The rules of one gang, if they are others than before."""
        if root.kind != COMPOSITE:
            yield from self._tell_alone(root)
            return
        before, now = self.told.get(root), self._charter(root)
        if now == before:
            return
        wanted, had = ("" if one is None else one.topology for one in (now, before))
        if wanted and all(one.topology != wanted for one in self.told.values()):
            assert now is not None and now.tree is not None
            yield TopologySeen(Topology(wanted, tuple(_levels(now.tree))))
        if now is None:
            self.told.pop(root, None)
            yield GangSpecLost(root)
        else:
            self.told[root] = now
            yield GangSpecSeen(now)
        if had and all(one.topology != had for one in self.told.values()):
            yield TopologyLost(had)

    def _tell_alone(self, ref: Ref) -> Iterator[Change]:
        """A PodGroup without one above it was told of when it was seen, but not of its pods."""
        branch = self.branches.get(ref)
        if branch is None or branch.charter is None:
            self.odd.discard(ref)
            return
        flaw = self._odd_priority(ref)
        if flaw or ref in self.odd:
            yield GangSpecSeen(replace(branch.charter, flaw=flaw))
        (self.odd.add if flaw else self.odd.discard)(ref)

    def _charter(self, root: Ref) -> GangSpec | None:
        branch = self.branches.get(root)
        if branch is None or branch.charter is None:
            return None
        if branch.parent:
            in_circle = self.root_of(root) == root
            return replace(branch.charter, flaw=CYCLE) if in_circle else None
        if self._is_too_deep(root):
            return replace(branch.charter, flaw=TOO_DEEP)
        tree, mine = self._group(root, branch.charter), branch.charter
        levels = _levels(tree)
        return GangSpec(
            source=root,
            minimum=fewest_more(tree, {}) or mine.minimum,
            priority=mine.priority,
            preempts=mine.preempts,
            tree=tree,
            topology=TOPOLOGIES + ",".join(levels) if levels else "",
            created=mine.created,
            uid=mine.uid,
            flaw=self._odd_priority(root),
            quorum=True,
            leave_together=dict(self._bundles(root, "")),
            started=any(leaf.started for leaf in self.leaves(root)),
        )

    def _is_too_deep(self, root: Ref) -> bool:
        """Whether there are more levels than a tree may have; no deeper ones are looked at."""
        level = [root]
        for _ in range(DEPTH_MAX):
            level = [one for ref in level for one, _ in self._members(ref)]
        return bool(level)

    def _members(self, ref: Ref) -> list[tuple[Ref, GangSpec]]:
        """The groups right below that are there."""
        found = [
            (one, charter)
            for one in self.branches[ref].below
            if (charter := self.branches[one].charter) is not None
        ]
        return sorted(found, key=lambda member: (member[1].created, member[0].name, member[0].kind))

    def _group(self, ref: Ref, charter: GangSpec) -> Group:
        members = tuple(
            self._group(one, inner) if one.kind == COMPOSITE else _pod_set(one, inner)
            for one, inner in self._members(ref)
        )
        return Group(part_name(ref), members, charter.minimum, charter.locality)

    def _bundles(self, ref: Ref, outer: str) -> Iterator[tuple[str, str]]:
        """PodGroups of which no pod goes alone, and the highest part of the tree that then goes."""
        charter = self.branches[ref].charter
        mine = outer or (part_name(ref) if charter is not None and charter.leaves_whole else "")
        if ref.kind == POD_GROUP and mine:
            yield ref.name, mine
        for inner, _ in self._members(ref):
            yield from self._bundles(inner, mine)

    # ── pods ───────────────────────────────────────────────────────────────────────────────────────

    def _place(self, pod: Pod) -> tuple[Ref, str]:
        home = self.homes[pod.key]
        root = self.root_of(home)
        return root, home.name if root != home else ""

    def _placed(self, pod: Pod) -> Pod:
        gang, pod_set = self.places[pod.key] = self._place(pod)
        return pod if gang == pod.gang else replace(pod, gang=gang, pod_set=pod_set)

    def _pods_below(self, ref: Ref, visited: dict[Ref, None] | None = None) -> Iterator[Pod]:
        for one in self._below(ref, visited):
            if (branch := self.branches.get(one)) is not None:
                yield from branch.pods.values()

    def _leave(self, key: PodKey) -> None:
        home = self.homes.pop(key, None)
        self.places.pop(key, None)
        if home is not None:
            root = self.root_of(home)
            if self._is_flawed(root):
                self._dirty[root] = None
            self.branches[home].pods.pop(key, None)
            self._tidy(home)

    def _note_priority(self, pod: Pod) -> None:
        """Look at its gang again if it brings another priority, or others did."""
        assert pod.gang is not None
        root = self.branches.get(pod.gang)
        if root is not None and (_is_odd(pod, root) or self._is_flawed(pod.gang)):
            self._dirty[pod.gang] = None

    def _is_flawed(self, root: Ref) -> bool:
        return root in self.odd or (root in self.told and bool(self.told[root].flaw))

    def _odd_priority(self, root: Ref) -> str:
        """What is wrong if a pod has another priority than the group on top."""
        branch = self.branches[root]
        odd = [pod for pod in self._pods_below(root) if _is_odd(pod, branch)]
        if not odd or branch.charter is None:
            return ""
        first = min(odd, key=lambda pod: pod.key.name)
        return ODD_PRIORITY.format(first.wants.priority, branch.charter.priority)

    # ── keeping ────────────────────────────────────────────────────────────────────────────────────

    def _branch(self, ref: Ref) -> GroupNode:
        return self.branches.setdefault(ref, GroupNode())

    def _unlink(self, ref: Ref, parent: str) -> None:
        above = _above(ref, parent)
        if parent and above in self.branches:
            self.branches[above].below.pop(ref, None)
            self._tidy(above)

    def _tidy(self, ref: Ref) -> None:
        """Forget what nobody names any more. Those that stood in a circle name only each other."""
        known = self.branches
        if ref not in known or any(known[one].charter or known[one].pods for one in self._below(ref)):
            return
        parents = {one: known[one].parent for one in self._below(ref)}
        for one in parents:
            del known[one]
        for one, parent in parents.items():
            self._unlink(one, parent)


def _is_ours(gang: Ref) -> bool:
    return gang.dialect == DIALECT and gang.kind == POD_GROUP


def _is_odd(pod: Pod, root: GroupNode) -> bool:
    """Whether a pod has another priority than its group says; what is over or leaves does not count."""
    if root.charter is None or root.charter.priority is None or not root.exact or pod.over or pod.leaving:
        return False
    return pod.wants.priority != root.charter.priority


def part_name(ref: Ref) -> str:
    """What a group is called in the tree: a PodGroup may have the name of one that is above it."""
    return ref.name if ref.kind == POD_GROUP else f"{ref.kind}/{ref.name}"


def _above(ref: Ref, parent: str) -> Ref:
    return Ref(DIALECT, COMPOSITE, ref.namespace, parent)


def _pod_set(ref: Ref, charter: GangSpec) -> PodSet:
    """A group whose pods stand each for itself still counts only if one of them has a place."""
    least = max(charter.minimum, 1)
    return PodSet(ref.name, least, least, locality=charter.locality)


def _levels(tree: Group) -> list[str]:
    """The labels that a tree names, outer ones before inner ones; they are taken to be nested like that."""
    found: list[str] = []

    def gather(member: Group | PodSet, after: int) -> None:
        level = member.locality.required
        if level is not None:
            if level not in found:
                found.insert(after, level)
            after = found.index(level) + 1
        if isinstance(member, Group):
            for inner in member.members:
                gather(inner, after)

    gather(tree, 0)
    return sorted(found, key=lambda level: level == HOSTNAME)[: LEVELS_MAX - 1]
