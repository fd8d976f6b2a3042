"""One decision: every gang and lone pod whose turn it is gets its nodes, makes room, or hears why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Begin, Bind, Displace, Nominate, Plan, Refuse
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.standstill import Hindrance, Sought, Standstill
from bayplan.model.watchdog import Watchdog
from bayplan.placement.floor import Floor
from bayplan.placement.tree import Bools
from bayplan.scheduling.attempt import Asked, Outcome, asked_of, attempt, is_lone, rest_of
from bayplan.scheduling.displacing import Room, Rooms
from bayplan.scheduling.fair_muster import FairTurns
from bayplan.scheduling.keeping import nodes_to_keep
from bayplan.scheduling.promises import Promises, priority_of
from bayplan.scheduling.refusing import standstill
from bayplan.state.look import Candidate, Look


def decide_gangs(look: Look, profile: Profile, now: float, watchdog: Watchdog | None = None) -> Plan:
    """Whoever comes first chooses first; each sees what those before it took, and what they were promised.

    Those whose turn has not come when the time is up are left for the next decision.
    """
    scene = look.scene
    if scene.zones is not None:
        scene = replace(scene, zones=replace(scene.zones, rules=profile.zones))
    with Floor(scene, watchdog) as floor:
        muster = Muster(look, profile, now, floor)
        turns = FairTurns(muster)
        for candidate in look.candidates:
            if floor.watchdog.is_over:
                break
            if turns.has(candidate):
                turns.next()
            else:
                floor.watchdog.turn(candidate.charter.source)
                muster.turn(candidate)
        turns.end()
        floor.watchdog.end_turn()
        return Plan(tuple(muster.actions), muster.left())


class Muster:
    """The decision so far: what was decided, and the floor as it is then."""

    def __init__(self, look: Look, profile: Profile, now: float, floor: Floor) -> None:
        self.look, self.profile, self.now, self.floor = look, profile, now, floor
        self.actions: list[Action] = []
        self.reached: set[Ref] = set()  # whose turn has come
        self.promises = Promises(floor, look)
        self.rooms = Rooms(look, profile, floor)
        self.refused: dict[object, Standstill] = {}  # lone pods without a place, by all that matters
        self.keeper: Ref | None = None
        self.kept_from: Bools | None = None
        self.kept_priority = 0
        if look.kept is not None:
            self.keeper = look.kept[0]
            self.kept_from = floor.all_but(look.kept[1])
            self.kept_priority = self._priority_of_keeper(self.keeper)

    def turn(self, candidate: Candidate) -> None:
        """Decide about one."""
        self.reached.add(candidate.charter.source)
        asked = asked_of(candidate)
        if candidate.hindrance is not None:
            self.take_back_promises(candidate, candidate.waiting)
            self.refuse(candidate, candidate.hindrance, candidate.waiting)
            return
        if candidate.stale:  # even if there is a place: it had time enough, and could not be bound
            self._take_back(candidate)
            return
        if not candidate.waiting:
            self._nobody_waits(candidate)
            return
        priority = priority_of(candidate)
        twin = _twin(candidate, priority)
        if twin is not None and twin in self.refused:
            self.refuse(candidate, replace(self.refused[twin], pod=candidate.waiting[0].key))
            return
        self.promises.drop(candidate.nominated)
        self.promises.hold(priority)
        within = self.allowed(candidate, priority)
        mark = self.floor.mark()
        found = attempt(self.look, self.floor, asked, self.profile, within)
        if len(found.seats) >= asked.need:
            self.bind(candidate, found)
            if found.left:
                rest = rest_of(asked, found.seats, self.floor)
                self._make_room(rest, found, within, tuple(found.seats.values()))
            return
        self.floor.undo(mark)
        self.floor.watchdog.so_far = partial(standstill, Hindrance.NO_ROOM, asked, found)
        if self.goes_on_making_room(asked, priority):
            return
        if within is not None and self.fits(asked):
            self.take_back_promises(candidate, candidate.waiting)
            self.refuse(candidate, standstill(Hindrance.KEPT_FREE, asked, found))
        else:
            self._make_room(asked, found, within, twin=twin)

    def left(self) -> tuple[Ref, ...]:
        """Those whose turn has not come, if time was up before."""
        if len(self.reached) == len(self.look.candidates):
            return ()
        refs = (candidate.charter.source for candidate in self.look.candidates)
        return tuple(ref for ref in refs if ref not in self.reached)

    # ── who has a place ────────────────────────────────────────────────────────────────────────────

    def bind(self, candidate: Candidate, found: Outcome) -> None:
        gang = candidate.charter.source
        hints = self._hints(candidate, found)
        for pod in candidate.waiting:
            row = found.seats.get(pod.key)
            if row is not None:
                self.actions.append(Bind(gang, pod, self.floor.node(row), hints.get(pod.key, ())))
        self._begin(candidate)

    def _hints(self, candidate: Candidate, found: Outcome) -> Mapping[PodKey, tuple[tuple[str, int], ...]]:
        """The zones that its pods are meant for, if they are to hear of it."""
        if self.floor.zones is None or not self.profile.zone_hints:
            return {}
        seats = [(pod.key, pod.wants.shape, found.seats.get(pod.key)) for pod in candidate.waiting]
        return self.floor.zones.meant([(key, shape, row) for key, shape, row in seats if row is not None])

    def _begin(self, candidate: Candidate) -> None:
        charter = candidate.charter
        if not charter.started and not is_lone(candidate):
            self.actions.append(Begin(charter.source, charter.uid))

    def _nobody_waits(self, candidate: Candidate) -> None:
        if len(candidate.standing) >= max(candidate.charter.minimum, 1):
            self._begin(candidate)

    # ── who makes room ─────────────────────────────────────────────────────────────────────────────

    def _make_room(
        self, asked: Asked, found: Outcome, within: Bools | None, beside: tuple[int, ...] = (),
        twin: object = None,
    ) -> None:  # fmt: skip
        """Look for others who could go; nobody goes unless the pods then have their places."""
        candidate = asked.candidate
        room = self.rooms.find(asked, priority_of(candidate), within, beside)
        if room.sought is not Sought.FOUND:
            room = self.rooms.of_its_own(asked, within) or room
        if room.sought is Sought.FOUND:
            self._nominate(asked, room, found)
            return
        why = replace(standstill(Hindrance.NO_ROOM, asked, found), sought=room.sought)
        if twin is not None and self.kept_from is None:
            self.refused[twin] = why
        self.take_back_promises(candidate, asked.waiting)
        self.refuse(candidate, why, asked.waiting, self.keeps(asked))

    def _nominate(self, asked: Asked, room: Room, found: Outcome) -> None:
        """Some are sent away; their room is promised to the pods that wait."""
        candidate = asked.candidate
        whole = not is_lone(candidate)
        for victim, together in room.pods:
            by = candidate.charter
            self.actions.append(Displace(victim, by.source, by.uid, whole=whole or together))
        self.promise(asked, room.seats, found, len(room.pods))

    def promise(self, asked: Asked, seats: Mapping[PodKey, int], found: Outcome, displaced: int) -> None:
        """Room is being made: these are the places that the pods will have."""
        candidate = asked.candidate
        gang, priority = candidate.charter.source, priority_of(candidate)
        for pod in asked.waiting:
            row = seats.get(pod.key)
            before = candidate.nominated.get(pod.key, "")
            node = "" if row is None else self.floor.node(row)
            if node != before:
                self.actions.append(Nominate(gang, pod, node))
            if node:
                self.promises.note(pod, node, priority)
        why = standstill(Hindrance.MAKING_ROOM, asked, found)
        fit = asked.standing + len(seats)
        displaced += len(candidate.making_room)
        why = replace(why, fit=fit, sought=Sought.FOUND, displaced=displaced)
        self.refuse(candidate, why, asked.waiting)

    def goes_on_making_room(self, asked: Asked, priority: int) -> bool:
        """Whether those who go for its sake still make all the room that was promised to it."""
        candidate = asked.candidate
        if not candidate.nominated or not candidate.making_room:
            return False
        rows = self.rooms.still_promised(candidate)
        promised = sum(pod.key in candidate.nominated for pod in candidate.waiting)
        if len(rows) < max(asked.need, promised):
            return False
        for pod in candidate.waiting:
            if pod.key in rows:
                self.promises.note(pod, candidate.nominated[pod.key], priority)
        why = Standstill(
            Hindrance.MAKING_ROOM,
            candidate.charter.minimum,
            asked.standing + len(asked.waiting),
            asked.standing + len(rows),
            sought=Sought.FOUND,
            displaced=len(candidate.making_room),
        )
        self.refuse(candidate, why, asked.waiting)
        return True

    def take_back_promises(self, candidate: Candidate, pods: Iterable[Pod]) -> None:
        """No room is being made for these any more: others may have it."""
        for pod in pods:
            if candidate.nominated.get(pod.key):
                self.actions.append(Nominate(candidate.charter.source, pod, ""))

    # ── who goes without ───────────────────────────────────────────────────────────────────────────

    def refuse(
        self, candidate: Candidate, why: Standstill, pods: tuple[Pod, ...] = (), keeps: tuple[str, ...] = ()
    ) -> None:
        charter = candidate.charter
        self.reached.add(charter.source)
        news = _is_news(why, candidate.refused)
        pods = pods or candidate.waiting
        self.actions.append(Refuse(charter.source, why, pods, news, charter.uid, keeps))

    def _take_back(self, candidate: Candidate) -> None:
        """It has stood in part for too long: what runs of it gives its room to others."""
        charter = candidate.charter
        for pod in candidate.standing:
            if pod.takes_room and not pod.leaving:
                self.actions.append(Displace(pod, charter.source, charter.uid, whole=True, undoes=True))
        self.refuse(candidate, standstill(Hindrance.TAKEN_BACK, asked_of(candidate), Outcome()))

    def keeps(self, asked: Asked) -> tuple[str, ...]:
        """The nodes whose room is kept from now on, if it is its turn to have some kept."""
        candidate, after = asked.candidate, self.profile.keep_after_seconds
        ref = candidate.charter.source
        if after <= 0 or self.now - candidate.since < after or self.keeper not in (None, ref):
            return ()
        self.keeper = ref
        before = self.look.kept[1] if self.look.kept is not None else frozenset()
        return nodes_to_keep(self.rooms, asked, priority_of(candidate), before)

    def allowed(self, candidate: Candidate, priority: int) -> Bools | None:
        """The nodes it may use: not those kept for one at least as important, unless promised to it."""
        if self.kept_from is None or self.look.kept is None or candidate.charter.source == self.look.kept[0]:
            return None
        if priority > self.kept_priority:
            return None
        rows = [row for node in set(candidate.nominated.values()) if (row := self.floor.row(node)) >= 0]
        if not rows:
            return self.kept_from
        allowed = self.kept_from.copy()
        allowed[rows] = True  # others had to go from there for its sake
        return allowed

    def _priority_of_keeper(self, keeper: Ref) -> int:
        for candidate in self.look.candidates:
            if candidate.charter.source == keeper:
                return priority_of(candidate)
        if self.look.kept_priority is not None:
            return self.look.kept_priority
        charter = self.look.charters.get(keeper)
        return charter.priority if charter is not None and charter.priority is not None else 2**31

    def fits(self, asked: Asked) -> bool:
        """Whether it would have its places if no room were kept."""
        mark = self.floor.mark()
        found = attempt(self.look, self.floor, asked, self.profile)
        self.floor.undo(mark)
        return len(found.seats) >= asked.need


def _twin(candidate: Candidate, priority: int) -> object:
    """What lone pods have in common of which one is refused if the other was, a moment before.

    Not for those that may be helped by pods that came since.
    """
    if not is_lone(candidate) or candidate.nominated:
        return None
    wants = candidate.waiting[0].wants
    if wants.shape.neighbours.near or any(spread.must for spread in wants.shape.spread):
        return None
    return wants.shape, priority, wants.preempts


def _is_news(why: Standstill, before: Standstill | None) -> bool:
    """Whether people should hear of it: another reason or number that fits, not other counts of nodes."""
    return before is None or _gist(why) != _gist(before)


def _gist(why: Standstill) -> tuple[object, ...]:
    unfit, misfit = why.unfit, why.misfit
    return (
        why.hindrance, why.minimum, why.there, why.fit, why.sought, why.about, why.unsure, why.pod,
        unfit and (frozenset(unfit.counts), unfit.bar, unfit.about),
        misfit and (misfit.code, misfit.level, misfit.fit, misfit.asked, misfit.layers),
        misfit and (misfit.is_too_large, misfit.lacked),
    )  # fmt: skip
