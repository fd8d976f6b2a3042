"""Simulations of the scheduler: when it is idle, and what a restarted scheduler would decide then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.model.plan import Bind, PreemptPod
from bayplan.runtime.controllers.scheduler.controller import CycleInput, SchedulerController
from bayplan.runtime.core.journal import NullJournal
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.simulation import NEVER, STEP_SECONDS, SimulationRun
from bayplan.state.scheduling.queue import EntryState

REST_SECONDS = 15.0  # so often it is looked at closely, while nothing is under way
RESTING_STATES = (EntryState.UNSCHEDULABLE, EntryState.INCOMPLETE, EntryState.RUNNING)


class SchedulerSimulation(SimulationRun):
    """Base of the plays whose gangs are placed by the scheduler."""

    scheduler: SchedulerController
    outcome_lost_at = -NEVER  # when a write did something else than we were told, last
    checked_at = -NEVER

    def act(self) -> None:
        uncertain = self._uncertain_writes()
        super().act()
        if self._uncertain_writes() != uncertain:
            self.outcome_lost_at = self.now

    def _uncertain_writes(self) -> int:
        faults = self.report.faults
        return faults["conflict"] + faults["timeout_lost"] + faults["timeout_done"]

    def is_checkable(self) -> bool:
        """Whether the scheduler is idle, and the last detailed check was long enough ago."""
        state = self.scheduler.state
        too_soon = self.now - self.checked_at < REST_SECONDS and not self.is_quiet()
        if too_soon or self.due <= self.now + STEP_SECONDS:
            return False
        if any(intake.quarantine for loop in self.loops() for intake in loop.intakes.values()):
            return False  # not all was read
        busy = [one.ref.name for one in state.entries() if one.state not in RESTING_STATES]
        if (
            state.gangs.unconfirmed
            or state.gangs.partial
            or any(not self._is_expected(name) for name in busy)
        ):
            return False  # writes are in flight, or may be
        self.checked_at = self.now
        return True

    def load_fresh(self, fresh: SchedulerController) -> CycleInput | None:
        """Load a fresh scheduler from the API; return its input.

        It has the same backfill reservation, and for the same gangs no pods are preempted for a while.
        """
        backend = EmbeddedBackend(self.store)
        Loop(backend, (fresh,), NullJournal()).apply_events(self.now)
        backend.close()
        fresh.state.gangs.reserved = self.scheduler.state.gangs.reserved
        states = self.scheduler.state.store.gang_states
        for ref, gang in fresh.state.store.gang_states.items():
            if (paused := states.get(ref)) is not None:
                gang.paused_until = paused.paused_until
        return fresh.snapshot(self.now)

    def would_do(self, fresh: SchedulerController, view: CycleInput | None) -> Iterator[Bind | PreemptPod]:
        """Binds and preemptions of a fresh scheduler, up to the first gang whose search was cut short."""
        if view is None:
            return
        decide = fresh.decide if self.error_injection is None else partial(self.error_injection.decide, fresh)
        for action in decide(view, self.now).actions:
            if not isinstance(action, Bind | PreemptPod):
                continue
            rejection = self.scheduler.state.reported(action.gang if isinstance(action, Bind) else action.by)
            if rejection is not None and rejection.incomplete:
                return  # the others come after it
            yield action
