"""The play of queued jobs: all admission controllers, faults and node failures, then the final checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.fake_controllers.manifests import Object
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core.fake_scheduler import FakeScheduler
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.fixtures import LISTED
from bayplan.simulator.core.simulation import EPOCH, SimulationRun
from bayplan.simulator.jobs.actors import JobActors
from bayplan.simulator.jobs.checkers import JobGangChecker, final_violations
from bayplan.simulator.jobs.world import JOB_SETS, jobs_world
from bayplan.simulator.queues import state_checker
from bayplan.simulator.queues.checkers import QueueChecker

CAPACITY_CHECK_STEPS = 8  # busy steps
CHANCES = Chances(missed=0.01, torn=0.002, node_loss=0, node_flap=0)  # nodes have accidents of their own
SEEN = {**LISTED, "jobsets": JOB_SETS}


class JobsSimulation(SimulationRun):
    """Jobs of all kinds in queues, failing nodes, and the controllers of both."""

    kinds = SEEN
    compared = ("workloads", "jobs", "jobsets", "pods", "nodes", "clusterqueues")

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"jobs {seed}")
        super().__init__(seed, rng, Random(f"ids {seed}"), CHANCES if chances is None else chances)
        register_webhooks(self.store)
        world = jobs_world(rng, self.fault_seconds)
        self.create_initial(world.nodes, world.rules)
        self.settings = world.settings
        self.actors = JobActors(self.store, rng, world, EPOCH, self.fault_seconds)
        self.report.jobs = len(world.arrivals)
        if self.chances.crash and rng.random() < 0.5:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10, torn=self.chances.torn / 10)
        self.environment = (self.actors.step, self.fake_controllers().step, FakeScheduler(self.store).step)
        self.gangs, self.queues = (
            JobGangChecker(self.actors.written),
            QueueChecker(is_quarantined=self.is_quarantined),
        )
        self.checks = 0

    def controllers(self) -> Sequence[Controller]:
        settings = self.settings
        self.admission = AdmissionController(settings.profile)
        return (
            self.admission,
            ProvisioningController(),
            JobsController(settings.pods_ready),
            UngatingController(settings.batch_seconds),
            NodeHealthController(settings.health),
        )

    def recover_all(self) -> None:
        self.actors.recover_all()

    def problems(self) -> Iterator[str]:
        self.checks += 1
        yield from self.gangs.check(self.listed, self.now)
        yield from self.queues.check(self._without_gangs, self.now)
        yield from state_checker.check_consistency(self.admission.state)
        if self.checks % CAPACITY_CHECK_STEPS == 0:
            yield from state_checker.check_free_capacity(self.admission.state)

    def final_violations(self) -> Iterator[str]:
        yield from self.queues.check(self._without_gangs, self.end)
        yield from final_violations(self.listed, self.actors.written)
        yield from state_checker.final_violations(self.admission, self.store, self.now, self.error_injection)

    def summarize(self) -> None:
        jobs = [*self.listed("jobs"), *self.listed("jobsets")]
        self.report.finished = sum(
            any(c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())
            for job in jobs
            if job["metadata"]["uid"] in self.actors.written
        )
        self.report.workloads = len(self.listed("workloads"))
        self.report.admissions = self.queues.admissions
        self.report.faults.update(self.actors.injected)

    def _without_gangs(self, plural: str) -> Sequence[Object]:
        """List objects of a kind, but no pods: the pods of gangs are counted with their Workloads."""
        return () if plural == "pods" else self.listed(plural)
