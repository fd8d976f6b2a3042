"""Small random clusters with running pods, gangs to assign, and slow but simple reference checks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bayplan.model.node import HOSTNAME, Node
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import (
    HostPort,
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    Selector,
    TopologySpread,
)
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import Bools, objects
from bayplan.placement.filters.pipeline import FilterInput, conflict
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch

RESOURCES = {"cpu": 0, "gpu": 1, "pods": 2}
APPS = ("web", "db")
KEYS = (HOSTNAME, "zone")


def key(name: str) -> PodKey:
    return PodKey("ns", name)


def filter_input(random: Random) -> FilterInput:
    """Up to four nodes in up to two zones, and a few pods on them (and one on an unknown node)."""
    nodes = [_node(random, f"n{number}") for number in range(random.randint(1, 4))]
    random.shuffle(nodes)
    index = PodIndex()
    table = table_of(objects(nodes))
    room = allocatable_of(table, RESOURCES)
    free, node_index = room.copy(), node_index_of(table, index.slots)
    index.set_namespace("ns", {"team": "a"})
    for number in range(random.randint(0, 3)):
        running = shape(random, interacting=random.random() < 0.5)
        at = random.randrange(-1, len(nodes)) if number == 2 else random.randrange(len(nodes))
        name = nodes[at].name if at >= 0 else "unknown"
        index.add(key(f"r{number}"), name, running, leaving=random.random() < 0.2)
        for resource, amount in running.amounts if at >= 0 else ():
            free[RESOURCES[resource], at] -= amount
    return FilterInput(NodeSnapshot(node_index, RESOURCES, free, room), index)


def _node(random: Random, name: str) -> Node:
    labels = {HOSTNAME: name, "disk": random.choice(("ssd", "hdd"))}
    if random.random() < 0.8:
        labels["zone"] = random.choice("ab")
    room = {"cpu": random.randint(1, 6), "gpu": random.choice((0, 2, 4)), "pods": random.choice((2, 9))}
    return Node(name, labels, room, schedulable=random.random() < 0.95)


def shape(random: Random, *, interacting: bool) -> PodSignature:
    """What a pod asks for: room and nodes, and if it interacts one or two things more."""
    amounts = {"cpu": random.randint(0, 3), "gpu": random.choice((0, 0, 1, 2)), "pods": 1}
    labels = (("app", random.choice(APPS)),)
    rules = NodeRules(selector=(("disk", "ssd"),)) if random.random() < 0.3 else NodeRules()
    if random.random() < 0.2:
        wish = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
        rules = NodeRules(rules.selector, preferred=((10, wish),))
    made = {
        "namespace": "ns", "labels": labels, "rules": rules,
        "amounts": tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        "score_requests": (amounts["cpu"], 1),
    }  # fmt: skip
    kinds = random.sample(("apart", "near", "ports", "spread", "rather"), random.randint(1, 2))
    term = PodAffinityTerm(random.choice(KEYS), _selector(random), ("ns",))
    if interacting:
        made["ports"] = (HostPort(random.choice((80, 81))),) if "ports" in kinds else ()
        made["spread"] = (_spread(random),) if "spread" in kinds else ()
        made["affinity"] = PodAffinity(
            required=(term,) if "near" in kinds else (),
            required_anti=(PodAffinityTerm(random.choice(KEYS), _selector(random), ("ns",)),)
            if "apart" in kinds
            else (),
            preferred=((5, term),) if "rather" in kinds else (),
        )
    return PodSignature(**made)  # type: ignore[arg-type]


def _selector(random: Random) -> Selector:
    return Selector((Requirement("app", "In", (random.choice(APPS),)),))


def _spread(random: Random) -> TopologySpread:
    return TopologySpread(
        random.choice(KEYS), random.choice((1, 2)), _selector(random), required=random.random() < 0.8
    )


def batches(random: Random, *, interacting: bool, most: int = 6) -> list[PodBatch]:
    """A gang: one to three shapes, no more than so many pods in all."""
    made: list[PodBatch] = []
    left, number = random.randint(1, most), 0
    for _ in range(random.randint(1, 3)):
        size = random.randint(0, left)
        keys = tuple(key(f"p{number + at}") for at in range(size))
        made.append(PodBatch(shape(random, interacting=interacting and random.random() < 0.7), keys))
        left, number = left - size, number + size
    return made


# ── reference ──────────────────────────────────────────────────────────────────────────────────────


def faults(overlay: NodeOverlay, gang: Sequence[PodBatch], assigned: dict[PodKey, int]) -> list[str]:
    """The violated constraints of the assigned pods, checked pod by pod and pair by pair."""
    found = []
    nodes, free = (
        overlay.filter_input.node_snapshot.node_index.table.nodes,
        overlay.filter_input.node_snapshot.free,
    )
    newcomers = {one: batch.shape for batch in gang for one in batch.keys if one in assigned}
    for one, mine in newcomers.items():
        node = nodes[assigned[one]]
        if any(free[RESOURCES[resource], assigned[one]] < 0 for resource, _ in mine.amounts):
            found.append(f"{node.name} is too full for {one}")
        if any(node.labels.get(label) != value for label, value in mine.rules.selector):
            found.append(f"{one} does not want {node.name}")
        for other, running in overlay.filter_input.index.pods.items():
            row = (
                int(overlay.filter_input.node_snapshot.node_index.rows()[running.node])
                if running.node < len(nodes)
                else -1
            )
            if other != one and row >= 0:
                found += _conflicts(one, mine, node, other, running.shape, nodes[row])
    return found


def _conflicts(
    one: PodKey, mine: PodSignature, here: Node, other: object, theirs: PodSignature, there: Node
) -> list[str]:
    found = []
    if here is there and any(conflict(a, b) for a in mine.ports for b in theirs.ports):
        found.append(f"{one} and {other} want the same port of {here.name}")
    for a, b in ((mine, theirs), (theirs, mine)):
        for term in a.affinity.required_anti:
            same = term.key in here.labels and here.labels.get(term.key) == there.labels.get(term.key)
            if same and term.selects("ns", {"team": "a"}, dict(b.labels)):
                found.append(f"{one} and {other} are not apart")
    return found


def most_assignable(overlay: NodeOverlay, gang: Sequence[PodBatch], allowed_nodes: Bools | None) -> int:
    """The most pods that can be assigned one after the other in any order, by exhaustive search."""
    seen: set[tuple[tuple[int, ...], ...]] = set()
    counts = [[0] * len(overlay) for _ in gang]

    def deeper() -> int:
        state = tuple(map(tuple, counts))
        if state in seen:
            return 0
        seen.add(state)
        best = sum(map(sum, counts))
        for which, batch in enumerate(gang):
            sitting = sum(counts[which])
            fits = overlay.run_filters(batch.shape).fits if sitting < len(batch.keys) else ()
            for row, good in enumerate(fits):
                if good and (allowed_nodes is None or allowed_nodes[row]):
                    checkpoint = overlay.checkpoint()
                    overlay.add_pod(batch.keys[sitting], batch.shape, row)
                    counts[which][row] += 1
                    best = max(best, deeper())
                    counts[which][row] -= 1
                    overlay.rollback(checkpoint)
        return best

    return deeper()
