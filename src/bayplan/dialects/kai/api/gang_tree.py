"""PodGroups as gangs: a tree of groups with pod sets at its leaves; equal siblings become segments.

A node with a required and a preferred level becomes two nested groups, since a group of the model has one
constraint. Sub-groups that are equal parts of their parent become the segments of one pod set, so that the
same structure is the same gang in every dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Segment
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest

DEFAULT = "default"
"""The pod set of a PodGroup without sub-groups, and of pods that name no sub-group."""


DEPTH_MAX = 64
NAMELESS = "a subgroup must have a name"
TOO_DEEP = f"subgroups are nested more than {DEPTH_MAX} deep"


class BadTree(ValueError):
    """The sub-groups do not form a tree; the message tells users why."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The known pods of a sub-group. They are treated as equal."""

    count: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    rules: NodeRules = ANY_NODE
    zones: NumaRequest | None = None


NO_PODS = Pods()


@dataclass(frozen=True, slots=True)
class TreePosition:
    """The position of a sub-group's pods in the tree: their pod set, and the rank of the first pod."""

    pod_set: str
    first: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """A PodGroup as a tree, and the position of each sub-group in it."""

    root: Group
    positions: Mapping[str, TreePosition]

    @property
    def minimum(self) -> int:
        return sum(pod_set.minimum for pod_set in self.root.pod_sets())

    def position(self, sub_group: str) -> TreePosition:
        """The position of a sub-group; pods that name none, or an unknown one, are in the default pod set."""
        return self.positions.get(sub_group) or self.positions.get("") or TreePosition(DEFAULT)


def children(sub_groups: Sequence[SubGroup]) -> dict[str, list[SubGroup]]:
    """Sub-groups by parent. Raises BadTree for duplicate names, a missing parent, or a cycle."""
    known: dict[str, SubGroup] = {}
    for one in sub_groups:
        if one.name in known:
            raise BadTree(f"subgroup <{one.name}> already exists")
        known[one.name] = one
    by_parent: dict[str, list[SubGroup]] = {}
    for one in sub_groups:
        if one.parent and one.parent not in known:
            raise BadTree(f"parent subgroup <{one.parent}> of <{one.name}> not found")
        by_parent.setdefault(one.parent, []).append(one)
    if has_cycle(sub_groups):
        raise BadTree("cycle detected in subgroups")
    if "" in known:
        raise BadTree(NAMELESS)
    if depth(sub_groups) > DEPTH_MAX:
        raise BadTree(TOO_DEEP)
    return by_parent


def depth(sub_groups: Sequence[SubGroup]) -> int:
    """The number of nesting levels of the sub-groups; there must be no cycle."""
    parents = {one.name: one.parent for one in sub_groups}
    depths = {"": 0}
    for name in parents:
        path: list[str] = []
        current = name
        while current not in depths:
            path.append(current)
            current = parents.get(current, "")
        depths |= {one: level for level, one in enumerate(reversed(path), depths[current] + 1)}
    return max(depths.values())


def has_cycle(sub_groups: Sequence[SubGroup]) -> bool:
    """Whether a sub-group is its own ancestor."""
    parents = {one.name: one.parent for one in sub_groups}
    rooted: set[str] = {""}
    for name in parents:
        path: dict[str, None] = {}
        current = name
        while current not in rooted and current in parents:
            if current in path:
                return True
            path[current] = None
            current = parents[current]
        rooted.update(path)
    return False


def decode(group: PodGroup, pods: Mapping[str, Pods] | None = None) -> Decoded:
    """The tree of a PodGroup. Raises BadTree.

    `pods` are the known pods by the sub-group that they name ("" for none). A sub-group with a minimum of 0
    does not delay the gang.
    """
    known = pods or {}
    by_parent = children(group.sub_groups)
    positions: dict[str, TreePosition] = {}
    members = [_member(one, by_parent, known, positions) for one in by_parent.get("", ())]
    names = {one.name for one in group.sub_groups}
    extra = [known_pods for name, known_pods in known.items() if name not in names and known_pods.count]
    if not group.sub_groups or extra:
        extra_pods = extra[0] if extra else NO_PODS
        minimum = 0 if group.sub_groups else group.minimum
        count = max(sum(one.count for one in extra), minimum)
        members.append(replace(_pod_set(DEFAULT, minimum, extra_pods), count=count))
        positions[""] = TreePosition(DEFAULT)
    return Decoded(_located(group.name, tuple(members), group.constraint), positions)


def gang_spec(
    group: PodGroup, decoded: Decoded | None, priority: int | None = None, created: float = 0.0,
    topologies: Mapping[str, Sequence[str]] | None = None,
) -> GangSpec:  # fmt: skip
    """The spec of the gang. A PodGroup with a flaw is never placed."""
    flaw = group.flaw or ("" if decoded is not None else "its sub-groups do not form a tree")
    requested = group.topologies()
    if not flaw and len(requested) > 1:
        flaw = f"it has constraints in more than one topology: {', '.join(requested)}"
    if not flaw and topologies is not None:
        flaw = next(iter(constraint_errors(group, topologies)), "")
    return GangSpec(
        source=group.ref,
        minimum=decoded.minimum if decoded is not None else group.minimum,
        priority=priority,
        tree=decoded.root if decoded is not None else None,
        created=created,
        uid=group.uid,
        flaw=flaw,
        strict=True,
    )


# ── levels ─────────────────────────────────────────────────────────────────────────────────────────

ROOT = "root"
"""The level above all others: the whole topology."""


def constraint_errors(group: PodGroup, topologies: Mapping[str, Sequence[str]]) -> list[str]:
    """The errors in the topology constraints of a PodGroup, given the levels of the known topologies."""
    constraints = [("workload", group.name, group.constraint)]
    constraints += [("sub-group", one.name, one.constraint) for one in group.sub_groups]
    errors: list[str] = []
    for kind, name, constraint in constraints:
        if constraint is None or not (constraint.topology or constraint.has_level):
            continue
        levels = topologies.get(constraint.topology)
        if levels is None:
            errors.append(f"Requested topology {constraint.topology} does not exist")
            continue
        errors += _wrong_level(kind, name, constraint, levels)
    return list(dict.fromkeys(errors))


def unknown_level(topology: str, level: str, strength: str, who: str) -> str:
    """The message for a level that the topology does not have."""
    return (
        f"topology constraint error: {who} specified '{level}' as the {strength} topology constraint level, "
        f"but the topology tree '{topology}' does not contain a level with this name"
    )


def levels_to_try(constraint: Constraint, levels: Sequence[str]) -> list[str]:
    """The levels at which one domain is searched, narrowest first; `levels` are ordered from the top."""
    narrowest_first = [*reversed(levels), ROOT]
    if constraint.preferred:
        start = narrowest_first.index(constraint.preferred)
        end = narrowest_first.index(constraint.required or ROOT)
        return narrowest_first[start : max(end, start) + 1]
    return [constraint.required] if constraint.required else []


def _wrong_level(kind: str, name: str, constraint: Constraint, levels: Sequence[str]) -> list[str]:
    requested = (("required", constraint.required), ("preferred", constraint.preferred))
    missing = [
        unknown_level(constraint.topology, level, strength, f"{kind} {name}")
        for strength, level in requested
        if level and level not in levels
    ]
    both = constraint.required and constraint.preferred and not missing
    if both and levels.index(constraint.preferred) < levels.index(constraint.required):
        return [
            f"topology constraint error: {kind} {name} prefers '{constraint.preferred}', which is wider than "
            f"'{constraint.required}', the level it requires"
        ]
    return missing


# ── groups and pod sets ────────────────────────────────────────────────────────────────────────────


def _member(
    one: SubGroup,
    by_parent: Mapping[str, list[SubGroup]],
    pods: Mapping[str, Pods],
    positions: dict[str, TreePosition],
) -> Group | PodSet:
    nested = by_parent.get(one.name)
    if nested is None:
        positions[one.name] = TreePosition(one.name)
        return _placed(_leaf(one, pods), one.constraint)
    if not any(child.name in by_parent for child in nested):
        folded = _folded(one, nested, pods, positions)
        if folded is not None:
            return _placed(folded, one.constraint)
    return _located(
        one.name, tuple(_member(child, by_parent, pods, positions) for child in nested), one.constraint
    )


def _leaf(one: SubGroup, pods: Mapping[str, Pods]) -> PodSet:
    return _pod_set(one.name, one.minimum, pods.get(one.name, NO_PODS))


def _pod_set(name: str, minimum: int, known: Pods) -> PodSet:
    count = max(minimum, known.count)
    return PodSet(name, count, minimum, dict(known.requests), rules=known.rules, zones=known.zones)


def _folded(
    parent: SubGroup, nested: Sequence[SubGroup], pods: Mapping[str, Pods], positions: dict[str, TreePosition]
) -> PodSet | None:
    """Equal sub-groups of a parent as segments of one pod set; None if they are not equal.

    They must be numbered, have equal requests, be full except for the last one, and the optional ones must
    come after the mandatory ones.
    """
    if [one.name for one in nested] != [f"{parent.name}-{number}" for number in range(len(nested))]:
        return None
    level = nested[0].constraint
    if level is None or level.preferred or any(one.constraint != level for one in nested):
        return None
    leaves = [_leaf(one, pods) for one in nested]
    size = leaves[0].count
    counts = [leaf.count for leaf in leaves]
    while len(counts) > 1 and not counts[-1]:
        counts.pop()  # optional, and without pods so far
    full = all(count == size for count in counts[:-1]) and 0 < counts[-1] <= size
    complete = all(leaf.minimum in (0, leaf.count) for leaf in leaves)
    needed = [leaf.minimum > 0 for leaf in leaves]
    requests = {
        (tuple(sorted(leaf.requests.items())), leaf.rules, leaf.zones) for leaf in leaves if leaf.count
    }
    if not (full and complete and needed == sorted(needed, reverse=True) and len(requests) == 1):
        return None
    positions |= {one.name: TreePosition(parent.name, number * size) for number, one in enumerate(nested)}
    minimum = sum(leaf.minimum for leaf in leaves)
    segments = (Segment(size, level.required),)
    return replace(leaves[0], name=parent.name, count=sum(counts), minimum=minimum, segments=segments)


def _placed(pod_set: PodSet, constraint: Constraint | None) -> Group | PodSet:
    """The pod set with its constraint; required and preferred together need a group around it."""
    if constraint is None:
        return pod_set
    if constraint.required and constraint.preferred and constraint.required != constraint.preferred:
        inner = _with(pod_set, Locality(preferred=constraint.preferred))
        return Group(pod_set.name, (inner,), 1, Locality(required=constraint.required))
    return _with(pod_set, _locality(constraint))


def _with(pod_set: PodSet, locality: Locality) -> PodSet:
    return replace(pod_set, locality=locality)


def _located(name: str, members: tuple[Group | PodSet, ...], constraint: Constraint | None) -> Group:
    """The group with its constraint, which moves to the only pod set if that has none."""
    if constraint is None:
        return Group(name, members, len(members))
    only = members[0] if len(members) == 1 else None
    if isinstance(only, PodSet) and only.locality == Locality():
        placed = _placed(only, constraint)
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
