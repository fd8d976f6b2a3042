"""Random worlds of queues, and what must hold in all of them, counted a second time and in another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from bayplan.model.change import FlavorSeen, NodeSeen, QueueSeen, QuotaNodeSeen
from bayplan.model.plan import EvictGang, Plan
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Quota, QuotaNode
from bayplan.state.admission.state import AdmissionState
from tests.admission.world import World, named

CELL = ("f", "cpu")
POLICIES = (
    *("", "within=lower", "within=newer", "reclaim=any", "reclaim=lower", "within=lower reclaim=any"),
    *("within=newer reclaim=any forced", "within=lower reclaim=lower forced=0", "reclaim=newer"),
    *("within=lower when_preempting=stop", "reclaim=any when_borrowing=continue", "rather=preempt"),
)


def limits(random: Random, most: int = 6) -> str:
    """A nominal quota, at times with limits."""
    borrowing = random.choice(("", "", "0", "1", "3"))
    lending = random.choice(("", "", "0", "1", "2"))
    return f"{random.randint(0, most)},{borrowing},{lending}".rstrip(",")


def rules(random: Random, *, topology: bool = False, flavors: int = 1) -> str:
    """Flavors, a tree of quota up to four levels deep, and queues at its nodes."""
    lines = ["topology t rack host"] if topology else []
    names = ["f", "g"][:flavors]
    lines += [f"flavor {name}{' topology=t' if topology else ''}" for name in names]
    depth = {"c0": 1}
    for number in range(random.randint(0, 4)):
        above = random.choice([name for name, at in depth.items() if at < 3])
        depth[f"c{number + 1}"] = depth[above] + 1
        quota = " ".join(f"{name}/cpu={limits(random, 3)}" for name in names if random.random() < 0.4)
        lines.append(f"cohort c{number + 1} in {above} weight={random.choice('121')} : {quota}")
    for number in range(random.randint(1, 4)):
        where = random.choice([*(f"in {name}" for name in depth), ""])
        strict = random.choice(("", "", "strict"))
        quota = " ".join(f"{name}/cpu={limits(random)}" for name in names)
        lines.append(f"queue q{number} {where} {strict} {random.choice(POLICIES)} : {quota}")
    return "\n".join(lines)


def queues_of(world: World) -> list[str]:
    return [change.queue.name for change in world.objects.values() if isinstance(change, QueueSeen)]


def nodes(random: Random) -> str:
    hosts = range(random.randint(1, 6))
    return "\n".join(f"node n{n} rack=r{random.randint(0, 2)} : cpu={random.randint(1, 4)}" for n in hosts)


def gangs(random: Random, queues: list[str], count: int, start: int = 0, *, topology: bool = False) -> str:
    """Gangs of all sizes and priorities; some of them want to stand together."""
    lines = []
    for number in range(start, start + count):
        where = random.choice(("", "", "required=rack", "preferred=rack", "required=host", "free"))
        pods = random.choice((1, 1, 2, 3, 4))
        least = f"min={random.randint(1, pods)}" if random.random() < 0.15 else ""
        lines.append(
            f"gang g{number} in {random.choice(queues)} prio={random.choice((0, 0, 0, 1, 2, -1))} "
            f"at={random.randint(0, 9)} : x{pods} {least} cpu={random.choice((1, 1, 2, 3))} "
            f"{where if topology else ''}"
        )
    return "\n".join(lines)


def random_world(
    random: Random, *, topology: bool | int = False, fair: bool | int = False, flavors: int = 1
) -> World:
    """A world with a dozen gangs, none of which has anything yet."""
    text = rules(random, topology=bool(topology), flavors=flavors)
    world = World(text, Profile(fair_sharing=bool(fair)))
    if topology:
        world.draw(nodes(random))
    world.draw(gangs(random, queues_of(world), random.randint(3, 12), topology=bool(topology)))
    return world


# ── counted again ─────────────────────────────────────────────────────────────────────────────────


def holders(world: World) -> Iterator[QueuedGang]:
    return (demand for demand in world.demands() if demand.admission is not None)


def quota_breaches(world: World) -> list[str]:
    """Nodes of the tree that use more than they may, from the objects alone."""
    shared = {c.node.name: c.node for c in world.objects.values() if isinstance(c, QuotaNodeSeen)}
    queues = {c.queue.name: c.queue.node for c in world.objects.values() if isinstance(c, QueueSeen)}
    for node in [*queues.values(), *shared.values()]:
        if node.parent and node.parent not in shared:
            shared[node.parent] = QuotaNode(node.parent)
    flavors = [c.flavor.name for c in world.objects.values() if isinstance(c, FlavorSeen)]
    tree = _Tree(queues, shared, _used(world))
    tops = [node for node in [*queues.values(), *shared.values()] if not node.parent]
    for flavor in flavors:
        for top in tops:
            tree.visit(top, top.name in queues and queues[top.name] is top, (flavor, "cpu"))
    return tree.found


def _used(world: World) -> dict[tuple[str, Cell], int]:
    used: dict[tuple[str, Cell], int] = {}
    for demand in holders(world):
        assert demand.admission is not None
        for cell, amount in demand.admission.usage().items():
            key = (demand.admission.queue, cell)
            used[key] = used.get(key, 0) + amount
    return used


class _Tree:
    def __init__(
        self,
        queues: Mapping[str, QuotaNode],
        shared: Mapping[str, QuotaNode],
        used: Mapping[tuple[str, Cell], int],
    ) -> None:
        self.queues, self.shared, self.used = queues, shared, used
        self.found: list[str] = []

    def visit(self, node: QuotaNode, is_queue: bool, cell: Cell) -> tuple[int, int]:
        """What a node lends to its parent at most, and what it takes from there."""
        quota = node.quotas.get(cell, Quota(0))
        brought, used = quota.nominal, self.used.get((node.name, cell), 0) if is_queue else 0
        if not is_queue:
            for child, leaf in self._children(node.name):
                lent, taken = self.visit(child, leaf, cell)
                brought, used = brought + lent, used + taken
        limit = quota.borrowing if node.parent else 0
        if limit is not None and used > brought + limit:
            self.found.append(f"{node.name} uses {used} of {cell}, {brought} + {limit} is all it may")
        kept = 0 if quota.lending is None or not node.parent else max(0, brought - quota.lending)
        return brought - kept, max(0, used - kept)

    def _children(self, name: str) -> Iterator[tuple[QuotaNode, bool]]:
        yield from ((node, True) for node in self.queues.values() if node.parent == name)
        yield from ((node, False) for node in self.shared.values() if node.parent == name)


def crowded_nodes(world: World) -> list[str]:
    """Nodes on which more stands than fits."""
    room = {c.node.name: c.node.allocatable["cpu"] for c in world.objects.values() if isinstance(c, NodeSeen)}
    for demand in holders(world):
        shapes = {pod_set.name: pod_set for pod_set in demand.gang.root.pod_sets()}
        assert demand.admission is not None
        for given in demand.admission.pod_sets:
            for share in given.assignment.shares if given.assignment is not None else ():
                room[share.values[-1]] = (
                    room.get(share.values[-1], 0) - share.count * shapes[given.name].requests["cpu"]
                )
    return [name for name, left in room.items() if left < 0]


def ledger(state: AdmissionState) -> dict[str, object]:
    """Everything that is counted, in a form that two states can be compared by."""
    books = state.usage.quota_tree()
    found: dict[str, object] = {}
    for kind, accounts in (("queue", books.queues), ("shared", books.shared)):
        for name, account in accounts.items():
            found[f"{kind} {name}"] = {cell: used for cell, used in account.usage.items() if used}
    for name, supply in state.usage.supplies().items():
        rows = [node.name for node in supply.tree.nodes]
        for resource, at in supply.resources.items():
            found[f"{name} {resource} free"] = dict(zip(rows, supply.free[at].tolist(), strict=True))
            if supply.claimed is not None and supply.claimed[at].any():
                found[f"{name} {resource} claimed"] = supply.claimed[at].tolist()
            if supply.gang_usage is not None:
                found[f"{name} {resource} held"] = {
                    row: held for row, held in zip(rows, supply.gang_usage[at].tolist(), strict=True) if held
                }
    return {what: counted for what, counted in found.items() if counted}


def victims_of(plan: Plan) -> list[str]:
    return [named(action.queued_gang) for action in plan.actions if isinstance(action, EvictGang)]


def usage_by_queue(world: World) -> dict[str, int]:
    """Quota in use, all cells together."""
    found: dict[str, int] = {}
    for (queue, _), amount in _used(world).items():
        found[queue] = found.get(queue, 0) + amount
    return found
