"""What may help a gang that was refused, read off the reason."""

from __future__ import annotations

from bayplan.model.filter_failure import Bar, Cause
from bayplan.model.scheduling_rejection import Hindrance, Hope, Sought, Standstill
from bayplan.state.scheduling.queue import Hint

_NODES_ALONE = frozenset({Cause.OUTSIDE, Cause.CORDONED, Cause.OTHER_NODE, Cause.TAINT, Cause.AFFINITY})
_BY_COMING = frozenset({Cause.SPREAD, Cause.NOT_NEAR})
_BY_STORAGE = frozenset(
    {Cause.ONE_POD, Cause.ATTACHED, Cause.VOLUME_ELSEWHERE, Cause.NO_VOLUME, Cause.NO_STORE_ROOM}
    | {Cause.VOLUME_GONE, Cause.VOLUME_ZONE}
)
_IN_VAIN = (Sought.NOBODY, Sought.NO_HELP)


def hints_of(why: Standstill, lone: bool) -> frozenset[Hint]:
    """The events after which a try may end differently. Rather one too many than one too few."""
    return _by_room(why, lone) | _by_going(why)


def _by_going(why: Standstill) -> frozenset[Hint]:
    """Events after which others may be made to go who could not before."""
    found = set[Hint]()
    if why.sought in _IN_VAIN or why.hindrance is Hindrance.KEPT_FREE or Hope.OTHERS in why.hopes:
        found.add(Hint.RULES)
    if Hope.OTHERS in why.hopes:
        found.add(Hint.LOOSE)
    if Hope.EXCESS in why.hopes:
        found.add(Hint.GROWN)
    return frozenset(found)


def _by_room(why: Standstill, lone: bool) -> frozenset[Hint]:
    """Events after which there may be a place, whoever is there."""
    if Hope.PLACE in why.hopes:
        return ROOMY | {Hint.KEPT, Hint.STORAGE, Hint.ZONES}
    if not why.hindrance.was_tried:
        return frozenset()
    found = {Hint.NODE, Hint.KEPT}  # whoever is refused may not have been let look at all nodes
    if why.unfit is None:
        return (
            frozenset(found | {Hint.ROOM, Hint.STORAGE, Hint.CAME, Hint.ZONES})
            if why.misfit is None
            else ROOMY | found | {Hint.ZONES}
        )
    causes = {cause for cause, _ in why.unfit.counts}
    if why.unfit.bar is not None:
        found = found if lone else found | {Hint.ROOM}
        return frozenset(found if why.unfit.bar is Bar.AFFINITY_CONFLICT else found | {Hint.STORAGE})
    if not lone or not causes or not causes <= _NODES_ALONE:  # others of a gang may lack something else
        found.add(Hint.ROOM)
    if Cause.UNALIGNED in causes or not lone:
        found.add(Hint.ZONES)
    if causes & _BY_COMING:
        found.add(Hint.CAME)
    if causes & _BY_STORAGE:
        found.add(Hint.STORAGE)
    return frozenset(found)


ROOMY = frozenset({Hint.NODE, Hint.ROOM})
