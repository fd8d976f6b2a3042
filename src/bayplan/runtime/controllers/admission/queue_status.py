"""Reconciles the statuses of queues, cohorts and checks, and the finalizers of objects in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.dialect import QueueDialect
from bayplan.model.summary import Summaries
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.object_cache import Key, Object, ObjectCache
from bayplan.runtime.core.reconciler import Reconciler
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.counters import QueueCounters
from bayplan.state.reports.summaries import summaries

EVERY_SECONDS = 1.0
SLOW_MAX = 10  # statuses per second while admissions are written, unless a condition of the object changes
REFUSED_SECONDS = 5.0  # until a refused write is tried again
NEVER = float("inf")
Unit = tuple[Kind, Key]
Watcher = Callable[[Summaries], None]


@dataclass(frozen=True, slots=True)
class QueueStatusWriteTag:
    """The tag of a write of a status or a finalizer."""

    unit: Unit


class QueueStatusWriter:
    """Reconciles all objects at most once a second, and only after a change.

    While gangs are admitted one after the other, counts change all the time and each write would delay an
    admission: then a few objects are written per second, those that waited longest first.
    """

    def __init__(self, dialect: QueueDialect, *, fair: bool, watch: Watcher | None = None) -> None:
        self.dialect = dialect
        self.fair = fair
        self.watch = watch  # for metrics; no status shows levels of topologies
        kinds = (*dialect.with_status, *dialect.with_finalizer, *dialect.referred)
        self.objects = ObjectCache(*dict.fromkeys(kinds))
        self.counters = QueueCounters()
        self.reconciler: Reconciler[Unit, None] = Reconciler(_titled, "status")  # queues failed objects
        self.refused: dict[Unit, tuple[float, str]] = {}  # finalizers: until when, and why
        self.seen = -1
        self.stale = True
        self.due = 0.0
        self.written_at: dict[Unit, float] = {}  # statuses
        self.left: float = NEVER  # statuses that may still be written in this second

    def note(self, event: Event) -> None:
        """Cache an object."""
        if event.kind not in self.objects or event.happened is Happened.SYNCED:
            return
        key, before, after = self.objects.note(event)
        self.reconciler.queue.drop((event.kind, key))  # the changed object may succeed
        if after is None:
            self.refused.pop((event.kind, key), None)
            self.written_at.pop((event.kind, key), None)
        elif before is None and event.kind in self.dialect.urgent:
            self.due = 0.0  # gangs wait until the queue has its finalizer
        self.stale = True

    def writes(
        self,
        state: AdmissionState,
        now: float,
        containment: Containment = UNCONTAINED,
        *,
        admitting: bool = False,
    ) -> Iterator[Write]:
        """The writes that bring objects up to date. A failed object is tried again later."""
        retry_at = self._again()
        if now < self.due or not (self.stale or state.generation != self.seen or retry_at <= now):
            return
        self.due, self.seen, self.stale = now + EVERY_SECONDS, state.generation, False
        summary = summaries(state, self.counters, fair=self.fair, with_levels=self.watch is not None)
        if self.watch is not None:
            self.watch(summary)
        for unit, obj in self._idle(self.dialect.with_finalizer, now):
            if self.refused.get(unit, (now, ""))[0] <= now:
                yield from self._attempted(unit, self._finalizer_write(unit, obj, summary), now, containment)
        self.left = SLOW_MAX if admitting else NEVER
        statuses = list(self._idle(self.dialect.with_status, now))
        statuses.sort(key=lambda one: self.written_at.get(one[0], 0.0))
        for unit, obj in statuses:
            yield from self._attempted(unit, self._status_write(unit, obj, summary, now), now, containment)

    def _attempted(
        self, unit: Unit, work: Iterator[Write], now: float, containment: Containment
    ) -> list[Write]:
        self.reconciler.queue.drop(unit)
        return self.reconciler.attempt(unit, work, now, containment)

    def _status_write(self, unit: Unit, obj: Object, summary: Summaries, now: float) -> Iterator[Write]:
        status = self._status(unit, obj, summary, now)
        if status is None:
            return
        if status.get("conditions") == (obj.get("status") or {}).get("conditions"):
            if self.left <= 0:
                self.stale = True  # its turn comes in a second
                return
            self.left -= 1
        self.written_at[unit] = now
        yield self._write(unit, Verb.UPDATE, {**obj, "status": status}, obj, "status")

    def _finalizer_write(self, unit: Unit, obj: Object, summary: Summaries) -> Iterator[Write]:
        names = self.dialect.finalizers(unit[0], obj, summary)
        if names is not None:
            yield self._write(unit, Verb.MERGE_PATCH, {"metadata": {"finalizers": names}}, obj)

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """Handle the outcome of a write. More may have changed while it was in flight."""
        tag = outcome.write.tag
        if not isinstance(tag, QueueStatusWriteTag):
            return
        kind, key = tag.unit
        refused = outcome.ended is Ended.REFUSED
        ended = self.reconciler.ended(tag.unit, now, REFUSED_SECONDS, refused=refused)
        self.stale = True
        if outcome.ended is Ended.DONE:  # the next write may precede the watch event of this one
            self.objects.take_answer(kind, outcome.object)
        if outcome.write.subresource:
            if refused and ended is not None:
                self.reconciler.queue.put_early(tag.unit, now + ended.pause)
            return
        if refused and key in self.objects.of(kind):
            self.refused[tag.unit] = (now + REFUSED_SECONDS, outcome.message or outcome.ended)
        elif outcome.ended is Ended.DONE:
            self.refused.pop(tag.unit, None)

    def next_due(self, state: AdmissionState) -> float:
        if self.stale or state.generation != self.seen:
            return self.due
        return max(self.due, self._again())

    def _again(self) -> float:
        """When a failed object is tried again."""
        refused = min((until for until, _ in self.refused.values()), default=NEVER)
        return min(refused, self.reconciler.next_due())

    def _idle(self, kinds: tuple[Kind, ...], now: float) -> Iterator[tuple[Unit, Object]]:
        for kind in kinds:
            for key, obj in self.objects.of(kind).items():
                unit = (kind, key)
                if unit not in self.reconciler.in_flight and self.reconciler.queue.due_at(unit) <= now:
                    yield unit, obj

    def _status(self, unit: Unit, obj: Object, summary: Summaries, now: float) -> Object | None:
        _, refused = self.refused.get(unit, (0.0, ""))
        return self.dialect.queue_status(*unit, obj, summary, refused, self._names, now)

    def _names(self, kind: Kind) -> set[str]:
        return {name for _, name in self.objects.of(kind)}

    def _write(self, unit: Unit, verb: Verb, body: Object, obj: Object, subresource: str = "") -> Write:
        self.reconciler.begin(unit, None)
        version, tag = obj["metadata"].get("resourceVersion", ""), QueueStatusWriteTag(unit)
        return Write(verb, unit[0], *unit[1], body, subresource=subresource, version=version, tag=tag)


def _titled(unit: Unit) -> tuple[str, str]:
    kind, key = unit
    return kind.kind, "/".join(part for part in key if part)
