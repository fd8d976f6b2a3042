"""Our scheduler in virtual time with defragmentation: running jobs move for a job that has waited long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bayplan.model.change import PodLost, PodSeen
from bayplan.model.node import Node
from bayplan.model.pod import Pod
from bayplan.model.profile import Profile
from bayplan.scheduling.defragment.policy import DefragmentPolicy, MoveBudget
from bayplan.scheduling.defragment.problem import (
    DefragmentPlan,
    MovableGang,
    Move,
    RoomRequest,
    fresh_pods,
)
from bayplan.scheduling.defragment.running import running_gangs, snapshot_for_moves
from bayplan.scheduling.defragment.search import find_plan
from bayplan.simulation.traces.workload import TraceJob
from bayplan.simulation.virtual_time.our_engine import OurEngine
from bayplan.simulation.virtual_time.outcome import JobMove, JobStart, JobStop
from bayplan.state.scheduling.snapshot import SchedulingSnapshot


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """How much work a simulated job loses when it moves."""

    interval: float = 3600.0  # seconds between checkpoints
    restart: float = 300.0  # seconds until it is as far as at its checkpoint

    def lost(self, elapsed: float) -> float:
        """Seconds of work done again."""
        return elapsed % self.interval + self.restart


ROUND_SECONDS = 60.0
"""Between two searches, as between two rounds of the role `defragment`."""


class DefragmentingEngine:
    """The scheduler, and moves for the job that has waited longest for one domain."""

    def __init__(
        self,
        nodes: Iterable[Node],
        profile: Profile,
        policy: DefragmentPolicy,
        checkpoints: CheckpointRules | None = None,
    ) -> None:
        self.engine, self.profile, self.policy = OurEngine(nodes, profile), profile, policy
        self.checkpoints = checkpoints or CheckpointRules()
        self.budget = MoveBudget(policy)
        self.searched = float("-inf")  # when
        self.waiting: dict[str, float] = {}  # jobs that wait for one domain, and since when

    def submit(self, job: TraceJob, now: float) -> None:
        """A job arrives."""
        self.engine.submit(job, now)
        if job.locality.required:
            self.waiting[job.name] = now

    def finish(self, job: TraceJob, now: float) -> None:
        """A running job ended."""
        self.engine.finish(job, now)

    def withdraw(self, job: TraceJob) -> None:
        """A waiting job left the queue."""
        self.waiting.pop(job.name, None)
        self.engine.withdraw(job)

    def set_available(self, node: str, available: bool, now: float) -> None:
        """A node failed, or is back."""
        self.engine.set_available(node, available, now)

    def next_due(self, now: float) -> float:
        """When the scheduler has to decide again; moves are considered whenever something happens."""
        return self.engine.next_due(now)

    def decide(self, now: float) -> list[JobStart | JobStop | JobMove]:
        """What the scheduler decides; then moves for a job that waits, and the scheduler once more."""
        found: list[JobStart | JobStop | JobMove] = [*self._scheduled(now)]
        plan = self._plan(now)
        if plan is not None:
            found += [self._move(move, now) for move in plan.moves]
            found += self._scheduled(now)
        return found

    def _scheduled(self, now: float) -> list[JobStart | JobStop]:
        found = self.engine.decide(now)
        for one in found:
            if isinstance(one, JobStart):
                self.waiting.pop(one.job, None)
        return found

    def _plan(self, now: float) -> DefragmentPlan | None:
        """Moves for the job that has waited longest, if they are worth it."""
        if now - self.searched < ROUND_SECONDS:
            return None
        due = [name for name, since in self.waiting.items() if self.budget.may_try(name, since, now)]
        if not due or not self.budget.has_moves(now):
            return None
        name = min(due, key=lambda one: (self.waiting[one], one))
        self.searched = now
        self.budget.tried(name, now)
        ref = next(ref for ref, job in self.engine.jobs.items() if job.name == name)
        job, state = self.engine.jobs[ref], self.engine.state
        snapshot = snapshot_for_moves(state, now)
        pods, spec = state.pending(ref), state.spec_of(ref)
        if spec is None or len(pods) < job.pods:
            return None
        assert job.locality.required is not None
        request = RoomRequest(spec, pods, (job.locality.required,))
        worth = self.policy.cost_below(job.gpus, now - self.waiting[name])
        found = find_plan(snapshot, self.profile, request, self._movers(snapshot, now), cost_below=worth)
        if not isinstance(found, DefragmentPlan) or not found.moves:
            return None
        return found if self.budget.spend(len(found.moves), found.lost, now) else None

    def _movers(self, snapshot: SchedulingSnapshot, now: float) -> list[MovableGang]:
        found = []
        for ref, pods in running_gangs(snapshot).items():
            job = self.engine.jobs[ref]
            elapsed = now - min(pod.started for pod in pods)
            if elapsed < self.policy.least_run_time:
                continue
            lost = int(job.gpus * self.checkpoints.lost(elapsed))
            levels = (job.locality.required,) if job.locality.required else ()
            found.append(MovableGang(snapshot.specs[ref], pods, fresh_pods(pods), lost + 1, lost, levels))
        return found

    def _move(self, move: Move, now: float) -> JobMove:
        gang, state = move.gang, self.engine.state
        lost = self.checkpoints.lost(now - min(pod.started for pod in gang.pods))
        state.apply_all(PodLost(pod.key) for pod in gang.pods)
        moved = tuple(_elsewhere(pod, node, now) for pod, node in zip(gang.pods, move.nodes, strict=True))
        state.apply_all(map(PodSeen, moved))
        self.engine.pods[gang.ref] = moved
        return JobMove(self.engine.jobs[gang.ref].name, move.nodes, lost)


def _elsewhere(pod: Pod, node: str, now: float) -> Pod:
    return replace(pod, uid=f"{pod.uid}>", node=node, started=now)
