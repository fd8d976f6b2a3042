"""A storm around the scheduler: when it is at rest, and what a fresh start would do then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.model.plan import Bind, PreemptPod
from bayplan.runtime.controllers.scheduler.controller import CycleInput, SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.simulation import NEVER, STEP_SECONDS, SimulationRun
from bayplan.state.scheduling.queue import EntryState

REST_SECONDS = 15.0  # so often it is looked at closely, while nothing is under way
ANY_PLACE = (EntryState.PARKED, EntryState.INCOMPLETE, EntryState.RUNNING)


class SchedulerSimulation(SimulationRun):
    """Storm, calm and verdict for plays whose gangs are placed by the scheduler."""

    scheduler: SchedulerController
    lost = -NEVER  # when a write did something else than we were told, last
    judged = -NEVER

    def act(self) -> None:
        doubtful = self._doubtful()
        super().act()
        if self._doubtful() != doubtful:
            self.lost = self.now

    def _doubtful(self) -> int:
        faults = self.report.faults
        return faults["conflict"] + faults["timeout_lost"] + faults["timeout_done"]

    def may_judge(self) -> bool:
        """Whether nothing is under way, and it was not looked at a moment ago."""
        state = self.scheduler.state
        often = self.now - self.judged < REST_SECONDS and not self.is_quiet()
        if often or self.due <= self.now + STEP_SECONDS:
            return False
        if any(intake.quarantine for intake in self.loop.intakes.values()):
            return False  # not all was read
        busy = [one.ref.name for one in state.entries() if one.place not in ANY_PLACE]
        if state.gangs.doubted or state.gangs.partial or any(not self._is_excused(name) for name in busy):
            return False  # something is under way, or nobody knows whether it is
        self.judged = self.now
        return True

    def begin_afresh(self, fresh: SchedulerController) -> CycleInput | None:
        """Have another scheduler learn all that the API tells, and whom room is kept for; what it sees."""
        Loop(EmbeddedBackend(self.store), (fresh,), MemoryJournal()).take_in(self.now)
        fresh.state.gangs.kept = self.scheduler.state.gangs.kept
        return fresh.look(self.now)

    def would_do(self, fresh: SchedulerController, view: CycleInput | None) -> Iterator[Bind | PreemptPod]:
        """What another scheduler would do now, up to those who were told that not everything was tried."""
        if view is None:
            return
        decide = fresh.decide if self.sabotage is None else partial(self.sabotage.decide, fresh)
        for action in decide(view, self.now).actions:
            if not isinstance(action, Bind | PreemptPod):
                continue
            told = self.scheduler.state.told(action.gang if isinstance(action, Bind) else action.by)
            if told is not None and told.unsure:
                return  # the others come after it
            yield action
