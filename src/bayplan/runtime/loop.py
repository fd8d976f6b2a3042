"""The loop: watch, decode, apply, decide, journal, assume, commit, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bayplan.dialects.api import Backend, Ended, Event, Happened, Kind, Outcome, Write
from bayplan.model.change import Change, Started
from bayplan.model.plan import Action, Bind, Plan
from bayplan.model.profile import Profile
from bayplan.scheduling.decide import decide
from bayplan.state.state import State


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family is read and written: data in, data out."""

    kinds: tuple[Kind, ...]
    decode: Callable[[Event], Iterator[Change]]
    encode: Callable[[Action, float], Iterable[Write]]


class Journal(Protocol):
    """Where every change, plan and outcome is noted."""

    def record(self, now: float, what: str, body: object) -> None: ...


class Observer:
    """Sees what a decision cost; this one has no stopwatch, as virtual time has none."""

    def stopwatch(self) -> Callable[[], float]:
        """A function that gives the seconds since it was made."""
        return lambda: 0.0

    def decided(self, plan: Plan, snapshot_seconds: float, decision_seconds: float) -> None:
        """A plan was made."""


class Loop:
    """One thread calls `step`, in real time or in virtual time; there is no other scheduler."""

    def __init__(
        self,
        backend: Backend,
        dialects: tuple[Dialect, ...],
        journal: Journal,
        profile: Profile | None = None,
        may_write: Callable[[float], bool] = lambda now: True,
        observer: Observer | None = None,
    ) -> None:
        self.backend = backend
        self.dialects = dialects
        self.journal = journal
        self.profile = profile or Profile()
        self.may_write = may_write
        self.observer = observer or Observer()
        self.state = State()
        self.started = False
        self.unsynced = {kind for dialect in dialects for kind in dialect.kinds if not kind.optional}
        backend.watch(sorted({k for d in dialects for k in d.kinds}, key=lambda kind: kind.path()))

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
        heads = self.state.heads(now)
        if heads:
            elapsed = self.observer.stopwatch()
            snapshot = self.state.snapshot(heads)
            taken = elapsed()
            plan = decide(snapshot, self.profile)
            self.observer.decided(plan, taken, elapsed() - taken)
            self.journal.record(now, "plan", plan)
            self.state.assume(plan, now)
            self.backend.submit(list(self._writes(plan, now)))
        return self.state.queues.next_due(now)

    def take_in(self, now: float) -> None:
        """Fold in what happened since the last time."""
        if not self.started:
            self.started = True
            self.journal.record(now, "change", Started())
        self.state.apply_all(self._changes(now))

    def settle_all(self, now: float) -> None:
        """Fold in how writes ended since the last time."""
        for outcome in self.backend.outcomes():
            self._settle(outcome, now)

    def _changes(self, now: float) -> Iterator[Change]:
        for event in self.backend.events():
            if event.happened is Happened.SYNCED:
                self.unsynced.discard(event.kind)
            for dialect in self.dialects:
                if event.kind in dialect.kinds:
                    for change in dialect.decode(event):
                        self.journal.record(now, "change", change)
                        yield change

    def _writes(self, plan: Plan, now: float) -> Iterator[Write]:
        for action in plan.actions:
            for dialect in self.dialects:
                yield from dialect.encode(action, now)

    def _settle(self, outcome: Outcome, now: float) -> None:
        action = outcome.write.tag
        if not isinstance(action, Bind):
            return
        self.journal.record(now, "outcome", Settled(outcome.ended, outcome.message, action))
        settle(self.state, Settled(outcome.ended, outcome.message, action), now)


@dataclass(frozen=True, slots=True)
class Settled:
    """How the write of an action ended."""

    ended: Ended
    message: str
    action: Bind


def settle(state: State, settled: Settled, now: float) -> None:
    """Fold the end of a write into the state; the API's own events say the rest."""
    if settled.ended is not Ended.DONE:
        state.bind_failed(settled.action, now, unknown=settled.ended is Ended.TIMED_OUT)
