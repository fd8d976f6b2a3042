"""Small random clusters with pods that run, and gangs and pods that wait; and what must hold of any plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.node_rules import Requirement
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import HostPort, PodAffinity, PodAffinityTerm, PodSignature, Selector
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot
from tests.support.gang_snapshots import candidate, charter, cpu_node, cpu_pod, lone, look, shape

APP = Selector((Requirement("app", "In", ("x",)),))


@dataclass(frozen=True)
class World:
    """Everything a look is made of."""

    nodes: tuple[Node, ...]
    running: tuple[Pod, ...]
    candidates: tuple[SchedulingCandidate, ...]
    charters: tuple[GangSpec, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()

    def look(self) -> SchedulingSnapshot:
        return look(self.nodes, self.running, *self.candidates, charters=self.charters, budgets=self.budgets)

    def without(self, keys: Iterable[PodKey]) -> World:
        gone = set(keys)
        return replace(self, running=tuple(one for one in self.running if one.key not in gone))


def world(seed: int, most: int = 3) -> World:
    """Up to `most` candidates, the most important first."""
    random = Random(seed)
    picky = random.random() < 0.4
    nodes = tuple(
        cpu_node(f"n{at}", random.randint(1, 4), pods=random.choice((2, 3, 110)), zone=random.choice("xyz"))
        for at in range(random.randint(1, 4))
    )
    whole = tuple(
        charter(
            f"v{at}",
            random.choice((0, 2)),
            random.choice((None, 0, 1, 2)),
            disrupt_together=random.random() < 0.7,
        )
        for at in range(2)
    )
    running = []
    room = {one.name: dict(one.allocatable) for one in nodes}
    for at in range(random.randint(0, 9)):
        like = _shape(random, picky)
        where = random.choice(nodes).name
        if all(room[where].get(name, 0) >= amount for name, amount in like.amounts):
            for name, amount in like.amounts:
                room[where][name] -= amount
            gone, gang = random.random() < 0.1, random.choice(("", "", "v0", "v1"))
            priority, started = random.randint(0, 3), float(random.randint(0, 3))
            one = cpu_pod(f"r{at}", 0, priority, where, gang, like=like, started=started, terminating=gone)
            running.append(one)
    candidates = [_candidate(random, f"c{at}", picky) for at in range(random.randint(1, most))]
    candidates.sort(key=lambda one: -(one.spec.priority or 0))
    budgets = (DisruptionBudget("ns", "b", APP, random.randint(0, 1)),) if random.random() < 0.3 else ()
    return World(nodes, tuple(running), tuple(candidates), whole, budgets)


def _shape(random: Random, picky: bool) -> PodSignature:
    labels = (("app", random.choice("xy")),)
    cpu = random.choice((0.5, 1, 1, 2, 3))
    if not picky or random.random() < 0.5:
        return shape(cpu, labels)
    if random.random() < 0.5:
        return shape(cpu, labels, ports=(HostPort(random.choice((80, 81))),))
    key = random.choice((HOSTNAME, "zone"))
    return shape(cpu, labels, affinity=PodAffinity(required_anti=(PodAffinityTerm(key, APP, ("ns",)),)))


def _candidate(random: Random, name: str, picky: bool) -> SchedulingCandidate:
    priority = random.randint(1, 4)
    like = _shape(random, picky)
    if random.random() < 0.35:
        return lone(cpu_pod(name, priority=priority, like=like, preempts=random.random() < 0.9))
    size = random.randint(1, 4)
    shapes = [like if random.random() < 0.7 else _shape(random, picky) for _ in range(size)]
    pods = [cpu_pod(f"{name}-{at}", priority=priority, gang=name, like=one) for at, one in enumerate(shapes)]
    key = "zone" if random.random() < 0.3 else None
    return candidate(charter(name, random.choice((0, 1, size, size)), priority, key), pods)


# ── what was decided ───────────────────────────────────────────────────────────────────────────────


def victims(plan: Plan, by: Ref | None = None) -> list[Pod]:
    return [a.pod for a in plan.actions if isinstance(a, PreemptPod) and by in (None, a.by)]


def seats(
    plan: Plan, kind: type[Bind] | type[Nominate], gang: Ref | None = None
) -> dict[PodKey, tuple[Pod, str]]:
    return {
        a.pod.key: (a.pod, a.node)
        for a in plan.actions
        if isinstance(a, kind) and a.node and gang in (None, a.gang)
    }


def crowded(
    nodes: Sequence[Node], there: Iterable[tuple[Pod, str]], guests: Mapping[PodKey, str]
) -> list[str]:
    """What is wrong with pods being where they are, as far as guests have to do with it."""
    by_name = {one.name: one for one in nodes}
    everybody = list(there)
    told = []
    for name in sorted({where for _, where in everybody if where in guests.values()}):
        used: Counter[str] = Counter()
        for one, where in everybody:
            if where == name:
                used.update(dict(one.spec.signature.amounts))
        told += [f"{name} lacks {r}" for r, n in used.items() if n > by_name[name].allocatable.get(r, 0)]
    for at, (one, where) in enumerate(everybody):
        for other, elsewhere in everybody[at + 1 :]:
            if one.key in guests or other.key in guests:
                told += _quarrels(by_name, one, where, other, elsewhere)
    return told


def _quarrels(nodes: Mapping[str, Node], one: Pod, where: str, other: Pod, elsewhere: str) -> list[str]:
    told = []
    if where == elsewhere and set(one.spec.signature.ports) & set(other.spec.signature.ports):
        told.append(f"{one.key} and {other.key} share a port")
    for first, second in ((one, other), (other, one)):
        for term in first.spec.signature.affinity.required_anti:
            here, there = nodes[where].labels.get(term.key), nodes[elsewhere].labels.get(term.key)
            if here == there is not None and term.selector.accepts(dict(second.spec.signature.labels)):
                told.append(f"{first.key} is near {second.key}")
    return told
