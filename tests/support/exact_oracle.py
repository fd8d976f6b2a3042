"""Small random gangs and clusters, and their best placement found by trying every one there is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from random import Random

import numpy as np

from bayplan.model.gang import AUTO, Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.placement.cluster.topology_tree import Ints

EXACT = Profile(Strategy.EXACT, Strategy.EXACT, Strategy.EXACT)
Score = tuple[int, ...]
Leaves = frozenset[int]
RESOURCES = ("gpu", "cpu", PODS)


@dataclass(frozen=True, eq=False)
class Case:
    """A cluster (nodes in topology order), a gang and a profile."""

    topology: Topology
    nodes: tuple[Node, ...]
    gang: Gang
    profile: Profile


def random_case(seed: int) -> Case:
    """Two or three levels, up to six hosts, up to six pods."""
    random = Random(seed)
    levels = ("block", "rack", HOSTNAME)[random.choice((0, 0, 1)) :]
    paths = sorted(
        (*(f"{level[0]}{random.randrange(2)}" for level in levels[:-1]), f"h{host}")
        for host in range(random.randint(2, 6))
    )
    nodes = tuple(
        Node(
            path[-1],
            dict(zip(levels, path, strict=True)) | {"disk": random.choice(("ssd", "hdd", "ssd"))},
            {"gpu": random.randint(0, 5), "cpu": random.randint(0, 9), PODS: random.randint(1, 9)},
        )
        for path in paths
    )
    remainder = random.choice((Remainder.LAST_SEGMENT, Remainder.LAST_SEGMENT, Remainder.LEAVE_OUT))
    profile = Profile(Strategy.EXACT, Strategy.EXACT, Strategy.EXACT, remainder)
    return Case(Topology("t", levels), nodes, _gang(random, levels), profile)


def _gang(random: Random, levels: tuple[str, ...]) -> Gang:
    kind = random.choice(("alone", "alone", "two", "two", "leader", "group", "three"))
    if kind == "alone":
        members: tuple[Group | PodSet, ...] = (_pod_set(random, levels, "a", 6),)
    elif kind in ("two", "three"):
        most = 4 if kind == "two" else 2
        members = tuple(_pod_set(random, levels, name, most) for name in ("a", "b", "c")[: 2 + (most == 2)])
    elif kind == "leader":
        locality = random.choice((Locality(), _locality(random, levels)))
        leader = PodSet("b", 1, 1, {"cpu": random.randint(0, 3)}, rules=_rules(random))
        workers = _pod_set(random, levels, "a", 5, Locality() if locality != Locality() else None)
        members = (Group("g", (workers, leader), 2, locality),)
    else:
        inside = tuple(_pod_set(random, levels, name, 3) for name in "ab")
        members = (Group("g", inside, 2, _locality(random, levels)),)
    root = (
        Locality() if kind == "group" else random.choice((Locality(), Locality(), _locality(random, levels)))
    )
    return Gang(Ref("test", "Gang", "", "g"), Group("", members, len(members), root))


def _pod_set(
    random: Random, levels: tuple[str, ...], name: str, most: int, locality: Locality | None = None
) -> PodSet:
    requests = {"gpu": random.choice((0, 1, 1, 2, 3)), "cpu": random.choice((0, 0, 1, 2))}
    segments: tuple[Segment, ...] = ()
    if random.random() < 0.3:
        segments = (Segment(random.randint(2, 3), random.choice(levels)),)
    elif random.random() < 0.15:
        segments = (Segment(4, levels[-2]), Segment(2, levels[-1]))
    if locality is None:
        upper = levels[: levels.index(segments[0].level) + 1] if segments else levels
        locality = _locality(random, upper)
    count = random.randint(1, most)
    return PodSet(name, count, count, requests, locality, segments, _rules(random))


def _locality(random: Random, levels: tuple[str, ...]) -> Locality:
    return random.choice(
        (
            Locality(required=random.choice(levels)),
            Locality(preferred=random.choice(levels)),
            Locality(required=AUTO),
            Locality(),
            Locality(),
        )
    )


def _rules(random: Random) -> NodeRules:
    return NodeRules(selector=(("disk", "ssd"),)) if random.random() < 0.25 else ANY_NODE


def best_score(case: Case) -> Score | None:
    """The best score of all placements; None if there is no placement."""
    room = np.array([[node.allocatable[name] for node in case.nodes] for name in RESOURCES], np.int64)
    scores = {used: score(case, used) for used in _used_leaves(case, 0, room)}
    return min((found for found in scores.values() if found is not None), default=None)


def _used_leaves(case: Case, position: int, room: Ints) -> set[tuple[Leaves, ...]]:
    """The leaves that each pod set from this one on uses, in every placement that the room allows."""
    pod_sets = list(case.gang.root.pod_sets())
    if position == len(pod_sets):
        return {()}
    found = set()
    want = np.array([_wants(pod_sets[position]).get(name, 0) for name in RESOURCES], np.int64)
    for row in _spreads(case, position):
        left = room - want[:, None] * row
        if (left >= 0).all():
            mine = frozenset(np.flatnonzero(row).tolist())
            found |= {(mine, *others) for others in _used_leaves(case, position + 1, left)}
    return found


def score(case: Case, used: tuple[Leaves, ...]) -> Score | None:
    """How far units climbed, one after the other; domains used from the top; room of the domains used."""
    names = [pod_set.name for pod_set in case.gang.root.pod_sets()]
    climbs = []
    for members, locality, start in _units(case):
        leaves = frozenset().union(*(mine for name, mine in zip(names, used, strict=True) if name in members))
        climb = _climb(case, leaves, start)
        if locality.required and climb > (start if locality.required == AUTO else 0):
            return None
        climbs.append(climb)
    everything = frozenset().union(*used)
    domains = [_domains(case, everything, level) for level in range(len(case.topology.levels))]
    room = sum(
        have
        for level, inside in enumerate(domains)
        for leaf, have in enumerate(_free(case))
        if _path(case, leaf, level) in inside
    )
    return (*climbs, *map(len, domains), room)


def _units(case: Case) -> list[tuple[list[str], Locality, int]]:
    """Who stays together, outer ones first, and at which level they start."""
    found: list[tuple[list[str], Locality, int]] = []
    levels = case.topology.levels

    def visit(member: Group | PodSet) -> None:
        inside = [member] if isinstance(member, PodSet) else list(member.pod_sets())
        locality, segments = member.locality, member.segments if isinstance(member, PodSet) else ()
        leader = None if member is case.gang.root else leader_of(member)
        if leader is not None:
            workers = next(pod_set for pod_set in inside if pod_set is not leader)
            segments = workers.segments
            locality = locality if locality != Locality() else workers.locality
        named = locality.required or locality.preferred
        if named == AUTO:
            named = segments[0].level if segments else levels[-1]
        if named is not None:
            found.append(([pod_set.name for pod_set in inside], locality, levels.index(named)))
        for inner in member.members if isinstance(member, Group) else ():
            visit(inner)

    visit(case.gang.root)
    return found


def leader_of(member: Group | PodSet) -> PodSet | None:
    """Of two pod sets, the one with a single pod (of two such, the second) leads."""
    inside = list(member.pod_sets()) if isinstance(member, Group) else []
    if len(inside) != 2:
        return None
    leader = min(reversed(inside), key=lambda pod_set: pod_set.count)
    return leader if leader.count == 1 else None


def _climb(case: Case, leaves: Leaves, start: int) -> int:
    """How many levels above the start lies the first of which one domain holds the leaves."""
    alone = (level for level in range(start, -1, -1) if len(_domains(case, leaves, level)) <= 1)
    return start - next(alone, -1)


def _domains(case: Case, leaves: Leaves, level: int) -> set[tuple[str, ...]]:
    return {_path(case, leaf, level) for leaf in leaves}


@cache
def _spreads(case: Case, position: int) -> list[Ints]:
    """Every way to spread a pod set that keeps its own rules. A leader has no segments."""
    pod_set = list(case.gang.root.pod_sets())[position]
    if any(leader_of(member) is pod_set for member in case.gang.root.members):
        pod_set = replace(pod_set, segments=())
    count = pod_set.count
    if pod_set.segments and case.profile.remainder is Remainder.LEAVE_OUT:
        count -= count % pod_set.segments[0].size
    most = [_fit(node, pod_set) for node in case.nodes]
    rows = (np.array(row) for row in product(*(range(min(top, count) + 1) for top in most)))
    return [row for row in rows if row.sum() == count and _in_segments(case, pod_set, row, count)]


def _in_segments(case: Case, pod_set: PodSet, row: Ints, count: int) -> bool:
    for segment in pod_set.segments:
        level = case.topology.levels.index(segment.level)
        sums: dict[tuple[str, ...], int] = {}
        for leaf, pods in enumerate(row):
            path = _path(case, leaf, level)
            sums[path] = sums.get(path, 0) + int(pods)
        odd = [pods % segment.size for pods in sums.values() if pods % segment.size]
        rest = count % segment.size
        if odd != ([rest] if rest else []):
            return False
    return True


def _wants(pod_set: PodSet) -> dict[str, int]:
    return {**pod_set.requests, PODS: 1}


def _fit(node: Node, pod_set: PodSet) -> int:
    if any(node.labels.get(key) != value for key, value in pod_set.rules.selector):
        return 0
    return min(node.allocatable[name] // amount for name, amount in _wants(pod_set).items() if amount)


@cache
def _free(case: Case) -> list[int]:
    """Pods of the largest shape on each node."""
    pod_sets = list(case.gang.root.pod_sets())

    def share(pod_set: PodSet) -> Fraction:
        return max(
            Fraction(amount, max(sum(node.allocatable[name] for node in case.nodes), 1))
            for name, amount in _wants(pod_set).items()
        )

    placed = [pod_set for p, pod_set in enumerate(pod_sets) if any(row.any() for row in _spreads(case, p))]
    largest = max(placed or pod_sets, key=share)
    return [_fit(node, largest) for node in case.nodes]


def _path(case: Case, leaf: int, level: int) -> tuple[str, ...]:
    return tuple(case.nodes[leaf].labels[name] for name in case.topology.levels[: level + 1])
