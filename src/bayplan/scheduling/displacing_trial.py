"""Trying who can stay: all who could go are gone, and come back as long as the gang keeps its seats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from bayplan.model.pod import PodKey
from bayplan.placement.floor import Floor
from bayplan.placement.tree import Bools
from bayplan.placement.victims_fit import Crowd, let_stay, minds_nobody
from bayplan.scheduling.attempt import Asked, Outcome, attempt, narrowed
from bayplan.scheduling.importance import Unit

if TYPE_CHECKING:
    from bayplan.scheduling.displacing import Rooms

TRIES_MAX = 400  # attempts to seat the gang again, each over all nodes
MANY = 256  # units; from there on fewer attempts are made
TRIES_OF_MANY = 24


class Trial:
    """Units in the order in which they are asked back. For pods that mind nobody only room is counted."""

    def __init__(
        self, rooms: Rooms, asked: Asked, units: Sequence[Unit], within: Bools | None, *,
        single: bool = False, tries_max: int | None = None,
    ) -> None:  # fmt: skip
        self.rooms, self.asked, self.units, self.within, self.single = rooms, asked, units, within, single
        self.floor = rooms.floor
        shapes = dict.fromkeys(pod.wants.shape for pod in asked.waiting)
        self.shape = next(iter(shapes)) if len(shapes) == 1 else None
        self.plain = all(minds_nobody(self.floor.scene, shape) for shape in shapes)
        self.crowd = Crowd(self.floor, [unit.pods for unit in units], rooms.gone)
        self.tries = 0
        self.tries_max = tries_max or (TRIES_MAX if len(units) <= MANY else TRIES_OF_MANY)
        self.mark = self.floor.mark()

    def __enter__(self) -> Trial:
        if not self.plain:
            self.floor.lift_many(self.rooms.gone.keys)
            self.floor.lift_many(pod.key for unit in self.units for pod in unit.pods)
        return self

    def __exit__(self, *_: object) -> None:
        self.floor.undo(self.mark)

    @contextmanager
    def emptied(self) -> Iterator[Floor]:
        """The floor without any of them."""
        with self, self._floor_if(0, 0) as floor:
            yield floor

    def let_stay(self) -> Mapping[PodKey, int] | None:
        """Let everybody stay who can; returns the seats, or None if there are too few in any case."""
        charter = self.asked.candidate.charter
        counted = self.plain and self.shape is not None and charter.tree is None
        if counted and (self.single or charter.locality.required is None):
            assert self.shape is not None
            if let_stay(self.crowd, self.shape, len(self.asked.waiting), self.within) < self.asked.need:
                return None
            return self._try(0, 0).seats
        first = self._try(0, 0).seats
        if len(first) < self.asked.need:
            return None
        self.asked = narrowed(self.asked, first)
        self._ask_back(len(first))
        return self._try(0, 0).seats

    def who_goes(self) -> list[Unit]:
        """Those who could not stay."""
        return [self.units[number] for number in self.crowd.leaving()]

    def near(self, nodes: Bools) -> list[Unit]:
        """The units that matter on these nodes: if only room counts, those that have pods there."""
        return [self.units[at] for at in self.crowd.on(nodes)] if self.plain else list(self.units)

    def _ask_back(self, seats: int) -> None:
        """Let as many in a row stay as can, pass over the one that cannot, and go on behind it."""
        at, size = 0, len(self.units)
        while at < size and self.tries < self.tries_max:
            low, high, step = at, size + 1, 1  # up to low they can stay, up to high they cannot
            while low < size and high > low + 1:
                middle = min(low + step, size) if high > size else (low + high) // 2
                if len(self._try(at, middle).seats) >= seats:
                    low, step = middle, 2 * step
                else:
                    high = middle
            self._stay(at, low)
            at = low + 1
        if at < size:
            self._ask_back_roughly(at, seats)

    def _ask_back_roughly(self, at: int, seats: int) -> None:
        """There are too many for that: the gang keeps its seats, and whoever is not in its way stays."""
        if self.plain:
            with self._floor_if(0, 0) as floor:
                self._seat(floor)
                self.crowd.stay_beside(floor, at)
            return
        near = [number for number in self.crowd.on_rows(self._try(0, 0).seats.values()) if number >= at]
        mark = self.floor.mark()
        before = self.crowd.stays.copy()
        for start, stop in pairwise((at - 1, *near, len(self.units))):
            self._stay(start + 1, stop)
        if len(self._try(0, 0).seats) < seats:  # it is not that simple: nobody more stays
            self.floor.undo(mark)
            self.crowd.stays = before

    def _try(self, start: int, stop: int) -> Outcome:
        """Seats if those units stay, too."""
        self.tries += 1
        with self._floor_if(start, stop) as floor:
            return self._seat(floor)

    def _seat(self, floor: Floor) -> Outcome:
        rooms = self.rooms
        return attempt(rooms.look, floor, self.asked, rooms.profile, self.within, single=self.single)

    @contextmanager
    def _floor_if(self, start: int, stop: int) -> Iterator[Floor]:
        if self.plain:
            with self.crowd.floor_if(start, stop) as floor:
                yield floor
            return
        mark = self.floor.mark()
        try:
            self.floor.put_back(pod.key for unit in self.units[start:stop] for pod in unit.pods)
            yield self.floor
        finally:
            self.floor.undo(mark)

    def _stay(self, start: int, stop: int) -> None:
        self.crowd.stay(start, stop)
        if not self.plain:
            self.floor.put_back(pod.key for unit in self.units[start:stop] for pod in unit.pods)
