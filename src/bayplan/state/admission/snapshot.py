"""The heads of the pending queues, and the frozen snapshot that an admission cycle decides on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.admission_rejection import AdmissionRejection
from bayplan.model.gang import Ref
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Check, Flavor, Queue
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.overlay.topology_numa_overlay import NumaStock
from bayplan.placement.overlay.topology_overlay import KnownRows
from bayplan.state.admission.config import AdmissionConfig
from bayplan.state.admission.queues import PendingQueues, QueueEntry, QueueEntryState
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.reservations import Reservation
from bayplan.state.admission.usage import GangUsage

EQUIVALENTS_MAX = 1000  # per cycle; the remaining gangs of the shape follow in the next one


@dataclass(frozen=True, slots=True)
class QueueHead:
    """A gang to decide on, where its last search for flavors stopped, and gangs of the same shape."""

    demand: QueuedGang
    queue: str
    progress: tuple[Mapping[str, int], ...] = ()
    barred: AdmissionRejection | None = None  # it may not enter the queue, whatever quota is available
    alike: tuple[QueuedGang, ...] = ()
    tries: int = 0  # failed searches for a placement since it has quota
    made_room: bool = False  # victims were evicted for it


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionSnapshot:
    """The input of one admission cycle. The quota tree is a copy; everything else is read-only."""

    books: QuotaTree
    supplies: Mapping[str, CapacitySnapshot]
    flavors: Mapping[str, Flavor]
    queues: Mapping[str, Queue]
    checks: Mapping[str, Check]
    admitted: Mapping[str, Mapping[Ref, QueuedGang]]
    closed: frozenset[str]
    heads: tuple[QueueHead, ...]
    reserved: Mapping[str, Reservation] = field(default_factory=dict)  # by topology
    holdings: Mapping[Ref, GangUsage] = field(default_factory=dict)
    known: KnownRows | None = None  # a cache of derived rows
    zones: Mapping[str, NumaStock] = field(default_factory=dict)  # by topology; empty without NUMA reports


Failed = Callable[[QueueEntry, Exception], None]


def heads_of(
    rules: AdmissionConfig, lines: PendingQueues, now: float, failed: Failed | None = None
) -> list[QueueHead]:
    """The gangs that wait for a placement, and the head of every queue; errors of one gang go to `failed`."""
    turns = [standing for standing in lines.placing.values() if standing.due <= now]
    if not turns and not lines.is_ready():
        return []
    firsts = (lines.lines[name].first() for name in sorted(lines.lines))
    turns += [standing for standing in firsts if standing is not None]
    heads: list[QueueHead] = []
    for standing in turns:
        try:
            heads.append(head_of(rules, lines, standing))
        except Exception as error:
            if failed is None:
                raise
            failed(standing, error)
    return heads


def head_of(rules: AdmissionConfig, lines: PendingQueues, standing: QueueEntry) -> QueueHead:
    """The head of a queue, from its entry."""
    line = lines.lines.get(standing.queue)
    alike: Iterable[QueuedGang] = ()
    if line is not None and standing.place is QueueEntryState.WAITING and not line.strict:
        alike = (other.demand for other in line.alike(standing, EQUIVALENTS_MAX))
    barred = rules.barred(standing.demand, standing.queue)
    is_current = line is not None and standing.asked == line.wakings
    progress = standing.progress if is_current else ()
    made_room = line is not None and line.sticky is standing
    return QueueHead(
        standing.demand, standing.queue, progress, barred, tuple(alike), standing.tries, made_room
    )
