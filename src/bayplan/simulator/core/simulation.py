"""The run of one seed in virtual time: a phase with faults, a quiet phase, and the final checks."""

from __future__ import annotations

import hashlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import ClassVar, Self

import msgspec

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.kinds.gangs import FULL_GANG_API, GangApi
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.watch_log import StoreChange
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.model.plan import Plan
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import CYCLES_MAX, Loop
from bayplan.simulator.core.checkers import PreemptionPace, check_no_gang_is_bound_and_preempted
from bayplan.simulator.core.coverage import note_change, note_plan
from bayplan.simulator.core.faults import NONE, Chances
from bayplan.simulator.core.fixtures import LISTED, PLAIN_NODES, new_simulated_store
from bayplan.simulator.core.recording import PlanObserver, RecordingBackend
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.core.thrown_errors import ErrorInjection, Thrown

EPOCH = 1_700_000_000.0
STEP_SECONDS = 1.0
BUSY_SECONDS = 0.2
SHORT_SECONDS = 0.05
LATE_SECONDS = 10.0  # that work which began before the end may take
NEVER = float("inf")

Actor = Callable[[float], float]
"""Acts at the given time, and returns when it is due next."""


class SimulationRun(ABC):
    """Advances virtual time from one due time to the next, and runs what is due.

    A play creates its initial objects and sets `environment` in its constructor, returns the controllers
    under test, and yields violations after each step (`problems`) and at the end (`final_violations`).
    """

    fault_seconds: ClassVar[float] = 120.0
    quiet_seconds: ClassVar[float] = 1800.0
    must_settle: ClassVar[bool] = True  # when it was calm for that long, nothing happens any more
    kinds: Mapping[str, Kind] = LISTED  # what checkers may ask for
    compared: Sequence[str] = ()  # of these, what two runs of a seed must agree on in the end
    environment: Sequence[Actor]  # all but Bayplan, in the order in which they act

    def __init__(
        self, seed: int, rng: Random, ids: Random, chances: Chances, gang_api: GangApi = FULL_GANG_API
    ) -> None:
        self.rng = rng
        self.chances = chances
        self.now = EPOCH
        self.end = EPOCH + self.fault_seconds + self.quiet_seconds
        self.report = SeedReport(seed)
        self.store = new_simulated_store(lambda: self.now, ids, gang_api)
        self.store.reactions += (self._on_change,)
        self.journal = PlanObserver(self._on_plan)
        self.writes: list[bytes] = []
        self._lists: dict[str, tuple[Object, ...]] = {}  # by plural
        self._listed_at = 0  # the version of the store
        self.busy = True
        self.waits = False  # for the outcome of a write, which may have changed nothing
        self._cycle_dice = Random(f"cycles {seed}")
        self.preemption_pace = PreemptionPace()
        self.error_injection: ErrorInjection | None = None
        self.contain_errors = True

    def throwing(self, *, contained: bool = True) -> Self:
        """Also raise exceptions in the work on one gang, in a loop with or without containment."""
        self.error_injection = ErrorInjection(Random(f"thrown {self.report.seed}"), self.report.faults)
        self.contain_errors = contained
        return self

    # ── what a play says ───────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def controllers(self) -> Sequence[Controller]:
        """New controllers, as after a start of the process."""

    @abstractmethod
    def problems(self) -> Iterable[str]:
        """Violations after a step in which something changed."""

    @abstractmethod
    def final_violations(self) -> Iterable[str]:
        """Violations at the end of a run without earlier violations."""

    @abstractmethod
    def summarize(self) -> None:
        """Write the counts of the run into the report."""

    @abstractmethod
    def recover_all(self) -> None:
        """End the faulty phase: all nodes recover, and no more disturbances follow."""

    def check_plan(self, plan: Plan) -> Iterable[str]:
        """Violations of a plan before it is carried out."""
        return ()

    def check_idle(self) -> Iterable[str]:
        """Violations in the quiet phase after a step without changes."""
        return ()

    def inject_faults(self) -> None:
        """Faults between two steps of the faulty phase: a restart of the process."""
        if self.backend.dead or self.occurs("crash"):
            self.start()

    def start(self) -> None:
        """Start the process anew, with no state but that of the API."""
        self.backend, self.loop = self.new_process(self.controllers())
        self.preemption_pace = PreemptionPace()
        self.due = self.started_at = self.now

    def act(self) -> None:
        """Run one step of Bayplan."""
        self.due = self.step_processes()

    def step_processes(self) -> float:
        """Run one step of each process; return when the next one is due."""
        return self.loop.step(self.now)

    def end_faults(self) -> None:
        """No more faults between Bayplan and the API."""
        self.chances = NONE
        self.backend.calm()

    def loops(self) -> Sequence[Loop]:
        """The loops of all processes."""
        return (self.loop,)

    def compared_bytes(self) -> Iterable[bytes]:
        """The bytes that a second run of the seed must repeat."""
        compared = [msgspec.json.encode(self.listed(plural)) for plural in self.compared]
        return [*self.journal.lines(), *self.writes, *compared]

    # ── what a play needs ──────────────────────────────────────────────────────────────────────────────

    def new_process(self, controllers: Sequence[Controller]) -> tuple[RecordingBackend, Loop]:
        """A process with these controllers, and its connection to the API."""
        inner, containment = EmbeddedBackend(self.store), None
        backend = RecordingBackend(inner, self.rng, self.chances, self.report.faults, self.writes)
        if self.error_injection is not None:
            self.error_injection.inject_into(controllers)
            containment = Containment(self._contained) if self.contain_errors else None
        cycles = self._cycle_dice.choice((1, CYCLES_MAX))  # as if decisions took long, or no time
        return backend, Loop(backend, controllers, self.journal, containment=containment, cycles_max=cycles)

    def create_initial(self, nodes: Iterable[Object], objects: Iterable[tuple[Kind, Object]] = ()) -> None:
        """Create nodes, and objects of other kinds."""
        for node in nodes:
            self.store.create(PLAIN_NODES, node)
        for kind, obj in objects:
            self.store.create(kind, obj, NAMESPACE if kind.namespaced else "")

    def fake_controllers(self) -> FakeControllerManager:
        """Simulated controllers and kubelets on the store."""
        return FakeControllerManager(EmbeddedBackend(self.store))

    def listed(self, plural: str) -> tuple[Object, ...]:
        """All objects of a kind in the store: the same tuple until one of them changes."""
        if self._listed_at != self.store.version:
            self._listed_at, self._lists = self.store.version, {}
        found = self._lists.get(plural)
        if found is None:
            found = self._lists[plural] = self.store.everything(self.kinds[plural])
        return found

    def occurs(self, name: str) -> bool:
        """Whether a fault happens now, by its probability."""
        if self.rng.random() < getattr(self.chances, name):
            self.report.faults[name] += 1
            return True
        return False

    def is_quiet(self) -> bool:
        """Whether nothing changed and nothing is due before the end."""
        return not self.busy and not self.waits and min(self.environment_due, self.due) >= self.end

    # ── how it goes ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> SeedReport:
        """Run the faulty phase, the quiet phase and the final checks."""
        self.start()
        while self.now < EPOCH + self.fault_seconds and not self.report.violations:
            self._step()
            self.inject_faults()
        self.end_faults()
        if self.error_injection is not None:
            self.error_injection.calm()
        self.recover_all()
        last = self.end + LATE_SECONDS  # a gang may be tried again just before the end
        while self.now < last and not self.report.violations:
            self._step()
            if not self.busy and not self.waits and not self.report.violations:
                self._add_violations(self.check_idle())
            if self.is_quiet():
                break
        if not self.report.violations:
            self.report.violations += self._final_violations()
        self.summarize()
        return self.report

    def digest(self) -> str:
        """What a second run of the seed must repeat, as one number."""
        return hashlib.sha256(b"\n".join(self.compared_bytes())).hexdigest()

    def _step(self) -> None:
        version, entries, writes = self.store.version, self.journal.sequence, len(self.writes)
        self.environment_due = min(actor(self.now) for actor in self.environment)
        self.act()
        self.report.steps += 1
        self.busy = self.store.version != version or self.journal.sequence != entries
        if self.busy:
            self._add_violations(self.problems())
        pause = BUSY_SECONDS if self.busy else STEP_SECONDS
        self.waits = len(self.writes) != writes
        if not self.busy and not self.waits and self.now > EPOCH + self.fault_seconds:
            pause = max(pause, min(self.due, self.end) - self.now)  # nothing is late any more
        self.now = max(min(self.now + pause, self.environment_due), self.now + SHORT_SECONDS)

    def _final_violations(self) -> list[str]:
        may_stay_busy = self.error_injection is not None and self.error_injection.permanent
        if self.must_settle and not may_stay_busy and not self.is_quiet():
            return [f"work continues after {self.now - EPOCH:.0f} s"]
        return [one for one in self.final_violations() if not self._is_expected(one)]

    def _on_plan(self, plan: Plan) -> None:
        note_plan(self.report.reached, plan)
        self._add_violations(check_no_gang_is_bound_and_preempted(plan))
        self._add_violations(self.preemption_pace.check(plan, self.now))
        self._add_violations(self.check_plan(plan))

    def _on_change(self, _: ObjectStorage, storage: str, change: StoreChange) -> None:
        note_change(self.report.reached, storage, change)

    def _add_violations(self, problems: Iterable[str]) -> None:
        unexpected = [one for one in problems if not self._is_expected(one)]
        self.report.violations += [f"{self.now - EPOCH:.1f} s: {one}" for one in unexpected]

    def _is_expected(self, problem: str) -> bool:
        return self.error_injection is not None and self.error_injection.expects(problem)

    def is_quarantined(self, name: str) -> bool:
        """Whether objects of the victim are still in quarantine after injected errors."""
        if self.error_injection is None or not self.error_injection.is_victim(name):
            return False
        return any(len(intake.quarantine) for loop in self.loops() for intake in loop.intakes.values())

    def _contained(self, sentence: str, error: BaseException, **facts: str) -> None:
        """Record a contained error that was not injected as a violation."""
        if not isinstance(error, Thrown):
            trace = "".join(traceback.format_exception(error))
            self.report.violations.append(f"{self.now - EPOCH:.1f} s: {sentence}: {trace}")
