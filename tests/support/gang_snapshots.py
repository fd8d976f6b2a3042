"""Looks at small clusters, made by hand: nodes with some CPU, pods that run or wait, gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.gang import DisruptionBudget, GangSpec, Group, Locality, Ref
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import Labels, PodSignature
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.cluster.topology_state import TopologyState
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot
from tests.support.model_objects import node, pod

CPU = "cpu"
NOW = 1000.0
FLAT = Topology("flat", (HOSTNAME,))


def cpu_node(name: str, cpu: int = 4, pods: int = 110, **labels: str) -> Node:
    """`cpu` in whole CPUs."""
    return node(
        name, {key.replace("_", "-"): value for key, value in labels.items()}, cpu=1000 * cpu, pods=pods
    )


def shape(cpu: float = 1, labels: Labels = (), **more: object) -> PodSignature:
    amounts = ((CPU, int(1000 * cpu)), (PODS, 1))
    return PodSignature("ns", labels, amounts, (int(1000 * cpu), 0), **more)  # type: ignore[arg-type]


def ref(name: str) -> Ref:
    return Ref("test", "PodGroup", "ns", name)


def cpu_pod(
    name: str, cpu: float = 1, priority: int = 0, on: str = "", gang: str = "", *, preempts: bool = True,
    like: PodSignature | None = None, **more: object,
) -> Pod:  # fmt: skip
    """`cpu` in whole CPUs. A pod that runs already is not ours."""
    looks = like if like is not None else shape(cpu)
    known = {"gang": ref(gang) if gang else None, "ours": not on} | more
    return pod(name, looks, on, priority, preempts=preempts, **known)


def charter(
    name: str, minimum: int = 0, priority: int | None = None, key: str | None = None, **more: object
) -> GangSpec:
    return GangSpec(
        ref(name),
        minimum,
        priority=priority,
        locality=Locality(required=key),
        uid=f"uid-{name}",
        **more,  # type: ignore[arg-type]
    )


def lone(one: Pod, **more: object) -> SchedulingCandidate:
    source = Ref("test", "Pod", "ns", one.key.name)
    made = GangSpec(source, 1, priority=one.spec.priority, uid=one.uid)
    return SchedulingCandidate(made, (one,), **more)  # type: ignore[arg-type]


def candidate(rules: GangSpec, waiting: Iterable[Pod], **more: object) -> SchedulingCandidate:
    return SchedulingCandidate(rules, tuple(waiting), **more)  # type: ignore[arg-type]


def look(
    nodes: Sequence[Node], running: Iterable[Pod] = (), *candidates: SchedulingCandidate,
    charters: Iterable[GangSpec] = (), budgets: Iterable[DisruptionBudget] = (), **more: object,
) -> SchedulingSnapshot:  # fmt: skip
    """One moment. Charters of the candidates are known by themselves."""
    pods = {one.key: one for one in running}
    for candidate in candidates:
        pods |= {one.key: one for one in candidate.bound if one.uses_capacity}
    cluster = TopologyState(FLAT)
    cluster.load(nodes)
    for one in pods.values():
        cluster.use_node(one.node, one.amounts)
    supply = cluster.snapshot()
    index = PodIndex()
    index.set_namespace("ns", {})
    for one in pods.values():
        index.add(one.key, one.node, one.spec.signature, leaving=one.terminating)
    room = allocatable_of(supply.table, supply.resources)
    ground = NodeSnapshot(node_index_of(supply.table, index.slots), supply.resources, supply.free, room)
    known = {rules.source: rules for rules in (*charters, *(c.spec for c in candidates))}
    members: dict[Ref, list[PodKey]] = {}
    for one in pods.values():
        if one.gang is not None:
            members.setdefault(one.gang, []).append(one.key)
    return SchedulingSnapshot(
        FilterInput(ground, index), supply, {}, tuple(candidates), pods, known, members, tuple(budgets),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass(frozen=True)
class Decided:
    """A plan, sorted by what is done."""

    plan: Plan
    binds: Mapping[str, str] = field(default_factory=dict)
    nominates: Mapping[str, str] = field(default_factory=dict)
    displaced: tuple[str, ...] = ()
    refused: Mapping[str, ReportUnschedulable] = field(default_factory=dict)  # by gang
    begun: tuple[str, ...] = ()


def decide(seen: SchedulingSnapshot, profile: Profile | None = None, now: float = NOW) -> Decided:
    """Decide, and see that nothing was changed by it."""
    free, before = seen.filter_input.node_snapshot.free.copy(), dict(seen.filter_input.index.pods)
    plan = decide_gangs(seen, profile or Profile(), now)
    assert np.array_equal(seen.filter_input.node_snapshot.free, free)
    after = seen.filter_input.index.pods
    assert {k: (r.node, r.shape, r.leaving) for k, r in before.items()} == {
        k: (r.node, r.shape, r.leaving) for k, r in after.items()
    }
    actions = plan.actions
    return Decided(
        plan,
        {a.pod.key.name: a.node for a in actions if isinstance(a, Bind)},
        {a.pod.key.name: a.node for a in actions if isinstance(a, Nominate)},
        tuple(sorted(a.pod.key.name for a in actions if isinstance(a, PreemptPod))),
        {a.gang.name: a for a in actions if isinstance(a, ReportUnschedulable)},
        tuple(a.gang.name for a in actions if isinstance(a, MarkStarted)),
    )


def pods(
    prefix: str, count: int, cpu: float = 1, priority: int = 0, gang: str = "", **more: object
) -> list[Pod]:
    return [cpu_pod(f"{prefix}-{n}", cpu, priority, gang=gang, **more) for n in range(count)]  # type: ignore[arg-type]


def with_tree(rules: GangSpec, tree: Group) -> GangSpec:
    return replace(rules, tree=tree)
