"""Backfill reservations: a domain reserved for a pending gang, so that smaller gangs do not use it up."""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted, reservation_of
from bayplan.model.queued_gang import QueuedGang


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reserved domain of one topology, and the gang it is reserved for."""

    owner: Ref
    priority: int
    queued: float
    domain: Path

    def excludes(self, other: QueuedGang) -> bool:
        """Whether another gang must not use the domain: it has lower priority, or is pending shorter."""
        if other.gang.source == self.owner or other.admission is not None:
            return False
        return (-other.gang.priority, other.queued) > (-self.priority, self.queued)


@dataclass(slots=True)
class Reservations:
    """At most one reservation per topology: the highest priority first, then the longest pending."""

    by_topology: dict[str, Reservation] = field(default_factory=dict)

    def apply(self, plan: Plan) -> bool:
        """Apply the reservations of a plan. Returns whether anything changed."""
        before = dict(self.by_topology)
        decided = {a.gang for a in plan.actions if isinstance(a, Admit | EvictGang | ReportNotAdmitted)}
        for topology, reserved in before.items():
            if reserved.owner in decided:
                del self.by_topology[topology]
        for action in plan.actions:
            wanted = reservation_of(action)
            if wanted is None:
                continue
            queued, (topology, domain) = wanted
            known = self.by_topology.get(topology)
            if known is None or not known.excludes(queued):
                gang = queued.gang
                self.by_topology[topology] = Reservation(gang.source, gang.priority, queued.queued, domain)
        return self.by_topology != before

    def drop(self, ref: Ref) -> bool:
        """A gang is no longer pending. Returns whether it had a reservation."""
        mine = [topology for topology, reserved in self.by_topology.items() if reserved.owner == ref]
        for topology in mine:
            del self.by_topology[topology]
        return bool(mine)
