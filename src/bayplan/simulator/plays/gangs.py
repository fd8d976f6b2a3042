"""The play of gangs, of queues, or of both: initial objects, checks and final checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from bayplan.backends.fake_controllers.manifests import is_finished, topology
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.model.plan import Bind, Plan, PreemptPod
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core import checkers, world
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.fixtures import PLAIN_NODES
from bayplan.simulator.core.scheduler_simulation import SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER, Actor
from bayplan.simulator.queues import state_checker
from bayplan.simulator.queues.actors import QueueActors
from bayplan.simulator.queues.checkers import QueueChecker
from bayplan.simulator.queues.world import queue_world
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.scheduling.queue import EntryState

CAPACITY_CHECK_STEPS = 8  # busy steps
PLAYS = ({"jobs"}, {"queues"}, {"jobs", "queues"}, {"queues"})  # by seed


class Simulation(SchedulerSimulation):
    """Gangs of the scheduler, bare Workloads in queues, or both."""

    quiet_seconds = 900.0
    must_settle = False

    def __init__(self, seed: int, chances: Chances | None = None, play: set[str] | None = None) -> None:
        super().__init__(seed, Random(seed), Random(seed + 1), chances or Chances())
        self.play = PLAYS[seed % len(PLAYS)] if play is None else play
        self.store.create(scheduled_jobs.TOPOLOGIES, topology())
        self.arrivals: list[world.Arrival] = []
        self.actors: QueueActors | None = None
        if "jobs" in self.play:
            self._create_jobs()
        if "queues" in self.play:
            self._create_queues(Random(seed + 2))
        environment: list[Actor] = [self._submit_jobs, self.fake_controllers().step]
        self.environment = environment if self.actors is None else [*environment, self.actors.step]
        self.checker, self.queue_checker = (
            checkers.InvariantChecker(),
            QueueChecker(is_quarantined=self.is_quarantined),
        )
        self.checks = 0

    def _create_jobs(self) -> None:
        self.create_initial(world.nodes(self.rng))
        self.arrivals = world.arrivals(self.rng, self.fault_seconds)
        self.report.jobs = len(self.arrivals)

    def _create_queues(self, rng: Random) -> None:
        queued = queue_world(rng, self.fault_seconds)
        self.create_initial(queued.nodes, queued.rules)
        self.actors = QueueActors(self.store, rng, queued, EPOCH, self.fault_seconds)
        self.profile = Profile(fair_sharing=rng.random() < 0.25, replace_fast=rng.random() < 0.5)
        self.report.workloads = len(queued.arrivals)
        if self.play == {"queues"} and rng.random() < 0.6:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10)

    def _submit_jobs(self, now: float) -> float:
        """Create the jobs that are due."""
        while self.arrivals and self.arrivals[0].when + EPOCH <= now:
            self.store.create(JOBS, self.arrivals.pop(0).job)
        return self.arrivals[0].when + EPOCH if self.arrivals else NEVER

    def controllers(self) -> Sequence[Controller]:
        cluster = ClusterState()
        self.scheduler = SchedulerController(cluster=cluster)
        controllers: list[Controller] = [self.scheduler] if "jobs" in self.play else []
        if self.actors is not None:
            self.admission = AdmissionController(self.profile, cluster=cluster)
            controllers.append(self.admission)
        return controllers

    def problems(self) -> Iterator[str]:
        self.checks += 1
        if "jobs" in self.play:
            yield from checkers.check_consistency(self.scheduler.state)
            yield from self.checker.check(self.listed, self.now)
        if self.actors is not None:
            yield from state_checker.check_consistency(self.admission.state)
            yield from self.queue_checker.check(self.listed, self.now)
            if self.checks % CAPACITY_CHECK_STEPS == 0:
                yield from state_checker.check_free_capacity(self.admission.state)

    def check_plan(self, plan: Plan) -> Iterable[str]:
        return checkers.check_whole_gangs(plan, self.scheduler.state)

    def check_idle(self) -> Iterable[str]:
        if "jobs" not in self.play or not self.is_checkable():
            return ()
        if self.actors is not None and self.admission.state.assumed:
            return ()  # the end of an admission is not known: its slots are held, and a fresh list has none
        return self._scheduler_verdict()

    def final_violations(self) -> list[str]:
        """After the faults: no gang that fits is pending, and the state equals that of a restart."""
        violations = self._scheduler_verdict() if "jobs" in self.play else []
        if self.actors is not None:
            if self.is_quiet():  # and stays so
                violations += self.queue_checker.check(self.listed, self.end)
            violations += state_checker.final_violations(
                self.admission, self.store, self.now, self.error_injection
            )
        return violations

    def summarize(self) -> None:
        self.report.finished = sum(is_finished(job) for job in self.listed("jobs"))
        self.report.admissions = self.queue_checker.admissions

    def compared_bytes(self) -> Iterable[bytes]:
        return self.journal.lines()

    def _scheduler_verdict(self) -> list[str]:
        state = self.scheduler.state
        violations = [f"gang {entry.ref.name} is still {entry.state}" for entry in state.entries()
                 if entry.state in (EntryState.READY, EntryState.BINDING, EntryState.BACKOFF)]  # fmt: skip
        fresh = SchedulerController()
        view = self.load_fresh(fresh)
        own_usage, fresh_usage = state.store.nodes.ledger.by_node(), fresh.state.store.nodes.ledger.by_node()
        if own_usage != fresh_usage:
            violations.append(f"the ledger says {own_usage}, a fresh list gives {fresh_usage}")
        would_do_now = list(self.would_do(fresh, view))
        binds = {action.gang.name for action in would_do_now if isinstance(action, Bind)}
        preempts = {action.by.name for action in would_do_now if isinstance(action, PreemptPod)}
        violations += [f"gang {name} would fit but is pending" for name in sorted(binds)]
        return violations + [f"gang {name} could preempt but is pending" for name in sorted(preempts)]

    def inject_faults(self) -> None:
        super().inject_faults()
        names = [node["metadata"]["name"] for node in self.listed("nodes")]
        if len(names) > 2 and self.occurs("node_loss"):
            lost = names.pop(self.rng.randrange(len(names)))
            self.store.delete(PLAIN_NODES, "", lost)
        if names and self.occurs("node_flap"):
            ready = self.rng.choice(("True", "False"))
            status = {"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Simulated"}]}}
            self.store.patch(PLAIN_NODES, "", self.rng.choice(names), status, subresource="status")

    def recover_all(self) -> None:
        status = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]}}
        for node in self.listed("nodes"):
            self.store.patch(PLAIN_NODES, "", node["metadata"]["name"], status, subresource="status")
