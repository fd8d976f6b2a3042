"""One seed of gangs, plain pods and jobs before our scheduler: faults, contention, calm, and the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from bayplan.backends.embedded.backend import EmbeddedBackend
from bayplan.backends.embedded.gangs import GangApi
from bayplan.backends.stagehands.crew import Crew
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kube.wire import PODS_KIND
from bayplan.model.plan import Bind, Displace, Plan
from bayplan.runtime.journal import MemoryJournal
from bayplan.runtime.loop import Loop
from bayplan.runtime.scheduler_role import SchedulerRole
from bayplan.simulator.checkers import belief_is_consistent
from bayplan.simulator.faults import NONE, Chances
from bayplan.simulator.jobs_run import Recorded
from bayplan.simulator.objects import NAMESPACE
from bayplan.simulator.pods_checkers import PodWatchman, everybody_is_told
from bayplan.simulator.pods_gangs import waits
from bayplan.simulator.pods_hands import PodHands
from bayplan.simulator.pods_world import pods_world
from bayplan.simulator.report import Report
from bayplan.simulator.run import Witness
from bayplan.simulator.stage import PLAIN_NODES, PLAIN_PODS, stage
from bayplan.state.board import Board
from bayplan.state.line import Place

EPOCH = 1_700_000_000.0
STORM_SECONDS = 80.0
COMING_SECONDS = 130.0  # some still come when the storm is over
CALM_SECONDS = 1200.0
STEP_SECONDS = 1.0
BUSY_SECONDS = 0.2
SHORT_SECONDS = 0.05
NEVER = float("inf")
END = EPOCH + STORM_SECONDS + CALM_SECONDS
IN_DOUBT_SECONDS = 40.0  # so long it may take until we know what became of a write that nobody answered
REST_SECONDS = 15.0  # so often it is looked at closely, while nothing is under way
ANY_PLACE = (Place.PARKED, Place.INCOMPLETE, Place.RUNNING)
ROUGH = Chances(missed=0.01, torn=0.002, crash=0.02)
KNOWN_ENDS = replace(ROUGH, conflict=0.0, timeout_done=0.0, timeout_lost=0.0)
WEATHER = (ROUGH, ROUGH, replace(ROUGH, crash=0.002, torn=0.0), KNOWN_ENDS, NONE)
EVENTS = Kind("", "v1", "Event", "events")


class PodsSimulation:
    """Virtual time moves from one due moment to the next; everybody due takes one step."""

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        self.rng = Random(f"pods {seed}")
        self.chances = self.rng.choice(WEATHER) if chances is None else chances
        self.now = EPOCH
        self.report = Report(seed)
        self.world = pods_world(self.rng, COMING_SECONDS)
        api = GangApi((self.world.version,))
        self.store = stage(lambda: self.now, Random(f"ids {seed}"), api)
        for node in self.world.nodes:
            self.store.create(PLAIN_NODES, node)
        for kind, obj in self.world.rules:
            self.store.create(kind, obj, NAMESPACE if kind.namespaced else "")
        self.hands = PodHands(self.store, self.rng, self.world, EPOCH, STORM_SECONDS)
        self.seen = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "groups": self.hands.groups, "events": EVENTS,
                     "jobs": resource("Job"), "jobsets": resource("JobSet")}  # fmt: skip
        self.crew = Crew(EmbeddedBackend(self.store))
        self.watchman = PodWatchman(self.world.profile.heal_seconds)
        self.journal = Witness(self._look_at)
        self.writes: list[bytes] = []
        self.crew_due = self.hands_due = self.now
        self.lost = -NEVER  # when a write did something else than we were told, last
        self.judged = -NEVER
        self.begun = self.now
        self._start()

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
            if not self.busy and not self.report.violations:
                self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in self._at_rest()]
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
        self.scheduler = SchedulerRole(self.world.profile)
        self.loop = Loop(self.backend, [self.scheduler], self.journal)
        self.due = self.begun = self.now
        self.watchman.restarted()

    def _step(self) -> None:
        version, lines = self.store.version, len(self.journal.lines)
        self.hands_due = self.hands.step(self.now)
        self.crew_due = self.crew.step(self.now)
        doubtful = self._doubtful()
        self.due = self.loop.step(self.now)
        if self._doubtful() != doubtful:
            self.lost = self.now
        self.report.steps += 1
        self.busy = self.store.version != version or len(self.journal.lines) != lines
        if self.busy:
            self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in self._problems()]
        pause = BUSY_SECONDS if self.busy else STEP_SECONDS
        if not self.busy and self.now > EPOCH + STORM_SECONDS:
            pause = max(pause, min(self.due, END) - self.now)  # nothing is late any more
        self.now = max(min(self.now + pause, self.crew_due, self.hands_due), self.now + SHORT_SECONDS)

    def _doubtful(self) -> int:
        faults = self.report.faults
        return faults["conflict"] + faults["timeout_lost"] + faults["timeout_done"]

    def _problems(self) -> Iterator[str]:
        yield from belief_is_consistent(self.scheduler.state)
        exact = self.now - max(self.lost, self.begun) > IN_DOUBT_SECONDS
        yield from self.watchman.check(self._list, self.now, self._told, self.hands.disturbed, exact=exact)

    def _told(self, pod: dict[str, Any]) -> str:
        meta = pod["metadata"]
        known = self.backend.known.get((PODS_KIND, meta["namespace"], meta["name"]))
        return "" if known is None else known.object.spec.node_name or ""

    def _look_at(self, plan: Plan) -> None:
        found = self.watchman.planned(plan, self._list, self.now)
        self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in found]

    def _at_rest(self) -> Iterator[str]:
        """Whenever nothing is under way: a fresh start believes the same, and would place nobody else."""
        state = self.scheduler.state
        often = self.now - self.judged < REST_SECONDS and not self._is_quiet()
        if often or self.due <= self.now + STEP_SECONDS:
            return
        if state.doubted or state.partial or any(entry.place not in ANY_PLACE for entry in state.entries()):
            return  # something is under way, or nobody knows whether it is
        self.judged = self.now
        fresh = SchedulerRole(self.world.profile)
        Loop(EmbeddedBackend(self.store), (fresh,), MemoryJournal()).take_in(self.now)
        fresh.state.kept = state.kept
        view = fresh.look(self.now)
        yield from same_story(state, fresh.state, promises=self.lost == -NEVER)
        for action in fresh.decide(view, self.now).actions if view is not None else ():
            if not isinstance(action, Bind | Displace):
                continue
            told = state.told(action.gang if isinstance(action, Bind) else action.by)
            if told is not None and told.unsure:
                return  # it was told that not everything was tried; the others come after it
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but waits"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} make room but waits"

    def _verdict(self) -> Iterator[str]:
        if not self._is_quiet():
            yield f"there is no rest after {self.now - EPOCH:.0f} s"
            return
        for entry in self.scheduler.state.entries():
            if entry.place not in ANY_PLACE:
                yield f"{entry.ref.name} is {entry.place} for ever"
        yield from self.watchman.check(self._list, END, self._told, self.hands.disturbed, exact=False)
        yield from self.watchman.in_vain(max(self.hands.meddled, self.begun, self.lost) + IN_DOUBT_SECONDS)
        yield from everybody_is_told(self._list)

    def _sum_up(self) -> None:
        pods = self._list("pods")
        self.report.jobs = len(self.watchman.bound) + sum(map(waits, pods))
        self.report.finished = len(self.watchman.bound)
        self.report.faults.update(self.hands.injected)
        self.report.faults["displaced"] += len(self.watchman.sent)
        kept = [msgspec.json.encode(self._list(plural)) for plural in self.seen]
        everything = [*self.journal.lines, *self.writes, *kept]
        self.report.digest = hashlib.sha256(b"\n".join(everything)).hexdigest()

    def _strikes(self, name: str) -> bool:
        if self.rng.random() < getattr(self.chances, name):
            self.report.faults[name] += 1
            return True
        return False

    def _list(self, plural: str) -> list[dict[str, Any]]:
        return self.store.list(self.seen[plural]).items

    def _is_quiet(self) -> bool:
        """Nothing happened, nothing is due and nobody comes: nothing will ever happen."""
        return not (self.busy or min(self.crew_due, self.hands_due, self.due) < END)


def same_story(ours: Board, theirs: Board, *, promises: bool) -> Iterator[str]:
    """Two boards at rest believe the same, whichever way they came to it.

    That a promise is taken back is written once; if that write was lost, the API still has it.
    """
    for what, mine, fresh in (
        ("the ledger", ours.ledger.by_node(), theirs.ledger.by_node()),
        ("the index", _indexed(ours), _indexed(theirs)),
        ("who is on nodes", ours.placed, theirs.placed),
        ("promised room", _promised(ours) if promises else {}, _promised(theirs) if promises else {}),
        ("the rules", ours.charters, theirs.charters),
        ("who stands where", _standing(ours), _standing(theirs)),
    ):
        if mine != fresh:
            keys = sorted(map(str, {k for k in {*mine, *fresh} if mine.get(k) != fresh.get(k)}))
            yield f"{what} is not what a fresh list gives, of {keys[:3]}: {_one(mine, fresh)}"


def _one(mine: Any, fresh: Any) -> str:
    key = min({k for k in {*mine, *fresh} if mine.get(k) != fresh.get(k)}, key=str)
    return f"{mine.get(key)} instead of {fresh.get(key)}"


def _indexed(board: Board) -> dict[Any, Any]:
    names = {slot: name for name, slot in board.index.slots.numbers.items()}
    return {key: (names[one.node], one.shape, one.leaving) for key, one in board.index.pods.items()}


def _promised(board: Board) -> dict[Any, str]:
    return {key: node for key, (_, node) in board.nominations.items()}


def _standing(board: Board) -> dict[Any, Any]:
    return {
        entry.ref: (
            "waits" if entry.place in (Place.PARKED, Place.READY) else str(entry.place),
            tuple(pod.key for pod in board.waiting(entry.ref)),
            tuple(pod.key for pod in board.standing(entry.ref)),
        )
        for entry in board.entries()
    }
