"""Gangs that want something: each in exactly one place, ordered, and woken by what could help it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Ref

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 10.0  # and a hundredth of a second more per pod
BACKOFF_LIMIT = 60.0
HEADS_MAX = 64  # gangs that are decided on at once
PODS_MAX = 512  # lone pods, likewise
WEIGHT_MAX = 10_000  # pods in all, but for the first gang
SPARE = 64
SOON = 1.0  # seconds until one is tried again whom the going of others may help
PACE = 10  # so many of them a second
NEVER = float("inf")


class EntryState(StrEnum):
    """Where a gang stands."""

    INCOMPLETE = "incomplete"  # its charter or some of its pods are not there yet, or are held back
    READY = "ready"  # to be tried now
    BACKOFF = "backoff"  # something went wrong; to be tried at a certain time
    PARKED = "parked"  # does not fit; to be tried when something happens that may help
    MAKING_ROOM = "making_room"  # others are on their way out for it
    COMMITTED = "committed"  # decided; the writes are on their way
    RUNNING = "running"  # every pod has a node


class WakeupEvent(StrEnum):
    """What may help one that was refused."""

    NODE = "node"  # a node came or changed
    ROOM = "room"  # a pod is gone
    CAME = "came"  # a pod has come to a node
    STORAGE = "storage"  # something about volumes changed
    ZONES = "zones"  # a node reports something else of its inside
    KEPT = "kept"  # room is no longer kept for another
    SHARE = "share"  # a queue changed, or has or wants less than before
    RULES = "rules"  # a gang that runs has other rules: it may have to go for others now
    GROWN = "grown"  # a queue that has more than is its own has got more, or others want more beside it
    LOOSE = "loose"  # pods of queues came to where room was promised to them, or are no longer spared


NO_HURRY = frozenset({WakeupEvent.GROWN, WakeupEvent.LOOSE})
"""They happen all the time, and help few: whoever waits for them is tried a little later, one by one."""


@dataclass(slots=True)
class SchedulingEntry:
    """One gang's standing. Higher priority first, then who waits longer, then who was seen first."""

    ref: Ref
    lone: bool = False
    lane: str = ""  # gangs of one queue are in one; nobody waits behind those of others
    priority: int = 0
    since: float = 0.0
    seen: int = 0  # the number of its first pod that waits, as they came
    size: int = 1  # pods that wait
    place: EntryState = EntryState.INCOMPLETE
    due: float = NEVER
    tries: int = 0
    rest: float = -NEVER  # it is not woken before
    kind: EquivalenceClass | None = None  # whom it was parked with
    stamp: int = 0  # grows with every move: what was noted elsewhere of it before holds no more

    @property
    def rank(self) -> tuple[int, float, int, str, str]:
        return (-self.priority, self.since, self.seen, self.ref.namespace, self.ref.name)


Noted = tuple[tuple[int, float, int, str, str], int, Ref]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Parked entries that are alike: as long as the first of them does not fit, none does."""

    key: Hashable
    hints: frozenset[WakeupEvent]
    parked: list[Noted] = field(default_factory=list)  # a heap
    burst: int = 1  # how many are woken at once; more and more as long as they fit
    woken: float = -NEVER  # when it was woken last because it was due


class SchedulingQueue:
    """Everyone in line. No call looks at all of them, but for tidying up once in a while."""

    def __init__(self) -> None:
        self.entries: dict[Ref, SchedulingEntry] = {}
        self.telling: dict[Ref, None] = {}  # incomplete ones that have something to be told
        self.kinds: dict[Hashable, EquivalenceClass] = {}
        self.by_hint: dict[WakeupEvent, dict[EquivalenceClass, None]] = {hint: {} for hint in WakeupEvent}
        self._soon: dict[EquivalenceClass, None] = {}  # to be tried a little later
        self._ready: dict[str, list[Noted]] = {}  # by lane
        self._due: list[tuple[float, int, int, Ref]] = []
        self._count = 0

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, ref: Ref, *, lone: bool = False) -> SchedulingEntry:
        """Know a gang; what is known already keeps its place."""
        entry = self.entries.get(ref)
        if entry is None:
            entry = self.entries[ref] = SchedulingEntry(ref, lone)
        return entry

    def drop(self, ref: Ref) -> None:
        """Forget a gang. Whoever was parked with it is tried in its stead."""
        entry = self.entries.pop(ref, None)
        if entry is not None:
            self._leave(entry)

    def move(self, entry: SchedulingEntry, place: EntryState, due: float = NEVER) -> None:
        """Put a gang elsewhere; it is looked at again when it is due."""
        self._leave(entry)
        entry.place, entry.due = place, due
        if place is EntryState.READY:
            heapq.heappush(self._ready.setdefault(entry.lane, []), (entry.rank, entry.stamp, entry.ref))
            self._tidy_ready(entry.lane)
        elif due < NEVER:
            self._note_due(entry)
        if place is EntryState.RUNNING:
            entry.tries = 0

    def _leave(self, entry: SchedulingEntry) -> None:
        self.telling.pop(entry.ref, None)
        entry.stamp = self._count = self._count + 1
        if entry.place is EntryState.READY and entry.kind is not None:
            self._wake_kind(entry.kind, 1)
        if entry.kind is not None:
            self._soon.pop(entry.kind, None)
        entry.kind = None

    def postpone(self, entry: SchedulingEntry, due: float) -> None:
        """Let it stand where it is, and look at it at another time."""
        entry.due = due
        if due < NEVER:
            self._note_due(entry)

    def park(self, entry: SchedulingEntry, key: Hashable, hints: frozenset[WakeupEvent], due: float) -> None:
        """It was tried and does not fit: it waits for one of the hints, beside others that are alike.

        Those in whose stead it was tried would hear the same now: what may help it may help them.
        """
        kind, entry.kind = entry.kind, None  # it was tried: nobody has to be tried in its stead
        if kind is not None:
            kind.burst = 1
        self.move(entry, EntryState.PARKED, due)
        self._join(entry, (key, hints), hints)
        if kind is not None and kind.key != (key, hints) and self.kinds.get(kind.key) is kind:
            self._go_along(kind, key, hints)

    def _go_along(self, kind: EquivalenceClass, key: Hashable, hints: frozenset[WakeupEvent]) -> None:
        """Whoever is left of a kind waits for something else from now on, if it is alike still."""
        alike = isinstance(kind.key, tuple) and kind.key[0] == key
        for _, stamp, ref in list(kind.parked) if alike else ():
            other = self.entries.get(ref)
            if other is not None and other.stamp == stamp and other.place is EntryState.PARKED:
                self._join(other, (key, hints), hints)
        if alike:
            self._forget_kind(kind)

    def make_room(self, entry: SchedulingEntry, hints: frozenset[WakeupEvent], due: float) -> None:
        """Others are leaving for it; it is also woken by the hints."""
        kind, entry.kind = entry.kind, None
        self.move(entry, EntryState.MAKING_ROOM, due)
        self._join(entry, (entry.ref, hints), hints)
        self._follow(kind)

    def commit(self, entry: SchedulingEntry, due: float) -> None:
        """It got its nodes. More of its kind may fit as well."""
        kind, entry.kind = entry.kind, None
        self.move(entry, EntryState.COMMITTED, due)
        self._follow(kind)

    def back_off(self, entry: SchedulingEntry, now: float) -> None:
        """Try again later, each time twice as late; large gangs, which cost more, later than small ones."""
        entry.tries += 1
        most = min(BACKOFF_MAX + entry.size / 100, BACKOFF_LIMIT)
        delay = min(BACKOFF_FIRST * 2.0 ** min(entry.tries - 1, 10), most)
        self.move(entry, EntryState.BACKOFF, now + delay)

    def _follow(self, kind: EquivalenceClass | None) -> None:
        """One of a kind was helped: more of them may be."""
        if kind is not None:
            kind.burst = min(2 * kind.burst, PODS_MAX)
            self._wake_kind(kind, kind.burst)

    # ── waking ─────────────────────────────────────────────────────────────────────────────────────

    def wake(self, hints: Iterable[WakeupEvent], now: float) -> None:
        """Something happened: the first of each kind that it may help is tried."""
        happened = frozenset(hints)
        kinds = {kind: None for hint in happened - NO_HURRY for kind in self.by_hint[hint]}
        for kind in kinds:
            self._wake_kind(kind, kind.burst, now)
        later = {kind: None for hint in happened & NO_HURRY for kind in self.by_hint[hint]}
        for kind in sorted(later, key=lambda kind: kind.parked[:1]):
            self._wake_soon(kind, now)

    def wake_soon(self, entry: SchedulingEntry, now: float) -> None:
        """Something happened that may help this one: it is tried when it is its turn."""
        if entry.kind is not None and entry.place is EntryState.PARKED:
            self._wake_soon(entry.kind, now)

    def _wake_soon(self, kind: EquivalenceClass, now: float) -> None:
        """However often that happens, so many are tried a second; what happens meanwhile is no news then."""
        for hint in kind.hints & NO_HURRY:
            self.by_hint[hint].pop(kind, None)
        first = next((one for noted in kind.parked if (one := self._current(noted)) is not None), None)
        if first is not None and kind not in self._soon:
            due = now + SOON + len(self._soon) / PACE
            self._soon[kind] = None
            if due < first.due:
                self.postpone(first, due)

    def wake_due(self, entry: SchedulingEntry, now: float, again: float) -> None:
        """A parked one waited long enough without a hint: the first of its kind is tried, not all."""
        kind = entry.kind
        if kind is not None and now - kind.woken >= again / 2:
            kind.woken = now
            self._wake_kind(kind, kind.burst, now)
        if entry.place is EntryState.PARKED:
            self.postpone(entry, now + again)

    def _wake_kind(self, kind: EquivalenceClass, count: int, now: float | None = None) -> None:
        while kind.parked and count > 0:
            _, stamp, ref = heapq.heappop(kind.parked)
            entry = self.entries.get(ref)
            if entry is None or entry.stamp != stamp:
                continue
            count -= 1
            if entry.place is EntryState.MAKING_ROOM:  # what it waits for is under way: no hurry
                heapq.heappush(kind.parked, (entry.rank, stamp, ref))
                if now is not None and entry.due > now + 1.0:
                    self.postpone(entry, now + 1.0)
                return
            if now is not None and entry.rest > now:
                self.move(entry, EntryState.BACKOFF, entry.rest)
                continue
            self.move(entry, EntryState.READY)
            entry.kind = kind
        if not kind.parked:
            self._forget_kind(kind)

    def _join(self, entry: SchedulingEntry, key: Hashable, hints: frozenset[WakeupEvent]) -> None:
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = EquivalenceClass(key, hints)
        for hint in hints:
            self.by_hint[hint][kind] = None
        entry.kind = kind
        heapq.heappush(kind.parked, (entry.rank, entry.stamp, entry.ref))
        if len(kind.parked) > 2 * len(self.entries) + SPARE:
            kind.parked = [noted for noted in kind.parked if self._current(noted) is not None]
            heapq.heapify(kind.parked)

    def _forget_kind(self, kind: EquivalenceClass) -> None:
        if self.kinds.get(kind.key) is kind:
            del self.kinds[kind.key]
            self._soon.pop(kind, None)
            for hint in kind.hints:
                self.by_hint[hint].pop(kind, None)

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def heads(self) -> list[Ref]:
        """Who is to be tried now, best first; before them those that only have to be told something."""
        told = [ref for ref, _ in zip(self.telling, range(HEADS_MAX), strict=False)]
        taken = self._heads_of("", 1)
        first = [(self._ready[lane][0], lane) for lane in list(self._ready) if lane and self._tidy_lane(lane)]
        lanes = [lane for _, lane in sorted(first)[:HEADS_MAX]]
        for lane in lanes:
            taken += self._heads_of(lane, len(lanes))
        if lanes:
            taken.sort()
        return told + [ref for _, _, ref in taken]

    def _heads_of(self, lane: str, lanes: int) -> list[Noted]:
        """Those of one of so many lanes."""
        ready, taken = self._ready.get(lane, []), list[Noted]()
        gangs = pods = weight = 0
        while ready:
            entry = self._current(ready[0])
            if entry is None:
                heapq.heappop(ready)
                continue
            gangs, pods, weight = gangs + (not entry.lone), pods + entry.lone, weight + entry.size
            most = HEADS_MAX // lanes, PODS_MAX // lanes, WEIGHT_MAX // lanes
            if taken and (gangs > most[0] or pods > most[1] or weight > most[2]):
                break
            taken.append(heapq.heappop(ready))
        for noted in taken:
            heapq.heappush(ready, noted)
        return taken

    def _current(self, noted: Noted) -> SchedulingEntry | None:
        entry = self.entries.get(noted[2])
        return entry if entry is not None and entry.stamp == noted[1] else None

    def expired(self, now: float) -> Iterator[SchedulingEntry]:
        """Those whose time has come, each once."""
        while self._due and self._due[0][0] <= now:
            due, _, stamp, ref = heapq.heappop(self._due)
            entry = self.entries.get(ref)
            if entry is not None and entry.stamp == stamp and entry.due == due:
                entry.due = NEVER
                yield entry

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""
        if self.telling or any(self._tidy_lane(lane) for lane in list(self._ready)):
            return now
        while self._due:
            due, _, stamp, ref = self._due[0]
            entry = self.entries.get(ref)
            if entry is not None and entry.stamp == stamp and entry.due == due:
                return due
            heapq.heappop(self._due)
        return NEVER

    def renew(self, entry: SchedulingEntry) -> None:
        """Its rank has changed: it stands where it belongs now."""
        kind, entry.kind = entry.kind, None
        if entry.place is EntryState.READY:
            self.move(entry, EntryState.READY)
        entry.kind = kind

    # ── tidying ────────────────────────────────────────────────────────────────────────────────────

    def _note_due(self, entry: SchedulingEntry) -> None:
        self._count += 1
        heapq.heappush(self._due, (entry.due, self._count, entry.stamp, entry.ref))
        if len(self._due) > 2 * len(self.entries) + SPARE:
            self._due = [noted for noted in self._due if self._is_due(noted)]
            heapq.heapify(self._due)

    def _is_due(self, noted: tuple[float, int, int, Ref]) -> bool:
        entry = self.entries.get(noted[3])
        return entry is not None and entry.stamp == noted[2] and entry.due == noted[0]

    def _tidy_ready(self, lane: str) -> None:
        if len(self._ready[lane]) > 2 * len(self.entries) + SPARE:
            self._ready[lane] = [noted for noted in self._ready[lane] if self._current(noted) is not None]
            heapq.heapify(self._ready[lane])

    def _tidy_lane(self, lane: str) -> bool:
        """Whether somebody is in a lane; if so, the first one is really there."""
        ready = self._ready[lane]
        while ready and self._current(ready[0]) is None:
            heapq.heappop(ready)
        if not ready:
            del self._ready[lane]
        return bool(ready)
