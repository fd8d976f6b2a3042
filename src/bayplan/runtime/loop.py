"""The loop: watch, decode, apply, decide, journal, assume, commit, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from bayplan.dialects.api import Backend, Event, Happened, Kind, Outcome
from bayplan.model.change import Change, Started
from bayplan.model.plan import Action, Plan
from bayplan.runtime.roles import Role, Settled

REST = 2.0  # times as long as a round took: what happens meanwhile is decided on together


class Journal(Protocol):
    """Where every change, plan and outcome is noted."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


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
        roles: Sequence[Role],
        journal: Journal,
        may_write: Callable[[float], bool] = lambda now: True,
        observer: Observer | None = None,
    ) -> None:
        self.backend = backend
        self.roles = tuple(roles)
        self.journal = journal
        self.may_write = may_write
        self.observer = observer or Observer()
        self.started = False
        self.rests: dict[str, float] = {}  # by role: until when nothing is decided
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
        return min(self._round(role, now) for role in self.roles)

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
            role.fold(self._changes(role, events, now))

    def settle_all(self, now: float) -> None:
        """Fold in how writes ended since the last time."""
        for outcome in self.backend.outcomes():
            self._settle(outcome, now)

    def _round(self, role: Role, now: float) -> float:
        elapsed, rest = self.observer.stopwatch(), self.rests.get(role.name, now)
        view = role.look(now) if rest <= now else None
        if view is not None:
            taken = elapsed()
            plan = role.decide(view, now)
            self.observer.decided(plan, taken, elapsed() - taken)
            self.journal.record(now, "plan", plan, role.name)
            role.assume(plan, now)
            self.backend.submit(list(role.encode(plan, now)))
            rest = self.rests[role.name] = now + (1 + REST) * elapsed()
        kept = list(role.keep(now))
        if kept:
            self.backend.submit(kept)
        due = role.next_due(now)
        return rest if due <= now < rest else due

    def _changes(self, role: Role, events: Sequence[Event], now: float) -> Iterator[Change]:
        for event in events:
            if event.kind in role.kinds:
                for change in role.decode(event):
                    self.journal.record(now, "change", change, role.name)
                    yield change
        for change in role.gathered():
            self.journal.record(now, "change", change, role.name)
            yield change

    def _settle(self, outcome: Outcome, now: float) -> None:
        action = outcome.write.tag
        for role in self.roles:
            if isinstance(action, Action):
                settled = Settled(outcome.ended, outcome.message, action)
                self.journal.record(now, "outcome", settled, role.name)
                role.settle(settled, now)
            more = list(role.follow_up(outcome, now))
            if more:
                self.backend.submit(more)


def _in_order(kind: Kind) -> tuple[str, ...]:
    """The same order in every process; some kinds are watched twice, in parts or in other words."""
    wire = kind.wire.__name__ if kind.wire else ""
    return kind.path(), kind.label_selector, kind.field_selector, wire, str(kind.optional)
