"""Backfill reservations: quota and domains that are reserved for a pending gang, and closed to others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted, ReservedCapacity, reservation_of
from bayplan.model.queued_gang import QueuedGang


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reserved quota of one queue or domains of one topology, and the gang they are reserved for."""

    owner: Ref
    priority: int
    queued: float
    capacity: ReservedCapacity

    @property
    def domains(self) -> tuple[Path, ...]:
        return self.capacity.domains

    def excludes(self, other: QueuedGang) -> bool:
        """Whether another gang must not use them: it has lower priority, or is pending shorter."""
        return other.gang.source != self.owner and other.admission is None and self.precedes(other)

    def precedes(self, other: QueuedGang) -> bool:
        """Whether another gang comes after the owner in the order of their queue."""
        return (-other.gang.priority, other.queued) > (-self.priority, self.queued)


@dataclass(slots=True)
class Reservations:
    """At most one per topology and per queue: the highest priority first, then the longest pending."""

    by_topology: dict[str, Reservation] = field(default_factory=dict)  # of domains
    by_queue: dict[str, Reservation] = field(default_factory=dict)  # of quota

    def apply(self, plan: Plan) -> bool:
        """Apply the reservations of a plan. Returns whether anything changed."""
        before = dict(self.by_topology), dict(self.by_queue)
        decided = {a.gang for a in plan.actions if isinstance(a, Admit | EvictGang | ReportNotAdmitted)}
        self._drop(decided)
        for action in plan.actions:
            wanted = reservation_of(action)
            if wanted is None:
                continue
            queued, capacity = wanted
            reservation = Reservation(queued.gang.source, queued.gang.priority, queued.queued, capacity)
            for kept, key in ((self.by_topology, capacity.topology), (self.by_queue, capacity.queue)):
                known = kept.get(key)
                if key and (known is None or not known.excludes(queued)):
                    kept[key] = reservation
        return (self.by_topology, self.by_queue) != before

    def drop(self, ref: Ref) -> bool:
        """A gang is no longer pending. Returns whether it had a reservation."""
        return self._drop((ref,))

    def _drop(self, refs: Collection[Ref]) -> bool:
        found = False
        for kept in (self.by_topology, self.by_queue):
            for key in [key for key, reserved in kept.items() if reserved.owner in refs]:
                del kept[key]
                found = True
        return found
