"""Lines before queues: who is next, who was refused in which shape, and what may change that."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.admission_rejection import AdmissionRemark
from bayplan.model.gang import Ref
from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.model.queued_gang import QueuedGang, Rank

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 30.0
NEVER = float("inf")
_OF_ITS_OWN = (
    AdmissionRemark.INTERNAL,
    AdmissionRemark.OUT_OF_TIME,
)  # reasons that are not those of its like


class QueueEntryState(StrEnum):
    """Where a gang stands in a queue."""

    OUT = "out"  # inactive, or without a queue to wait in
    WAITING = "waiting"
    BACKOFF = "backoff"  # put off until a certain time
    COMMITTED = "committed"  # decided; the write is on its way
    HOLDING = "holding"  # has quota
    PLACING = "placing"  # has quota and waits for a place


@dataclass(slots=True, eq=False)
class QueueEntry:
    """One gang's standing."""

    demand: QueuedGang
    queue: str = ""
    shape: Hashable = None
    place: QueueEntryState = QueueEntryState.OUT
    due: float = NEVER
    tries: int = 0
    told: Hashable = None  # why it waits
    progress: tuple[Mapping[str, int], ...] = ()
    asked: int = -1  # how often its line had been woken when the search for flavors ended there
    searched: list[tuple[Mapping[str, int], ...]] = field(default_factory=list)  # where it ended since then
    overtaken: int = -1  # the last state of things in which others of the round came first
    ticket: int = 0  # which of its entries in a line is the true one

    rank: Rank = (0, 0.0, "", "")  # more important, then longer waiting first

    def put_in_order(self) -> None:
        """Take the rank from what is asked for now."""
        self.rank = self.demand.rank


@dataclass(slots=True)
class PendingQueue:
    """Gangs that wait before one queue, by shape: of equal ones, only the first has to be tried."""

    strict: bool = False
    shapes: dict[Hashable, list[tuple[Rank, int, QueueEntry]]] = field(default_factory=dict)
    refused: set[Hashable] = field(default_factory=set)  # until something changes
    short: set[Hashable] = field(default_factory=set)  # of these, the ones that only quota can help
    barred: set[Hashable] = field(default_factory=set)  # of these, who may not enter: they hold up nobody
    wakings: int = 0
    sticky: QueueEntry | None = None  # others are leaving for its sake: nobody of this line overtakes it
    untold: dict[Hashable, dict[Ref, QueueEntry]] = field(
        default_factory=dict
    )  # by shape: know no reason yet
    said: dict[Hashable, Hashable] = field(default_factory=dict)  # by shape: the reason they were told
    count: int = 0
    idle: bool = False  # nobody's turn, and nothing changed since that was found
    held: bool = False  # the queue must not admit yet; a matter of moments, of which gangs are not told

    def add(self, standing: QueueEntry) -> None:
        self.idle = False
        self.count += 1
        standing.ticket = self.count
        self.untold.setdefault(standing.shape, {})[standing.demand.gang.source] = standing
        heap = self.shapes.setdefault(standing.shape, [])
        heapq.heappush(heap, (standing.rank, self.count, standing))

    def hold(self, held: bool) -> None:
        """Keep every gang waiting, or no more."""
        if held != self.held:
            self.held, self.idle = held, False

    def first(self) -> QueueEntry | None:
        """Whose turn it is; nobody's if all were refused, or the first was and nobody may overtake."""
        if self.held:
            return None
        if self.sticky is not None:
            if self.sticky.place is QueueEntryState.WAITING and self.sticky.shape in self.shapes:
                return self.sticky
            self.sticky = None
        best: QueueEntry | None = None
        for shape in list(self.shapes):
            top = self._top(shape)
            if top is None or (shape in self.refused and not (self.strict and shape not in self.barred)):
                continue
            if best is None or top.rank < best.rank:
                best = top
        return None if best is None or best.shape in self.refused else best

    def refuse(self, shape: Hashable) -> bool:
        """Gangs of this shape are not tried again before something happens; says whether that is new."""
        known = shape in self.refused
        self.refused.add(shape)
        return not known

    def is_ready(self) -> bool:
        """Whether something changed since everyone here was refused."""
        if not self.idle:
            first = self.first()
            self.idle = first is None or first.shape in self.refused
        return not self.idle

    def alike(self, standing: QueueEntry, most: int) -> list[QueueEntry]:
        """Others of the same shape that have not been told why they wait, first in line first."""
        found = (
            other
            for other in self.untold.get(standing.shape, {}).values()
            if other is not standing
            and other.place is QueueEntryState.WAITING
            and other.shape == standing.shape
        )
        return heapq.nsmallest(most, found, key=lambda other: other.rank)

    def tell(self, standing: QueueEntry, reason: Hashable) -> None:
        """A gang knows why it waits. If that is another reason than before, its like have to be told too."""
        shape, ref = standing.shape, standing.demand.gang.source
        if self.said.get(shape, reason) != reason:
            self.untold[shape] = {o.demand.gang.source: o for _, _, o in self.shapes.get(shape, ())}
        self.said[shape] = standing.told = reason
        self.untold.get(shape, {}).pop(ref, None)

    def waiting(self) -> Iterator[QueueEntry]:
        """Everyone in line."""
        for shape, heap in self.shapes.items():
            for _, ticket, standing in heap:
                if _is_live(standing, shape, ticket):
                    yield standing

    def _top(self, shape: Hashable) -> QueueEntry | None:
        heap = self.shapes[shape]
        while heap and not _is_live(heap[0][2], shape, heap[0][1]):
            heapq.heappop(heap)
        if not heap:
            del self.shapes[shape]
            self.untold.pop(shape, None)
            self.said.pop(shape, None)
            for known in (
                self.refused,
                self.short,
                self.barred,
            ):  # the next of its like is tried, and told why
                known.discard(shape)
            return None
        return heap[0][2]


def _is_live(standing: QueueEntry, shape: Hashable, ticket: int) -> bool:
    """Whether an entry of a heap still says the truth; what moved on is left there until it comes up."""
    return standing.place is QueueEntryState.WAITING and standing.shape == shape and standing.ticket == ticket


@dataclass(slots=True)
class PendingQueues:
    """All lines, and every gang's standing."""

    lines: dict[str, PendingQueue] = field(default_factory=dict)
    standings: dict[Ref, QueueEntry] = field(default_factory=dict)
    timed: list[tuple[float, int, QueueEntry]] = field(default_factory=list)
    holding: dict[Ref, QueueEntry] = field(default_factory=dict)  # those that wait for a place
    crowded: bool = False  # somebody was refused for the sake of others that wait, too
    count: int = 0

    def line(self, queue: str) -> PendingQueue:
        return self.lines.setdefault(queue, PendingQueue())

    def drop_unused(self, queues: Container[str]) -> None:
        """Forget the lines of queues that are gone and that no gang goes to."""
        gone = [name for name in self.lines if name not in queues]
        named = {standing.queue for standing in self.standings.values()} if gone else set()
        for name in gone:
            if name not in named:
                del self.lines[name]

    def is_ready(self) -> bool:
        """Whether it is anybody's turn."""
        return any(line.is_ready() for line in self.lines.values())

    def stir(self, queue: str) -> str:
        """Somebody comes or goes: it may be another's turn there."""
        if queue in self.lines:
            self.lines[queue].idle = False
        return queue

    def move(self, standing: QueueEntry, place: QueueEntryState, due: float = NEVER) -> None:
        """Put a gang elsewhere."""
        again = place is QueueEntryState.WAITING and standing.place is not QueueEntryState.WAITING
        self.stir(standing.queue)
        standing.place, standing.due = place, due
        if place is QueueEntryState.PLACING:
            self.holding[standing.demand.gang.source] = standing
        else:
            self.holding.pop(standing.demand.gang.source, None)
        if again:
            self.line(standing.queue).add(standing)
        if due < NEVER:
            self.count += 1
            heapq.heappush(self.timed, (due, self.count, standing))

    def back_off(
        self, standing: QueueEntry, place: QueueEntryState, now: float, first: float, most: float
    ) -> None:
        """Try again later, each time twice as late."""
        standing.tries += 1
        self.move(standing, place, now + min(first * 2.0 ** (standing.tries - 1), most))

    def decline(self, standing: QueueEntry, action: ReportNotAdmitted, now: float) -> bool:
        """A gang was not admitted; says whether that makes the next round another one."""
        line, remark = self.line(standing.queue), action.refusal.remark
        if standing.asked != line.wakings:
            standing.searched = []
        resumed = any(index >= 0 for part in standing.progress for index in part.values())
        standing.progress, standing.asked = tuple(action.progress), line.wakings
        self.crowded = self.crowded or action.crowded
        if standing.place is QueueEntryState.WAITING and remark not in _OF_ITS_OWN:
            line.tell(standing, action.refusal.token)
        match action.again:
            case Requeue.AFTER_A_WHILE if standing.place is QueueEntryState.WAITING:
                self.give_up_turn(standing.queue, standing)
                self.back_off(standing, QueueEntryState.BACKOFF, now, BACKOFF_FIRST, BACKOFF_MAX)
                return True
            case Requeue.AFTER_A_WHILE:
                standing.tries += standing.due > 0  # what an event made us try does not count
                self.move(standing, QueueEntryState.PLACING, now + action.seconds)
            case Requeue.WHEN_IT_MAY_HELP:
                if remark in (AdmissionRemark.NAMESPACE, AdmissionRemark.ENTRANCE_CLOSED):
                    line.barred.add(standing.shape)
                self.give_up_turn(standing.queue, standing)
                # Fewer pods, or flavors that were looked at before, may have quota and lack room.
                fewer = any(p.minimum < p.count for p in action.demand.gang.root.pod_sets())
                if action.refusal.only_quota_helps() and not (fewer or resumed):
                    line.short.add(standing.shape)
                else:
                    line.short.discard(standing.shape)
                return line.refuse(standing.shape)
            case Requeue.AT_ONCE if remark in (
                AdmissionRemark.LEAVING,
                AdmissionRemark.SAME_VICTIMS_WILL_FIT,
            ):
                line.sticky = standing
                return line.refuse(standing.shape)  # until they have left
            case Requeue.AT_ONCE if (
                standing.progress in standing.searched
            ):  # all of it was tried, in a circle
                self.give_up_turn(standing.queue, standing)
                return line.refuse(standing.shape)
            case Requeue.AT_ONCE if any(at >= 0 for part in action.progress for at in part.values()):
                standing.searched.append(standing.progress)
                return True
        return False

    def put_off(self, standing: QueueEntry, seen: int) -> bool:
        """Others of the round came first. If that was so in this very state of things, it would go on so."""
        before, standing.overtaken = standing.overtaken, seen
        return before == seen and self.line(standing.queue).refuse(standing.shape)

    def hurry(self, concerns: Callable[[QueueEntry], bool]) -> None:
        """Something changed that may help gangs that wait for a place."""
        for standing in list(self.holding.values()):
            if standing.due > 0 and concerns(standing):
                self.move(standing, QueueEntryState.PLACING, 0.0)

    def due(self, now: float) -> Iterator[QueueEntry]:
        """Those whose time has come."""
        while self.timed and self.timed[0][0] <= now:
            due, _, standing = heapq.heappop(self.timed)
            if standing.due == due:
                yield standing

    def next_due(self) -> float:
        while self.timed and self.timed[0][2].due != self.timed[0][0]:
            heapq.heappop(self.timed)
        return self.timed[0][0] if self.timed else NEVER

    def wake(self, queue: str, *, room: bool = False) -> None:
        """Something changed that may help: whoever was refused is tried again.

        If only room came free, that does not help those who lack nothing but quota.
        """
        line = self.lines.get(queue)
        if line is None:
            return
        kept = line.refused & line.short if room else set()
        line.refused, line.short, line.barred = kept, set(kept), line.barred & kept
        line.idle = False
        line.wakings += 1

    def give_up_turn(self, queue: str, standing: QueueEntry) -> bool:
        """Nobody leaves for a gang's sake any more; says whether somebody did."""
        line = self.lines.get(queue)
        if line is None or line.sticky is not standing:
            return False
        line.sticky, line.idle = None, False
        return True
