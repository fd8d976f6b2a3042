"""A stream of small gangs that keeps a cluster full, a few large gangs, and the three ways to schedule them.

`plain` are gangs without a queue, `queued` gangs wait for quota and topology, and `fair` gangs wait in
fair-share queues. All run in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf

import numpy as np

from bayplan.model.change import (
    FlavorSeen,
    NamespaceQueueSeen,
    NamespaceSeen,
    NodeSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import Node
from bayplan.model.plan import Admit, EvictGang
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang, QuotaRequest
from bayplan.model.quota import (
    Entitlement,
    FairQueue,
    Flavor,
    NamespaceQueue,
    Queue,
    Quota,
    QuotaNode,
    ResourceGroup,
)
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.capacity import amounts_of, counted
from bayplan.simulation.virtual_time.our_engine import NAMESPACE, SIMULATED, OurEngine
from bayplan.simulation.virtual_time.outcome import JobStart, JobStop, RunOutcome, VirtualScheduler
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun
from bayplan.state.admission.state import AdmissionState

LONGEST = 1800.0  # run time of a small gang, at most
QUEUE = "team"
AFTER = 300.0  # seconds until a gang outside admission may have a reservation


@dataclass(frozen=True, slots=True)
class WaitingPath:
    """A way in which gangs wait."""

    name: str
    scheduler: Callable[[Sequence[Node], Profile], VirtualScheduler]
    share: float = 1.0  # of the cluster that all gangs together may use


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A run, and what was seen of the reservation for the first large gang."""

    outcome: RunOutcome
    ends: float  # when the last gang of the stream arrives
    reserved: float = inf  # since when capacity was reserved for the large gang
    bound: float = inf  # when the last gang ends that ran then on the reserved hosts, or with the same quota

    @property
    def start(self) -> float:
        """When the large gang started."""
        found = next(job.start for job in self.outcome.jobs if job.name == "large-0")
        return inf if found is None else found

    @property
    def allocation(self) -> float:
        """The mean share of the cluster in use while the stream lasts."""
        samples = [one for one in self.outcome.samples if one.time <= self.ends]
        until = [*(one.time for one in samples[1:]), self.ends]
        used = sum(one.allocated * (end - one.time) for one, end in zip(samples, until, strict=True))
        return used / (self.outcome.capacity * (self.ends - samples[0].time))

    def started_meanwhile(self) -> int:
        """How many small gangs started between the reservation and the start of the large gang."""
        starts = (job.start for job in self.outcome.jobs if job.start is not None and job.pods <= 2)
        return sum(self.reserved < start < self.start for start in starts)


def run_stream(path: WaitingPath, nodes: Sequence[Node], trace: Trace, *, reserve: bool) -> StreamRun:
    """Run the stream with or without reservations, and note when the first large gang gets one."""
    after = AFTER if reserve else 0.0
    profile = Profile(keep_after_seconds=after, reserve=reserve, preemption=False)  # nothing is consolidated
    scheduler = path.scheduler(nodes, profile)
    run = VirtualRun(path.name, nodes, trace, scheduler, RunSettings())
    seen: list[tuple[float, float]] = []
    large = next(job for job in trace.jobs if job.name == "large-0")

    def look(arrived: int, total: int) -> None:
        hosts = _reserved_hosts(scheduler, nodes)
        if large.name in run.waiting and (hosts is None or _is_preceded(scheduler, large, run.waiting)):
            seen.clear()
        elif hosts is not None and not seen:
            shared = path.share < 1  # quota or a limit is short: the gangs on all hosts hold it
            running = {job for host in run.jobs_on if shared or host in hosts for job in run.jobs_on[host]}
            seen.append((run.now, max((run.due[job] for job in running), default=run.now)))

    outcome = run.run(look)
    return StreamRun(outcome, trace.jobs[-1].arrival, *(seen[0] if seen else ()))


def _is_preceded(scheduler: VirtualScheduler, large: TraceJob, waiting: Container[str]) -> bool:
    """Whether gangs wait that come before the large one: admission lets them use what is reserved for it."""
    queued = scheduler.jobs.values() if isinstance(scheduler, QueuedEngine) else ()
    return any(job.arrival < large.arrival and job.name in waiting for job in queued)


def _reserved_hosts(scheduler: VirtualScheduler, nodes: Sequence[Node]) -> frozenset[str] | None:
    """The hosts that are reserved for the first large gang; None without a reservation."""
    if isinstance(scheduler, OurEngine):
        found = scheduler.state.gangs.reserved
        return found[1] if found is not None and found[0].name == "large-0" else None
    assert isinstance(scheduler, QueuedEngine), scheduler
    reserved = scheduler.state.reservations.by_topology.get(SIMULATED.name)
    if reserved is None or reserved.owner.name != "large-0":
        return None
    paths = {node.name: tuple(node.labels[level] for level in SIMULATED.levels) for node in nodes}
    domains = reserved.domains
    return frozenset(name for name, path in paths.items() if any(path[: len(d)] == d for d in domains))


def stream(
    nodes: Sequence[Node], seed: int, hours: float, large: Sequence[TraceJob], load: float = 1.3
) -> Trace:
    """Small gangs of 2 to 8 GPUs that ask for `load` times the cluster, and the large ones given."""
    draw, gpus_of_all = np.random.default_rng(seed), sum(node.allocatable[GPU] for node in nodes)
    jobs, at = list(large), 0.0
    while at < hours * 3600:
        pods, gpus = int(draw.integers(1, 3)), int(draw.choice([2, 4]))
        seconds = float(round(draw.uniform(300, LONGEST)))
        jobs.append(TraceJob(f"small-{len(jobs):05d}", at, seconds, {GPU: gpus}, pods, QUEUE))
        at = round(at + pods * gpus * seconds / (load * gpus_of_all) * float(draw.uniform(0.5, 1.5)), 1)
    return Trace("stream", tuple(sorted(jobs, key=lambda job: job.arrival)))


def large_gang(number: int, hour: float, hosts: int, locality: Locality | None = None) -> TraceJob:
    """A gang on whole hosts for half an hour."""
    name = f"large-{number}"
    return TraceJob(name, hour * 3600, LONGEST, {GPU: 8}, hosts, QUEUE, locality=locality or Locality())


def _fair(nodes: Sequence[Node], profile: Profile, share: float | None = None) -> VirtualScheduler:
    """All gangs in one fair-share queue, which may have a limit."""
    total = sum(node.allocatable[GPU] for node in counted(nodes))
    limit = None if share is None else Fraction(share) * total
    return OurEngine(nodes, profile, (FairQueue(QUEUE, entitlements={GPU: Entitlement(limit=limit)}),))


def _queued(nodes: Sequence[Node], profile: Profile, share: float = 2.0) -> VirtualScheduler:
    """All gangs in one queue with quota for so many times the cluster, on a topology of racks and hosts."""
    total = sum(node.allocatable[GPU] for node in counted(nodes))
    return QueuedEngine(nodes, profile, int(share * total))


PATHS = (
    WaitingPath("gangs", OurEngine),
    WaitingPath("Workloads", _queued),
    WaitingPath("Workloads, half quota", partial(_queued, share=0.5), 0.5),
    WaitingPath("KAI queue", _fair),
    WaitingPath("KAI queue, half limit", partial(_fair, share=0.5), 0.5),
)


class QueuedEngine:
    """Admission in virtual time: every job is a gang of one queue; an admitted gang runs on its domains."""

    def __init__(self, nodes: Iterable[Node], profile: Profile, quota: int) -> None:
        self.state, self.profile = AdmissionState(), profile
        self.nodes = {node.name: node for node in counted(nodes)}
        quotas = {("gpus", GPU): Quota(quota)}
        self.state.apply(TopologySeen(SIMULATED))
        self.state.apply(FlavorSeen(Flavor("gpus", topology=SIMULATED.name)))
        self.state.apply(NamespaceSeen(NAMESPACE, {}))
        group = ResourceGroup((GPU,), ("gpus",))
        self.state.apply(QueueSeen(Queue(QuotaNode(QUEUE, "", quotas), (group,), namespaces=())))
        self.state.apply(NamespaceQueueSeen(NamespaceQueue(NAMESPACE, QUEUE, QUEUE)))
        for node in self.nodes.values():
            self.state.apply(NodeSeen(node))
        self.jobs: dict[Ref, TraceJob] = {}

    def submit(self, job: TraceJob, now: float) -> None:
        """The gang is queued."""
        ref, amounts = _ref(job), amounts_of(job)
        self.jobs[ref] = job
        pods = PodSet("main", job.pods, job.pods, amounts, locality=job.locality)
        gang = Gang(ref, Group("", (pods,), 1), priority=job.priority, uid=job.name)
        request = QuotaRequest("main", job.pods, {GPU: amounts[GPU]}, topology=True)
        self.state.apply(QueuedGangSeen(QueuedGang(gang, (request,), (NAMESPACE, QUEUE), now, now)))

    def finish(self, job: TraceJob, now: float) -> None:
        """Its Workload is gone."""
        self.state.apply(QueuedGangLost(_ref(job)))
        del self.jobs[_ref(job)]

    def withdraw(self, job: TraceJob) -> None:
        """The same as when it finishes."""
        self.finish(job, 0.0)

    def set_available(self, node: str, available: bool, now: float) -> None:
        """A node that failed takes no pods."""
        self.state.apply(NodeSeen(replace(self.nodes[node], ready=available, schedulable=available)))

    def decide(self, now: float) -> list[JobStart | JobStop]:
        """Cycles until no gang is to be tried; the API accepts every admission at once."""
        found: list[JobStart | JobStop] = []
        while self.state.next_due(now) <= now:
            plan = decide_admissions(self.state.snapshot(self.state.heads(now)), self.profile, now)
            self.state.assume(plan, now)
            for action in plan.actions:
                assert not isinstance(action, EvictGang), action
                if isinstance(action, Admit):
                    given = replace(
                        action.queued_gang, admission=action.admission, reserved=now, admitted=True
                    )
                    self.state.apply(QueuedGangSeen(given))
                    assignment = action.admission.pod_sets[0].assignment
                    assert assignment is not None, action
                    hosts = tuple(path[-1] for path in assignment.ranks())
                    found.append(JobStart(self.jobs[action.gang].name, hosts))
        return found

    def next_due(self, now: float) -> float:
        """When a gang is tried again."""
        return self.state.next_due(now)


def _ref(job: TraceJob) -> Ref:
    return Ref("kueue", "Workload", NAMESPACE, job.name)
