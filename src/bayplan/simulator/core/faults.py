"""Fault injection between the loop and the API: conflicts, timeouts, delayed and repeated events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from bayplan.dialects.api import Backend, Ended, Event, Happened, Kind, Write, WriteOutcome


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of each fault, each time it could happen."""

    conflict: float = 0.06
    timeout_done: float = 0.05  # it was done, but the outcome was lost
    timeout_lost: float = 0.05  # it was not done, and the outcome was lost
    delay_events: float = 0.2  # a kind's events wait for a later step
    duplicate: float = 0.1
    relist: float = 0.02
    delay_outcome: float = 0.2
    crash: float = 0.03  # the scheduler dies between two steps
    node_loss: float = 0.01
    node_flap: float = 0.03
    missed: float = 0.0  # a watch breaks (410): only what became of everything is told, not what happened
    torn: float = 0.0  # the process dies while it writes: the rest is never written


NONE = Chances(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class FaultyBackend:
    """Wraps a backend and injects faults. Events of one object keep their order."""

    def __init__(self, inner: Backend, rng: Random, chances: Chances, injected: Counter[str]) -> None:
        self.inner = inner
        self.rng = rng
        self.chances = chances
        self.injected = injected
        self.held: dict[Kind, list[Event]] = {}
        self.known: dict[tuple[Kind, str, str], Event] = {}
        self.versions: dict[Kind, str] = {}  # of the last list
        self.dead = False  # it died in the middle of something
        self.late: list[WriteOutcome] = []
        self.kinds: Sequence[Kind] = ()
        self.stale = False  # it has read the events of this step already

    def watch(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.inner.watch(kinds)

    def events(self) -> Iterable[Event]:
        """The events of the backend, possibly delayed, duplicated or relisted; kinds in random order."""
        if not self.stale:
            self.read()
        ready: list[list[Event]] = []
        for kind in list(self.held):
            if self._strikes("delay_events", self.chances.delay_events):
                continue
            held = self.held.pop(kind)
            if self._strikes("missed", self.chances.missed):
                held = self._latest(held)
            ready.append(self._record(held))
            if self._strikes("relist", self.chances.relist):
                ready[-1] = [*ready[-1], *self._relist(kind)]
        self.rng.shuffle(ready)
        for batch in ready:
            for event in batch:
                yield event
                if self._strikes("duplicate", self.chances.duplicate):
                    yield event

    def read(self) -> None:
        """Read the events of the backend; they are delivered later."""
        for event in self.inner.events():
            self.held.setdefault(event.kind, []).append(event)

    def submit(self, writes: Sequence[Write]) -> None:
        """Submit the writes that are neither lost nor rejected by a fault."""
        passed = []
        for write in writes:
            if self.dead or self._strikes("torn", self.chances.torn):
                self.dead = True
            elif self._strikes("conflict", self.chances.conflict):
                self.late.append(WriteOutcome(write, Ended.CONFLICT, 409, "injected"))
            elif self._strikes("timeout_lost", self.chances.timeout_lost):
                self.late.append(WriteOutcome(write, Ended.TIMED_OUT, 0, "injected"))
            elif self._strikes("timeout_done", self.chances.timeout_done):
                passed.append(replace(write, tag=None))
                self.late.append(WriteOutcome(write, Ended.TIMED_OUT, 0, "injected"))
            else:
                passed.append(write)
        self.inner.submit(passed)

    def outcomes(self) -> Iterable[WriteOutcome]:
        """The outcomes of writes, possibly delayed."""
        self.late += [outcome for outcome in self.inner.outcomes() if outcome.write.tag is not None]
        ready, self.late = self.late, []
        for outcome in ready:
            if self._strikes("delay_outcome", self.chances.delay_outcome):
                self.late.append(outcome)
            else:
                yield outcome

    def wait(self, seconds: float) -> None:
        """Virtual time does not wait."""

    def close(self, grace_seconds: float = 0.0) -> None:
        self.inner.close(grace_seconds)

    def calm(self) -> None:
        """No more faults from here on."""
        self.chances = NONE

    def _record(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event.happened is Happened.SYNCED:
                self.versions[event.kind] = event.version
                continue
            key = _key(event)
            if event.happened is Happened.GONE:
                self.known.pop(key, None)
            else:
                self.known[key] = event
        return events

    def _relist(self, kind: Kind) -> list[Event]:
        """A relist: all objects of the kind are reported again."""
        synced = Event(Happened.SYNCED, kind, None, self.versions.get(kind, ""))
        return [event for event in self.known.values() if event.kind == kind] + [synced]

    def _latest(self, events: list[Event]) -> list[Event]:
        """The events of a relist after a lost watch: deletions, and the latest state of the other objects."""
        last: dict[tuple[Kind, str, str], Event] = {}
        for event in events:
            if event.happened is not Happened.SYNCED:
                last[_key(event)] = event
        gone = [
            Event(Happened.GONE, known.kind, known.object, known.version)
            for key, event in last.items()
            if (known := self.known.get(key)) is not None
            and (event.happened is Happened.GONE or _uid(known) != _uid(event))
        ]
        seen = [event for event in last.values() if event.happened is Happened.SEEN]
        return [*gone, *seen, *(event for event in events if event.happened is Happened.SYNCED)]

    def _strikes(self, name: str, chance: float) -> bool:
        if chance and self.rng.random() < chance:
            self.injected[name] += 1
            return True
        return False


def _key(event: Event) -> tuple[Kind, str, str]:
    obj = event.object
    meta = obj["metadata"] if isinstance(obj, dict) else None
    if meta is not None:
        return event.kind, meta.get("namespace", ""), meta["name"]
    return event.kind, obj.metadata.namespace or "", obj.metadata.name


def _uid(event: Event) -> str:
    obj = event.object
    return str(obj["metadata"]["uid"] if isinstance(obj, dict) else obj.metadata.uid)
