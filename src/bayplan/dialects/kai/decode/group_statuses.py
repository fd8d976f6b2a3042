"""The statuses of pod groups and of their queues, computed from what was decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bayplan.dialects.api import Write
from bayplan.dialects.dialect import StatusReason, StatusSource
from bayplan.dialects.kai.api.names import QUEUE
from bayplan.dialects.kai.api.queues import ancestors, subtree
from bayplan.dialects.kai.decode.events import GroupDecoder
from bayplan.dialects.kai.status.messages import queue_fault
from bayplan.dialects.kai.status.pod_group import (
    NO_TOTALS,
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


@dataclass(slots=True)
class QueueContribution:
    """What a group adds to the status of its queue."""

    queue: str = ""
    usage: ResourceTotals = field(default=NO_TOTALS)


class GroupStatuses(StatusSource):
    """A queue shows what the groups below it use, so the status of a group concerns its queues."""

    def __init__(self, decoder: GroupDecoder) -> None:
        self.decoder = decoder
        self.pending_reasons: dict[Ref, PendingReason] = {}
        self.shares: dict[Ref, QueueContribution] = {}
        self.totals: dict[str, ResourceTotals] = {}  # the sums of `shares` by queue, without the queues below
        self.concerned: dict[Ref, None] = {}  # queues of groups that use more or less than before

    def set_pending(self, ref: Ref, shown: StatusReason, message: str, now: float) -> bool:
        before = self.pending_reasons.get(ref)
        if before is not None and (before.reason, before.message) == (shown.reason, message):
            return False
        number = 1 if before is None else before.number + 1
        self.pending_reasons[ref] = PendingReason(shown.reason, message, now, number, shown.details)
        return True

    def is_pending(self, ref: Ref) -> bool:
        return ref in self.pending_reasons

    def has_changed(self) -> bool:
        return bool(self.concerned or self.decoder.changed_groups or self.decoder.changed_queues)

    def changed(self) -> Iterator[Ref]:
        groups, self.decoder.changed_groups = self.decoder.changed_groups, {}
        concerned, self.concerned = self.concerned, {}
        yield from groups
        yield from concerned
        yield from map(_queue_ref, sorted(self._changed_queues()))

    def write(self, ref: Ref, now: float) -> Write | None:
        return self._queue(ref, now) if ref.kind == QUEUE.kind else self._group(ref)

    def is_known(self, ref: Ref) -> bool:
        if ref.kind == QUEUE.kind:
            return ref.name in self.decoder.queues
        known = self.decoder.groups.get(ref)
        return known is not None and known.group is not None

    def _group(self, ref: Ref) -> Write | None:
        known = self.decoder.groups.get(ref)
        if known is None or known.group is None:
            self._share(ref, "", NO_TOTALS)
            self.pending_reasons.pop(ref, None)
            return None
        pods = list(known.pods.values())
        held = totals_of(pods, not known.group.is_preemptible(known.priority))
        self._share(ref, known.group.queue, held)
        if all(pod.node or pod.finished or pod.terminating for pod in pods):
            self.pending_reasons.pop(ref, None)
        status = group_status(known.group, pods, held, self.pending_reasons.get(ref), known.status)
        return None if status is None else group_write(ref, known.group.uid, status)

    def _share(self, ref: Ref, queue: str, held: ResourceTotals) -> None:
        """Set what a group uses; its queue and its ancestors follow."""
        before = self.shares.pop(ref, QueueContribution())
        if queue:
            self.shares[ref] = QueueContribution(queue, held)
        if before == QueueContribution(queue, held):
            return
        self._recount(before, queue, held)
        for name in {before.queue, queue} - {""}:
            self.concerned |= dict.fromkeys(map(_queue_ref, ancestors(name, self.decoder.parents)))

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
            return None
        children = self.decoder.children
        mine = subtree(ref.name, children)
        held = sum_of_totals(self.totals[name] for name in mine if name in self.totals)
        fault = queue_fault(ref.name, self.decoder.parents)
        status = queue_status(held, sorted(children.get(ref.name, ())), fault, found.status, now)
        return None if status is None else queue_write(ref.name, found.metadata.uid, status)


def _queue_ref(name: str) -> Ref:
    return Ref(QUEUE.group, QUEUE.kind, "", name)
