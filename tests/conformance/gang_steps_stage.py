"""A cluster with our scheduler in it, as its users see it: in memory and in virtual time, or a real one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.dialects.api import Backend, Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.kube.gang_api.gates import ALL_GATES
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.conformance.gang_steps_objects import (
    CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    Dialect,
    Object,
    class_names,
    priority_class,
)

EPOCH = 1_700_000_000.0
PATIENCE = 60.0  # virtual seconds until something has to be as expected
QUIET = 2.0  # virtual seconds in which nothing happens: nothing will, unless somebody comes
TICK = 0.5
SHORT = 0.05

Holds = Callable[[], list[str]]
MakeRole = Callable[[], SchedulerController]


class NotTaken(Exception):
    """The API refused what a case wants to have."""


class Stage:
    """What all stages share: objects as they were seen last, and writes that must succeed."""

    def __init__(self, backend: Backend, dialect: Dialect, namespace: str) -> None:
        self.backend, self.dialect, self.namespace = backend, dialect, namespace
        self.objects: dict[tuple[str, str], Object] = {}  # by plural and name
        self.nominated: dict[str, str] = {}  # pods that ever had a node promised, and the last one
        self.told: list[
            tuple[str, str, str, str]
        ] = []  # of events: about which uid and name, reason, message
        self.uids: set[str] = set()  # of everything there ever was
        self.classes: set[str] = set()
        self.made: dict[tuple[Kind, str], None] = {}  # by us
        self.unsynced = {NODES.plural, PODS.plural, EVENTS.plural, dialect.groups.plural}
        backend.watch((NODES, PODS, EVENTS, dialect.groups))

    # ── what the stages do differently ──

    def pass_time(self) -> None:
        """Everybody does what is due now."""
        raise NotImplementedError

    def until(self, holds: Holds, *, stays: bool = False) -> list[str]:
        """Let time pass until nothing is wrong any more; otherwise what still is."""
        raise NotImplementedError

    def fail_binding(self, pod: str, *, once: bool = True) -> None:
        """When somebody binds this pod, it does not work: the next time, or until it may be bound."""
        raise NotImplementedError

    def let_bind(self) -> None:
        """From now on every binding works."""
        raise NotImplementedError

    def inject(self, pod: Object, watched: str) -> None:
        """Create a pod while another one is being decided on."""
        raise NotImplementedError

    def shows_turns(self) -> bool:
        """Whether nothing is decided but when time is let pass."""
        raise NotImplementedError

    # ── what a user does ──

    def create(self, kind: Kind, *objects: Object) -> None:
        """One after the other."""
        self.make_classes(objects)
        for found in objects:
            name = found["metadata"]["name"]
            self.made[kind, name] = None
            self._write(Write(Verb.CREATE, kind, self._space(kind), name, found))

    def make_classes(self, objects: Sequence[Object]) -> None:
        """The priority classes that these name, if they are not there yet."""
        missing = class_names(objects) - self.classes
        self.classes |= missing
        for name in sorted(missing):
            self._write(Write(Verb.CREATE, CLASSES, "", name, priority_class(name)), may_exist=True)

    def patch(self, kind: Kind, name: str, change: Object, subresource: str = "") -> None:
        self._write(Write(Verb.MERGE_PATCH, kind, self._space(kind), name, change, subresource))

    def delete(self, kind: Kind, name: str, grace: int | None = 0) -> None:
        """It is gone afterwards, whoever wanted to protect it."""
        with_what_it_owns = {"propagationPolicy": "Background"}
        write = Write(Verb.DELETE, kind, self._space(kind), name, with_what_it_owns, grace_seconds=grace)
        self._write(write, may_lack=True)
        self.take_in()
        left = self.objects.get((kind.plural, name))
        if left is not None and left["metadata"].get("finalizers"):
            change = {"metadata": {"finalizers": None}}
            patch = Write(Verb.MERGE_PATCH, kind, self._space(kind), name, change)
            self._write(patch, may_lack=True)

    def pod(self, name: str) -> Object | None:
        return self.objects.get((PODS.plural, name))

    def announced(self, reason: str) -> dict[str, str]:
        """The last message of events with this reason, by the name of what they are about."""
        return {name: text for uid, name, why, text in self.told if why == reason and uid in self.uids}

    def take_in(self) -> None:
        """See what happened."""
        for event in self.backend.events():
            if event.happened is Happened.SYNCED:
                self.unsynced.discard(event.kind.plural)
            elif self._is_ours(event):
                self._note(event)

    def _note(self, event: Event) -> None:
        found, key = event.object, (event.kind.plural, event.object["metadata"]["name"])
        if event.happened is Happened.GONE:
            self.objects.pop(key, None)
            return
        self.objects[key] = found
        self.uids.add(found["metadata"]["uid"])
        if event.kind is EVENTS:
            about = found.get("involvedObject") or {}
            whom = about.get("uid", ""), about.get("name", "")
            self.told.append((*whom, found.get("reason", ""), found.get("message", "")))
        elif event.kind is PODS and (promised := (found.get("status") or {}).get("nominatedNodeName")):
            self.nominated[key[1]] = promised

    def _is_ours(self, event: Event) -> bool:
        return bool(event.object["metadata"].get("namespace", self.namespace) == self.namespace)

    def _space(self, kind: Kind) -> str:
        return self.namespace if kind.namespaced else ""

    def _write(self, write: Write, *, may_exist: bool = False, may_lack: bool = False) -> None:
        self.backend.submit((write,))
        outcome = self._outcome()
        if outcome.ended is Ended.DONE or (may_exist and outcome.status == 409):
            return
        if not (may_lack and outcome.ended is Ended.GONE):
            raise NotTaken(f"{write.verb} {write.kind.kind} {write.name}: {outcome.message}")

    def _outcome(self) -> WriteOutcome:
        while True:
            for outcome in self.backend.outcomes():
                return outcome
            self.backend.wait(1.0)


@dataclass
class Failing:
    """A backend where bindings fail: of some pods once, of others always."""

    inner: Backend
    once: set[str]
    always: set[str]
    failed: list[WriteOutcome]

    def watch(self, kinds: Sequence[Kind]) -> None:
        self.inner.watch(kinds)

    def events(self) -> Iterable[Event]:
        return self.inner.events()

    def submit(self, writes: Sequence[Write]) -> None:
        passed = []
        for write in writes:
            if write.subresource == "binding" and write.name in self.once | self.always:
                self.once.discard(write.name)
                self.failed.append(WriteOutcome(write, Ended.REFUSED, 500, "a plugin failed"))
            else:
                passed.append(write)
        self.inner.submit(passed)

    def outcomes(self) -> Iterable[WriteOutcome]:
        failed, self.failed = self.failed, []
        return [*failed, *self.inner.outcomes()]

    def wait(self, seconds: float) -> None:
        self.inner.wait(seconds)

    def close(self, grace_seconds: float = 0.0) -> None:
        self.inner.close(grace_seconds)


class Injecting(MemoryJournal):
    """A journal that does something between a decision and what follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: dict[str, Callable[[], None]] = {}  # by pod

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        super().record(now, what, body, role)
        if what == "plan":
            for name in [name for name in self.watched if f'"{name}"'.encode() in self.lines[-1]]:
                self.watched.pop(name)()


class Embedded(Stage):
    """In memory: nothing happens unless time is let pass."""

    quiet = QUIET

    def __init__(self, dialect: Dialect, gates: Iterable[str], role: MakeRole = SchedulerController) -> None:
        self.now = EPOCH
        self.make_role = role
        numbers = itertools.count(1)
        api = GangApi((dialect.version,), frozenset(gates) & ALL_GATES)
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}", gang_api=api
        )
        self.store.create(NAMESPACES, {"metadata": {"name": "gangs"}})
        self.crew = FakeControllerManager(EmbeddedBackend(self.store))
        self.journal = Injecting()
        self.start_scheduler()
        super().__init__(EmbeddedBackend(self.store), dialect, "gangs")

    def start_scheduler(self) -> None:
        """A fresh start that knows nothing but what the API tells it."""
        self.failing = Failing(self.connect(), set(), set(), [])
        self.role = self.make_role()
        self.loop = Loop(self.failing, (self.role,), self.journal)

    def connect(self) -> Backend:
        """What lies between the scheduler and the API."""
        return EmbeddedBackend(self.store)

    def pass_time(self) -> None:
        crew, loop = self.crew.step(self.now), self.loop.step(self.now)
        self.take_in()
        self.now = max(min(self.now + TICK, crew, loop), self.now + SHORT)

    def until(self, holds: Holds, *, stays: bool = False) -> list[str]:
        """Judges only when nothing happens any more, so that what holds, stays so."""
        begun, stirred = self.now, self.now
        while True:
            version = self.store.version
            self.pass_time()
            stirred = self.now if self.store.version != version else stirred
            over = self.now - begun > PATIENCE
            if over or self.now - stirred >= self.quiet:
                found = holds()
                if over or not found:
                    return found

    def fail_binding(self, pod: str, *, once: bool = True) -> None:
        (self.failing.once if once else self.failing.always).add(pod)

    def let_bind(self) -> None:
        self.failing.always.clear()

    def inject(self, pod: Object, watched: str) -> None:
        self.journal.watched[watched] = lambda: self.create(PODS, pod)

    def shows_turns(self) -> bool:
        return True


def conditions(found: Object | None, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition; nothing if it is not there."""
    entries: list[Any] = ((found or {}).get("status") or {}).get("conditions") or []
    entry: Object = next((entry for entry in entries if entry["type"] == kind), {})
    return entry.get("status", ""), entry.get("reason", ""), entry.get("message", "")
