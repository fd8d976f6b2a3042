"""A cluster that is watched: what `list` and `explain` read once, kept up to date. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.live.scheduled_state import Scheduled, note_object
from bayplan.cli.live.state import Live
from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.dialects.api import Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_KINDS
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import NullJournal
from bayplan.runtime.core.loop import Loop

Name = tuple[str, str]


class WatchedCluster:
    """The states of admission and scheduling, and the objects that they were made from. For one thread."""

    def __init__(
        self,
        backend: RemoteBackend,
        clock: Clock,
        settings: Settings = DEFAULTS,
        containment: Containment | None = None,
        namespace: str = "default",
    ) -> None:
        self.backend, self.clock, self.settings, self.namespace = backend, clock, settings, namespace
        self.scheduler = SchedulerController(profiles=settings.profiles, numa_policy=settings.numa_staleness)
        self.admission = AdmissionController(
            settings.profile, settings.resources, numa_policy=settings.numa_staleness, shadow=True
        )
        self.objects: dict[Kind, dict[Name, Any]] = {}
        tapped = _Observed(backend, self._note)
        self.loop = Loop(
            tapped, (self.scheduler, self.admission), NullJournal(), lambda now: False, None, containment
        )
        self.changed = False

    def step(self) -> bool:
        """Take in what happened; returns whether anything did since the last call."""
        self.changed = False
        self.loop.apply_events(self.clock.wall())
        return self.changed

    @property
    def readable(self) -> bool:
        """Whether nodes and pods have been read: without them nothing can be shown."""
        return not {NODES, PODS_KIND} & self.loop.unsynced

    def unread(self) -> list[str]:
        """Kinds that could not be read so far; the others are shown without them."""
        return sorted({kind.plural for kind in self.loop.unsynced})

    def live(self) -> Live:
        """The cluster as commands see it. It shares the states: use a copy for simulations."""
        lists = {kind: list(found.values()) for kind, found in self.objects.items()}
        for kind in (*self.scheduler.kinds, *self.admission.kinds):
            lists.setdefault(kind, [])
        now = self.clock.wall()
        live = Live(
            self.backend, now, self.namespace, self.settings, admission=self.admission.state, lists=lists
        )
        live.workloads = {source(Field(one), "Workload"): one for one in lists[WORKLOADS]}
        return live

    def scheduled(self) -> Scheduled:
        """The scheduler's part of it."""
        scheduled = Scheduled(self.scheduler, unread=[one.plural for one in self.loop.unsynced])
        for kind in (NODES, PODS_KIND, *JOB_KINDS.values()):
            for one in self.objects.get(kind, {}).values():
                note_object(scheduled, kind.kind, one)
        return scheduled

    def _note(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            self.changed = True
            return
        meta = event.object["metadata"] if isinstance(event.object, dict) else event.object.metadata
        name = (meta.get("namespace", ""), meta["name"]) if isinstance(meta, dict) else _named(meta)
        known = self.objects.setdefault(event.kind, {})
        self.changed = True
        if event.happened is Happened.GONE:
            known.pop(name, None)
        else:
            known[name] = event.object


class _Observed:
    """A backend whose events are noted as they pass, and that writes nothing."""

    def __init__(self, inner: RemoteBackend, note: Any) -> None:
        self._inner, self._note = inner, note

    def watch(self, kinds: Sequence[Kind]) -> None:
        """A cluster need not serve queues or groups: what it has is shown."""
        needed = (NODES, PODS_KIND)
        self._inner.watch([kind if kind in needed else replace(kind, optional=True) for kind in kinds])

    def events(self) -> Iterable[Event]:
        for event in self._inner.events():
            self._note(event)
            yield event

    def submit(self, writes: Sequence[Write]) -> None:
        assert not writes, "an observer has nothing to write"

    def outcomes(self) -> Iterable[WriteOutcome]:
        return ()

    def wait(self, seconds: float) -> None:
        self._inner.wait(seconds)

    def close(self, grace_seconds: float = 10.0) -> None:
        self._inner.close(grace_seconds)


def _named(meta: Any) -> Name:
    return meta.namespace or "", meta.name
