"""Room that is kept for a gang which has waited long: on which nodes nobody else may begin any more."""

from __future__ import annotations

from collections.abc import Collection

from bayplan.placement.floor import Floor
from bayplan.placement.tree import Bools
from bayplan.placement.victims_fit import emptiest_first
from bayplan.scheduling.attempt import Asked, attempt
from bayplan.scheduling.displacing import Rooms
from bayplan.scheduling.displacing_trial import Trial


def nodes_to_keep(rooms: Rooms, asked: Asked, priority: int, before: Collection[str] = ()) -> tuple[str, ...]:
    """Nodes that hold the gang once all that is not more important has ended there; none if nothing helps.

    Those that are kept already, if they still do; else as few as possible of those that are emptiest now.
    """
    trial = Trial(rooms, asked, rooms.below(priority, asked.candidate, or_equal=True), None)
    now = rooms.floor.scene.ground.free.copy()  # perhaps it is that floor which is emptied
    with trial.emptied() as floor:
        if before and _rows(rooms, floor, asked, floor.only(before)):
            return tuple(sorted(before))
        found = _rows(rooms, floor, asked, None)
        if not found:
            return ()
        masks = emptiest_first(now, floor, [pod.wants.shape for pod in asked.waiting])
        low, high = 0, len(masks) - 1
        while low < high:
            middle = (low + high) // 2
            fitting = _rows(rooms, floor, asked, masks[middle])
            if fitting:
                high, found = middle, fitting
            else:
                low = middle + 1
    return tuple(sorted({rooms.floor.node(row) for row in found}))


def _rows(rooms: Rooms, floor: Floor, asked: Asked, within: Bools | None) -> set[int]:
    """Where the gang would be, if it has its minimum there."""
    mark = floor.mark()
    found = attempt(rooms.look, floor, asked, rooms.profile, within)
    floor.undo(mark)
    return set(found.seats.values()) if len(found.seats) >= asked.need else set()
