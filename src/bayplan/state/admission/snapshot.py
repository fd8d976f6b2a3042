"""The heads of the pending queues, and the frozen snapshot that an admission cycle decides on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.gang import Ref
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Check, Flavor, Queue
from bayplan.model.rejection import Rejection
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.overlay.topology_numa_overlay import NumaStock
from bayplan.placement.overlay.topology_overlay import KnownRows
from bayplan.placement.pods.host_rooms import Contents
from bayplan.state.admission.binding_view import BindingView
from bayplan.state.admission.config import AdmissionConfig
from bayplan.state.admission.queues import AdmissionQueues, QueueEntry, QueueEntryState
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.reservations import Reservation
from bayplan.state.admission.usage import GangUsage
from bayplan.state.pending_queue import NEVER

EQUIVALENTS_MAX = 1000  # per cycle; the remaining gangs of the shape follow in the next one


@dataclass(frozen=True, slots=True)
class QueueHead:
    """A gang to decide on, where its last search for flavors stopped, and gangs of the same shape."""

    queued_gang: QueuedGang
    queue: str
    progress: tuple[Mapping[str, int], ...] = ()
    ineligible: Rejection | None = None  # it may not enter the queue, whatever quota is available
    equivalents: tuple[QueuedGang, ...] = ()
    tries: int = 0  # failed searches for a placement since it has quota
    has_victims: bool = False  # victims were evicted for it
    taken: tuple[str, ...] = ()  # hosts of its placement whose capacity other pods use
    has_started: bool = False  # a pod of it is bound, so that it moves away from hosts that were taken
    may_hold: bool = False  # other gangs end just now, so that it need not preempt yet
    held: bool = False  # it was held before, when there were victims


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionSnapshot:
    """The input of one admission cycle. The quota tree is a copy; everything else is read-only."""

    quota_tree: QuotaTree
    supplies: Mapping[str, CapacitySnapshot]
    flavors: Mapping[str, Flavor]
    queues: Mapping[str, Queue]
    checks: Mapping[str, Check]
    admitted: Mapping[str, Mapping[Ref, QueuedGang]]
    inactive_queues: frozenset[str]
    heads: tuple[QueueHead, ...]
    reservations: Mapping[str, Reservation] = field(default_factory=dict)  # of domains, by topology
    quota_reservations: Mapping[str, Reservation] = field(default_factory=dict)  # of quota, by queue
    usage: Mapping[Ref, GangUsage] = field(default_factory=dict)
    known: KnownRows | None = None  # a cache of derived rows
    numa: Mapping[str, NumaStock] = field(default_factory=dict)  # by topology; empty without NUMA reports
    binding: BindingView | None = None  # what the filters of binding read, if any gang or pod uses them
    domains: Contents = field(default_factory=dict)  # pods of admitted gangs in domains above the host


Failed = Callable[[QueueEntry, Exception], None]


def heads_of(
    config: AdmissionConfig, pending: AdmissionQueues, now: float, failed: Failed | None = None,
    *, only_placing: bool = False,
) -> list[QueueHead]:  # fmt: skip
    """The gangs that wait for a placement, and the head of every queue; errors of one gang go to `failed`."""
    turns = [entry for entry in pending.placing.values() if entry.due <= now]
    if not turns and (only_placing or not pending.is_ready()):
        return []
    names = () if only_placing else sorted(pending.queues)
    turns += [entry for name in names for entry in pending.queues[name].heads()]
    pending.note_ends(now)
    heads: list[QueueHead] = []
    for entry in turns:
        try:
            heads.append(head_of(config, pending, entry, now))
        except Exception as error:
            if failed is None:
                raise
            failed(entry, error)
    return heads


def head_of(config: AdmissionConfig, pending: AdmissionQueues, entry: QueueEntry, now: float) -> QueueHead:
    """The head of a queue, from its entry."""
    pending_queue = pending.queues.get(entry.queue)
    alike: Iterable[QueuedGang] = ()
    if pending_queue is not None and entry.state is QueueEntryState.PENDING and not pending_queue.strict:
        alike = (other.queued_gang for other in pending_queue.equivalents(entry, EQUIVALENTS_MAX))
    barred = config.ineligible(entry.queued_gang, entry.queue)
    is_current = pending_queue is not None and entry.searched_at == pending_queue.wakings
    progress = entry.progress if is_current else ()
    made_room = pending_queue is not None and entry in pending_queue.sticky
    queued_gang = entry.queued_gang
    if entry.taken:
        failed = dict.fromkeys((*queued_gang.failed_nodes, *entry.taken))
        queued_gang = replace(queued_gang, failed_nodes=tuple(failed))
    return QueueHead(
        queued_gang, entry.queue, progress, barred, tuple(alike), entry.tries, made_room, entry.taken,
        entry.has_started, pending.may_hold(entry, now), entry.held_at < NEVER,
    )  # fmt: skip
