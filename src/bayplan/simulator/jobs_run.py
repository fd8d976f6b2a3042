"""One seed of queued jobs: all roles of admission, failures everywhere, calm, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from bayplan.runtime.admission_role import AdmissionRole
from bayplan.runtime.jobs_role import JobsRole
from bayplan.runtime.node_health_role import NodeHealthRole
from bayplan.runtime.provisioning_role import ProvisioningRole
from bayplan.runtime.roles import Role
from bayplan.runtime.ungating_role import UngatingRole
from bayplan.simulator import admission_belief
from bayplan.simulator.admission_checkers import QueueWatchman
from bayplan.simulator.binder import Binder
from bayplan.simulator.faults import Chances
from bayplan.simulator.gang_checkers import GangWatchman, verdict
from bayplan.simulator.job_hands import JobHands
from bayplan.simulator.jobs_world import JOB_SETS, jobs_world
from bayplan.simulator.objects import Object
from bayplan.simulator.reviewing import ask_functions
from bayplan.simulator.stage import LISTED
from bayplan.simulator.storm import EPOCH, Storm

ROOMS_EVERY = 8  # busy steps
CHANCES = Chances(missed=0.01, torn=0.002, node_loss=0, node_flap=0)  # nodes have accidents of their own
SEEN = {**LISTED, "jobsets": JOB_SETS}


class JobsSimulation(Storm):
    """Jobs of all kinds before queues, nodes that fail, and everybody who looks after them."""

    kinds = SEEN
    kept = ("workloads", "jobs", "jobsets", "pods", "nodes", "clusterqueues")

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"jobs {seed}")
        super().__init__(seed, rng, Random(f"ids {seed}"), CHANCES if chances is None else chances)
        ask_functions(self.store)
        world = jobs_world(rng, self.storm_seconds)
        self.furnish(world.nodes, world.rules)
        self.settings = world.settings
        self.hands = JobHands(self.store, rng, world, EPOCH, self.storm_seconds)
        self.report.jobs = len(world.arrivals)
        if self.chances.crash and rng.random() < 0.5:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10, torn=self.chances.torn / 10)
        self.cast = (self.hands.step, self.crew().step, Binder(self.store).step)
        self.gangs, self.queues = GangWatchman(self.hands.written), QueueWatchman(held_up=self.is_held_up)
        self.looks = 0

    def roles(self) -> Sequence[Role]:
        settings = self.settings
        self.admission = AdmissionRole(settings.profile)
        return (
            self.admission,
            ProvisioningRole(),
            JobsRole(settings.patience),
            UngatingRole(settings.batch_seconds),
            NodeHealthRole(settings.health),
        )

    def mend(self) -> None:
        self.hands.mend()

    def problems(self) -> Iterator[str]:
        self.looks += 1
        yield from self.gangs.check(self.listed, self.now)
        yield from self.queues.check(self._without_gangs, self.now)
        yield from admission_belief.belief_is_consistent(self.admission.state)
        if self.looks % ROOMS_EVERY == 0:
            yield from admission_belief.rooms_add_up(self.admission.state)

    def verdict(self) -> Iterator[str]:
        yield from self.queues.check(self._without_gangs, self.end)
        yield from verdict(self.listed, self.hands.written)
        yield from admission_belief.verdict(self.admission, self.store, self.now, self.sabotage)

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
