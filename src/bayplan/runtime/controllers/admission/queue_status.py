"""Reconciles the statuses of queues, cohorts and checks, and the finalizers of objects in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status import queue_status
from bayplan.model.summary import Summaries
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.counters import QueueCounters
from bayplan.state.reports.summaries import summaries

EVERY_SECONDS = 1.0
REFUSED_SECONDS = 5.0  # until a refused finalizer is tried again
NEVER = float("inf")
Key = tuple[str, str]
Object = dict[str, Any]
Watcher = Callable[[Summaries], None]

WITH_STATUS = (api_kinds.CLUSTER_QUEUES, api_kinds.LOCAL_QUEUES, api_kinds.COHORTS, api_kinds.CHECKS)
WITH_FINALIZER = (api_kinds.CLUSTER_QUEUES, api_kinds.FLAVORS, api_kinds.TOPOLOGIES, api_kinds.CHECKS)
KINDS = tuple(dict.fromkeys((*WITH_STATUS, *WITH_FINALIZER, api_kinds.CONFIGS)))


class QueueStatusWriteTag:
    """The tag of a write of a status or a finalizer."""

    def __init__(self, kind: Kind, key: Key) -> None:
        self.kind, self.key = kind, key


class QueueStatusWriter:
    """Reconciles all objects at most once a second, and only after a change."""

    def __init__(self, *, fair: bool, watch: Watcher | None = None) -> None:
        self.fair = fair
        self.watch = watch or (lambda summary: None)
        self.objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self.counters = QueueCounters()
        self.in_flight: set[tuple[Kind, Key]] = set()
        self.backoff: Backoff[tuple[Kind, Key]] = Backoff()
        self.put_off: dict[tuple[Kind, Key], float] = {}  # failed objects, until when
        self.refused: dict[tuple[Kind, Key], tuple[float, str]] = {}  # finalizers: until when, and why
        self.seen = -1
        self.stale = True
        self.due = 0.0

    def note(self, event: Event) -> None:
        """Cache an object."""
        known = self.objects.get(event.kind)
        if known is None or event.happened is Happened.SYNCED:
            return
        meta = event.object["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        self.put_off.pop((event.kind, key), None)  # the changed object may succeed
        if event.happened is Happened.GONE:
            known.pop(key, None)
            self.refused.pop((event.kind, key), None)
        else:
            if key not in known and event.kind == api_kinds.CLUSTER_QUEUES:
                self.due = 0.0  # gangs wait until the queue has its finalizer
            known[key] = event.object
        self.stale = True

    def writes(
        self, state: AdmissionState, now: float, containment: Containment = UNCONTAINED
    ) -> Iterator[Write]:
        """The writes that bring every object up to date. A failed object is tried again later."""
        retry_at = self._again()
        if now < self.due or not (self.stale or state.generation != self.seen or retry_at <= now):
            return
        self.due, self.seen, self.stale = now + EVERY_SECONDS, state.generation, False
        summary = summaries(state, self.counters, fair=self.fair)
        self.watch(summary)
        for kind, key, obj in self._idle(WITH_FINALIZER, now):
            if self.refused.get((kind, key), (now, ""))[0] > now:
                continue
            yield from self._attempted(
                kind, key, self._finalizer_write(kind, key, obj, summary), now, containment
            )
        for kind, key, obj in self._idle(WITH_STATUS, now):
            yield from self._attempted(
                kind, key, self._status_write(kind, key, obj, summary, now), now, containment
            )

    def _attempted(
        self, kind: Kind, key: Key, work: Iterator[Write], now: float, containment: Containment
    ) -> list[Write]:
        writes, done = containment.attempt(work, "status", kind.kind, "/".join(part for part in key if part))
        if done:
            self.backoff.succeeded((kind, key))
            self.put_off.pop((kind, key), None)
        else:
            self.put_off[kind, key] = self.backoff.failed((kind, key), now)
        return writes

    def _status_write(
        self, kind: Kind, key: Key, obj: Object, summary: Summaries, now: float
    ) -> Iterator[Write]:
        status = self._status(kind, key, obj, summary, now)
        if status is not None:
            yield self._write(kind, key, Verb.UPDATE, {**obj, "status": status}, obj, "status")

    def _finalizer_write(self, kind: Kind, key: Key, obj: Object, summary: Summaries) -> Iterator[Write]:
        names = queue_status.finalizers(kind.kind, obj, summary)
        if names is not None:
            yield self._write(kind, key, Verb.MERGE_PATCH, {"metadata": {"finalizers": names}}, obj)

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """Handle the outcome of a write. More may have changed while it was in flight."""
        tag = outcome.write.tag
        if not isinstance(tag, QueueStatusWriteTag):
            return
        where = (tag.kind, tag.key)
        self.in_flight.discard(where)
        self.stale = True
        if outcome.write.subresource:
            return
        if outcome.ended is Ended.REFUSED and tag.key in self.objects[tag.kind]:
            self.refused[where] = (now + REFUSED_SECONDS, outcome.message or outcome.ended)
        elif outcome.ended is Ended.DONE:
            self.refused.pop(where, None)

    def next_due(self, state: AdmissionState) -> float:
        if self.stale or state.generation != self.seen:
            return self.due
        return max(self.due, self._again())

    def _again(self) -> float:
        """When a failed object is tried again."""
        return min((*self.put_off.values(), *(until for until, _ in self.refused.values())), default=NEVER)

    def _idle(self, kinds: tuple[Kind, ...], now: float) -> Iterator[tuple[Kind, Key, Object]]:
        for kind in kinds:
            for key, obj in self.objects[kind].items():
                if (kind, key) not in self.in_flight and self.put_off.get((kind, key), now) <= now:
                    yield kind, key, obj

    def _status(self, kind: Kind, key: Key, obj: Object, summary: Summaries, now: float) -> Object | None:
        match kind.kind:
            case "ClusterQueue" if key[1] in summary.queues:
                _, refused = self.refused.get((kind, key), (0.0, ""))
                return queue_status.cluster_queue(obj, summary.queues[key[1]], now, refused)
            case "LocalQueue" if key in summary.namespace_queues:
                return queue_status.local_queue(obj, summary.namespace_queues[key], now)
            case "Cohort" if key[1] in summary.shared:
                return queue_status.cohort(obj, summary.shared[key[1]], now)
            case "AdmissionCheck":
                configs = {name for _, name in self.objects[api_kinds.CONFIGS]}
                return queue_status.admission_check(obj, configs, now)
        return None

    def _write(
        self, kind: Kind, key: Key, verb: Verb, body: Object, obj: Object, subresource: str = ""
    ) -> Write:
        self.in_flight.add((kind, key))
        version = obj["metadata"].get("resourceVersion", "")
        tag = QueueStatusWriteTag(kind, key)
        return Write(verb, kind, *key, body, subresource=subresource, version=version, tag=tag)
