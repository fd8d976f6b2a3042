"""Who has to go so that a gang has its places: as few and as unimportant as possible, or nobody at all."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.standstill import Sought
from bayplan.placement.floor import Floor
from bayplan.placement.tree import Bools
from bayplan.scheduling.attempt import Asked, attempt, domains_for
from bayplan.scheduling.displacing_lone import Nodes
from bayplan.scheduling.displacing_trial import Trial
from bayplan.scheduling.importance import Budgets, Unit, units_of
from bayplan.state.look import Candidate, Look

DOMAINS_MAX = 16


@dataclass(frozen=True, slots=True)
class Room:
    """What came of it: who goes, and where the pods will be then."""

    sought: Sought
    victims: tuple[Unit, ...] = ()
    seats: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def pods(self) -> list[tuple[Pod, bool]]:
        """Everybody who goes, and whether it is with the whole gang."""
        return [(pod, unit.whole) for unit in self.victims for pod in unit.pods]


class Rooms:
    """Everybody who could go, during one decision. Whoever was chosen is gone for those who come later."""

    def __init__(self, look: Look, profile: Profile, floor: Floor) -> None:
        self.look, self.profile, self.floor = look, profile, floor
        self.budgets = Budgets(look.budgets)
        self.going = {key for key, pod in look.pods.items() if pod.leaving and pod.takes_room}
        for candidate in look.candidates:
            self.going |= candidate.making_room
        self.nodes = Nodes(floor, self.budgets, self.going)
        self.known: list[Unit] | None = None

    def find(
        self, asked: Asked, priority: int, within: Bools | None = None, beside: Sequence[int] = ()
    ) -> Room:
        """Look for those who could go; whoever is found counts as gone from now on."""
        if not self.profile.displace or not _may(asked):
            return Room(Sought.NEVER)
        waits = self._room_of_those_going(asked, within, beside)
        if waits is not None:
            return waits
        units = self.below(priority, asked.candidate)
        if not units:
            return Room(Sought.NOBODY)
        if asked.lone:
            found = self.nodes.room_for(asked.waiting[0], priority, units, within)
            room = Room(Sought.NO_HELP) if found is None else Room(Sought.FOUND, found[1], found[0])
        else:
            room = self._room_for_gang(asked, units, within, beside)
        self._send(room.victims)
        return room

    def below(self, priority: int, candidate: Candidate, *, or_equal: bool = False) -> list[Unit]:
        """Those less important than that, the most important first; never pods of the gang itself."""
        if self.known is None:
            everybody = (pod for key, pod in self.look.pods.items() if key not in self.going)
            self.known = units_of(everybody, self.look.charters)
        limit = -priority - 1 if or_equal else -priority
        start = bisect_right(self.known, limit, key=lambda unit: -unit.priority)
        gang = candidate.charter.source
        return [unit for unit in self.known[start:] if unit.pods[0].gang != gang]

    def still_promised(self, candidate: Candidate) -> dict[PodKey, int]:
        """Of the places promised to it, those that are good once everybody on the way out is gone."""
        floor = self.floor
        found: dict[PodKey, int] = {}
        with self._undone():
            floor.lift_many(self.going)
            for pod in candidate.waiting:
                row = floor.row(candidate.nominated.get(pod.key, ""))
                if row >= 0 and floor.judge(pod.wants.shape).fits[row]:
                    floor.seat(pod.key, pod.wants.shape, row)
                    found[pod.key] = row
        return found

    def _send(self, units: Sequence[Unit]) -> None:
        if not units:
            return
        gone = {unit.pods[0].key for unit in units}
        assert self.known is not None
        self.known = [unit for unit in self.known if unit.pods[0].key not in gone]
        self.going |= {key for unit in units for key in unit.keys}
        self.budgets.spend(pod for unit in units for pod in unit.pods)

    def _room_of_those_going(self, asked: Asked, within: Bools | None, beside: Sequence[int]) -> Room | None:
        """If those who leave anyway make room enough, it is only a matter of time."""
        if not any(key in self.floor.scene.index.pods for key in self.going):
            return None
        with self._undone():
            self.floor.lift_many(self.going)
            found = attempt(self.look, self.floor, asked, self.profile, within, beside)
        return Room(Sought.FOUND, (), found.seats) if len(found.seats) >= asked.need else None

    def _room_for_gang(
        self, asked: Asked, units: Sequence[Unit], within: Bools | None, beside: Sequence[int]
    ) -> Room:
        if asked.candidate.charter.locality.required is None or asked.candidate.charter.tree is not None:
            return self._room_within(asked, units, within)[0]
        best: tuple[tuple[object, ...], Room] | None = None
        with Trial(self, asked, units, within).emptied() as floor:
            areas, first = domains_for(floor, asked, self.profile, within, beside, DOMAINS_MAX)
        for area in areas:
            room, worth = self._room_within(asked, units, area.nodes, single=True)
            order = (*worth, area.value != first, area.value)
            if room.sought is Sought.FOUND and (best is None or order < best[0]):
                best = order, room
        return best[1] if best is not None else Room(Sought.NO_HELP)

    def _room_within(
        self, asked: Asked, units: Sequence[Unit], within: Bools | None, *, single: bool = False
    ) -> tuple[Room, tuple[object, ...]]:
        """The room, and what it costs: seats, broken budgets, the most important victim, how many."""
        breaking, others = self.budgets.split(units)
        trial = Trial(self, asked, [*breaking, *others], within, single=single)
        with trial:
            seats = trial.let_stay()
            go = trial.who_goes() if seats is not None else []
        if seats is None:
            return Room(Sought.NO_HELP), ()
        highest = max((unit.priority for unit in go), default=-(2**31))
        size = sum(len(unit.pods) for unit in go)
        return Room(Sought.FOUND, tuple(go), seats), (-len(seats), self.budgets.broken(go), highest, size)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        mark = self.floor.mark()
        try:
            yield
        finally:
            self.floor.undo(mark)


def _may(asked: Asked) -> bool:
    """Whether it may make others go: its charter says so, or all of its pods do."""
    said = asked.candidate.charter.preempts
    return said if said is not None else all(pod.wants.preempts for pod in asked.waiting)
