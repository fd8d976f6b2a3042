"""Small clusters with queues, and what becomes of them round after round: victims come back as new pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

from bayplan.model.change import Change, FairQueueSeen, GangSpecSeen, NodeSeen, PodSeen
from bayplan.model.gang import GangSpec, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

NOW = 1000.0
PROFILE = Profile(keep_after_seconds=0.0)


@dataclass
class World:
    """Nodes, queues, gangs and their pods, as the API has them."""

    nodes: dict[str, Node]
    queues: dict[str, FairQueue]
    charters: dict[Ref, GangSpec]
    pods: dict[PodKey, Pod] = field(default_factory=dict)
    born: int = 0

    def changes(self) -> Iterator[Change]:
        yield from map(NodeSeen, self.nodes.values())
        yield from map(FairQueueSeen, self.queues.values())
        yield from map(GangSpecSeen, self.charters.values())
        yield from map(PodSeen, self.pods.values())

    def decide(self) -> Plan:
        """One decision on all there is."""
        board = SchedulingState(heal_seconds=1e9)
        board.apply_all(self.changes())
        return decide_gangs(board.snapshot(board.heads(NOW), NOW), PROFILE, NOW)

    def carry_out(self, plan: Plan) -> None:
        """Who is bound runs; who has to go comes back as another pod; what is promised is written down."""
        for action in plan.actions:
            match action:
                case Bind(_, pod, node):
                    self._see(replace(pod, node=node, started=NOW, spec=replace(pod.spec, nominated="")))
                case Nominate(_, pod, node):
                    self._see(replace(self.pods[pod.key], spec=replace(pod.spec, nominated=node)))
                case PreemptPod(pod):
                    self.born += 1
                    self._see(replace(pod, uid=f"again-{self.born}", node="", started=0.0))

    def _see(self, pod: Pod) -> None:
        self.pods[pod.key] = pod

    def gang(self, ref: Ref) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.gang == ref]


def world(seed: int) -> World:
    """Up to four nodes, up to four queues in two departments, gangs that run and gangs that wait."""
    rng = Random(seed)
    nodes = {
        f"n{at}": Node(f"n{at}", {HOSTNAME: f"n{at}"}, {"gpu": rng.randrange(1, 7), PODS: 50})
        for at in range(rng.randrange(1, 5))
    }
    queues: dict[str, FairQueue] = {}
    parents = [""] if rng.random() < 0.5 else ["d0", "d1"]
    for name in parents:
        if name:
            queues[name] = _queue(rng, name, "", len(queues), limited=False)
    for at in range(rng.randrange(1, 5)):
        queues[f"q{at}"] = _queue(rng, f"q{at}", rng.choice(parents), len(queues), limited=True)
    found = World(nodes, queues, {})
    leaves = [name for name in queues if name.startswith("q")]
    for at in range(rng.randrange(2, 9)):
        _gang(rng, found, at, rng.choice(leaves))
    return found


def _queue(rng: Random, name: str, parent: str, at: int, *, limited: bool) -> FairQueue:
    quota = None if rng.random() < 0.1 else Fraction(rng.randrange(6))
    limit = None
    if limited and quota is not None and rng.random() < 0.3:
        limit = quota + rng.randrange(4)
    said = Entitlement(quota, limit, Fraction(rng.randrange(3)))
    return FairQueue(name, parent, rng.choice((0, 0, 0, 1)), {"gpu": said}, float(at))


def _gang(rng: Random, found: World, at: int, queue: str) -> None:
    ref = Ref("test", "Gang", "ns", f"g{at}")
    count = rng.randrange(1, 4)
    least = rng.randrange(1, count + 1)
    gpus, priority = rng.randrange(1, 4), rng.choice((1, 1, 2, 3))
    tree = Group("", (PodSet("main", count, least, {"gpu": gpus}),), 1) if rng.random() < 0.5 else None
    found.charters[ref] = GangSpec(
        ref,
        least,
        priority=priority,
        queue=queue,
        non_preemptible=rng.random() < 0.2,
        created=float(at),
        tree=tree,
    )
    amounts = {"gpu": gpus, PODS: 1}
    wants = PodSpec(PodSignature("ns", amounts=tuple(amounts.items())), priority)
    for rank in range(count):
        key = PodKey("ns", f"g{at}-{rank}")
        found.pods[key] = Pod(
            key, f"uid-{key.name}", amounts, gang=ref, pod_set="main", rank=rank, spec=wants, ours=True,
            created=1.0,
        )  # fmt: skip
