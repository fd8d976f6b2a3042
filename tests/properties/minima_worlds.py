"""Small clusters and gangs with minimums at every leaf, and a slow but simple check whether they fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from bayplan.model.gang import Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.subgroups.minimums import GangWithMinimums
from bayplan.state.cluster.topology_state import TopologyState

LEVELS = ("zone", "rack", HOSTNAME)
HALL = Topology("hall", LEVELS)
RESOURCES = {"cpu": 0, "gpu": 1, "pods": 2}
KINDS = ({"gpu": 1}, {"gpu": 1}, {"gpu": 1}, {"gpu": 2}, {"cpu": 2}, {"cpu": 1, "gpu": 1})

Seats = Mapping[PodKey, str]


@dataclass
class World:
    nodes: list[Node]
    tree: Group
    pods: list[Pod]
    bound: dict[PodKey, str] = field(default_factory=dict)
    extra: int | None = None

    @property
    def pending(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.key not in self.bound]

    def wanted(self) -> GangWithMinimums:
        bound_values = [
            Pod(pod.key, pod.uid, pod.amounts, self.bound[pod.key], pod_set=pod.pod_set, rank=pod.rank)
            for pod in self.pods
            if pod.key in self.bound
        ]
        return GangWithMinimums(self.tree, self.pending, bound_values, self.extra)


def world(random: Random) -> World:
    alike = random.random() < 0.6
    nodes = [_node(random, f"n{at}", alike) for at in range(random.randint(1, 6))]
    names = iter("abcdefghijklmnopqrstuvwxyz")
    kinds = KINDS[:1] if alike else KINDS
    members = tuple(_member(random, names, kinds, 2) for _ in range(random.randint(1, 3)))
    root = Group("root", members, len(members), _locality(random, 0.3))
    pods = pods_of(root)
    extra = random.choice((None, None, None, 0, 1, 2))
    return World(nodes, root, pods, extra=extra)


def _node(random: Random, name: str, alike: bool) -> Node:
    labels = {HOSTNAME: name, "zone": random.choice("AAB"), "rack": random.choice("xy")}
    if random.random() < 0.1:
        del labels["rack"]
    gpus = random.choice((1, 2, 3, 4)) if alike else random.choice((0, 1, 2, 3))
    return Node(name, labels, {"gpu": gpus, "cpu": random.choice((1, 2, 4)), "pods": random.choice((3, 9))})


def _locality(random: Random, often: float) -> Locality:
    if random.random() >= often:
        return Locality()
    level = random.choice(LEVELS)
    return Locality(required=level) if random.random() < 0.7 else Locality(preferred=level)


def _member(
    random: Random, names: Iterator[str], kinds: Sequence[dict[str, int]], depth: int
) -> Group | PodSet:
    if depth and random.random() < 0.3:
        inner = tuple(_member(random, names, kinds, depth - 1) for _ in range(random.randint(1, 2)))
        return Group(f"group of {inner[0].name}", inner, len(inner), _locality(random, 0.7))
    count = random.randint(1, 3)
    minimum = random.choice((count, count, random.randint(0, count)))
    segments: tuple[Segment, ...] = ()
    if random.random() < 0.3:
        segments = (Segment(random.choice((1, 2)), random.choice(LEVELS)),)
        count = random.randint(1, 4)
        minimum = random.choice((count, min(segments[0].size * random.randint(0, 2), count)))
    return PodSet(
        next(names), count, minimum, random.choice(kinds), _locality(random, 0.5), segments=segments
    )


def pods_of(tree: Group) -> list[Pod]:
    """Every pod that a gang asks for, in order."""
    return [pod for pod_set in tree.pod_sets() for pod in _pods(pod_set)]


def _pods(pod_set: PodSet) -> list[Pod]:
    amounts = {**pod_set.requests, "pods": 1}
    wants = PodSpec(PodSignature(amounts=tuple(sorted(amounts.items()))))
    return [
        Pod(PodKey("ns", f"{pod_set.name}{rank}"), "", amounts, pod_set=pod_set.name, rank=rank, spec=wants)
        for rank in range(pod_set.count)
    ]


def open_overlay(found: World) -> tuple[NodeOverlay, CapacitySnapshot]:
    """An overlay with the bound pods, and the snapshot of the topology without them."""
    table = table_of(objects(sorted(found.nodes, key=lambda node: node.name[::-1])))
    index = PodIndex()
    room = allocatable_of(table, RESOURCES)
    overlay = NodeOverlay(
        FilterInput(NodeSnapshot(node_index_of(table, index.slots), RESOURCES, room.copy(), room), index)
    )
    for pod in found.pods:
        if pod.key in found.bound:
            overlay.add_pod(pod.key, pod.spec.signature, overlay.row(found.bound[pod.key]))
    cluster = TopologyState(HALL)
    cluster.load(found.nodes)
    return overlay, cluster.snapshot()


# ── reference ──────────────────────────────────────────────────────────────────────────────────────


def bonds(member: Group | PodSet) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Every level that somebody requires, and who: ranks by pod set."""
    if isinstance(member, PodSet):
        all_pods = {member.name: (0, member.count)}
        for segment in member.segments:
            for start in range(0, member.count, segment.size):
                yield segment.level, {member.name: (start, start + segment.size)}
    else:
        all_pods = {pod_set.name: (0, pod_set.count) for pod_set in member.pod_sets()}
        for inner in member.members:
            yield from bonds(inner)
    if member.locality.required is not None:
        yield member.locality.required, all_pods


class Judge:
    """Whether pods may be where they are, all in all."""

    def __init__(self, found: World) -> None:
        self.nodes = {node.name: node for node in found.nodes}
        self.pods = {pod.key: pod for pod in found.pods}
        self.bonds = list(bonds(found.tree))

    def allows(self, assigned: Seats) -> bool:
        used: dict[str, dict[str, int]] = {}
        for key, name in assigned.items():
            mine = used.setdefault(name, {})
            for resource, amount in self.pods[key].amounts.items():
                mine[resource] = mine.get(resource, 0) + amount
        for name, amounts in used.items():
            room = self.nodes[name].allocatable
            if any(amount > room.get(resource, 0) for resource, amount in amounts.items()):
                return False
        return all(self._holds(level, ranks, assigned) for level, ranks in self.bonds)

    def _holds(self, level: str, ranks: Mapping[str, tuple[int, int]], assigned: Seats) -> bool:
        paths = set()
        for key, name in assigned.items():
            pod = self.pods[key]
            low, high = ranks.get(pod.pod_set, (0, 0))
            if low <= pod.rank < high:
                labels = self.nodes[name].labels
                if any(one not in labels for one in LEVELS):
                    return False
                paths.add(tuple(labels[one] for one in LEVELS[: LEVELS.index(level) + 1]))
        return len(paths) <= 1

    def can_seat(self, assigned: dict[PodKey, str], keys: Sequence[PodKey]) -> bool:
        """Whether all of these have a place beside the others, by trying everything."""
        if not keys:
            return True
        for name in self.nodes:
            assigned[keys[0]] = name
            if self.allows(assigned) and self.can_seat(assigned, keys[1:]):
                return True
            del assigned[keys[0]]
        return False


def needed(found: World) -> list[PodKey]:
    """Those who wait without whom the gang does not run."""
    keys: list[PodKey] = []
    for pod_set in found.tree.pod_sets():
        mine = [pod for pod in found.pods if pod.pod_set == pod_set.name]
        pending = [pod for pod in mine if pod.key not in found.bound]
        if pod_set.segments:
            size = pod_set.segments[0].size
            bound = -(-pod_set.minimum // size) * size
            keys += [pod.key for pod in pending if pod.rank < bound]
        else:
            keys += [pod.key for pod in pending][: max(pod_set.minimum - len(mine) + len(pending), 0)]
    return keys
