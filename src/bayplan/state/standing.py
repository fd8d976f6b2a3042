"""Where each gang stands in line, worked out from its facts when somebody asks."""

from __future__ import annotations

from collections.abc import Hashable

from bayplan.model.charter import Charter
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.standstill import Hindrance, Standstill
from bayplan.model.zone import ZoneCare
from bayplan.state.crew import Crew, hindrance, in_order, was_whole
from bayplan.state.facts import Facts
from bayplan.state.hints import ROOMY, hints_of
from bayplan.state.line import NEVER, NO_HURRY, Entry, Hint, Line, Place
from bayplan.state.zone_book import USUAL_CARE

ASSUMED_SECONDS = 30.0  # how long a decided pod may stay unseen before we decide again
FLUSH_SECONDS = 300.0  # who is parked is tried again after that, whatever happened
ROOM_SECONDS = 60.0  # how long others may take to leave before we look at it again
LARGE = 100  # a gang with so many pods is not tried again for every pod that ends
TELL_SECONDS = 1.0  # pods and charters that come together arrive within this time
TELL_AGAIN_SECONDS = 10.0  # numbers that change all the time are told that often


class Standing(Facts):
    """Changes only note whose standing they touch; the standing itself is worked out here, once for many."""

    def __init__(self, heal_seconds: float = 60.0, zone_care: ZoneCare = USUAL_CARE) -> None:
        self.heal_seconds = heal_seconds
        super().__init__(zone_care)

    def _begin(self) -> None:
        super()._begin()
        self.line = Line()
        self.kept: tuple[Ref, frozenset[str]] | None = None
        self.partial: dict[Ref, float] = {}  # gangs that stand in part, since when; the oldest first
        self.doubted: dict[PodKey, float] = {}  # pods of which nobody knows whether they go, until when
        self.heard: dict[Hint, int] = dict.fromkeys(Hint, 0)  # how often each thing that may help happened
        self._looked: list[Ref] = []
        self._settled = -NEVER  # when a write ended last
        self._now = 0.0

    # ── standing in line ───────────────────────────────────────────────────────────────────────────

    def _flush(self, now: float) -> None:
        """Put those whose facts changed where they belong, and wake whom that may help."""
        if not self._now:  # somebody asked before there was a clock
            self.partial = dict.fromkeys(self.partial, now)
        self._now = now
        touched, self.touched = list(self.touched.items()), {}
        begun = 0
        try:
            for ref, own in touched:
                begun += 1
                self._stand(ref, own, now)
        finally:  # should one of them fail, the others have their turn when this is called again
            for ref, own in touched[begun:]:
                self.touched[ref] = own or self.touched.get(ref, False)
        if self.fair.outgrown():
            self.hints.add(Hint.GROWN)
        if self.hints:
            hints, self.hints = self.hints, set()
            for hint in hints:
                self.heard[hint] += 1
            self.line.wake(hints, now)

    def _stand(self, ref: Ref, own: bool, now: float) -> None:
        crew = self.crews.get(ref)
        if crew is None:
            return
        over = not crew.waiting if crew.lone else crew.charter is None and not crew.parts
        if over and not crew.out:
            self._forget(crew)
            return
        entry = self.line.put(ref, lone=crew.lone)
        if crew.out:
            if entry.place is not Place.COMMITTED:  # they came from another gang while they were being bound
                self.line.commit(entry, now + ASSUMED_SECONDS)
            return
        committed = entry.place is Place.COMMITTED
        self._note_partial(crew, now)
        if not crew.waiting:
            self._release(ref)
            crew.told = crew.noted = None
            self.line.move(entry, Place.RUNNING if crew.standing else Place.INCOMPLETE)
            if crew.is_unrecorded:
                self.line.telling[ref] = None
            return
        why = hindrance(crew)
        if why is not None:
            self._hold_back(crew, entry, why, now)
        elif committed:
            self._after_binding(crew, entry, now)
        elif entry.place is Place.MAKING_ROOM and not own and crew.victims:
            self.line.postpone(entry, min(entry.due, now + 1.0))
        elif entry.place is Place.READY:
            if self._rank(crew, entry):
                self.line.renew(entry)
        elif entry.place is not Place.BACKOFF and (own or entry.place is not Place.PARKED):
            self._rank(crew, entry)
            self.line.move(entry, Place.READY)

    def _forget(self, crew: Crew) -> None:
        self._release(crew.ref)
        self.line.drop(crew.ref)
        self.partial.pop(crew.ref, None)
        del self.crews[crew.ref]

    def _hold_back(self, crew: Crew, entry: Entry, why: Standstill, now: float) -> None:
        """It is not to be tried; that is told once, when the facts have come to rest."""
        self._release(crew.ref)
        heard = why == crew.noted and crew.newest <= crew.noted_for  # by all of them
        if heard and not self._is_promised_room(crew):
            due = NEVER
        elif entry.place is Place.INCOMPLETE and (entry.due < NEVER or crew.ref in self.line.telling):
            return  # that it has to hear something is noted already
        else:
            due = max(now + TELL_SECONDS, crew.noted_at + TELL_AGAIN_SECONDS)
        self.line.move(entry, Place.INCOMPLETE, due)

    def _is_promised_room(self, crew: Crew) -> bool:
        """Whether others stay away from room that it was to have when it still could be tried."""
        return bool(self.nominations) and any(key in self.nominations for key in crew.waiting)

    def _after_binding(self, crew: Crew, entry: Entry, now: float) -> None:
        """All binds have come to an end, and pods still wait."""
        trouble, fresh, left = crew.trouble, crew.fresh, crew.left
        crew.trouble, crew.fresh, crew.left = None, False, None
        self._rank(crew, entry)
        if trouble is not None:
            self.line.back_off(entry, trouble)
        elif left is not None and not fresh and not (helped := self._helped(crew, left)) - NO_HURRY:
            self._put_off(crew, entry, left, now)
            if helped:
                self.line.wake_soon(entry, now)
        else:
            self.line.move(entry, Place.READY)

    def _helped(self, crew: Crew, left: Standstill) -> set[Hint]:
        """What happened while it was being bound that those left behind wait for."""
        making_room = left.hindrance is Hindrance.MAKING_ROOM
        hints = ROOMY if making_room else _hints_of(crew, left)
        return {hint for hint in hints if self.heard[hint] != crew.heard.get(hint)}

    def _rank(self, crew: Crew, entry: Entry) -> bool:
        """Its place among others. Whether that has changed."""
        before = entry.rank, entry.lane
        waiting, charter = self.waiting(crew.ref), crew.charter
        entry.size = len(waiting)
        entry.lane = charter.queue if charter is not None else ""
        if waiting and charter is not None:
            highest = max(pod.wants.priority for pod in waiting)
            entry.priority = highest if charter.priority is None else charter.priority
            entry.since = max(charter.created, min(pod.created for pod in waiting))
            entry.seen = min(crew.seen[pod.key] for pod in waiting)
        return (entry.rank, entry.lane) != before

    def _note_partial(self, crew: Crew, now: float) -> None:
        if crew.charter is not None and crew.charter.started and not crew.broken:
            crew.begun = True
        in_part = not crew.lone and (crew.is_partial or crew.has_fallen)
        in_part = in_part and any(key in self.placed for key in crew.standing)
        if in_part and (crew.broken or self._goes(crew)):
            self.partial.setdefault(crew.ref, now)
        else:
            self.partial.pop(crew.ref, None)
            crew.spent = False

    def _goes(self, crew: Crew) -> bool:
        """Whether a gang that stands in part is taken back in the end: it never was whole, or is strict.

        Of one that is about to end nobody is missed.
        """
        if crew.has_fallen:
            return not any(self.pods[key].did_its_part for key in crew.standing)
        return not was_whole(crew, self.pods)

    def _release(self, ref: Ref) -> None:
        """Room is no longer kept for this one."""
        if self.kept is not None and self.kept[0] == ref:
            self.kept = None
            self._hint(Hint.KEPT)

    def _expired(self, entry: Entry, now: float) -> None:
        crew = self.crews[entry.ref]
        match entry.place:
            case Place.INCOMPLETE:
                self.line.telling[entry.ref] = None
            case Place.PARKED:
                self.line.wake_due(entry, now, FLUSH_SECONDS)
            case Place.BACKOFF | Place.MAKING_ROOM:
                self.line.move(entry, Place.READY)
                self._touch(crew, own=True)
            case Place.COMMITTED:
                self._doubt(crew, entry, now)

    def _doubt(self, crew: Crew, entry: Entry, now: float) -> None:
        """Nobody heard of its binds for long: they did not happen.

        As long as others end, those that were not written yet may be behind them.
        """
        ends = {key: crew.unsure.get(key, self._settled) + ASSUMED_SECONDS for key in crew.out}
        for key, due in ends.items():
            if due <= now:
                self._take_back(crew, key)
        if crew.out:
            self.line.postpone(entry, min(ends[key] for key in crew.out))
        else:
            self._touch(crew, own=True)

    def _take_back(self, crew: Crew, key: PodKey) -> None:
        """A bind did not happen."""
        crew.out.pop(key, None)
        crew.broken = crew.broken or not crew.begun
        if self.assumed.pop(key, None) is not None:
            self._sync(self.pods[key])

    def _put_off(self, crew: Crew, entry: Entry, why: Standstill, now: float) -> None:
        """It was tried in vain: it waits for what may help."""
        if why.hindrance is Hindrance.MAKING_ROOM:
            self.line.make_room(entry, ROOMY, now + ROOM_SECONDS)
            return
        crew.victims.clear()
        for pod in self.waiting(crew.ref):
            self._unpromise(pod.key)
        entry.rest = now + (entry.size / 1000 if entry.size >= LARGE else 0.0)
        due = now + FLUSH_SECONDS if why.again is None else max(min(now + FLUSH_SECONDS, why.again), now)
        self.line.park(entry, self._kind(crew), _hints_of(crew, why), due)

    def _kind(self, crew: Crew) -> Hashable:
        """Lone pods that differ in nothing that matters are refused together.

        One that room is promised to, or kept for, is not like the others: what they may not have it may.
        """
        waiting = self.waiting(crew.ref)
        keeps = self.kept is not None and self.kept[0] == crew.ref
        if not crew.lone or not waiting or waiting[0].key in self.nominations or keeps:
            return crew.ref
        wants = waiting[0].wants
        return self.index.signature(wants.shape), wants.priority, wants.preempts

    def charter_of(self, ref: Ref) -> Charter | None:
        """The rules of a gang, or those that a lone pod would have."""
        found = self.crews.get(ref)
        return None if found is None else found.charter

    def waiting(self, ref: Ref) -> tuple[Pod, ...]:
        """Its pods that want a node and are not held back, in the order in which they are tried."""
        crew = self.crews.get(ref)
        if crew is None:
            return ()
        if crew.ordered is None:
            crew.ordered = in_order(self.pods[key] for key in crew.waiting if key not in crew.gated)
        return crew.ordered


def _hints_of(crew: Crew, why: Standstill) -> frozenset[Hint]:
    """What may help it; a gang of a queue is also helped by what its queue and others may have then."""
    hints = hints_of(why, crew.lone)
    return hints | {Hint.SHARE} if crew.charter is not None and crew.charter.queue else hints
