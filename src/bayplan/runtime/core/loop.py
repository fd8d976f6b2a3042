"""The loop: watch, decode, apply, decide, journal, assume, commit, settle.

Every role's part in a step is a unit of work: should it fail as a whole, the other roles go on, and the role
rests before it tries again. Within a part, each object, gang and write is a unit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bayplan.dialects.api import Backend, Ended, Happened, Kind, Write, WriteOutcome
from bayplan.model.change import Started
from bayplan.model.plan import Action, Plan
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.controller import Controller, Recorder, Settled
from bayplan.runtime.core.deciding import Deciding
from bayplan.runtime.core.intake import EventIntake

REST = 2.0  # times as long as a round took: what happens meanwhile is decided on together


class Observer:
    """Sees what a decision cost; this one has no stopwatch, as virtual time has none."""

    def stopwatch(self) -> Callable[[], float]:
        """A function that gives the seconds since it was made."""
        return lambda: 0.0

    def decided(self, plan: Plan, snapshot_seconds: float, decision_seconds: float) -> None:
        """A plan was made."""

    def watched(self, watchdog: Watchdog, seconds: float) -> None:
        """A decision took so long, whatever came of it."""


class Loop:
    """One thread calls `step`, in real time or in virtual time; there is no other scheduler.

    Unless a containment is given, every error is let through.
    """

    def __init__(
        self,
        backend: Backend,
        roles: Sequence[Controller],
        journal: Recorder,
        may_write: Callable[[float], bool] = lambda now: True,
        observer: Observer | None = None,
        containment: Containment | None = None,
    ) -> None:
        self.backend = backend
        self.roles = tuple(roles)
        self.journal = journal
        self.may_write = may_write
        self.observer = observer or Observer()
        self.containment = containment or UNCONTAINED
        self.intakes = {role.name: EventIntake(role, journal, self.containment) for role in self.roles}
        self.deciding = Deciding(journal, self.containment, self.observer.stopwatch, self.observer.watched)
        self.started = False
        self.rests: dict[str, float] = {}  # by role: until when nothing is decided
        self.backoff: Backoff[str] = Backoff()
        for role in self.roles:
            role.containment = self.containment
            role.unread = self.intakes[role.name].quarantine
        kinds = {kind for role in self.roles for kind in role.kinds}
        self.unsynced = set(kinds)  # of a kind that the cluster lacks, we hear that there is nothing
        backend.watch(sorted(kinds, key=_in_order))

    @property
    def synced(self) -> bool:
        """Whether everything that existed at the start is known."""
        return not self.unsynced

    def step(self, now: float) -> float:
        """Do one round of work; return when to be called next."""
        self.take_in(now)
        self.settle_all(now)
        if not self.synced or not self.may_write(now):
            return now + 1.0
        again = min((intake.quarantine.next_due() for intake in self.intakes.values()), default=now)
        return min(again, *(self._round(role, now) for role in self.roles))

    def take_in(self, now: float) -> None:
        """Fold in what happened since the last time."""
        if not self.started:
            self.started = True
            for role in self.roles:
                self.journal.record(now, "change", Started(), role.name)
        events = list(self.backend.events())
        for event in events:
            if event.happened is Happened.SYNCED:
                self.unsynced.discard(event.kind)
        for role in self.roles:
            with self.containment.unit("take in", role.name):
                self.intakes[role.name].take_in(events, now)

    def settle_all(self, now: float) -> None:
        """Fold in how writes ended since the last time."""
        for outcome in self.backend.outcomes():
            self._settle(outcome, now)

    def _round(self, role: Controller, now: float) -> float:
        elapsed, rest = self.observer.stopwatch(), self.rests.get(role.name, now)
        if rest <= now:
            try:
                if self._decide(role, now, elapsed):
                    rest = self.rests[role.name] = now + (1 + REST) * elapsed()
                self.backoff.worked(role.name)
            except Exception as error:
                self.containment.failed(error, "round", role.name)
                rest = self.rests[role.name] = self.backoff.failed(role.name, now)
        kept, _ = self.containment.attempt(_lazily(role.keep, now), "reconcile", role.name)
        if kept:
            self.backend.submit(kept)
        due = self._next_due(role, now)
        return rest if due <= now < rest else due

    def _decide(self, role: Controller, now: float, elapsed: Callable[[], float]) -> bool:
        """Whether there was anything to decide."""
        view = role.look(now)
        if view is None:
            return False
        taken = elapsed()
        plan = self.deciding.plan(role, view, now)
        self.observer.decided(plan, taken, elapsed() - taken)
        if not role.is_intact():
            self.intakes[role.name].rebuild(now)
            role.look(now)  # whose turn it was has to be known to those who are refused
        self.journal.record(now, "plan", plan, role.name)
        try:
            role.assume(plan, now)
        except Exception:
            self.intakes[role.name].rebuild(now)
            raise
        writes, _ = self.containment.attempt(_lazily(role.encode, plan, now), "encode", role.name)
        self.backend.submit(writes)
        self._settle_unwritten(role, plan, now)
        return True

    def _settle_unwritten(self, role: Controller, plan: Plan, now: float) -> None:
        """What could not be encoded has failed: it is not assumed any longer."""
        unwritten = role.take_unwritten()
        self.deciding.written(role, plan, unwritten, now)
        for action in unwritten:
            settled = Settled(Ended.REFUSED, "it could not be written down", action)
            self._settle_one(role, settled, now)

    def _next_due(self, role: Controller, now: float) -> float:
        try:
            return role.next_due(now)
        except Exception as error:
            self.containment.failed(error, "reconcile", role.name)
            return now + 1.0

    def _settle(self, outcome: WriteOutcome, now: float) -> None:
        action = outcome.write.tag
        for role in self.roles:
            if isinstance(action, Action):
                self._settle_one(role, Settled(outcome.ended, outcome.message, action), now)
            write = outcome.write
            name = f"{write.namespace}/{write.name}" if write.namespace else write.name
            follows = _lazily(role.follow_up, outcome, now)
            more, _ = self.containment.attempt(follows, "settle", write.kind.kind, name)
            if more:
                self.backend.submit(more)

    def _settle_one(self, role: Controller, settled: Settled, now: float) -> None:
        gang = settled.action.gang
        with self.containment.unit("settle", gang.kind, f"{gang.namespace}/{gang.name}"):
            self.journal.record(now, "outcome", settled, role.name)
            role.settle(settled, now)


def _lazily(work: Callable[..., Iterable[Write]], *arguments: Any) -> Iterator[Write]:
    """The writes that the work gives, worked out while they are read, where errors are caught."""
    yield from work(*arguments)


def _in_order(kind: Kind) -> tuple[str, ...]:
    """The same order in every process; some kinds are watched twice, in parts or in other words."""
    wire = kind.wire.__name__ if kind.wire else ""
    return kind.path(), kind.label_selector, kind.field_selector, wire, str(kind.optional)
