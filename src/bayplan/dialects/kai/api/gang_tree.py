"""PodGroups as gangs: a tree of groups with pod sets at its leaves, equal siblings folded into segments.

A node that requires one level and prefers another becomes two, one inside the other: the model has one wish
for each. Sub-groups that are equal shares of their parent become the segments of one pod set, so that the
same shape is the same gang whichever family it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Segment
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest

DEFAULT = "default"
"""The pod set of a group without sub-groups, and of pods that name none."""


DEPTH_MAX = 64
NAMELESS = "a subgroup must have a name"
TOO_DEEP = f"subgroups are nested more than {DEPTH_MAX} deep"


class BadTree(ValueError):
    """Sub-groups that make no tree; the message says why, for the user."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that are known of a sub-group; what they ask for is the same for all."""

    count: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    rules: NodeRules = ANY_NODE
    zones: NumaRequest | None = None


NO_PODS = Pods()


@dataclass(frozen=True, slots=True)
class TreePosition:
    """Where the pods of a sub-group stand in the tree: in which pod set, and from which rank on."""

    pod_set: str
    first: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """A PodGroup as a tree, and where the pods of each sub-group are in it."""

    root: Group
    homes: Mapping[str, TreePosition]

    @property
    def minimum(self) -> int:
        return sum(pod_set.minimum for pod_set in self.root.pod_sets())

    def home(self, sub_group: str) -> TreePosition:
        """That of a pod by the sub-group it names; pods that name none, or none there is, are extra."""
        return self.homes.get(sub_group) or self.homes.get("") or TreePosition(DEFAULT)


def children(sub_groups: Sequence[SubGroup]) -> dict[str, list[SubGroup]]:
    """Sub-groups by their parent. BadTree if a name comes twice, a parent is missing, or there is a cycle."""
    known: dict[str, SubGroup] = {}
    for one in sub_groups:
        if one.name in known:
            raise BadTree(f"subgroup <{one.name}> already exists")
        known[one.name] = one
    found: dict[str, list[SubGroup]] = {}
    for one in sub_groups:
        if one.parent and one.parent not in known:
            raise BadTree(f"parent subgroup <{one.parent}> of <{one.name}> not found")
        found.setdefault(one.parent, []).append(one)
    if has_cycle(sub_groups):
        raise BadTree("cycle detected in subgroups")
    if "" in known:
        raise BadTree(NAMELESS)
    if depth(sub_groups) > DEPTH_MAX:
        raise BadTree(TOO_DEEP)
    return found


def depth(sub_groups: Sequence[SubGroup]) -> int:
    """How many sub-groups are at most one inside the other; there must be no cycle."""
    parents = {one.name: one.parent for one in sub_groups}
    depths = {"": 0}
    for name in parents:
        way: list[str] = []
        at = name
        while at not in depths:
            way.append(at)
            at = parents.get(at, "")
        depths |= {one: above for above, one in enumerate(reversed(way), depths[at] + 1)}
    return max(depths.values())


def has_cycle(sub_groups: Sequence[SubGroup]) -> bool:
    """Whether somebody is its own ancestor."""
    parents = {one.name: one.parent for one in sub_groups}
    rooted: set[str] = {""}
    for name in parents:
        way: dict[str, None] = {}
        at = name
        while at not in rooted and at in parents:
            if at in way:
                return True
            way[at] = None
            at = parents[at]
        rooted.update(way)
    return False


def decode(group: PodGroup, pods: Mapping[str, Pods] | None = None) -> Decoded:
    """The tree of a group. `pods` are those known, by the sub-group they name ("" for none).

    A sub-group with a minimum of 0 holds nobody up. BadTree if its sub-groups make no tree.
    """
    known = pods or {}
    below = children(group.sub_groups)
    homes: dict[str, TreePosition] = {}
    members = [_member(one, below, known, homes) for one in below.get("", ())]
    names = {one.name for one in group.sub_groups}
    extra = [found for name, found in known.items() if name not in names and found.count]
    if not group.sub_groups or extra:
        strays = extra[0] if extra else NO_PODS
        minimum = 0 if group.sub_groups else group.minimum
        count = max(sum(one.count for one in extra), minimum)
        members.append(replace(_pod_set(DEFAULT, minimum, strays), count=count))
        homes[""] = TreePosition(DEFAULT)
    return Decoded(_located(group.name, tuple(members), group.constraint), homes)


def charter(
    group: PodGroup, found: Decoded | None, priority: int | None = None, created: float = 0.0,
    topologies: Mapping[str, Sequence[str]] | None = None,
) -> GangSpec:  # fmt: skip
    """The rules of the gang; one that cannot be as it is asked for says so and is never placed."""
    flaw = group.flaw or ("" if found is not None else "its sub-groups make no tree")
    asked = group.topologies()
    if not flaw and len(asked) > 1:
        flaw = f"it asks for places in several topologies at once: {', '.join(asked)}"
    if not flaw and topologies is not None:
        flaw = next(iter(wrong_levels(group, topologies)), "")
    return GangSpec(
        source=group.ref,
        minimum=found.minimum if found is not None else group.minimum,
        priority=priority,
        tree=found.root if found is not None else None,
        created=created,
        uid=group.uid,
        flaw=flaw,
        strict=True,
    )


# ── levels ─────────────────────────────────────────────────────────────────────────────────────────

ROOT = "root"
"""The level above all others: the whole topology."""


def wrong_levels(group: PodGroup, topologies: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with the constraints of a group, given the levels of the topologies there are."""
    named = [("workload", group.name, group.constraint)]
    named += [("sub-group", one.name, one.constraint) for one in group.sub_groups]
    found: list[str] = []
    for sort, name, constraint in named:
        if constraint is None or not (constraint.topology or constraint.is_placed):
            continue
        levels = topologies.get(constraint.topology)
        if levels is None:
            found.append(f"Requested topology {constraint.topology} does not exist")
            continue
        found += _wrong_level(sort, name, constraint, levels)
    return list(dict.fromkeys(found))


def unknown_level(topology: str, level: str, wish: str, who: str) -> str:
    """A level that a topology does not have, and who asks for it."""
    return (
        f"topology constraint error: {who} specified '{level}' as the {wish} topology constraint level, but "
        f"the topology tree '{topology}' does not contain a level with this name"
    )


def levels_tried(constraint: Constraint, levels: Sequence[str]) -> list[str]:
    """The levels at which one domain is looked for, narrowest first; `levels` stand from the top."""
    order = [*reversed(levels), ROOT]
    if constraint.preferred:
        start = order.index(constraint.preferred)
        end = order.index(constraint.required or ROOT)
        return order[start : max(end, start) + 1]
    return [constraint.required] if constraint.required else []


def _wrong_level(sort: str, name: str, constraint: Constraint, levels: Sequence[str]) -> list[str]:
    asked = (("required", constraint.required), ("preferred", constraint.preferred))
    missing = [
        unknown_level(constraint.topology, level, wish, f"{sort} {name}")
        for wish, level in asked
        if level and level not in levels
    ]
    both = constraint.required and constraint.preferred and not missing
    if both and levels.index(constraint.preferred) < levels.index(constraint.required):
        return [
            f"topology constraint error: {sort} {name} prefers '{constraint.preferred}', which is wider than "
            f"'{constraint.required}', the level it requires"
        ]
    return missing


# ── building ───────────────────────────────────────────────────────────────────────────────────────


def _member(
    one: SubGroup,
    below: Mapping[str, list[SubGroup]],
    pods: Mapping[str, Pods],
    homes: dict[str, TreePosition],
) -> Group | PodSet:
    inner = below.get(one.name)
    if inner is None:
        homes[one.name] = TreePosition(one.name)
        return _placed(_leaf(one, pods), one.constraint)
    if not any(child.name in below for child in inner):
        folded = _folded(one, inner, pods, homes)
        if folded is not None:
            return _placed(folded, one.constraint)
    return _located(one.name, tuple(_member(child, below, pods, homes) for child in inner), one.constraint)


def _leaf(one: SubGroup, pods: Mapping[str, Pods]) -> PodSet:
    return _pod_set(one.name, one.minimum, pods.get(one.name, NO_PODS))


def _pod_set(name: str, minimum: int, known: Pods) -> PodSet:
    count = max(minimum, known.count)
    return PodSet(name, count, minimum, dict(known.requests), rules=known.rules, zones=known.zones)


def _folded(
    parent: SubGroup, inner: Sequence[SubGroup], pods: Mapping[str, Pods], homes: dict[str, TreePosition]
) -> PodSet | None:
    """Equal shares of a parent as segments of one pod set; None if they are anything else.

    Shares count if they are numbered, ask for the same, are full but for the last, and optional ones
    come after mandatory ones.
    """
    if [one.name for one in inner] != [f"{parent.name}-{number}" for number in range(len(inner))]:
        return None
    level = inner[0].constraint
    if level is None or level.preferred or any(one.constraint != level for one in inner):
        return None
    leaves = [_leaf(one, pods) for one in inner]
    size = leaves[0].count
    counts = [leaf.count for leaf in leaves]
    while len(counts) > 1 and not counts[-1]:
        counts.pop()  # optional, and nobody is there yet
    full = all(count == size for count in counts[:-1]) and 0 < counts[-1] <= size
    whole = all(leaf.minimum in (0, leaf.count) for leaf in leaves)
    needed = [leaf.minimum > 0 for leaf in leaves]
    alike = {(tuple(sorted(leaf.requests.items())), leaf.rules, leaf.zones) for leaf in leaves if leaf.count}
    if not (full and whole and needed == sorted(needed, reverse=True) and len(alike) == 1):
        return None
    homes |= {one.name: TreePosition(parent.name, number * size) for number, one in enumerate(inner)}
    minimum = sum(leaf.minimum for leaf in leaves)
    segments = (Segment(size, level.required),)
    return replace(leaves[0], name=parent.name, count=sum(counts), minimum=minimum, segments=segments)


def _placed(pod_set: PodSet, constraint: Constraint | None) -> Group | PodSet:
    """A pod set where it belongs; one with both wishes stands in a group of its own."""
    if constraint is None:
        return pod_set
    if constraint.required and constraint.preferred and constraint.required != constraint.preferred:
        inner = _with(pod_set, Locality(preferred=constraint.preferred))
        return Group(pod_set.name, (inner,), 1, Locality(required=constraint.required))
    return _with(pod_set, _locality(constraint))


def _with(pod_set: PodSet, locality: Locality) -> PodSet:
    return replace(pod_set, locality=locality)


def _located(name: str, members: tuple[Group | PodSet, ...], constraint: Constraint | None) -> Group:
    """A group where it belongs. What is asked of all is asked of the only pod set, if it asks for nothing."""
    if constraint is None:
        return Group(name, members, len(members))
    alone = members[0] if len(members) == 1 else None
    if isinstance(alone, PodSet) and alone.locality == Locality():
        placed = _placed(alone, constraint)
        if isinstance(placed, PodSet):
            return Group(name, (placed,), 1)
        return Group(name, placed.members, 1, placed.locality)
    if constraint.required and constraint.preferred and constraint.required != constraint.preferred:
        inner = Group(name, members, len(members), Locality(preferred=constraint.preferred))
        return Group(name, (inner,), 1, Locality(required=constraint.required))
    return Group(name, members, len(members), _locality(constraint))


def _locality(constraint: Constraint) -> Locality:
    if constraint.required:
        return Locality(required=constraint.required)
    return Locality(preferred=constraint.preferred or None)
