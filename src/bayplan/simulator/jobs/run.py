"""One seed of queued jobs: all roles of admission, failures everywhere, calm, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from bayplan.assembly.in_process_webhooks import ask_our_functions
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
from bayplan.simulator.jobs.checkers import JobGangChecker, verdict
from bayplan.simulator.jobs.world import JOB_SETS, jobs_world
from bayplan.simulator.queues import state_checker
from bayplan.simulator.queues.checkers import QueueChecker

ROOMS_EVERY = 8  # busy steps
CHANCES = Chances(missed=0.01, torn=0.002, node_loss=0, node_flap=0)  # nodes have accidents of their own
SEEN = {**LISTED, "jobsets": JOB_SETS}


class JobsSimulation(SimulationRun):
    """Jobs of all kinds before queues, nodes that fail, and everybody who looks after them."""

    kinds = SEEN
    kept = ("workloads", "jobs", "jobsets", "pods", "nodes", "clusterqueues")

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"jobs {seed}")
        super().__init__(seed, rng, Random(f"ids {seed}"), CHANCES if chances is None else chances)
        ask_our_functions(self.store)
        world = jobs_world(rng, self.storm_seconds)
        self.furnish(world.nodes, world.rules)
        self.settings = world.settings
        self.hands = JobActors(self.store, rng, world, EPOCH, self.storm_seconds)
        self.report.jobs = len(world.arrivals)
        if self.chances.crash and rng.random() < 0.5:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10, torn=self.chances.torn / 10)
        self.cast = (self.hands.step, self.crew().step, FakeScheduler(self.store).step)
        self.gangs, self.queues = JobGangChecker(self.hands.written), QueueChecker(held_up=self.is_held_up)
        self.looks = 0

    def roles(self) -> Sequence[Controller]:
        settings = self.settings
        self.admission = AdmissionController(settings.profile)
        return (
            self.admission,
            ProvisioningController(),
            JobsController(settings.patience),
            UngatingController(settings.batch_seconds),
            NodeHealthController(settings.health),
        )

    def mend(self) -> None:
        self.hands.mend()

    def problems(self) -> Iterator[str]:
        self.looks += 1
        yield from self.gangs.check(self.listed, self.now)
        yield from self.queues.check(self._without_gangs, self.now)
        yield from state_checker.belief_is_consistent(self.admission.state)
        if self.looks % ROOMS_EVERY == 0:
            yield from state_checker.rooms_add_up(self.admission.state)

    def verdict(self) -> Iterator[str]:
        yield from self.queues.check(self._without_gangs, self.end)
        yield from verdict(self.listed, self.hands.written)
        yield from state_checker.verdict(self.admission, self.store, self.now, self.sabotage)

    def sum_up(self) -> None:
        jobs = [*self.listed("jobs"), *self.listed("jobsets")]
        self.report.finished = sum(
            any(c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())
            for job in jobs
            if job["metadata"]["uid"] in self.hands.written
        )
        self.report.workloads = len(self.listed("workloads"))
        self.report.admissions = self.queues.admissions
        self.report.faults.update(self.hands.injected)

    def _without_gangs(self, plural: str) -> list[Object]:
        """Pods of gangs stand where their Workloads say, and are counted there."""
        return [] if plural == "pods" else self.listed(plural)
