"""Our scheduler in virtual time: the state and the decisions are those of a cluster; no API server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bayplan.model.change import (
    FairQueueSeen,
    GangSpecLost,
    GangSpecSeen,
    NodeSeen,
    PodLost,
    PodSeen,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import ANY_NODE, NodeRules, NodeSelectorTerm, Requirement
from bayplan.model.plan import Bind, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.quota import FairQueue
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.simulation.traces.cluster_shapes import LEVELS, RACK
from bayplan.simulation.traces.workload import CPU, GPU_MODEL, MEMORY, TraceJob
from bayplan.simulation.virtual_time.capacity import amounts_of, counted
from bayplan.simulation.virtual_time.outcome import JobStart, JobStop
from bayplan.state.scheduling.state import SchedulingState

NAMESPACE = "trace"
SIMULATED = Topology("simulated", (*LEVELS, HOSTNAME))


class OurEngine:
    """Every job is a gang, also a job of one pod; in the fair-share queue of its owner, if there is one."""

    def __init__(self, nodes: Iterable[Node], profile: Profile, queues: Sequence[FairQueue] = ()) -> None:
        self.profile = profile
        self.state = SchedulingState(profile.heal_seconds)
        self.nodes = {node.name: node for node in counted(nodes)}
        if any(RACK in node.labels for node in self.nodes.values()):
            self.state.apply(TopologySeen(SIMULATED))
        self.state.apply_all(map(NodeSeen, self.nodes.values()))
        self.queues = {queue.name for queue in queues}
        self.state.apply_all(map(FairQueueSeen, queues))
        self.jobs: dict[Ref, TraceJob] = {}
        self.pods: dict[Ref, tuple[Pod, ...]] = {}
        self.attempts: dict[str, int] = {}  # how often each job was submitted

    def submit(self, job: TraceJob, now: float) -> None:
        """Its gang and all its pods appear at once."""
        ref = _ref(job)
        self.jobs[ref] = job
        self.attempts[job.name] = self.attempts.get(job.name, 0) + 1
        uid = f"{job.name}/{self.attempts[job.name]}"
        spec = GangSpec(
            ref,
            minimum=job.pods,
            desired=job.pods,
            priority=job.priority,
            disrupt_together=True,
            locality=job.locality,
            queue=job.owner if job.owner in self.queues else "",
            created=now,
            uid=uid,
        )
        self.state.apply(GangSpecSeen(spec))
        self.pods[ref] = _pods(job, ref, uid, now)
        self.state.apply_all(map(PodSeen, self.pods[ref]))

    def finish(self, job: TraceJob, now: float) -> None:
        """Its pods and its gang disappear."""
        ref = _ref(job)
        self.state.apply_all(PodLost(pod.key) for pod in self.pods.pop(ref))
        self.state.apply(GangSpecLost(ref))
        del self.jobs[ref]

    def withdraw(self, job: TraceJob) -> None:
        """The same as when it finishes: its pods and its gang disappear."""
        self.finish(job, 0.0)

    def set_available(self, node: str, available: bool, now: float) -> None:
        """A node that failed takes no pods."""
        self.state.apply(NodeSeen(replace(self.nodes[node], ready=available, schedulable=available)))

    def decide(self, now: float) -> list[JobStart | JobStop]:
        """Cycles of the scheduler until no gang is ready. Binds succeed at once, and so do preemptions."""
        found: list[JobStart | JobStop] = []
        while heads := self.state.heads(now):
            plan = decide_gangs(self.state.snapshot(heads, now), self.profile, now)
            self.state.assume(plan, now)
            starts: dict[Ref, list[str]] = {}
            stopped: dict[Ref, None] = {}
            for action in plan.actions:
                self.state.settle(action, "done", now)
                if isinstance(action, Bind):
                    self.state.apply(PodSeen(replace(action.pod, node=action.node, started=now)))
                    starts.setdefault(action.gang, []).append(action.node)
                elif isinstance(action, PreemptPod) and action.pod.gang is not None:
                    stopped[action.pod.gang] = None
            found += [JobStart(self.jobs[ref].name, tuple(nodes)) for ref, nodes in starts.items()]
            for ref in stopped:
                job = self.jobs[ref]
                self.finish(job, now)
                self.submit(job, now)
                found.append(JobStop(job.name))
        return found

    def next_due(self, now: float) -> float:
        """When a gang is tried again, or a reservation begins."""
        return self.state.next_due(now)


def _ref(job: TraceJob) -> Ref:
    return Ref("trace", "Gang", NAMESPACE, job.name)


def _pods(job: TraceJob, ref: Ref, uid: str, now: float) -> tuple[Pod, ...]:
    amounts = amounts_of(job)
    rules = ANY_NODE
    if job.gpu_models:
        rules = NodeRules(affinity=(NodeSelectorTerm((Requirement(GPU_MODEL, "In", job.gpu_models),)),))
    shape = PodSignature(
        NAMESPACE,
        amounts=tuple(sorted(amounts.items())),
        score_requests=(amounts.get(CPU, 0), amounts.get(MEMORY, 0)),
        rules=rules,
    )
    spec = PodSpec(shape, priority=job.priority)
    return tuple(
        Pod(
            PodKey(NAMESPACE, f"{job.name}-{at}"),
            f"{uid}/{at}",
            amounts,
            gang=ref,
            rank=at,
            spec=spec,
            ours=True,
            created=now,
        )
        for at in range(job.pods)
    )
