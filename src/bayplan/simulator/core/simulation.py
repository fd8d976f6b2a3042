"""What all plays have in common: faults for a while, calm, and the verdict, in virtual time by one seed."""

from __future__ import annotations

import hashlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import ClassVar, Self

import msgspec

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.kinds.gangs import ALL_OF_IT, GangApi
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.model.plan import Plan
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.faults import NONE, Chances
from bayplan.simulator.core.fixtures import LISTED, PLAIN_NODES, stage
from bayplan.simulator.core.recording import PlanObserver, Recorded
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.core.thrown_errors import ErrorInjection, Thrown

EPOCH = 1_700_000_000.0
STEP_SECONDS = 1.0
BUSY_SECONDS = 0.2
SHORT_SECONDS = 0.05
NEVER = float("inf")

Actor = Callable[[float], float]
"""Does what is due at a moment, and returns when something will be."""


class SimulationRun(ABC):
    """Virtual time moves from one due moment to the next; everybody due takes one step.

    A play puts there what it begins with and sets `cast` when it is made, names the roles that are tried,
    and says what may never be seen (`problems`) and what must hold in the end (`verdict`).
    """

    storm_seconds: ClassVar[float] = 120.0
    calm_seconds: ClassVar[float] = 1800.0
    must_rest: ClassVar[bool] = True  # when it was calm for that long, nothing happens any more
    kinds: Mapping[str, Kind] = LISTED  # what checkers may ask for
    kept: Sequence[str] = ()  # of these, what two runs of a seed must agree on in the end
    cast: Sequence[Actor]  # all but Bayplan, in the order in which they act

    def __init__(
        self, seed: int, rng: Random, ids: Random, chances: Chances, gang_api: GangApi = ALL_OF_IT
    ) -> None:
        self.rng = rng
        self.chances = chances
        self.now = EPOCH
        self.end = EPOCH + self.storm_seconds + self.calm_seconds
        self.report = SeedReport(seed)
        self.store = stage(lambda: self.now, ids, gang_api)
        self.journal = PlanObserver(self._look_at)
        self.writes: list[bytes] = []
        self.busy = True
        self.sabotage: ErrorInjection | None = None
        self.contains = True

    def throwing(self, *, contained: bool = True) -> Self:
        """Throw errors at one gang besides, in a loop that contains errors or not."""
        self.sabotage = ErrorInjection(Random(f"thrown {self.report.seed}"), self.report.faults)
        self.contains = contained
        return self

    # ── what a play says ───────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def roles(self) -> Sequence[Controller]:
        """New ones, for a process that has just started."""

    @abstractmethod
    def problems(self) -> Iterable[str]:
        """What is wrong after a step in which something happened."""

    @abstractmethod
    def verdict(self) -> Iterable[str]:
        """What is wrong when all is over and nothing was wrong before."""

    @abstractmethod
    def sum_up(self) -> None:
        """Write into the report what came of it, apart from violations and digest."""

    @abstractmethod
    def mend(self) -> None:
        """The storm is over: nodes work again, and nobody meddles."""

    def planned(self, plan: Plan) -> Iterable[str]:
        """What is wrong with a plan, before anything comes of it."""
        return ()

    def at_rest(self) -> Iterable[str]:
        """What is wrong in the calm after a step in which nothing happened."""
        return ()

    def shake(self) -> None:
        """What may happen between two steps of the storm: the process dies."""
        if self.backend.dead or self.strikes("crash"):
            self.start()

    def start(self) -> None:
        """A fresh start that knows nothing but what the API tells it."""
        inner = EmbeddedBackend(self.store)
        self.backend = Recorded(inner, self.rng, self.chances, self.report.faults, self.writes)
        roles, containment = self.roles(), None
        if self.sabotage is not None:
            self.sabotage.work_on(roles)
            containment = Containment(self._contained) if self.contains else None
        self.loop = Loop(self.backend, roles, self.journal, containment=containment)
        self.due = self.begun = self.now

    def act(self) -> None:
        """Bayplan takes its step."""
        self.due = self.loop.step(self.now)

    def evidence(self) -> Iterable[bytes]:
        """All that a second run of the seed must repeat to the byte."""
        kept = [msgspec.json.encode(self.listed(plural)) for plural in self.kept]
        return [*self.journal.lines, *self.writes, *kept]

    # ── what a play needs ──────────────────────────────────────────────────────────────────────────────

    def furnish(self, nodes: Iterable[Object], rules: Iterable[tuple[Kind, Object]] = ()) -> None:
        """Put nodes there, and objects of other kinds."""
        for node in nodes:
            self.store.create(PLAIN_NODES, node)
        for kind, obj in rules:
            self.store.create(kind, obj, NAMESPACE if kind.namespaced else "")

    def crew(self) -> FakeControllerManager:
        """Controllers and kubelets for what is there now and will be."""
        return FakeControllerManager(EmbeddedBackend(self.store))

    def listed(self, plural: str) -> list[Object]:
        """All objects of a kind, as they are in the store."""
        return self.store.list(self.kinds[plural]).items

    def strikes(self, name: str) -> bool:
        """Whether a fault happens now, by its chance."""
        if self.rng.random() < getattr(self.chances, name):
            self.report.faults[name] += 1
            return True
        return False

    def is_quiet(self) -> bool:
        """Nothing happened, nothing is due and nobody comes: nothing will ever happen."""
        return not self.busy and min(self.others_due, self.due) >= self.end

    # ── how it goes ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> SeedReport:
        """The storm, the calm, the verdict."""
        self.start()
        while self.now < EPOCH + self.storm_seconds and not self.report.violations:
            self._step()
            self.shake()
        self.chances = NONE
        self.backend.calm()
        if self.sabotage is not None:
            self.sabotage.calm()
        self.mend()
        while self.now < self.end and not self.report.violations:
            self._step()
            if not self.busy and not self.report.violations:
                self._blame(self.at_rest())
            if self.is_quiet():
                break
        if not self.report.violations:
            self.report.violations += self._judged()
        self.sum_up()
        self.report.digest = hashlib.sha256(b"\n".join(self.evidence())).hexdigest()
        return self.report

    def _step(self) -> None:
        version, lines = self.store.version, len(self.journal.lines)
        self.others_due = min(actor(self.now) for actor in self.cast)
        self.act()
        self.report.steps += 1
        self.busy = self.store.version != version or len(self.journal.lines) != lines
        if self.busy:
            self._blame(self.problems())
        pause = BUSY_SECONDS if self.busy else STEP_SECONDS
        if not self.busy and self.now > EPOCH + self.storm_seconds:
            pause = max(pause, min(self.due, self.end) - self.now)  # nothing is late any more
        self.now = max(min(self.now + pause, self.others_due), self.now + SHORT_SECONDS)

    def _judged(self) -> list[str]:
        restless = self.sabotage is not None and self.sabotage.lasts
        if self.must_rest and not restless and not self.is_quiet():
            return [f"there is no rest after {self.now - EPOCH:.0f} s"]
        return [one for one in self.verdict() if not self._is_excused(one)]

    def _look_at(self, plan: Plan) -> None:
        self._blame(self.planned(plan))

    def _blame(self, problems: Iterable[str]) -> None:
        blamed = [one for one in problems if not self._is_excused(one)]
        self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in blamed]

    def _is_excused(self, problem: str) -> bool:
        return self.sabotage is not None and self.sabotage.excuses(problem)

    def is_held_up(self, name: str) -> bool:
        """Whether some of the victim's objects still wait to be read again, after errors thrown at it."""
        if self.sabotage is None or not self.sabotage.is_victim(name):
            return False
        return any(len(intake.quarantine) for intake in self.loop.intakes.values())

    def _contained(self, sentence: str, error: BaseException, **facts: str) -> None:
        """Only what was thrown on purpose may be contained."""
        if not isinstance(error, Thrown):
            told = "".join(traceback.format_exception(error))
            self.report.violations.append(f"{self.now - EPOCH:.1f} s: {sentence}: {told}")
