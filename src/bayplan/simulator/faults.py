"""Everything that can go wrong between the loop and the API, by one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from bayplan.dialects.api import Backend, Ended, Event, Happened, Kind, Outcome, Write


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each fault is, at each occasion."""

    conflict: float = 0.06
    timeout_done: float = 0.05  # it happened, but nobody heard
    timeout_lost: float = 0.05  # it did not happen, and nobody heard
    delay_events: float = 0.2  # a kind's events wait for a later step
    duplicate: float = 0.1
    relist: float = 0.02
    delay_outcome: float = 0.2
    crash: float = 0.03  # the scheduler dies between two steps
    node_loss: float = 0.01
    node_flap: float = 0.03


NONE = Chances(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class FaultyBackend:
    """A backend between the loop and the real one. Per object, events keep their order."""

    def __init__(self, inner: Backend, rng: Random, chances: Chances, injected: Counter[str]) -> None:
        self.inner = inner
        self.rng = rng
        self.chances = chances
        self.injected = injected
        self.held: dict[Kind, list[Event]] = {}
        self.known: dict[tuple[str, str, str], Event] = {}
        self.late: list[Outcome] = []
        self.kinds: Sequence[Kind] = ()

    def watch(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.inner.watch(kinds)

    def events(self) -> Iterable[Event]:
        """What happened, possibly late, twice, or all over again; kinds in any order."""
        for event in self.inner.events():
            self.held.setdefault(event.kind, []).append(event)
        ready: list[list[Event]] = []
        for kind in list(self.held):
            if self._strikes("delay_events", self.chances.delay_events):
                continue
            ready.append(self._noted(self.held.pop(kind)))
            if self._strikes("relist", self.chances.relist):
                ready[-1] = [*ready[-1], *self._again(kind)]
        self.rng.shuffle(ready)
        for batch in ready:
            for event in batch:
                yield event
                if self._strikes("duplicate", self.chances.duplicate):
                    yield event

    def submit(self, writes: Sequence[Write]) -> None:
        """Pass on the writes that are not lost or refused on the way."""
        passed = []
        for write in writes:
            if self._strikes("conflict", self.chances.conflict):
                self.late.append(Outcome(write, Ended.CONFLICT, 409, "injected"))
            elif self._strikes("timeout_lost", self.chances.timeout_lost):
                self.late.append(Outcome(write, Ended.TIMED_OUT, 0, "injected"))
            elif self._strikes("timeout_done", self.chances.timeout_done):
                passed.append(replace(write, tag=None))
                self.late.append(Outcome(write, Ended.TIMED_OUT, 0, "injected"))
            else:
                passed.append(write)
        self.inner.submit(passed)

    def outcomes(self) -> Iterable[Outcome]:
        """How writes ended, possibly later than it was."""
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

    def _noted(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event.happened is Happened.SYNCED:
                continue
            key = _key(event)
            if event.happened is Happened.GONE:
                self.known.pop(key, None)
            else:
                self.known[key] = event
        return events

    def _again(self, kind: Kind) -> list[Event]:
        """A relist: everything of the kind is reported once more."""
        return [event for event in self.known.values() if event.kind == kind] + [Event(Happened.SYNCED, kind)]

    def _strikes(self, name: str, chance: float) -> bool:
        if chance and self.rng.random() < chance:
            self.injected[name] += 1
            return True
        return False


def _key(event: Event) -> tuple[str, str, str]:
    found = event.object
    meta = found["metadata"] if isinstance(found, dict) else None
    if meta is not None:
        return event.kind.plural, meta.get("namespace", ""), meta["name"]
    return event.kind.plural, found.metadata.namespace or "", found.metadata.name
