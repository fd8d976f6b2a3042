"""One seed, one run: a cluster in memory, the loop, faults for a while, calm, and the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from bayplan.backends.embedded.backend import EmbeddedBackend
from bayplan.backends.stagehands.crew import Crew
from bayplan.dialects.kueue import scheduled
from bayplan.model.plan import Bind, Plan
from bayplan.model.profile import Profile
from bayplan.runtime.admission_role import AdmissionRole
from bayplan.runtime.journal import MemoryJournal
from bayplan.runtime.loop import Loop
from bayplan.runtime.roles import Role
from bayplan.runtime.scheduler_role import SchedulerRole
from bayplan.scheduling.muster import decide_gangs
from bayplan.simulator import admission_belief, checkers, world
from bayplan.simulator.admission_checkers import QueueWatchman
from bayplan.simulator.faults import Chances, FaultyBackend
from bayplan.simulator.hands import Hands
from bayplan.simulator.objects import NAMESPACE, is_finished, topology
from bayplan.simulator.queue_world import queue_world
from bayplan.simulator.report import Report
from bayplan.simulator.stage import LISTED, PLAIN_NODES, stage
from bayplan.state.line import Place

EPOCH = 1_700_000_000.0
STORM_SECONDS = 120.0
CALM_SECONDS = 900.0
STEP_SECONDS = 1.0
BUSY_SECONDS = 0.2
SHORT_SECONDS = 0.05
NEVER = float("inf")
END = EPOCH + STORM_SECONDS + CALM_SECONDS

ROOMS_EVERY = 8  # busy steps
PLAYS = ({"jobs"}, {"queues"}, {"jobs", "queues"}, {"queues"})  # by seed


class Witness(MemoryJournal):
    """A journal that hands every plan to a checker, while the state is still as it was decided on."""

    def __init__(self, check: Callable[[Plan], None]) -> None:
        super().__init__()
        self.check = check

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        super().record(now, what, body, role)
        if isinstance(body, Plan):
            self.check(body)


class Simulation:
    """Virtual time moves from one due moment to the next; everybody due takes one step."""

    def __init__(self, seed: int, chances: Chances | None = None, play: set[str] | None = None) -> None:
        self.rng = Random(seed)
        self.chances = chances or Chances()
        self.play = PLAYS[seed % len(PLAYS)] if play is None else play
        self.now = EPOCH
        self.report = Report(seed)
        self.store = stage(lambda: self.now, Random(seed + 1))
        self.store.create(scheduled.TOPOLOGIES, topology())
        self._furnish(seed)
        self.crew = Crew(EmbeddedBackend(self.store))
        self.watchman, self.queue_watchman = checkers.Watchman(), QueueWatchman()
        self.journal = Witness(self._look_at)
        self.looks = 0
        self.crew_due = self.hands_due = self.now
        self._start()

    def _furnish(self, seed: int) -> None:
        """What the seed's play needs: hosts and jobs, or hosts, queues and people around them."""
        self.arrivals: list[world.Arrival] = []
        self.hands: Hands | None = None
        if "jobs" in self.play:
            for node in world.nodes(self.rng):
                self.store.create(PLAIN_NODES, node)
            self.arrivals = world.arrivals(self.rng, STORM_SECONDS)
        if "queues" in self.play:
            rng = Random(seed + 2)
            queued = queue_world(rng, STORM_SECONDS)
            for node in queued.nodes:
                self.store.create(PLAIN_NODES, node)
            for kind, obj in queued.rules:
                self.store.create(kind, obj, NAMESPACE if kind.namespaced else "")
            self.hands = Hands(self.store, rng, queued, EPOCH, STORM_SECONDS)
            self.profile = Profile(fair_sharing=rng.random() < 0.25, replace_fast=rng.random() < 0.5)
            self.report.workloads = len(queued.arrivals)
            if self.play == {"queues"} and rng.random() < 0.6:  # what a restart would hide
                self.chances = replace(self.chances, crash=self.chances.crash / 10)
        self.report.jobs = len(self.arrivals)

    def run(self) -> Report:
        """The storm, the calm, the verdict."""
        while self.now < EPOCH + STORM_SECONDS and not self.report.violations:
            self._step()
            if self._strikes("crash"):
                self._start()
            self._shake_nodes()
        self.chances = replace(self.chances, crash=0, node_loss=0, node_flap=0)
        self.backend.calm()
        self._mend_nodes()
        while self.now < END and not self.report.violations:
            self._step()
            if self._is_quiet():
                break
        self.report.violations += list(self._verdict())
        self.report.finished = sum(is_finished(job) for job in self._list("jobs"))
        self.report.admissions = self.queue_watchman.admissions
        self.report.digest = hashlib.sha256(b"\n".join(self.journal.lines)).hexdigest()
        return self.report

    def _start(self) -> None:
        """A fresh start that knows nothing but what the API tells it."""
        self.backend = FaultyBackend(EmbeddedBackend(self.store), self.rng, self.chances, self.report.faults)
        self.scheduler = SchedulerRole()
        roles: list[Role] = [self.scheduler] if "jobs" in self.play else []
        if self.hands is not None:
            self.admission = AdmissionRole(self.profile)
            roles.append(self.admission)
        self.loop = Loop(self.backend, roles, self.journal)
        self.due = self.now

    def _step(self) -> None:
        while self.arrivals and self.arrivals[0].when + EPOCH <= self.now:
            self.store.create(scheduled.JOBS, self.arrivals.pop(0).job)
        version, lines = self.store.version, len(self.journal.lines)
        self.crew_due = self.crew.step(self.now)
        self.hands_due = self.hands.step(self.now) if self.hands is not None else NEVER
        self.due = self.loop.step(self.now)
        self.report.steps += 1
        self.busy = self.store.version != version or len(self.journal.lines) != lines
        if self.busy:
            problems = list(self._problems())
            self.report.violations += [f"{self.now - EPOCH:.1f} s: {problem}" for problem in problems]
        arrival = self.arrivals[0].when + EPOCH if self.arrivals else NEVER
        pause = BUSY_SECONDS if self.busy else STEP_SECONDS
        if not self.busy and self.now > EPOCH + STORM_SECONDS:
            pause = max(pause, min(self.due, END) - self.now)  # nothing is late any more
        self.now = max(
            min(self.now + pause, self.crew_due, self.hands_due, arrival), self.now + SHORT_SECONDS
        )

    def _problems(self) -> Iterator[str]:
        self.looks += 1
        if "jobs" in self.play:
            yield from checkers.belief_is_consistent(self.scheduler.state)
            yield from self.watchman.check(self._list, self.now)
        if self.hands is not None:
            yield from admission_belief.belief_is_consistent(self.admission.state)
            yield from self.queue_watchman.check(self._list, self.now)
            if self.looks % ROOMS_EVERY == 0:
                yield from admission_belief.rooms_add_up(self.admission.state)

    def _look_at(self, plan: Plan) -> None:
        problems = checkers.plan_is_whole(plan, self.scheduler.state)
        self.report.violations += [f"{self.now - EPOCH:.1f} s: {problem}" for problem in problems]

    def _verdict(self) -> list[str]:
        """After the faults: nothing that fits may wait, and what we believe is what a fresh start would."""
        if self.report.violations:
            return []
        found = self._scheduler_verdict() if "jobs" in self.play else []
        if self.hands is not None:
            if self._is_quiet():  # and stays so
                found += self.queue_watchman.check(self._list, END)
            found += admission_belief.verdict(self.admission, self.store, self.now)
        return found

    def _scheduler_verdict(self) -> list[str]:
        state = self.scheduler.state
        found = [f"gang {entry.ref.name} is still {entry.place}" for entry in state.entries()
                 if entry.place in (Place.READY, Place.COMMITTED, Place.BACKOFF)]  # fmt: skip
        fresh = SchedulerRole()
        Loop(EmbeddedBackend(self.store), (fresh,), MemoryJournal()).take_in(self.now)
        ours, theirs = state.ledger.by_node(), fresh.state.ledger.by_node()
        if ours != theirs:
            found.append(f"the ledger says {ours}, a fresh list gives {theirs}")
        plan = decide_gangs(fresh.state.look(fresh.state.heads(self.now), self.now), Profile(), self.now)
        fits = {action.gang.name for action in plan.actions if isinstance(action, Bind)}
        return found + [f"gang {name} would fit but waits" for name in sorted(fits)]

    def _shake_nodes(self) -> None:
        names = [node["metadata"]["name"] for node in self._list("nodes")]
        if len(names) > 2 and self._strikes("node_loss"):
            lost = names.pop(self.rng.randrange(len(names)))
            self.store.delete(PLAIN_NODES, "", lost)
        if names and self._strikes("node_flap"):
            ready = self.rng.choice(("True", "False"))
            status = {"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Simulated"}]}}
            self.store.patch(PLAIN_NODES, "", self.rng.choice(names), status, subresource="status")

    def _mend_nodes(self) -> None:
        status = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]}}
        for node in self._list("nodes"):
            self.store.patch(PLAIN_NODES, "", node["metadata"]["name"], status, subresource="status")

    def _strikes(self, name: str) -> bool:
        if self.rng.random() < getattr(self.chances, name):
            self.report.faults[name] += 1
            return True
        return False

    def _list(self, plural: str) -> list[dict[str, Any]]:
        return self.store.list(LISTED[plural]).items

    def _is_quiet(self) -> bool:
        """Nothing happened, nothing is due and nobody comes: nothing will ever happen."""
        return not (self.busy or self.arrivals or min(self.crew_due, self.hands_due, self.due) < END)
