"""Reconciles the status of pod groups and their queues, at most one write a second per object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.kai.api.names import QUEUE
from bayplan.dialects.kai.api.queues import ancestors, subtree
from bayplan.dialects.kai.decode.events import GroupDecoder
from bayplan.dialects.kai.status.messages import queue_fault
from bayplan.dialects.kai.status.pod_group import (
    NO_TOTALS,
    Object,
    PendingReason,
    ResourceTotals,
    group_status,
    group_write,
    less_totals,
    queue_status,
    queue_write,
    sum_of_totals,
    totals_of,
)
from bayplan.model.gang import Ref
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.reconciler import Reconciler

WRITE_INTERVAL_SECONDS = 1.0  # between two writes to one object
GATHER_SECONDS = 0.5  # changes within this time are written together
REPEAT_SECONDS = 5.0
IN_FLIGHT_MAX = 32


@dataclass(frozen=True, slots=True)
class PodGroupWriteTag:
    """The tag of a status write."""

    about: Ref


@dataclass(slots=True)
class QueueContribution:
    """What a group adds to the status of its queue."""

    queue: str = ""
    usage: ResourceTotals = field(default=NO_TOTALS)


class GroupStatuses:
    """Computes each status, and writes those that differ."""

    def __init__(self, reading: GroupDecoder) -> None:
        self.decoder = reading
        self.pending_reasons: dict[Ref, PendingReason] = {}
        self.shares: dict[Ref, QueueContribution] = {}
        self.totals: dict[str, ResourceTotals] = {}  # the sums of `shares` by queue, without the queues below
        self.reconciler: Reconciler[Ref, None] = Reconciler(_titled, "status")
        # uid and status last written: repeating it would not help
        self.written: dict[Ref, tuple[str, Object]] = {}
        self.next_write_at: dict[Ref, float] = {}

    def set_pending(
        self, ref: Ref, reason: str, message: str, now: float, queue: Mapping[str, Any] | None = None
    ) -> None:
        """Set why a group is pending, and the queue that limits it, if any."""
        before = self.pending_reasons.get(ref)
        if before is None or (before.reason, before.message) != (reason, message):
            number = 1 if before is None else before.number + 1
            self.pending_reasons[ref] = PendingReason(reason, message, now, number, queue or {})
            self._put(ref, now)

    def keep(self, now: float, containment: Containment = UNCONTAINED) -> Iterator[Write]:
        """The writes that are due. A status that cannot be computed is tried again later."""
        news, self.decoder.changed_groups = self.decoder.changed_groups, {}
        for ref in news:
            self._put(ref, now)
        for name in sorted(self._changed_queues()):
            self._put(_queue_ref(name), now)
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
        write = self._queue(ref, now) if ref.kind == QUEUE.kind else self._group(ref, now)
        if write is not None and self.written.get(ref) != (write.uid, write.body):
            self.written[ref] = write.uid, dict(write.body)
            self.reconciler.begin(ref, None)
            self.next_write_at[ref] = now + WRITE_INTERVAL_SECONDS
            yield replace(write, tag=PodGroupWriteTag(ref))

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """Handle the outcome of a write; one without a confirmed outcome is repeated."""
        tag = outcome.write.tag
        if not isinstance(tag, PodGroupWriteTag):
            return
        self.reconciler.ended(tag.about, now)
        if outcome.ended in (Ended.TIMED_OUT, Ended.CONFLICT):
            self.written.pop(tag.about, None)
            self.reconciler.queue.put_early(tag.about, now + REPEAT_SECONDS)

    def next_due(self) -> float:
        """When the next write is due."""
        if self._is_full():
            return float("inf")
        changed = self.decoder.changed_groups or self.decoder.changed_queues
        return 0.0 if changed else self.reconciler.next_due()

    def _put(self, ref: Ref, now: float) -> None:
        self.reconciler.queue.put_early(ref, max(now + GATHER_SECONDS, self.next_write_at.get(ref, 0.0)))

    def _group(self, ref: Ref, now: float) -> Write | None:
        known = self.decoder.groups.get(ref)
        if known is None or known.group is None:
            self._share(ref, "", NO_TOTALS, now)
            for notes in (self.pending_reasons, self.written, self.next_write_at):
                notes.pop(ref, None)
            return None
        pods = list(known.pods.values())
        held = totals_of(pods, not known.group.is_preemptible(known.priority))
        self._share(ref, known.group.queue, held, now)
        if all(pod.node or pod.finished or pod.terminating for pod in pods):
            self.pending_reasons.pop(ref, None)
        status = group_status(known.group, pods, held, self.pending_reasons.get(ref), known.status)
        return None if status is None else group_write(ref, known.group.uid, status)

    def _share(self, ref: Ref, queue: str, held: ResourceTotals, now: float) -> None:
        """Set what a group uses; its queue and its ancestors follow."""
        before = self.shares.pop(ref, QueueContribution())
        if queue:
            self.shares[ref] = QueueContribution(queue, held)
        if before == QueueContribution(queue, held):
            return
        self._recount(before, queue, held)
        for name in {before.queue, queue} - {""}:
            for above in ancestors(name, self.decoder.parents):
                self._put(_queue_ref(above), now)

    def _recount(self, before: QueueContribution, queue: str, held: ResourceTotals) -> None:
        """Move what a group uses from one queue to another; a queue that holds nothing has no total."""
        if before.queue:
            self.totals[before.queue] = less_totals(self.totals.get(before.queue, NO_TOTALS), before.usage)
        if queue:
            self.totals[queue] = sum_of_totals((self.totals.get(queue, NO_TOTALS), held))
        for name in {before.queue, queue} - {""}:
            if self.totals[name] == NO_TOTALS:
                del self.totals[name]

    def _changed_queues(self) -> set[str]:
        """Queues that changed, or below a queue that moved."""
        found, self.decoder.changed_queues = self.decoder.changed_queues, set()
        moved, self.decoder.moved_queues = self.decoder.moved_queues, set()
        if moved:
            parents = self.decoder.parents
            found |= {name for name in parents if not moved.isdisjoint(ancestors(name, parents))}
        return found

    def _queue(self, ref: Ref, now: float) -> Write | None:
        found = self.decoder.queues.get(ref.name)
        if found is None:
            self.written.pop(ref, None)
            self.next_write_at.pop(ref, None)
            return None
        children = self.decoder.children
        mine = subtree(ref.name, children)
        held = sum_of_totals(self.totals[name] for name in mine if name in self.totals)
        fault = queue_fault(ref.name, self.decoder.parents)
        status = queue_status(held, sorted(children.get(ref.name, ())), fault, found.status, now)
        return None if status is None else queue_write(ref.name, found.metadata.uid, status)


def _queue_ref(name: str) -> Ref:
    return Ref(QUEUE.group, QUEUE.kind, "", name)


def _titled(ref: Ref) -> tuple[str, str]:
    return ref.kind, f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
