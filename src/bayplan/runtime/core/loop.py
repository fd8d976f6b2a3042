"""The loop: watch, decode, apply, decide, journal, assume, commit, settle.

Every controller's part in a step is a unit of work: if it fails as a whole, the other controllers go on, and
the controller pauses before it tries again. Within it, each object, gang and write is a unit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bayplan.dialects.api import Backend, Ended, Happened, Kind, Write, WriteOutcome
from bayplan.model.change import Started
from bayplan.model.plan import Action, Admit, Plan
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.controller import Controller, Look, Recorder, Settled
from bayplan.runtime.core.deciding import Deciding
from bayplan.runtime.core.intake import EventIntake
from bayplan.runtime.core.spans import NO_SPANS, Spans

PAUSE_FACTOR = 2.0  # times the duration of a cycle: events that arrive meanwhile are decided on together
CYCLES_SECONDS = 0.05  # of one controller in a step: events of others wait meanwhile
CYCLES_MAX = 32  # of one controller in a step: virtual time does not pass


class Observer:
    """Observes the cost of decisions; this one has no stopwatch, as virtual time has none."""

    spans: Spans = NO_SPANS

    def stopwatch(self) -> Callable[[], float]:
        """A function that returns the seconds since it was made."""
        return lambda: 0.0

    def decided(self, plan: Plan, snapshot_seconds: float, decision_seconds: float) -> None:
        """A plan was made."""

    def planned(self, role: str, plan: Plan, now: float) -> None:
        """A plan of a controller was recorded in the journal."""

    def watched(self, watchdog: Watchdog, seconds: float) -> None:
        """A decision took this long, whatever its result."""


class Loop:
    """One thread calls `step`, in real or in virtual time.

    Without a containment every error is raised.
    """

    def __init__(
        self,
        backend: Backend,
        controllers: Sequence[Controller],
        journal: Recorder,
        may_write: Callable[[float], bool] = lambda now: True,
        observer: Observer | None = None,
        containment: Containment | None = None,
        cycles_max: int = CYCLES_MAX,
    ) -> None:
        self.backend = backend
        self.cycles_max = cycles_max
        self.controllers = tuple(controllers)
        self.journal = journal
        self.may_write = may_write
        self.observer = observer or Observer()
        self.containment = containment or UNCONTAINED
        self.intakes = {
            controller.name: EventIntake(controller, journal, self.containment)
            for controller in self.controllers
        }
        self.deciding = Deciding(journal, self.containment, self.observer.stopwatch, self.observer.watched)
        self.started = False
        self.decides = False  # in the last step it was synced and allowed to write
        self.due: dict[str, float] = {}  # by controller: when its state is due without any event
        self.paused_until: dict[str, float] = {}  # by controller: until when it does not decide
        self.backoff: Backoff[str] = Backoff()
        for controller in self.controllers:
            controller.containment = self.containment
            controller.unread = self.intakes[controller.name].quarantine
        kinds = _watched(self.controllers)
        self.unsynced = set(kinds)  # a kind that the cluster does not serve is reported as empty
        backend.watch(kinds)

    @property
    def synced(self) -> bool:
        """Whether all objects that existed at the start are known."""
        return not self.unsynced

    def step(self, now: float) -> float:
        """Run one step; returns when to call it next."""
        self.apply_events(now)
        self.settle_all(now)
        self.decides = self.synced and self.may_write(now)
        if not self.decides:
            if self.synced:
                self._prepare()
            return now + 1.0
        again = min((intake.quarantine.next_due() for intake in self.intakes.values()), default=now)
        return min(again, *(self._round(controller, now) for controller in self.controllers))

    def apply_events(self, now: float) -> None:
        """Apply the events since the last step."""
        if not self.started:
            self.started = True
            for controller in self.controllers:
                self.journal.record(now, "change", Started(), controller.name)
        events = list(self.backend.events())
        for event in events:
            if event.happened is Happened.SYNCED:
                self.unsynced.discard(event.kind)
        for controller in self.controllers:
            with self.containment.unit("take in", controller.name):
                self.intakes[controller.name].apply_events(events, now)

    def _prepare(self) -> None:
        for controller in self.controllers:
            with self.containment.unit("prepare", controller.name):
                controller.prepare()

    def settle_all(self, now: float) -> None:
        """Apply the outcomes of writes since the last step."""
        for outcome in self.backend.outcomes():
            self._settle(outcome, now)

    def _round(self, controller: Controller, now: float) -> float:
        rest = self.paused_until.get(controller.name, now)
        if rest <= now:
            try:
                rest = self.paused_until[controller.name] = self._decide(controller, now)
                self.backoff.succeeded(controller.name)
            except Exception as error:
                self.containment.failed(error, "round", controller.name)
                rest = self.paused_until[controller.name] = self.backoff.failed(controller.name, now)
        kept, _ = self.containment.attempt(_lazily(controller.reconcile, now), "reconcile", controller.name)
        if kept:
            self.backend.submit(kept)
        self._settle_given_up(controller, now)
        due = self._next_due(controller, now)
        return rest if due <= now < rest else due

    def _decide(self, controller: Controller, now: float) -> float:
        """Decide in cycles, as long as each admits a gang and thereby lets others of its queue be next.

        Returns until when to pause: not at all if gangs are left that only the time limit kept waiting.
        """
        elapsed, until = self.observer.stopwatch(), now
        for _ in range(self.cycles_max):
            cycle = self.observer.stopwatch()
            plan = self._cycle(controller, now, cycle)
            if plan is None:
                return until
            until = now + elapsed() + PAUSE_FACTOR * cycle()
            if not any(isinstance(action, Admit) for action in plan.actions):
                return until
            if elapsed() >= CYCLES_SECONDS:
                break
        return now

    def _cycle(self, controller: Controller, now: float, elapsed: Callable[[], float]) -> Plan | None:
        """One decision; none if there is no gang to decide on."""
        view = controller.snapshot(now)
        if view is None:
            self._record_look(controller, Look.HEADS, now)
            return None
        with self.observer.spans.span("decide", role=controller.name) as span:
            plan = self._carry_out(controller, view, now, elapsed)
            if self.observer.spans.enabled:
                gangs = {action.gang for action in plan.actions}
                span.note(gangs=len(gangs), actions=len(plan.actions), undecided=len(plan.undecided))
        return plan

    def _carry_out(self, controller: Controller, view: Any, now: float, elapsed: Callable[[], float]) -> Plan:
        """Decide on a snapshot, and submit the writes."""
        taken = elapsed()
        plan = self.deciding.plan(controller, view, now)
        self.observer.decided(plan, taken, elapsed() - taken)
        if not controller.is_intact():
            self.intakes[controller.name].rebuild(now)
            controller.snapshot(now)  # rejected gangs must count as tried in this cycle
        self.journal.record(now, "plan", plan, controller.name)
        with self.containment.unit("log", controller.name):
            self.observer.planned(controller.name, plan, now)
        try:
            self.intakes[controller.name].unseen = True
            controller.assume(plan, now)
        except Exception:
            self.intakes[controller.name].rebuild(now)
            raise
        for peer in self.controllers:
            if peer is not controller and peer.has_state:
                with self.containment.unit("assume", peer.name):
                    self.intakes[peer.name].apply_changes(peer.peer_changes(plan), now)
        writes, _ = self.containment.attempt(_lazily(controller.encode, plan, now), "encode", controller.name)
        self.backend.submit(writes)
        self._settle_unwritten(controller, plan, now)
        return plan

    def _settle_unwritten(self, controller: Controller, plan: Plan, now: float) -> None:
        """Settle actions that could not be encoded as refused: they are not assumed any longer."""
        unwritten = controller.take_unwritten()
        self.deciding.written(controller, plan, unwritten, now)
        self._settle_refused(unwritten, "the action could not be encoded", now)

    def _settle_given_up(self, controller: Controller, now: float) -> None:
        """Settle actions that wait for other writes, one of which failed."""
        self._settle_refused(controller.take_unwritten(), "a write that must precede it failed", now)

    def _settle_refused(self, actions: Iterable[Action], why: str, now: float) -> None:
        for action in actions:
            settled = Settled(Ended.REFUSED, why, action)
            for one in self.controllers:
                self._settle_one(one, settled, now)

    def _next_due(self, controller: Controller, now: float) -> float:
        try:
            due = controller.next_due(now)
        except Exception as error:
            self.containment.failed(error, "reconcile", controller.name)
            return now + 1.0
        self._record_look(controller, Look.DUE, now)
        self.due[controller.name] = due
        return due

    def _record_look(self, controller: Controller, look: Look, now: float) -> None:
        """A changed state counts the delays of gangs from when it is asked: a replay has to ask as well."""
        intake = self.intakes[controller.name]
        is_due = look is Look.HEADS and now >= self.due.get(controller.name, now)
        if controller.has_state and (intake.unseen or is_due):
            intake.unseen = False
            self.journal.record(now, "look", look, controller.name)

    def _settle(self, outcome: WriteOutcome, now: float) -> None:
        write, action = outcome.write, outcome.write.tag
        settled = Settled(outcome.ended, outcome.message, action) if isinstance(action, Action) else None
        name = f"{write.namespace}/{write.name}" if write.namespace else write.name
        for controller in self.controllers:
            if settled is not None:
                self._settle_one(controller, settled, now)
            follows = _lazily(controller.on_outcome, outcome, now)
            more, _ = self.containment.attempt(follows, "settle", write.kind.kind, name)
            if more:
                self.backend.submit(more)

    def _settle_one(self, controller: Controller, settled: Settled, now: float) -> None:
        gang = settled.action.gang
        with self.containment.unit("settle", gang.kind, f"{gang.namespace}/{gang.name}"):
            self.journal.record(now, "outcome", settled, controller.name)
            self.intakes[controller.name].unseen = True
            controller.settle(settled, now)
            if controller.has_state:
                self.intakes[controller.name].apply_changes(controller.peer_outcome(settled), now)


def _lazily(work: Callable[..., Iterable[Write]], *arguments: Any) -> Iterator[Write]:
    """The writes that the work yields, computed while they are consumed, where errors are caught."""
    yield from work(*arguments)


def _watched(controllers: Iterable[Controller]) -> list[Kind]:
    """The kinds of all controllers, each once, so that all of them learn of an event in the same step.

    A kind that one of them cannot do without is not optional.
    """
    found: dict[Kind, Kind] = {}
    for kind in (kind for controller in controllers for kind in controller.kinds):
        if kind not in found or not kind.optional:
            found[kind] = kind
    return sorted(found.values(), key=_watch_order)


def _watch_order(kind: Kind) -> tuple[str, ...]:
    """Sort key, equal in every process; some kinds are watched twice, with other selectors or types."""
    wire = kind.wire.__name__ if kind.wire else ""
    return kind.path(), kind.label_selector, kind.field_selector, wire
