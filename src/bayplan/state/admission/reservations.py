"""Room kept for a gang that waits for it, so that smaller ones do not take it away piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.plan import Plan, reserving
from bayplan.model.queued_gang import QueuedGang


@dataclass(frozen=True, slots=True)
class Reservation:
    """A domain of one topology, and the gang that it is kept for."""

    owner: Ref
    priority: int
    queued: float
    domain: Path

    def binds(self, other: QueuedGang) -> bool:
        """Whether another gang has to keep out: not if it is more important, or waits longer."""
        if other.gang.source == self.owner or other.admission is not None:
            return False
        return (-other.gang.priority, other.queued) > (-self.priority, self.queued)


@dataclass(slots=True)
class Reservations:
    """At most one per topology: the most important gang's, and of equals the one's that waits longest."""

    by_topology: dict[str, Reservation] = field(default_factory=dict)

    def fold(self, plan: Plan) -> bool:
        """Take over what a plan reserves; says whether anything changed."""
        before = dict(self.by_topology)
        decided = {action.gang for action in plan.actions if hasattr(action, "demand")}
        for topology, kept in before.items():
            if kept.owner in decided:
                del self.by_topology[topology]
        for action in plan.actions:
            wanted = reserving(action)
            if wanted is None:
                continue
            demand, (topology, domain) = wanted
            known = self.by_topology.get(topology)
            if known is None or not known.binds(demand):
                gang = demand.gang
                self.by_topology[topology] = Reservation(gang.source, gang.priority, demand.queued, domain)
        return self.by_topology != before

    def drop(self, ref: Ref) -> bool:
        """A gang waits no more; says whether anything was kept for it."""
        mine = [topology for topology, kept in self.by_topology.items() if kept.owner == ref]
        for topology in mine:
            del self.by_topology[topology]
        return bool(mine)
