"""The loop as a service: metered, journalled, elected, and shut down in order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from bayplan.dialects.api import Backend, Ended, Event, Kind, Write, WriteOutcome
from bayplan.dialects.errors import Misconfigured
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted, ReportUnschedulable
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.clock import Clock, SteadyWall, timer
from bayplan.runtime.core.containment import SLOW_SECONDS
from bayplan.runtime.core.loop import Loop, Observer
from bayplan.runtime.core.spans import NO_SPANS, Spans
from bayplan.runtime.process.burst_pace import BurstPace
from bayplan.runtime.telemetry.admission_metrics import AdmissionMetrics
from bayplan.runtime.telemetry.decision_log import PacedDecisionLog
from bayplan.runtime.telemetry.metrics import Metrics

WAIT_SECONDS_MAX = 1.0
PAUSE_FIRST, PAUSE_MAX = 1.0, 10.0  # seconds after a failed step
COUNT_SECONDS = 1.0  # queue lengths are counted this often, not at every step


class Metered:
    """A backend that counts events, writes and outcomes."""

    def __init__(self, inner: Backend, metrics: Metrics, spans: Spans = NO_SPANS) -> None:
        self.inner, self.metrics, self.spans = inner, metrics, spans
        self.in_flight = 0

    def watch(self, kinds: Sequence[Kind]) -> None:
        self.inner.watch(kinds)

    def events(self) -> Iterable[Event]:
        for event in self.inner.events():
            self.metrics.event_seen(event)
            yield event

    def submit(self, writes: Sequence[Write]) -> None:
        self.in_flight += len(writes)
        self.metrics.submitted(len(writes))
        if self.spans.enabled:
            for write in writes:
                self.spans.submitted(write)
        self.inner.submit(writes)

    def outcomes(self) -> Iterable[WriteOutcome]:
        for outcome in self.inner.outcomes():
            self.in_flight -= 1
            self.metrics.write_ended(outcome)
            self.spans.ended(outcome)
            yield outcome

    def wait(self, seconds: float) -> None:
        self.inner.wait(seconds)

    def close(self, grace_seconds: float = 10.0) -> None:
        self.inner.close(grace_seconds)


class Shadow(Metered):
    """A backend that watches and never writes: decisions are made and journalled, nothing more."""

    def __init__(self, inner: Backend, metrics: Metrics, spans: Spans = NO_SPANS) -> None:
        super().__init__(inner, metrics, spans)
        self.never: list[Write] = []

    def submit(self, writes: Sequence[Write]) -> None:
        """Drop the writes."""
        self.never += writes

    def outcomes(self) -> Iterable[WriteOutcome]:
        """No outcomes: decisions are assumed for a while, and then made again."""
        ended, self.never = [WriteOutcome(write, Ended.TIMED_OUT) for write in self.never], []
        return ended


class Meter(Observer):
    """Measures decisions and counts their results."""

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        admission: AdmissionMetrics | None = None,
        slow: Callable[[str], None] = lambda sentence: None,
        decisions: PacedDecisionLog | None = None,
        spans: Spans = NO_SPANS,
    ) -> None:
        self.clock, self.metrics, self.admission, self.slow = clock, metrics, admission, slow
        self.decisions, self.spans = decisions, spans

    def stopwatch(self) -> Callable[[], float]:
        return timer(self.clock)

    def decided(self, plan: Plan, snapshot_seconds: float, decision_seconds: float) -> None:
        self.metrics.snapshot_made(snapshot_seconds)
        self.metrics.decided(
            decision_seconds, Counter(type(action).__name__.lower() for action in plan.actions)
        )
        for action in plan.actions:
            if isinstance(action, ReportUnschedulable):
                misfit = action.rejection.misfit
                self.metrics.refused(misfit.code if misfit is not None else action.rejection.reason)
        if self.admission is not None and any(
            isinstance(a, Admit | EvictGang | ReportNotAdmitted) for a in plan.actions
        ):
            self.admission.decided(plan, snapshot_seconds + decision_seconds)

    def planned(self, role: str, plan: Plan, now: float) -> None:
        if self.decisions is not None:
            self.decisions.planned(role, plan, now)

    def watched(self, watchdog: Watchdog, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            longest, gang = watchdog.slowest
            spent = f", {longest:.1f} s of it on {_title(gang)}" if gang is not None else ""
            self.slow(f"a decision took {seconds:.1f} s{spent}")


def _title(gang: Ref) -> str:
    return f"{gang.kind} {gang.namespace}/{gang.name}"


class Service:
    """Calls `step` when an event arrives or work is due, until it is stopped."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        metrics: Metrics,
        stop: threading.Event,
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        assert isinstance(loop.backend, Metered)
        self.backend = loop.backend
        self.wall = SteadyWall(clock, note)
        self.loop, self.clock, self.metrics, self.stop = loop, clock, metrics, stop
        self.last_step = clock.monotonic()
        self.counted = -COUNT_SECONDS
        self.pace = BurstPace()
        self.backoff: Backoff[str] = Backoff(PAUSE_FIRST, PAUSE_MAX)

    def run(self) -> None:
        """Run until stopped. A failed step is repeated after a pause.

        `last_step` is the time of the last completed step: if it is long ago, the liveness probe fails.
        """
        while not self.stop.is_set():
            try:
                self._step()
                self.backoff.succeeded("step")
            except Misconfigured:
                raise  # trying again cannot help
            except Exception as error:
                self.loop.containment.failed(error, "step")
                now = self.clock.monotonic()
                self.stop.wait(self.backoff.failed("step", now) - now)

    def _step(self) -> None:
        elapsed = timer(self.clock)
        with self.loop.observer.spans.span("step"):
            due = self.loop.step(self.wall.now())
        spent = elapsed()
        self.metrics.stepped(spent, self.clock.wall())
        self.last_step = self.clock.monotonic()
        if self.last_step >= self.counted + COUNT_SECONDS:
            self.counted = self.last_step
            # Of the leader only: to count gangs is to ask the state, which no plan or entry would show.
            self.metrics.queues(self._lengths() if self.loop.decides else {})
        self.loop.backend.wait(max(min(due - self.wall.now(), WAIT_SECONDS_MAX), 0.0))
        self.stop.wait(self.pace.pause(self.clock.monotonic() - self.last_step, spent))

    def finish(self, seconds: float) -> None:
        """Wait for the writes in flight, and handle their outcomes."""
        end = self.clock.monotonic() + seconds
        while self.backend.in_flight and self.clock.monotonic() < end:
            self.loop.settle_all(self.wall.now())
            self.backend.wait(0.1)

    def _lengths(self) -> dict[tuple[str, str], int]:
        schedulers = [one for one in self.loop.controllers if isinstance(one, SchedulerController)]
        entries = [entry for scheduler in schedulers for entry in scheduler.state.entries()]
        return dict(Counter((entry.ref.namespace, str(entry.state)) for entry in entries))
