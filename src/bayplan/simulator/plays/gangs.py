"""One seed of gangs, of queues or of both: what is there, what is checked, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from bayplan.backends.fake_controllers.manifests import is_finished, topology
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
from bayplan.state.scheduling.queue import EntryState

ROOMS_EVERY = 8  # busy steps
PLAYS = ({"jobs"}, {"queues"}, {"jobs", "queues"}, {"queues"})  # by seed


class Simulation(SchedulerSimulation):
    """Gangs of the scheduler and bare Workloads, together or not."""

    calm_seconds = 900.0
    must_rest = False

    def __init__(self, seed: int, chances: Chances | None = None, play: set[str] | None = None) -> None:
        super().__init__(seed, Random(seed), Random(seed + 1), chances or Chances())
        self.play = PLAYS[seed % len(PLAYS)] if play is None else play
        self.store.create(scheduled_jobs.TOPOLOGIES, topology())
        self.arrivals: list[world.Arrival] = []
        self.hands: QueueActors | None = None
        if "jobs" in self.play:
            self._furnish_jobs()
        if "queues" in self.play:
            self._furnish_queues(Random(seed + 2))
        cast: list[Actor] = [self._hand_in, self.crew().step]
        self.cast = cast if self.hands is None else [*cast, self.hands.step]
        self.watchman, self.queue_watchman = (
            checkers.InvariantChecker(),
            QueueChecker(held_up=self.is_held_up),
        )
        self.looks = 0

    def _furnish_jobs(self) -> None:
        self.furnish(world.nodes(self.rng))
        self.arrivals = world.arrivals(self.rng, self.storm_seconds)
        self.report.jobs = len(self.arrivals)

    def _furnish_queues(self, rng: Random) -> None:
        queued = queue_world(rng, self.storm_seconds)
        self.furnish(queued.nodes, queued.rules)
        self.hands = QueueActors(self.store, rng, queued, EPOCH, self.storm_seconds)
        self.profile = Profile(fair_sharing=rng.random() < 0.25, replace_fast=rng.random() < 0.5)
        self.report.workloads = len(queued.arrivals)
        if self.play == {"queues"} and rng.random() < 0.6:  # what a restart would hide
            self.chances = replace(self.chances, crash=self.chances.crash / 10)

    def _hand_in(self, now: float) -> float:
        """Jobs come when it is their time."""
        while self.arrivals and self.arrivals[0].when + EPOCH <= now:
            self.store.create(scheduled_jobs.JOBS, self.arrivals.pop(0).job)
        return self.arrivals[0].when + EPOCH if self.arrivals else NEVER

    def roles(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController()
        roles: list[Controller] = [self.scheduler] if "jobs" in self.play else []
        if self.hands is not None:
            self.admission = AdmissionController(self.profile)
            roles.append(self.admission)
        return roles

    def problems(self) -> Iterator[str]:
        self.looks += 1
        if "jobs" in self.play:
            yield from checkers.belief_is_consistent(self.scheduler.state)
            yield from self.watchman.check(self.listed, self.now)
        if self.hands is not None:
            yield from state_checker.belief_is_consistent(self.admission.state)
            yield from self.queue_watchman.check(self.listed, self.now)
            if self.looks % ROOMS_EVERY == 0:
                yield from state_checker.rooms_add_up(self.admission.state)

    def planned(self, plan: Plan) -> Iterable[str]:
        return checkers.plan_is_whole(plan, self.scheduler.state)

    def at_rest(self) -> Iterable[str]:
        return self._scheduler_verdict() if "jobs" in self.play and self.may_judge() else ()

    def verdict(self) -> list[str]:
        """After the faults: nothing that fits may wait, and what we believe is what a fresh start would."""
        found = self._scheduler_verdict() if "jobs" in self.play else []
        if self.hands is not None:
            if self.is_quiet():  # and stays so
                found += self.queue_watchman.check(self.listed, self.end)
            found += state_checker.verdict(self.admission, self.store, self.now, self.sabotage)
        return found

    def sum_up(self) -> None:
        self.report.finished = sum(is_finished(job) for job in self.listed("jobs"))
        self.report.admissions = self.queue_watchman.admissions

    def evidence(self) -> Iterable[bytes]:
        return self.journal.lines

    def _scheduler_verdict(self) -> list[str]:
        state = self.scheduler.state
        found = [f"gang {entry.ref.name} is still {entry.place}" for entry in state.entries()
                 if entry.place in (EntryState.READY, EntryState.COMMITTED, EntryState.BACKOFF)]  # fmt: skip
        fresh = SchedulerController()
        view = self.begin_afresh(fresh)
        ours, theirs = state.store.nodes.ledger.by_node(), fresh.state.store.nodes.ledger.by_node()
        if ours != theirs:
            found.append(f"the ledger says {ours}, a fresh list gives {theirs}")
        would = list(self.would_do(fresh, view))
        fits = {action.gang.name for action in would if isinstance(action, Bind)}
        displaces = {action.by.name for action in would if isinstance(action, PreemptPod)}
        found += [f"gang {name} would fit but waits" for name in sorted(fits)]
        return found + [f"others could make room for gang {name} but it waits" for name in sorted(displaces)]

    def shake(self) -> None:
        super().shake()
        names = [node["metadata"]["name"] for node in self.listed("nodes")]
        if len(names) > 2 and self.strikes("node_loss"):
            lost = names.pop(self.rng.randrange(len(names)))
            self.store.delete(PLAIN_NODES, "", lost)
        if names and self.strikes("node_flap"):
            ready = self.rng.choice(("True", "False"))
            status = {"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Simulated"}]}}
            self.store.patch(PLAIN_NODES, "", self.rng.choice(names), status, subresource="status")

    def mend(self) -> None:
        status = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]}}
        for node in self.listed("nodes"):
            self.store.patch(PLAIN_NODES, "", node["metadata"]["name"], status, subresource="status")
