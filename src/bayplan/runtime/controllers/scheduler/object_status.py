"""Writes the statuses that a family computes as a whole, at most one write a second per object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.dialect import StatusReason, StatusSource
from bayplan.model.gang import Ref
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.reconciler import Reconciler

Object = dict[str, Any]

WRITE_INTERVAL_SECONDS = 1.0  # between two writes to one object
GATHER_SECONDS = 0.5  # changes within this time are written together
REPEAT_SECONDS = 5.0
IN_FLIGHT_MAX = 32


@dataclass(frozen=True, slots=True)
class ObjectStatusWriteTag:
    """The tag of a status write."""

    about: Ref


class StatusWriter:
    """Writes the statuses of a source that differ from those in the API."""

    def __init__(self, source: StatusSource) -> None:
        self.source = source
        self.reconciler: Reconciler[Ref, None] = Reconciler(_titled, "status")
        # uid and status last written: repeating it would not help
        self.written: dict[Ref, tuple[str, Object]] = {}
        self.next_write_at: dict[Ref, float] = {}

    def set_pending(self, ref: Ref, shown: StatusReason, message: str, now: float) -> None:
        """Set why a gang is pending."""
        if self.source.set_pending(ref, shown, message, now):
            self._put(ref, now)

    def keep(self, now: float, containment: Containment = UNCONTAINED) -> Iterator[Write]:
        """The writes that are due. A status that cannot be computed is tried again later."""
        self._put_changed(now)
        if self._is_full():
            return
        for ref in self.reconciler.take(now):
            if self._is_full():
                self.reconciler.queue.put(ref)
            else:
                yield from self.reconciler.attempt(ref, self._due(ref, now), now, containment)

    def _is_full(self) -> bool:
        return len(self.reconciler.in_flight) >= IN_FLIGHT_MAX

    def _due(self, ref: Ref, now: float) -> Iterator[Write]:
        write = self.source.write(ref, now)
        self._put_changed(now)
        if not self.source.is_known(ref):
            self.written.pop(ref, None)
            self.next_write_at.pop(ref, None)
        if write is not None and self.written.get(ref) != (write.uid, write.body):
            self.written[ref] = write.uid, dict(write.body)
            self.reconciler.begin(ref, None)
            self.next_write_at[ref] = now + WRITE_INTERVAL_SECONDS
            yield replace(write, tag=ObjectStatusWriteTag(ref))

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """Handle the outcome of a write; one without a confirmed outcome is repeated."""
        tag = outcome.write.tag
        if not isinstance(tag, ObjectStatusWriteTag):
            return
        self.reconciler.ended(tag.about, now)
        if outcome.ended in (Ended.TIMED_OUT, Ended.CONFLICT):
            self.written.pop(tag.about, None)
            self.reconciler.queue.put_early(tag.about, now + REPEAT_SECONDS)

    def next_due(self) -> float:
        """When the next write is due."""
        if self._is_full():
            return float("inf")
        return 0.0 if self.source.has_changed() else self.reconciler.next_due()

    def _put_changed(self, now: float) -> None:
        for ref in self.source.changed():
            self._put(ref, now)

    def _put(self, ref: Ref, now: float) -> None:
        self.reconciler.queue.put_early(ref, max(now + GATHER_SECONDS, self.next_write_at.get(ref, 0.0)))


def _titled(ref: Ref) -> tuple[str, str]:
    return ref.kind, f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
