"""Incremental counters of gangs by queue: only gangs that changed since the last count are counted again."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bayplan.model.queued_gang import CheckState, Delayed, QueuedGang
from bayplan.model.quota import Cell, StopPolicy
from bayplan.model.rejection import RejectionReason
from bayplan.state.admission.queues import QueueEntry, QueueEntryState
from bayplan.state.admission.state import AdmissionState
from bayplan.state.admission.usage import GangUsage

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class QueueTotals:
    """The totals of one queue or namespace queue."""

    ready: int = 0
    inadmissible: int = 0
    reserving: int = 0
    admitted: int = 0
    unchecked: int = 0
    unplaced: int = 0
    rejected: dict[RejectionReason, int] = field(default_factory=dict)
    reserved: dict[Cell, int] = field(default_factory=dict)
    used: dict[Cell, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    shapes: dict[tuple[bool, Hashable], int] = field(default_factory=dict)  # (unschedulable, shape)
    pending: dict[tuple[str, bool, Hashable], int] = field(
        default_factory=dict
    )  # (queue, backing off, shape)

    def is_empty(self) -> bool:
        """Whether no gang is pending or admitted here."""
        return not (self.reserving or self.pending)

    def split(self, refused: Mapping[str, Container[Hashable]]) -> None:
        """Split pending gangs into ready and unschedulable ones; rejections change whole shapes."""
        self.ready, self.inadmissible, self.shapes = 0, 0, {}
        for (queue, later, shape), count in self.pending.items():
            parked = later or shape in refused.get(queue, ())
            if parked:
                self.inadmissible += count
            else:
                self.ready += count
            self.shapes[parked, shape] = self.shapes.get((parked, shape), 0) + count


@dataclass(frozen=True, slots=True, eq=False)
class _PendingCount:
    """How a pending gang was counted. It holds the entry, so that its identity stays unique."""

    entry: QueueEntry
    queue: str
    queued_gang: QueuedGang
    later: bool
    reason: Hashable
    shape: Hashable


class QueueCounters:
    """The totals of all queues and namespace queues. Visits every gang, and recounts only those that changed.

    Usage and specs of gangs are replaced, never modified: the same object means the same numbers, so they are
    compared by identity, which is cheaper than by value.
    """

    def __init__(self) -> None:
        self.queues: dict[str, QueueTotals] = {}
        self.namespace_queues: dict[tuple[str, str], QueueTotals] = {}
        self._holders: dict[int, GangUsage] = {}
        self._waiting: dict[int, _PendingCount] = {}

    def count(self, state: AdmissionState) -> None:
        """Update the totals."""
        before, self._holders = self._holders, {id(one): one for one in state.usage.by_gang.values()}
        for gone in before.keys() - self._holders.keys():
            self._hold(before[gone], -1)
        for fresh in self._holders.keys() - before.keys():
            self._hold(self._holders[fresh], 1)
        self._count_waiting(state)

    def _count_waiting(self, state: AdmissionState) -> None:
        closed = {
            key for key, way in state.config.namespace_queues.items() if way.stop is not StopPolicy.OPEN
        }
        refused = {
            name: rejected
            for name, queue in state.pending.queues.items()
            if not queue.strict and (rejected := queue.rejected())
        }
        before, now = self._waiting, dict[int, _PendingCount]()
        for queue_entry in state.pending.entries.values():
            place, queued, queue = queue_entry.state, queue_entry.queued_gang, queue_entry.queue
            later = place is QueueEntryState.BACKOFF
            if (
                not (later or place is QueueEntryState.PENDING)
                or not queue
                or queued.namespace_queue in closed
            ):
                continue
            entry = before.pop(id(queue_entry), None)
            if entry is None or not _is_same(entry, queue_entry, later):
                if entry is not None:
                    self._wait(entry, -1)
                entry = _PendingCount(
                    queue_entry, queue, queued, later, queue_entry.reason, queue_entry.shape
                )
                self._wait(entry, 1)
            now[id(queue_entry)] = entry
        for gone in before.values():
            self._wait(gone, -1)
        self._waiting = now
        _sort_all(self.queues, refused)
        _sort_all(self.namespace_queues, refused)

    def _hold(self, usage: GangUsage, sign: int) -> None:
        for totals in self._stocks(usage.queue, usage.queued_gang):
            _add_holder(totals, usage.queued_gang, usage.quota, sign)

    def _wait(self, entry: _PendingCount, sign: int) -> None:
        for totals in self._stocks(entry.queue, entry.queued_gang):
            _add_waiting(totals, entry, sign)

    def _stocks(self, queue: str, queued: QueuedGang) -> tuple[QueueTotals, QueueTotals]:
        way = queued.namespace_queue
        if queue not in self.queues:
            self.queues[queue] = QueueTotals()
        if way not in self.namespace_queues:
            self.namespace_queues[way] = QueueTotals()
        return self.queues[queue], self.namespace_queues[way]


def _sort_all(all_totals: dict[K, QueueTotals], refused: Mapping[str, Container[Hashable]]) -> None:
    """Update the split of all totals; totals without gangs are dropped."""
    for name, totals in list(all_totals.items()):
        if totals.is_empty():
            del all_totals[name]
        else:
            totals.split(refused)


def _is_same(before: _PendingCount, entry: QueueEntry, later: bool) -> bool:
    return (
        before.queued_gang is entry.queued_gang
        and before.later is later
        and before.reason is entry.reason
        and before.shape is entry.shape
        and before.queue == entry.queue
    )


def _add_holder(totals: QueueTotals, queued: QueuedGang, quota: Mapping[Cell, int], sign: int) -> None:
    totals.reserving += sign
    _sum(totals.reserved, quota.items(), sign)
    if queued.admitted:
        totals.admitted += sign
        _sum(totals.used, quota.items(), sign)
    elif any(status.state is not CheckState.READY for status in queued.check_statuses):
        totals.unchecked += sign
    elif queued.admission is not None and any(
        given.delayed is Delayed.PENDING and given.assignment is None for given in queued.admission.pod_sets
    ):
        totals.unplaced += sign


def _add_waiting(totals: QueueTotals, entry: _PendingCount, sign: int) -> None:
    reason = entry.reason if isinstance(entry.reason, RejectionReason) else RejectionReason.TO_BE_EVALUATED
    _sum(totals.rejected, ((reason, 1),), sign)
    _sum(totals.pending, (((entry.queue, entry.later, entry.shape), 1),), sign)
    for ask in entry.queued_gang.requests:
        _sum(totals.wanted, ((name, each * ask.count) for name, each in ask.per_pod.items()), sign)


def _sum(total: dict[K, int], amounts: Iterable[tuple[K, int]], sign: int) -> None:
    """Add an amount, and drop a zero sum."""
    for key, amount in amounts:
        left = total.get(key, 0) + sign * amount
        if left:
            total[key] = left
        else:
            total.pop(key, None)
