"""Watches the objects that webhook functions look up: a review must not wait for a list of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bayplan.dialects.api import Backend, Event, Happened
from bayplan.dialects.errors import ApiError
from bayplan.dialects.reviews import WatchedFacts
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread
from bayplan.runtime.core.quarantine import title

WAIT_SECONDS = 1.0
FIRST_SECONDS = 5.0  # an object that existed before should count from the first review on


class LookUpWatch:
    """Watches with a backend of its own: a review must not wait for the API server that waits for it."""

    def __init__(
        self,
        backend: Backend,
        facts: WatchedFacts,
        note: Callable[[str], None] = lambda sentence: None,
        containment: Containment = UNCONTAINED,
        clock: Clock | None = None,
    ) -> None:
        self.facts = facts
        self._backend, self._note, self._containment = backend, note, containment
        self._awaited = set(facts.awaited)
        self._names = " and ".join(kind.plural for kind in facts.kinds)
        self._known, self._stop = threading.Event(), threading.Event()
        backend.watch(list(facts.kinds))
        self._thread = SupervisedThread(
            "look-ups", self._watch, containment, self._stop, clock or SystemClock()
        )
        self._thread.start()
        if not self._known.wait(FIRST_SECONDS):
            note(f"{self._names} are not known yet; webhooks look up none of them")

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()
        self._backend.close(0)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                for event in self._backend.events():
                    with self._containment.unit("decode", event.kind.kind, title(event.object)):
                        self._take(event)
            except ApiError as error:
                self._note(f"cannot watch {self._names}: {error}")
                self._known.set()
                return
            self._backend.wait(WAIT_SECONDS)

    def _take(self, event: Event) -> None:
        self.facts.take(event)
        if event.happened is Happened.SYNCED:
            self._awaited.discard(event.kind)
            if not self._awaited:
                self._known.set()
