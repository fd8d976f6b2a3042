"""Looks at small clusters, made by hand: nodes with some CPU, pods that run or wait, gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.gang import Group, Locality, Ref
from bayplan.model.gang_spec import Budget, Charter
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import Begin, Bind, Displace, Nominate, Plan, Refuse
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import Labels, Shape, Wants
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import Ground, allocatable_of, land_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import Scene
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.cluster.topology_state import Cluster
from bayplan.state.scheduling.snapshot import Candidate, Look

CPU = "cpu"
NOW = 1000.0
FLAT = Topology("flat", (HOSTNAME,))


def node(name: str, cpu: int = 4, pods: int = 110, **labels: str) -> Node:
    """`cpu` in whole CPUs; nodes know their own name as a label."""
    named = {key.replace("_", "-"): value for key, value in labels.items()}
    return Node(name, {HOSTNAME: name, **named}, {CPU: 1000 * cpu, PODS: pods})


def shape(cpu: float = 1, labels: Labels = (), **more: object) -> Shape:
    amounts = ((CPU, int(1000 * cpu)), (PODS, 1))
    return Shape("ns", labels, amounts, (int(1000 * cpu), 0), **more)  # type: ignore[arg-type]


def ref(name: str) -> Ref:
    return Ref("test", "PodGroup", "ns", name)


def pod(
    name: str, cpu: float = 1, priority: int = 0, on: str = "", gang: str = "", *, preempts: bool = True,
    like: Shape | None = None, **more: object,
) -> Pod:  # fmt: skip
    looks = like if like is not None else shape(cpu)
    return Pod(
        PodKey("ns", name), f"uid-{name}", dict(looks.amounts), on, gang=ref(gang) if gang else None,
        wants=Wants(looks, priority, preempts), ours=not on, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def charter(
    name: str, minimum: int = 0, priority: int | None = None, key: str | None = None, **more: object
) -> Charter:
    return Charter(
        ref(name),
        minimum,
        priority=priority,
        locality=Locality(required=key),
        uid=f"uid-{name}",
        **more,  # type: ignore[arg-type]
    )


def lone(one: Pod, **more: object) -> Candidate:
    source = Ref("test", "Pod", "ns", one.key.name)
    made = Charter(source, 1, priority=one.wants.priority, uid=one.uid)
    return Candidate(made, (one,), **more)  # type: ignore[arg-type]


def gang(rules: Charter, waiting: Iterable[Pod], **more: object) -> Candidate:
    return Candidate(rules, tuple(waiting), **more)  # type: ignore[arg-type]


def look(
    nodes: Sequence[Node], running: Iterable[Pod] = (), *candidates: Candidate,
    charters: Iterable[Charter] = (), budgets: Iterable[Budget] = (), **more: object,
) -> Look:  # fmt: skip
    """One moment. Charters of the candidates are known by themselves."""
    pods = {one.key: one for one in running}
    for candidate in candidates:
        pods |= {one.key: one for one in candidate.standing if one.takes_room}
    cluster = Cluster(FLAT)
    cluster.load(nodes)
    for one in pods.values():
        cluster.use_node(one.node, one.amounts)
    supply = cluster.snapshot()
    index = PodIndex()
    index.name_space("ns", {})
    for one in pods.values():
        index.add(one.key, one.node, one.wants.shape, leaving=one.leaving)
    room = allocatable_of(supply.table, supply.resources)
    ground = Ground(land_of(supply.table, index.slots), supply.resources, supply.free, room)
    known = {rules.source: rules for rules in (*charters, *(c.charter for c in candidates))}
    members: dict[Ref, list[PodKey]] = {}
    for one in pods.values():
        if one.gang is not None:
            members.setdefault(one.gang, []).append(one.key)
    return Look(
        Scene(ground, index), supply, {}, tuple(candidates), pods, known, members, tuple(budgets),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass(frozen=True)
class Decided:
    """A plan, sorted by what is done."""

    plan: Plan
    binds: Mapping[str, str] = field(default_factory=dict)
    nominates: Mapping[str, str] = field(default_factory=dict)
    displaced: tuple[str, ...] = ()
    refused: Mapping[str, Refuse] = field(default_factory=dict)  # by gang
    begun: tuple[str, ...] = ()


def decide(seen: Look, profile: Profile | None = None, now: float = NOW) -> Decided:
    """Decide, and see that nothing was changed by it."""
    free, before = seen.scene.ground.free.copy(), dict(seen.scene.index.pods)
    plan = decide_gangs(seen, profile or Profile(), now)
    assert np.array_equal(seen.scene.ground.free, free)
    after = seen.scene.index.pods
    assert {k: (r.node, r.shape, r.leaving) for k, r in before.items()} == {
        k: (r.node, r.shape, r.leaving) for k, r in after.items()
    }
    actions = plan.actions
    return Decided(
        plan,
        {a.pod.key.name: a.node for a in actions if isinstance(a, Bind)},
        {a.pod.key.name: a.node for a in actions if isinstance(a, Nominate)},
        tuple(sorted(a.pod.key.name for a in actions if isinstance(a, Displace))),
        {a.gang.name: a for a in actions if isinstance(a, Refuse)},
        tuple(a.gang.name for a in actions if isinstance(a, Begin)),
    )


def pods(
    prefix: str, count: int, cpu: float = 1, priority: int = 0, gang: str = "", **more: object
) -> list[Pod]:
    return [pod(f"{prefix}-{n}", cpu, priority, gang=gang, **more) for n in range(count)]  # type: ignore[arg-type]


def with_tree(rules: Charter, tree: Group) -> Charter:
    return replace(rules, tree=tree)
