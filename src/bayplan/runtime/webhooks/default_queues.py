"""Objects that webhooks look up: default queues by namespace, and the levels of topologies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from bayplan.dialects.api import Backend, Event, Happened
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.names.annotations import DEFAULT_QUEUE
from bayplan.dialects.kueue.names.api_kinds import LOCAL_QUEUES, TOPOLOGIES
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread
from bayplan.runtime.core.quarantine import title

WATCHED = replace(LOCAL_QUEUES, field_selector=f"metadata.name={DEFAULT_QUEUE}", optional=True)
"""Only queues of this name, so that no permission for others is needed."""
LEVELS = replace(TOPOLOGIES, optional=True)
WAIT_SECONDS = 1.0
FIRST_SECONDS = 5.0  # a queue that existed before should count from the first review on


class DefaultQueues:
    """Watches with a backend of its own: a review must not wait for the API server that waits for it."""

    def __init__(
        self,
        backend: Backend,
        note: Callable[[str], None] = lambda sentence: None,
        containment: Containment = UNCONTAINED,
        clock: Clock | None = None,
    ) -> None:
        self._backend, self._note, self._containment = backend, note, containment
        self._namespaces: frozenset[str] = frozenset()
        self._levels: dict[str, frozenset[str]] = {}  # by topology
        self._known, self._stop = threading.Event(), threading.Event()
        backend.watch([WATCHED, LEVELS])
        self._thread = SupervisedThread(
            "default-queues", self._watch, containment, self._stop, clock or SystemClock()
        )
        self._thread.start()
        if not self._known.wait(FIRST_SECONDS):
            note("default queues are not known yet")

    def find(self, kind: str, namespace: str, name: str) -> object:
        """The default queue of a namespace, reduced to its name."""
        there = (kind, name) == (WATCHED.kind, DEFAULT_QUEUE) and namespace in self._namespaces
        return {"metadata": {"namespace": namespace, "name": name}} if there else None

    def levels(self) -> frozenset[str]:
        """The levels of all topologies."""
        return frozenset().union(*list(self._levels.values()))

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
                self._note(f"cannot watch default queues: {error}")
                self._known.set()
                return
            self._backend.wait(WAIT_SECONDS)

    def _take(self, event: Event) -> None:
        if event.kind.kind == LEVELS.kind:
            self._take_levels(event)
            return
        if event.happened is Happened.SYNCED:
            self._known.set()
            return
        where = {str(event.object["metadata"].get("namespace", "default"))}
        gone = event.happened is Happened.GONE
        self._namespaces = self._namespaces - where if gone else self._namespaces | where

    def _take_levels(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            return
        topology = Field(event.object)
        name, listed = topology.at("metadata", "name").text(), topology.at("spec", "levels").items()
        known = {k: v for k, v in self._levels.items() if k != name}
        if event.happened is not Happened.GONE:
            known[name] = frozenset(level.at("nodeLabel").text() for level in listed)
        self._levels = known
