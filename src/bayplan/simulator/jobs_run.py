"""One seed of queued jobs: all roles of admission, failures everywhere, calm, and the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from bayplan.backends.embedded.backend import EmbeddedBackend
from bayplan.backends.stagehands.crew import Crew
from bayplan.dialects.api import Write
from bayplan.runtime.admission_role import AdmissionRole
from bayplan.runtime.jobs_role import JobsRole
from bayplan.runtime.journal import MemoryJournal
from bayplan.runtime.loop import Loop
from bayplan.runtime.node_health_role import NodeHealthRole
from bayplan.runtime.provisioning_role import ProvisioningRole
from bayplan.runtime.roles import Role
from bayplan.runtime.ungating_role import UngatingRole
from bayplan.simulator import admission_belief
from bayplan.simulator.admission_checkers import QueueWatchman
from bayplan.simulator.binder import Binder
from bayplan.simulator.faults import Chances, FaultyBackend
from bayplan.simulator.gang_checkers import GangWatchman, verdict
from bayplan.simulator.job_hands import JobHands
from bayplan.simulator.jobs_world import JOB_SETS, jobs_world
from bayplan.simulator.objects import NAMESPACE
from bayplan.simulator.report import Report
from bayplan.simulator.reviewing import ask_functions
from bayplan.simulator.stage import LISTED, PLAIN_NODES, stage

EPOCH = 1_700_000_000.0
STORM_SECONDS = 120.0
CALM_SECONDS = 1800.0
STEP_SECONDS = 1.0
BUSY_SECONDS = 0.2
SHORT_SECONDS = 0.05
NEVER = float("inf")
END = EPOCH + STORM_SECONDS + CALM_SECONDS
ROOMS_EVERY = 8  # busy steps
CHANCES = Chances(missed=0.01, torn=0.002, node_loss=0, node_flap=0)  # nodes have accidents of their own
SEEN = {**LISTED, "jobsets": JOB_SETS}
KEPT = ("workloads", "jobs", "jobsets", "pods", "nodes", "clusterqueues")


class Recorded(FaultyBackend):
    """Notes every write that Bayplan makes, so that two runs can be compared byte by byte."""

    lines: list[bytes]

    def submit(self, writes: Sequence[Write]) -> None:
        self.lines += [
            msgspec.json.encode((w.verb, w.kind.path(w.namespace, w.name, w.subresource), w.body))
            for w in writes
        ]
        super().submit(writes)


class JobsSimulation:
    """Virtual time moves from one due moment to the next; everybody due takes one step."""

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        self.rng = Random(f"jobs {seed}")
        self.chances = CHANCES if chances is None else chances
        self.now = EPOCH
        self.report = Report(seed)
        self.store = stage(lambda: self.now, Random(f"ids {seed}"))
        ask_functions(self.store)
        self._furnish()
        self.crew = Crew(EmbeddedBackend(self.store))
        self.binder = Binder(self.store)
        self.gangs, self.queues = GangWatchman(self.hands.written), QueueWatchman()
        self.journal = MemoryJournal()
        self.writes: list[bytes] = []
        self.looks = 0
        self.busy = True
        self.crew_due = self.hands_due = self.now
        self._start()

    def _furnish(self) -> None:
        world = jobs_world(self.rng, STORM_SECONDS)
        for node in world.nodes:
            self.store.create(PLAIN_NODES, node)
        for kind, obj in world.rules:
            self.store.create(kind, obj, NAMESPACE if kind.namespaced else "")
        self.settings = world.settings
        self.hands = JobHands(self.store, self.rng, world, EPOCH, STORM_SECONDS)
        self.report.jobs = len(world.arrivals)
        if self.chances.crash and self.rng.random() < 0.5:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10, torn=self.chances.torn / 10)

    def run(self) -> Report:
        """The storm, the calm, the verdict."""
        while self.now < EPOCH + STORM_SECONDS and not self.report.violations:
            self._step()
            if self.backend.dead or self._strikes("crash"):
                self._start()
        self.chances = replace(self.chances, crash=0, torn=0)
        self.backend.calm()
        self.hands.mend()
        while self.now < END and not self.report.violations:
            self._step()
            if self._is_quiet():
                break
        if not self.report.violations:
            self.report.violations += list(self._verdict())
        self._sum_up()
        return self.report

    def _start(self) -> None:
        """A fresh start that knows nothing but what the API tells it."""
        self.backend = Recorded(EmbeddedBackend(self.store), self.rng, self.chances, self.report.faults)
        self.backend.lines = self.writes
        settings = self.settings
        self.admission = AdmissionRole(settings.profile)
        self.others: list[Role] = [
            ProvisioningRole(),
            JobsRole(settings.patience),
            UngatingRole(settings.batch_seconds),
            NodeHealthRole(settings.health),
        ]
        self.loop = Loop(self.backend, [self.admission, *self.others], self.journal)
        self.due = self.now

    def _step(self) -> None:
        version, lines = self.store.version, len(self.journal.lines)
        self.hands_due = self.hands.step(self.now)
        self.crew_due = self.crew.step(self.now)
        self.binder.step()
        self.due = self.loop.step(self.now)
        self.report.steps += 1
        self.busy = self.store.version != version or len(self.journal.lines) != lines
        if self.busy:
            self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in self._problems()]
        pause = BUSY_SECONDS if self.busy else STEP_SECONDS
        if not self.busy and self.now > EPOCH + STORM_SECONDS:
            pause = max(pause, min(self.due, END) - self.now)  # nothing is late any more
        self.now = max(min(self.now + pause, self.crew_due, self.hands_due), self.now + SHORT_SECONDS)

    def _problems(self) -> Iterator[str]:
        self.looks += 1
        yield from self.gangs.check(self._list, self.now)
        yield from self.queues.check(self._without_gangs, self.now)
        yield from admission_belief.belief_is_consistent(self.admission.state)
        if self.looks % ROOMS_EVERY == 0:
            yield from admission_belief.rooms_add_up(self.admission.state)

    def _verdict(self) -> Iterator[str]:
        if not self._is_quiet():
            yield f"there is no rest after {self.now - EPOCH:.0f} s"
            return
        yield from self.queues.check(self._without_gangs, END)
        yield from verdict(self._list, self.hands.written)
        yield from admission_belief.verdict(self.admission, self.store, self.now)

    def _sum_up(self) -> None:
        jobs = [*self._list("jobs"), *self._list("jobsets")]
        self.report.finished = sum(
            any(c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())
            for job in jobs
            if job["metadata"]["uid"] in self.hands.written
        )
        self.report.workloads = len(self._list("workloads"))
        self.report.admissions = self.queues.admissions
        self.report.faults.update(self.hands.injected)
        kept = [msgspec.json.encode(self._list(plural)) for plural in KEPT]
        everything = [*self.journal.lines, *self.writes, *kept]
        self.report.digest = hashlib.sha256(b"\n".join(everything)).hexdigest()

    def _strikes(self, name: str) -> bool:
        if self.rng.random() < getattr(self.chances, name):
            self.report.faults[name] += 1
            return True
        return False

    def _list(self, plural: str) -> list[dict[str, Any]]:
        return self.store.list(SEEN[plural]).items

    def _without_gangs(self, plural: str) -> list[dict[str, Any]]:
        """Pods of gangs stand where their Workloads say, and are counted there."""
        return [] if plural == "pods" else self._list(plural)

    def _is_quiet(self) -> bool:
        """Nothing happened, nothing is due and nobody comes: nothing will ever happen."""
        return not (self.busy or min(self.crew_due, self.hands_due, self.due) < END)
