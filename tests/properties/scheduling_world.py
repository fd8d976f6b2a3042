"""A small world around a board: objects, events that are late or come twice, writes that end in any way."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random

from bayplan.model.change import (
    Change,
    FairQueueLost,
    FairQueueSeen,
    GangSpecLost,
    GangSpecSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    TopologySeen,
)
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import Action, Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.quota import FairQueue
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot
from bayplan.state.scheduling.state import SchedulingState

RACKS = Topology("racks", ("rack", HOSTNAME))
QUEUES = ("blue", "green")
GANGS = ("a", "b", "c")
CAUSES = (FilterReason.INSUFFICIENT, FilterReason.TAINT, FilterReason.POD_AFFINITY, FilterReason.NO_VOLUME)


class World:
    """The truth in plain dicts, the events on their way, and the board that hears of them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 1000.0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodKey, Pod] = {}
        self.charters: dict[Ref, GangSpec] = {}
        self.queues: dict[str, FairQueue] = {}
        self.events: deque[Change] = deque()
        self.writes: deque[Action] = deque()
        self.made = 0
        self.board = SchedulingState(heal_seconds=20.0)
        self.board.apply(TopologySeen(RACKS))

    # ── what others do ─────────────────────────────────────────────────────────────────────────────

    def happen(self) -> None:
        """One thing changes, as somebody wants it."""
        names = [
            "node",
            "node",
            "no_node",
            "pod",
            "pod",
            "pod",
            "pod",
            "end",
            "leave",
            "go",
            "charter",
            "no_charter",
            "queue",
        ]
        getattr(self, f"_{self.rng.choice(names)}")()

    def _queue(self) -> None:
        name = self.rng.choice(QUEUES)
        if name in self.queues and self.rng.random() < 0.3:
            del self.queues[name]
            self.events.append(FairQueueLost(name))
        else:
            self.queues[name] = FairQueue(name, priority=self.rng.randrange(3))
            self.events.append(FairQueueSeen(self.queues[name]))

    def _node(self) -> None:
        name = f"n{self.rng.randrange(5)}"
        labels = {"rack": self.rng.choice("xy")} | ({HOSTNAME: name} if self.rng.random() < 0.7 else {})
        amounts = {"gpu": self.rng.randrange(2, 5), PODS: 9} | ({"tpu": 1} if self.rng.random() < 0.1 else {})
        self.nodes[name] = Node(name, labels, amounts, schedulable=self.rng.random() < 0.9)
        self.events.append(NodeSeen(self.nodes[name]))

    def _no_node(self) -> None:
        if self.nodes and self.rng.random() < 0.5:
            name = self.rng.choice(sorted(self.nodes))
            del self.nodes[name]
            self.events.append(NodeLost(name))

    def _pod(self) -> None:
        """A new pod, or another one under an old name."""
        self.made += 1
        key = PodKey("ns", f"p{self.rng.randrange(12)}")
        if key in self.pods:
            return
        amounts = {"gpu": self.rng.randrange(1, 3), PODS: 1}
        wants = PodSpec(
            PodSignature("ns", (("app", self.rng.choice("uv")),), tuple(amounts.items())),
            self.rng.randrange(2),
            gates=("wait",) if self.rng.random() < 0.1 else (),
        )
        gang = Ref("test", "Gang", "ns", self.rng.choice(GANGS)) if self.rng.random() < 0.6 else None
        node = self.rng.choice(sorted(self.nodes)) if self.nodes and self.rng.random() < 0.2 else ""
        ours, created = self.rng.random() < 0.9, float(self.made)
        self._see(
            Pod(key, f"uid-{self.made}", amounts, node, gang=gang, spec=wants, ours=ours, created=created)
        )

    def _end(self) -> None:
        if placed := [pod for pod in self._in_order() if pod.uses_capacity]:
            self._see(replace(self.rng.choice(placed), finished=True, succeeded=self.rng.random() < 0.5))

    def _leave(self) -> None:
        """It is told something, let go, or being deleted."""
        if self.pods:
            pod = self.rng.choice(self._in_order())
            free = replace(pod, spec=replace(pod.spec, gates=()))
            told = replace(pod, message=f"words {self.made}")
            self._see(self.rng.choice([free, told, replace(pod, terminating=True)]))

    def _go(self) -> None:
        if self.pods and self.rng.random() < 0.6:
            self._lose(self.rng.choice(self._in_order()).key)

    def _charter(self) -> None:
        ref = Ref("test", "Gang", "ns", self.rng.choice(GANGS))
        minimum, desired = self.rng.randrange(4), self.rng.choice((0, 0, 0, 3))
        queue, lasting = self.rng.choice(("", "", *QUEUES)), self.rng.random() < 0.3
        self.charters[ref] = GangSpec(ref, minimum, desired=desired, queue=queue, non_preemptible=lasting)
        self.events.append(GangSpecSeen(self.charters[ref]))

    def _no_charter(self) -> None:
        if self.charters and self.rng.random() < 0.4:
            ref = self.rng.choice(sorted(self.charters, key=str))
            del self.charters[ref]
            self.events.append(GangSpecLost(ref))

    def _in_order(self) -> list[Pod]:
        return [self.pods[key] for key in sorted(self.pods, key=str)]

    def _see(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.events.append(PodSeen(pod))

    def _lose(self, key: PodKey) -> None:
        del self.pods[key]
        self.events.append(PodLost(key))

    # ── what the board hears ───────────────────────────────────────────────────────────────────────

    def hear(self, everything: bool = False) -> None:
        """Some of the events arrive, some of them twice."""
        count = len(self.events) if everything else self.rng.randrange(len(self.events) + 1)
        changes = [self.events.popleft() for _ in range(count)]
        again = [change for change in changes for _ in range(1 + (self.rng.random() < 0.2))]
        if self.rng.random() < 0.5:
            self.board.apply_all(again)
        else:
            for change in again:
                self.board.apply(change)

    def decide(self) -> None:
        """A turn in which anything is decided that could be."""
        heads = self.board.heads(self.now)
        if heads:
            plan = self.plan(self.board.snapshot(heads, self.now))
            self.board.assume(plan, self.now)
            self.writes.extend(plan.actions)

    def plan(self, look: SchedulingSnapshot) -> Plan:
        actions: list[Action] = []
        for candidate in look.candidates:
            actions += self._decided(candidate, look)
        return Plan(tuple(actions))

    def _decided(self, candidate: SchedulingCandidate, look: SchedulingSnapshot) -> list[Action]:
        ref, nodes = candidate.spec.source, [node.name for node in look.supply.tree.nodes]
        if candidate.blocker is not None:
            return [ReportUnschedulable(ref, candidate.blocker, candidate.pending)]
        if candidate.stale:
            gone = [PreemptPod(pod, ref, undoes=True) for pod in candidate.bound if pod.uses_capacity]
            return [*gone, ReportUnschedulable(ref, Rejection(RejectionReason.UNDONE))]
        if not candidate.pending:
            return [MarkStarted(ref)]
        roll = self.rng.random()
        if roll < 0.05:
            return []
        if roll < 0.45 and nodes and candidate.pending:
            some = [pod for pod in candidate.pending if self.rng.random() < 0.8] or list(candidate.pending)
            left = [ReportUnschedulable(ref, self._why())] if len(some) < len(candidate.pending) else []
            return [*(Bind(ref, pod, self.rng.choice(nodes)) for pod in some), *left, MarkStarted(ref)]
        victims = [pod for pod in look.pods.values() if not pod.terminating and self.rng.random() < 0.2]
        if roll < 0.65 and victims and nodes:
            promises = [Nominate(ref, pod, self.rng.choice(nodes)) for pod in candidate.pending]
            gone = [PreemptPod(pod, ref) for pod in victims]
            return [
                *gone,
                *promises,
                ReportUnschedulable(ref, Rejection(RejectionReason.PREEMPTING)),
            ]
        keeps = (nodes[0],) if nodes and self.rng.random() < 0.2 else ()
        return [ReportUnschedulable(ref, self._why(), reserved_nodes=keeps)]

    def _why(self) -> Rejection:
        return Rejection(
            RejectionReason.NO_CAPACITY, filter_failure=FilterFailure(1, {(self.rng.choice(CAUSES), ""): 1})
        )

    # ── what becomes of writes ─────────────────────────────────────────────────────────────────────

    def write(self, everything: bool = False) -> None:
        """Some of the writes end: well, badly, or nobody knows how."""
        for _ in range(len(self.writes) if everything else self.rng.randrange(len(self.writes) + 1)):
            action = self.writes.popleft()
            roll = self.rng.random()
            happened = self._happens(action) if roll < 0.8 else False
            ended = "unknown" if 0.6 < roll < 0.9 else "done" if happened else "failed"
            self.board.settle(action, ended, self.now)

    def _happens(self, action: Action) -> bool:
        if not isinstance(action, Bind | Nominate | PreemptPod):
            return True
        pod = self.pods.get(action.pod.key)
        if pod is None or pod.uid != action.pod.uid:
            return False
        match action:
            case Bind(_, _, node):
                if pod.node or pod.terminating or pod.finished:
                    return False
                self._see(replace(pod, node=node, started=self.now))
            case Nominate(_, _, node):
                self._see(replace(pod, spec=replace(pod.spec, nominated=node)))
            case PreemptPod():
                if self.rng.random() < 0.5:
                    self._see(replace(pod, terminating=True))
                else:
                    self._lose(pod.key)
        return True

    def fresh(self) -> SchedulingState:
        """A board that hears only of what is there now."""
        found = SchedulingState(heal_seconds=20.0)
        found.apply(TopologySeen(RACKS))
        found.apply_all([NodeSeen(node) for node in self.nodes.values()])
        found.apply_all([PodSeen(pod) for pod in self._in_order()])
        found.apply_all([GangSpecSeen(charter) for charter in self.charters.values()])
        found.apply_all([FairQueueSeen(queue) for queue in self.queues.values()])
        return found
